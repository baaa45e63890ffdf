#include "services/vision/arriving_picture.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/vision/image/image.h"

namespace tessera::vision {
namespace {

ImageHeader Turned(ImageHeader header) {
  std::swap(header.width, header.height);
  return header;
}

bool AreAlike(const absl::StatusOr<ImagePlan>& a, const absl::StatusOr<ImagePlan>& b) {
  if (!a.ok() || !b.ok()) return a.ok() == b.ok();
  return a->rows == b->rows && a->grid_height == b->grid_height && a->grid_width == b->grid_width;
}

}  // namespace

absl::Status OfferError(absl::string_view field, absl::string_view reason,
                        absl::string_view message) {
  return base::BadField(absl::StrCat("offer.", field), reason, message);
}

absl::Status ArrivingPicture::Append(absl::Span<const absl::string_view> pieces) {
  size_t more = 0;
  for (const absl::string_view piece : pieces) more += piece.size();
  if (more > offer_.bytes - bytes_.size()) {
    return OfferError("size_bytes", "SIZE_MISMATCH",
                      absl::StrCat("more bytes than the ", offer_.bytes, " offered"));
  }
  if (more == 0) return absl::OkStatus();
  const bool lacked_others = !lacks_only_held_bytes();
  bytes_.reserve(offer_.bytes);
  for (const absl::string_view piece : pieces) {
    sha_.Update(piece);
    bytes_.append(piece.data(), piece.size());
  }
  if (complete() && sha_.Finish() != offer_.digest) {
    return OfferError("digest", "DIGEST_MISMATCH",
                      "the bytes are not those whose SHA-256 was offered");
  }
  const bool last_chance = complete() || (lacked_others && lacks_only_held_bytes());
  if (!last_chance && bytes_.size() < next_look_) return absl::OkStatus();
  next_look_ = bytes_.size() + bytes_.size() / 8 + 1;
  return ReadHeaderSoFar();
}

absl::Status ArrivingPicture::ReadHeaderSoFar() {
  if (plan_ && (header_.orientation_known || !complete())) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<ImageHeader> header,
                   ReadHeaderOfPrefix(bytes_, offer_.bytes, limits_));
  if (!header) return absl::OkStatus();
  header_ = *header;
  const absl::StatusOr<ImagePlan> plan = planner_(header_);
  if (!header_.orientation_known && !AreAlike(plan, planner_(Turned(header_)))) {
    return absl::OkStatus();  // the bytes that tell are yet to come
  }
  RETURN_IF_ERROR(plan.status());
  plan_ = *plan;
  return absl::OkStatus();
}

}  // namespace tessera::vision
