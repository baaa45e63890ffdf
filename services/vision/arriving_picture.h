#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "services/vision/image/picture.h"
#include "services/vision/preprocess/geometry.h"

namespace tessera::vision {

// Rows from a header that passed the limits.
using RowPlanner = std::function<absl::StatusOr<ImagePlan>(const ImageHeader&)>;

// INVALID_ARGUMENT about a field of the offer.
absl::Status OfferError(absl::string_view field, absl::string_view reason,
                        absl::string_view message);

// What is said of a picture before its bytes.
struct OfferedPicture {
  base::Sha256Digest digest{};
  size_t bytes = 0;
  size_t held_bytes = 0;  // the last of `bytes`, which may come late
};

// A picture whose bytes come piece by piece, in their order: each is copied to its place and hashed
// as it comes, and the rows are planned as soon as the header is there. Pure; one thread at a time.
class ArrivingPicture {
 public:
  // `limits` and `planner` outlive it.
  ArrivingPicture(const OfferedPicture& offer, const ImageLimits& limits, const RowPlanner& planner)
      : offer_(offer), limits_(limits), planner_(planner) {}

  // The next bytes. Memory for the whole picture is taken with the first. INVALID_ARGUMENT, after
  // which nothing else may be asked: SIZE_MISMATCH (more than offered), DIGEST_MISMATCH (with the
  // last), the reasons of services/vision/image and those of the planner, each as early as the
  // bytes tell. The headers that are looked at in vain have, together, at most nine times the bytes
  // of the picture.
  absl::Status Append(absl::Span<const absl::string_view> pieces);

  size_t size() const { return bytes_.size(); }
  bool complete() const { return bytes_.size() == offer_.bytes; }
  // Known as soon as the header is, and always once complete.
  const std::optional<ImagePlan>& plan() const { return plan_; }
  // There is no plan, and only the held bytes are missing.
  bool needs_held_bytes() const { return !plan_ && !complete() && lacks_only_held_bytes(); }

  // REQUIRES: complete().
  std::string TakeBytes() { return std::move(bytes_); }
  const ImageHeader& header() const { return header_; }

 private:
  bool lacks_only_held_bytes() const { return offer_.bytes - bytes_.size() <= offer_.held_bytes; }
  absl::Status ReadHeaderSoFar();

  const OfferedPicture offer_;
  const ImageLimits& limits_;
  const RowPlanner& planner_;
  base::Sha256 sha_;
  std::string bytes_;
  size_t next_look_ = 0;  // at the header: from so many bytes on
  ImageHeader header_;
  std::optional<ImagePlan> plan_;
};

}  // namespace tessera::vision
