#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "services/gateway/fleet/vision_client.h"
#include "services/gateway/pictures/known_images.h"

namespace tessera::gateway {

// What a request learns about one picture.
struct ResolvedImage {
  v1::ImageRef ref;
  v1::CacheTier cache = v1::CACHE_TIER_UNSPECIFIED;  // UNSPECIFIED: known, vision was not asked
  v1::StageSeconds stages;                           // of vision, for this request alone
  std::shared_ptr<const void> rows;                  // as EncodedImage.rows
  std::string replica, replica_reason;               // of vision, if it was asked
};

// What becomes of a picture. One call at a time, on any thread.
struct ResolveEvents {
  // As of EncodeEvents: not of a picture that is known, or that was uploaded. May be null.
  std::function<void(const v1::ImageRef& planned)> on_plan;
  // Exactly once, the last.
  std::function<void(absl::StatusOr<ResolvedImage> image)> on_done;
};

// Pictures to refs: from memory, else from the vision service. Any thread.
class ImageResolver {
 public:
  // `fingerprint`: of the vision service whose refs are valid, until vision is heard to have
  // another. All outlive the resolver.
  // `rows`: of every picture; 0 where they differ. `width`: columns that decode reads; 0 where
  // that is not known.
  ImageResolver(VisionClient& vision, KnownImages& known, base::Clock& clock,
                std::string fingerprint, uint32_t rows = 0, uint32_t width = 0)
      : vision_(vision),
        known_(known),
        rows_(rows),
        width_(width),
        fingerprint_(std::move(fingerprint)),
        timers_(clock) {}

  // A known ref, at once; for a picture that is being uploaded, what becomes of that; else asks
  // vision. Waiting for an upload ends with it, when it is cancelled (CANCELLED), and at the
  // request's deadline (DEADLINE_EXCEEDED). Where the upload fails other than by a refusal, and the
  // picture's bytes are here, vision is asked after all. Never null; the caller begins it, and says
  // when the rows are wanted.
  std::shared_ptr<EncodeCall> Resolve(const Picture& picture, const rpc::RequestContext& request,
                                      ResolveEvents events);

  // Asks vision though the ref is known: its record is gone. FAILED_PRECONDITION (WIDTH_MISMATCH)
  // where vision and decode serve different models. Never null; the caller begins it.
  std::shared_ptr<EncodeCall> Encode(const Picture& picture, const rpc::RequestContext& request,
                                     ResolveEvents events) {
    return Encode(picture, false, request, std::move(events));
  }

  // Rows that a picture will have: as vision planned it where it is known, else as many as the
  // largest so far; 0 before anything is known. For estimates.
  uint32_t ExpectedRows(const Picture& picture);

  using Done = std::function<void(absl::StatusOr<ResolvedImage>)>;
  // Encodes ahead of any question. Resolve of the same picture waits for it and gets no stages; a
  // refusal is remembered for the questions that come, in the place of what was known; where it
  // fails else, that stays. `unasked`, where given, learns what became of the picture if no
  // question waited for it.
  void EncodeAhead(const Picture& picture, const rpc::RequestContext& request,
                   Done unasked = nullptr);

 private:
  class Question;
  using Key = std::pair<std::string, base::Sha256Digest>;
  struct Ahead {
    std::vector<std::shared_ptr<Question>> waiters;
    Done unasked;
  };

  std::shared_ptr<EncodeCall> Encode(const Picture& picture, bool likely_new,
                                     const rpc::RequestContext& request, ResolveEvents events);
  // What is known of the picture, or nullopt: `question` waits for its upload, or (`anew`) vision
  // is to be asked.
  std::optional<absl::StatusOr<ResolvedImage>> Look(const std::shared_ptr<Question>& question,
                                                    bool& anew);
  // True: `question` waited for an upload, and does so no more: it is to be answered.
  bool StopWaiting(Question& question);
  absl::Status CheckWidth(const v1::ImageRef& ref) const;
  void Learn(const v1::ImageRef& ref);
  void FinishAhead(const Picture& picture, absl::StatusOr<ResolvedImage> result);

  VisionClient& vision_;
  KnownImages& known_;
  const uint32_t rows_, width_;
  base::Mutex mutex_;
  uint32_t most_rows_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string fingerprint_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Key, Ahead> ahead_ ABSL_GUARDED_BY(mutex_);
  base::Timers timers_;  // of who waits for an upload; last: what is due uses everything above
};

}  // namespace tessera::gateway
