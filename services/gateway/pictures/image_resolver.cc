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

// Resolve of one picture. What is asked of the call from the side before vision is asked is kept
// for vision. Its events and Start come one after another.
class ImageResolver::Question final : public EncodeCall,
                                      public std::enable_shared_from_this<Question> {
 public:
  Question(ImageResolver& resolver, const Picture& picture, const rpc::RequestContext& request,
           ResolveEvents events)
      : resolver_(resolver), picture_(picture), request_(request), events_(std::move(events)) {}

  const Picture& picture() const { return picture_; }

  void Start() override {
    bool anew = false;
    if (auto known = resolver_.Look(shared_from_this(), anew)) return Answer(*std::move(known));
    if (anew) return AskVision();
    const base::Timers::Id expiry =
        resolver_.timers_.At(request_.deadline, [weak = weak_from_this()] {
          const std::shared_ptr<Question> late = weak.lock();
          if (late) late->StopWaiting(absl::DeadlineExceededError("an upload took too long"));
        });
    bool over = false, cancelled = false;
    {
      base::MutexLock lock(mutex_);
      expiry_ = expiry;
      over = over_;
      cancelled = cancelled_;
    }
    if (over) resolver_.timers_.Cancel(expiry);
    if (cancelled) StopWaiting(Cancelled());
  }
  void Proceed() override {
    std::shared_ptr<EncodeCall> call;
    {
      base::MutexLock lock(mutex_);
      wanted_ = true;
      call = call_;
    }
    if (call) call->Proceed();
  }
  void Cancel() override {
    std::shared_ptr<EncodeCall> call;
    {
      base::MutexLock lock(mutex_);
      cancelled_ = true;
      call = call_;
    }
    if (call) return call->Cancel();
    StopWaiting(Cancelled());
  }

  // What it waited for is over: nothing else answers it.
  void WaitNoMore() {
    base::Timers::Id expiry = 0;
    {
      base::MutexLock lock(mutex_);
      over_ = true;
      expiry = expiry_;
    }
    resolver_.timers_.Cancel(expiry);
  }
  void Answer(absl::StatusOr<ResolvedImage> image) {
    picture_.bytes = nullptr;
    std::exchange(events_, {}).on_done(std::move(image));
  }
  void AskVision() {
    const bool likely_new = picture_.bytes != nullptr;
    const auto call = resolver_.Encode(picture_, likely_new, request_, std::move(events_));
    bool wanted = false, cancelled = false;
    {
      base::MutexLock lock(mutex_);
      call_ = call;
      wanted = wanted_;
      cancelled = cancelled_;
    }
    picture_.bytes = nullptr;  // the call keeps them as long as it needs them
    if (wanted) call->Proceed();
    if (cancelled) call->Cancel();
    call->Start();
  }

 private:
  static absl::Status Cancelled() { return absl::CancelledError("the request was cancelled"); }
  void StopWaiting(const absl::Status& status) {
    if (!resolver_.StopWaiting(*this)) return;
    WaitNoMore();
    Answer(status);
  }

  ImageResolver& resolver_;
  Picture picture_;
  const rpc::RequestContext request_;
  ResolveEvents events_;
  base::Mutex mutex_;
  std::shared_ptr<EncodeCall> call_ ABSL_GUARDED_BY(mutex_);  // of vision; null: not asked
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;               // Proceed was called
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;            // what it waited for
  base::Timers::Id expiry_ ABSL_GUARDED_BY(mutex_) = 0;  // of waiting for an upload
};

std::shared_ptr<EncodeCall> ImageResolver::Resolve(const Picture& picture,
                                                   const rpc::RequestContext& request,
                                                   ResolveEvents events) {
  return std::make_shared<Question>(*this, picture, request, std::move(events));
}

std::optional<absl::StatusOr<ResolvedImage>> ImageResolver::Look(
    const std::shared_ptr<Question>& question, bool& anew) {
  const Picture& picture = question->picture();
  std::optional<absl::StatusOr<v1::ImageRef>> known;
  {
    base::MutexLock lock(mutex_);
    const auto waiting = ahead_.find(Key(picture.tenant, picture.digest));
    if (waiting != ahead_.end()) {
      waiting->second.waiters.push_back(question);
      return std::nullopt;
    }
    // At the same moment: an upload that begins makes a refusal forgotten.
    known = known_.Find(picture.tenant, picture.digest, fingerprint_);
  }
  // A refusal is only remembered for handles: bytes that are here can be judged again.
  if (known && known->ok()) return WithoutVision(**std::move(known));
  if (known && !picture.bytes) return known->status();
  anew = true;
  return std::nullopt;
}

bool ImageResolver::StopWaiting(Question& question) {
  base::MutexLock lock(mutex_);
  const auto upload = ahead_.find(Key(question.picture().tenant, question.picture().digest));
  if (upload == ahead_.end()) return false;
  std::vector<std::shared_ptr<Question>>& waiters = upload->second.waiters;
  const auto found = std::find_if(
      waiters.begin(), waiters.end(),
      [&](const std::shared_ptr<Question>& waiter) { return waiter.get() == &question; });
  if (found == waiters.end()) return false;
  waiters.erase(found);
  return true;
}

std::shared_ptr<EncodeCall> ImageResolver::Encode(const Picture& picture, bool likely_new,
                                                  const rpc::RequestContext& request,
                                                  ResolveEvents events) {
  return vision_.Encode(picture, likely_new, request,
                        {std::move(events.on_plan),
                         [this, tenant = picture.tenant, digest = picture.digest,
                          done = std::move(events.on_done)](absl::StatusOr<EncodedImage> encoded) {
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
                         }});
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
  bool likely_new = false;
  {
    base::MutexLock lock(mutex_);
    const auto [ahead, begins] = ahead_.try_emplace(Key(picture.tenant, picture.digest));
    if (unasked) ahead->second.unasked = std::move(unasked);
    if (!begins) return;
    const auto known = known_.Find(picture.tenant, picture.digest, fingerprint_);
    likely_new = !known || !known->ok();
  }
  known_.ForgetRefusal(picture.tenant, picture.digest);
  Picture name = picture;
  name.bytes = nullptr;  // the call keeps the bytes as long as it needs them
  const std::shared_ptr<EncodeCall> call =
      Encode(picture, likely_new, request,
             {nullptr, [this, name = std::move(name)](absl::StatusOr<ResolvedImage> result) {
                FinishAhead(name, std::move(result));
              }});
  call->Proceed();
  call->Start();
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
  for (const std::shared_ptr<Question>& waiter : ahead.waiters) {
    waiter->WaitNoMore();
    if (result.ok() || refused || !waiter->picture().bytes) {
      waiter->Answer(result);
    } else {
      waiter->AskVision();
    }
  }
}

}  // namespace tessera::gateway
