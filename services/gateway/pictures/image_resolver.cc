#include "services/gateway/pictures/image_resolver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::gateway {
namespace {

ResolvedImage WithoutVision(v1::ImageRef ref) {
  ResolvedImage image;
  image.ref = std::move(ref);
  return image;
}

}  // namespace

std::shared_ptr<Call> ImageResolver::Resolve(const Picture& picture,
                                             const rpc::RequestContext& request, Done done) {
  std::optional<absl::StatusOr<v1::ImageRef>> known;
  {
    base::MutexLock lock(mutex_);
    const auto waiting = ahead_.find(Key(picture.tenant, picture.digest));
    if (waiting != ahead_.end()) {
      waiting->second.waiters.push_back({picture, request, std::move(done)});
      return nullptr;
    }
    // At the same moment: an upload that begins makes a refusal forgotten.
    known = known_.Find(picture.tenant, picture.digest, fingerprint_);
  }
  // A refusal is only remembered for handles: bytes that are here can be judged again.
  if (known && (known->ok() || !picture.bytes)) {
    if (!known->ok()) {
      done(known->status());
    } else {
      done(WithoutVision(**std::move(known)));
    }
    return nullptr;
  }
  return Encode(picture, request, std::move(done));
}

std::shared_ptr<Call> ImageResolver::Encode(const Picture& picture,
                                            const rpc::RequestContext& request, Done done) {
  return vision_.Encode(picture, request,
                        [this, tenant = picture.tenant, digest = picture.digest,
                         done = std::move(done)](absl::StatusOr<EncodedImage> encoded) {
                          const absl::Status status =
                              encoded.ok() ? CheckWidth(encoded->ready.ref()) : encoded.status();
                          if (!status.ok()) {
                            done(status);
                            return;
                          }
                          ResolvedImage image;
                          image.ref = encoded->ready.ref();
                          image.cache = encoded->ready.cache();
                          image.stages = encoded->ready.stages();
                          image.rows = std::move(encoded->rows);
                          image.replica = std::move(encoded->replica);
                          image.replica_reason = std::move(encoded->replica_reason);
                          Learn(image.ref);
                          known_.Remember(tenant, digest, image.ref);
                          done(std::move(image));
                        });
}

absl::Status ImageResolver::CheckWidth(const v1::ImageRef& ref) const {
  if (width_ == 0 || ref.width() == width_) return absl::OkStatus();
  return base::Error(
      absl::StatusCode::kFailedPrecondition, "WIDTH_MISMATCH",
      absl::StrCat("vision makes rows of ", ref.width(), " columns, decode reads rows of ", width_,
                   ": the two serve different models"));
}

void ImageResolver::Learn(const v1::ImageRef& ref) {
  base::MutexLock lock(mutex_);
  if (fingerprint_ != ref.vision_fingerprint()) fingerprint_ = ref.vision_fingerprint();
  most_rows_ = std::max(most_rows_, ref.rows());
}

uint32_t ImageResolver::ExpectedRows(const Picture& picture) {
  if (rows_ > 0) return rows_;
  std::string fingerprint;
  uint32_t most = 0;
  {
    base::MutexLock lock(mutex_);
    fingerprint = fingerprint_;
    most = most_rows_;
  }
  const auto known = known_.Find(picture.tenant, picture.digest, fingerprint);
  return known && known->ok() ? (*known)->rows() : most;
}

void ImageResolver::EncodeAhead(const Picture& picture, const rpc::RequestContext& request,
                                Done unasked) {
  {
    base::MutexLock lock(mutex_);
    const auto [ahead, begins] = ahead_.try_emplace(Key(picture.tenant, picture.digest));
    if (unasked) ahead->second.unasked = std::move(unasked);
    if (!begins) return;
  }
  known_.ForgetRefusal(picture.tenant, picture.digest);
  Picture name = picture;
  name.bytes = nullptr;  // the call keeps the bytes as long as it needs them
  Encode(picture, request, [this, name = std::move(name)](absl::StatusOr<ResolvedImage> result) {
    FinishAhead(name, std::move(result));
  });
}

void ImageResolver::FinishAhead(const Picture& picture, absl::StatusOr<ResolvedImage> result) {
  if (absl::IsInvalidArgument(result.status())) {
    known_.Remember(picture.tenant, picture.digest, result.status());
  }
  Ahead ahead;
  std::string fingerprint;
  {
    base::MutexLock lock(mutex_);
    fingerprint = fingerprint_;
    const auto found = ahead_.find(Key(picture.tenant, picture.digest));
    ahead = std::move(found->second);
    ahead_.erase(found);
  }
  if (ahead.waiters.empty()) {
    if (ahead.unasked) ahead.unasked(std::move(result));
    return;
  }
  // What was known before an upload that fails is known still; only a refusal took its place.
  if (result.ok()) {
    result->stages.Clear();  // spent for the upload, before they came
  } else {
    const auto known = known_.Find(picture.tenant, picture.digest, fingerprint);
    if (known && known->ok()) result = WithoutVision(**known);
  }
  const bool refused = absl::IsInvalidArgument(result.status());
  for (Waiter& waiter : ahead.waiters) {
    if (result.ok() || refused || !waiter.picture.bytes) {
      waiter.done(result);
    } else {
      Encode(waiter.picture, waiter.request, std::move(waiter.done));
    }
  }
}

}  // namespace tessera::gateway
