#include "services/gateway/pictures/image_source.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/gateway/pictures/image_handle.h"

namespace tessera::gateway {
namespace {

absl::Status TooLarge(size_t bytes, size_t max_bytes) {
  return base::WithFact(
      base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_TOO_LARGE",
                  absl::StrCat("the picture has ", bytes, " bytes; the limit is ", max_bytes)),
      "limit", "bytes");
}

absl::Status BadUrl(absl::string_view message) {
  return base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_URL", message);
}

absl::StatusOr<std::string> SourceBytes(v1::Image image, size_t max_bytes) {
  if (image.source_case() == v1::Image::kUri) return ParseDataUrl(image.uri(), max_bytes);
  std::string& data = *image.mutable_inline_data()->mutable_data();
  if (data.size() > max_bytes) return TooLarge(data.size(), max_bytes);
  return std::move(data);
}

}  // namespace

absl::StatusOr<std::string> ParseDataUrl(absl::string_view url, size_t max_bytes) {
  if (!absl::StartsWithIgnoreCase(url, "data:")) {
    return BadUrl("only data: URLs are accepted; send the picture's bytes");
  }
  url.remove_prefix(5);
  const size_t comma = url.find(',');
  if (comma == absl::string_view::npos) return BadUrl("a data: URL needs a comma before its data");
  absl::string_view type = url.substr(0, comma);
  const absl::string_view payload = url.substr(comma + 1);
  if (!absl::EndsWithIgnoreCase(type, ";base64")) return BadUrl("a data: URL must be base64");
  type.remove_suffix(7);
  if (!type.empty() && type[0] != ';' && !absl::StartsWithIgnoreCase(type, "image/")) {
    return BadUrl("the media type of the data: URL is no image");
  }
  size_t spaces = 0;
  for (const char c : payload) {
    const auto character = static_cast<unsigned char>(c);
    if (absl::ascii_isspace(character)) {
      ++spaces;
    } else if (!absl::ascii_isalnum(character) && c != '+' && c != '/' && c != '=') {
      return BadUrl("the data: URL holds a character that is not base64");
    }
  }
  const size_t whole = (payload.size() - spaces) / 4 * 3;
  if (whole > max_bytes + 3) return TooLarge(whole, max_bytes);
  std::string bytes;
  if (!absl::Base64Unescape(payload, &bytes)) return BadUrl("the data: URL is not valid base64");
  if (bytes.size() > max_bytes) return TooLarge(bytes.size(), max_bytes);
  if (spaces > 0) bytes.shrink_to_fit();  // room for what they would have been is not kept
  return bytes;
}

absl::StatusOr<Picture> ResolveSource(v1::Image image, absl::string_view field,
                                      absl::string_view tenant, const PictureOptions& options,
                                      absl::Time now) {
  Picture picture;
  picture.tenant = std::string(tenant);
  if (image.source_case() == v1::Image::SOURCE_NOT_SET) {
    return base::BadField(field, "IMAGE_MISSING",
                          absl::StrCat(field, " has no source: set inline_data, uri or handle"));
  }
  if (image.source_case() == v1::Image::kHandle) {
    ASSIGN_OR_RETURN(const ImageHandle handle,
                     VerifyHandle(image.handle(), tenant, options.handle_key, now));
    picture.digest = handle.digest;
    return picture;
  }
  absl::StatusOr<std::string> bytes = SourceBytes(std::move(image), options.max_image_bytes);
  if (!bytes.ok()) return base::WithField(base::Annotate(bytes.status(), field), field);
  if (bytes->empty()) {
    return base::BadField(field, "IMAGE_EMPTY", absl::StrCat(field, ": the picture has no bytes"));
  }
  picture.digest = base::Sha256Of(*bytes);
  picture.size = bytes->size();
  picture.bytes = std::make_shared<const absl::Cord>(*std::move(bytes));
  return picture;
}

}  // namespace tessera::gateway
