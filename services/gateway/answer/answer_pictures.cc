#include "services/gateway/answer/answer_pictures.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"

namespace tessera::gateway {
namespace {

// In the place of a picture that nobody could encode, to the model.
constexpr char kPictureLeftOut[] = "(a picture that could not be seen)";

// What vision says of a picture, with the picture's place in the request.
absl::Status AtPicture(const absl::Status& status, const std::string& field) {
  absl::Status placed = base::Annotate(status, field);
  return absl::IsInvalidArgument(placed) ? base::WithField(std::move(placed), field) : placed;
}

// Why rows cannot be had again in the midst of an answer. The client did nothing wrong, and whole
// new requests bring the bytes that are gone here.
absl::Status RowsLost(const absl::Status& status) {
  if (absl::IsCancelled(status) || absl::IsDeadlineExceeded(status)) return status;
  return base::WithRetry(
      base::Error(absl::StatusCode::kUnavailable, "ROWS_MISSING",
                  absl::StrCat("the answer was put aside for others, and by then the rows of its "
                               "picture were gone (",
                               std::string(status.message()), "); ask again")),
      absl::Seconds(1));
}

}  // namespace

void AnswerPictures::Begin(ParsedRequest& parsed) {
  parsed_ = &parsed;
  images_.resize(parsed.pictures.size());
  left_out_.assign(parsed.pictures.size(), false);
}

absl::Status AnswerPictures::Verdict(size_t index, const absl::Status& status) const {
  if (status.ok() || IsSpare(status)) return absl::OkStatus();
  return AtPicture(status, parsed_->picture_fields[index]);
}

absl::Status AnswerPictures::RowsVerdict(size_t index, const absl::Status& status,
                                         bool late) const {
  if (status.ok()) return status;
  return AtPicture(late ? RowsLost(status) : status, parsed_->picture_fields[index]);
}

bool AnswerPictures::IsSpare(const absl::Status& status) const {
  return parsed_->text_only_without_encoder && absl::IsUnavailable(status);
}

void AnswerPictures::Keep(size_t index, absl::StatusOr<ResolvedImage> image) {
  if (image.ok()) {
    images_[index] = *std::move(image);
    return;
  }
  left_out_[index] = true;
  losses_.push_back(absl::StrCat("picture ", index + 1,
                                 " was left out: ", std::string(image.status().message())));
}

void AnswerPictures::KeepRows(size_t index, std::shared_ptr<const void> rows) {
  images_[index].rows = std::move(rows);
}

std::shared_ptr<v1::DecodeStart> AnswerPictures::MakeStart(const std::string& quality_warning) {
  const bool again = parsed_->text_only_without_encoder;  // perhaps
  auto start = again ? std::make_shared<v1::DecodeStart>(parsed_->start)
                     : std::make_shared<v1::DecodeStart>(std::move(parsed_->start));
  asked_.clear();
  for (v1::DecodeMessage& message : *start->mutable_messages()) {
    for (v1::DecodePart& part : *message.mutable_parts()) {
      if (!part.has_image()) continue;
      const uint32_t picture = part.image();
      if (left_out_[picture]) {
        part.set_text(kPictureLeftOut);
        continue;
      }
      part.set_image(static_cast<uint32_t>(asked_.size()));
      asked_.push_back(picture);
      *start->add_images() = images_[picture].ref;
    }
  }
  WarnOfQuality(quality_warning, *start);
  return start;
}

void AnswerPictures::WarnOfQuality(const std::string& warning, v1::DecodeStart& start) const {
  std::vector<bool> warned(static_cast<size_t>(start.messages_size()), false);
  for (size_t i = 0; i < images_.size(); ++i) {
    const int turn = parsed_->picture_turns[i];
    if (left_out_[i]) continue;
    if (images_[i].ref.quality().verdict() != v1::QUALITY_VERDICT_WARN || warned[turn]) continue;
    warned[turn] = true;
    start.mutable_messages(turn)->add_parts()->set_text("\n" + warning);
  }
}

std::vector<uint32_t> AnswerPictures::Needed(const v1::NeedRows& need) const {
  std::vector<uint32_t> pictures;
  for (const uint32_t number : need.images()) {
    if (number < asked_.size()) pictures.push_back(asked_[number]);
  }
  return pictures;
}

uint32_t AnswerPictures::NumberOf(uint32_t index) const {
  const auto place = std::find(asked_.begin(), asked_.end(), index);
  CHECK(place != asked_.end());
  return static_cast<uint32_t>(place - asked_.begin());
}

int64_t AnswerPictures::rows() const {
  int64_t rows = 0;
  for (size_t i = 0; i < images_.size(); ++i) {
    if (!left_out_[i]) rows += images_[i].ref.rows();
  }
  return rows;
}

int64_t AnswerPictures::rows_made() const {
  int64_t rows = 0;
  for (const ResolvedImage& image : images_) {
    if (image.cache == v1::CACHE_TIER_COMPUTED) rows += image.ref.rows();
  }
  return rows;
}

bool AnswerPictures::computed() const {
  return std::any_of(images_.begin(), images_.end(), [](const ResolvedImage& image) {
    return image.cache == v1::CACHE_TIER_COMPUTED;
  });
}

v1::DecodeEnd AnswerPictures::InOrder(const v1::DecodeEnd& end) const {
  v1::DecodeEnd told = end;
  told.clear_images();
  for (size_t i = 0; i < images_.size(); ++i) told.add_images();
  for (int i = 0; i < end.images_size() && i < static_cast<int>(asked_.size()); ++i) {
    *told.mutable_images(static_cast<int>(asked_[static_cast<size_t>(i)])) = end.images(i);
  }
  return told;
}

std::vector<std::shared_ptr<const void>> AnswerPictures::TakeRows() {
  std::vector<std::shared_ptr<const void>> rows;
  for (ResolvedImage& image : images_) {
    if (image.rows) rows.push_back(std::move(image.rows));
  }
  return rows;
}

}  // namespace tessera::gateway
