#include "services/gateway/api/upload.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/gateway/answer/parse_request.h"
#include "services/gateway/pictures/image_handle.h"

namespace tessera::gateway {
namespace {

struct HeldBytes {
  absl::Cord bytes;
  ByteBudget::Hold hold;
};

}  // namespace

absl::Status Upload::Add(v1::UploadImageRequest message) {
  if (!std::exchange(begun_, true)) {
    RETURN_IF_ERROR(CheckSession(message.session()));
    session_ = message.session();
  }
  std::string& data = *message.mutable_data();
  if (data.empty()) return absl::OkStatus();
  if (bytes_.size() + data.size() > options_.max_image_bytes) {
    return base::BadField("data", "IMAGE_TOO_LARGE",
                          absl::StrCat("the picture has more than ", options_.max_image_bytes,
                                       " bytes, which is the limit"));
  }
  RETURN_IF_ERROR(hold_.Grow(bytes_.size() + data.size()));
  bytes_.Append(std::move(data));
  return absl::OkStatus();
}

absl::StatusOr<v1::UploadImageResponse> Upload::Finish(const rpc::RequestContext& request,
                                                       ImageResolver& resolver,
                                                       const std::shared_ptr<AheadPrefill>& ahead,
                                                       const base::Clock& clock) {
  if (bytes_.empty()) {
    return base::BadField("data", "IMAGE_EMPTY", "the upload ended without a byte");
  }
  Picture picture;
  picture.tenant = tenant_;
  const auto held = std::make_shared<HeldBytes>(HeldBytes{std::move(bytes_), std::move(hold_)});
  base::Sha256 hash;
  for (const absl::string_view piece : held->bytes.Chunks()) hash.Update(piece);
  picture.digest = hash.Finish();
  picture.size = held->bytes.size();
  picture.bytes = std::shared_ptr<const absl::Cord>(held, &held->bytes);
  ImageHandle handle;
  handle.digest = picture.digest;
  handle.expiry =
      absl::FromUnixSeconds(absl::ToUnixSeconds(clock.WallTime() + options_.handle_ttl));
  v1::UploadImageResponse response;
  response.set_handle(SignHandle(handle, tenant_, options_.handle_key));
  response.set_expires_seconds(static_cast<uint32_t>(absl::ToInt64Seconds(options_.handle_ttl)));
  response.set_sha256(base::ToHex(picture.digest));
  rpc::RequestContext work = request;
  work.deadline =
      clock.Now() + options_.deadline_cap;  // nobody waits for it: the upload's says nothing
  ImageResolver::Done unasked;
  if (options_.ahead_prefill && !session_.empty()) {
    unasked = [ahead, tenant = tenant_, affinity = AffinityOf(tenant_, session_),
               work](const absl::StatusOr<ResolvedImage>& image) {
      if (image.ok()) ahead->Start(tenant, affinity, *image, work);
    };
  }
  resolver.EncodeAhead(picture, work, std::move(unasked));
  return response;
}

}  // namespace tessera::gateway
