#include "services/gateway/pictures/image_handle.h"

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"

namespace tessera::gateway {
namespace {

constexpr size_t kDigestBytes = 32;
constexpr size_t kExpiryBytes = 8;
constexpr size_t kMacBytes = 32;

std::string Body(const ImageHandle& handle) {
  std::string body(reinterpret_cast<const char*>(handle.digest.data()), kDigestBytes);
  const uint64_t seconds = static_cast<uint64_t>(absl::ToUnixSeconds(handle.expiry));
  for (size_t i = 0; i < kExpiryBytes; ++i) body.push_back(static_cast<char>(seconds >> (8 * i)));
  return body;
}

std::string Mac(absl::string_view body, absl::string_view tenant, absl::string_view key) {
  const base::Sha256Digest mac =
      base::HmacSha256(key, absl::StrCat("tessera-handle-v1 ", tenant.size(), ":", tenant, body));
  return std::string(reinterpret_cast<const char*>(mac.data()), kMacBytes);
}

absl::Status NotFound(absl::string_view reason, absl::string_view message,
                      absl::string_view handle) {
  return base::WithResource(base::Error(absl::StatusCode::kNotFound, reason, message),
                            "image_handle", handle.substr(0, 128));
}

}  // namespace

absl::StatusOr<std::string> HandleKey(const std::string& file) {
  constexpr size_t kMaxBytes = 4096;
  if (file.empty()) return base::RandomBytes(32);
  absl::StatusOr<std::string> key = base::ReadFile(file, kMaxBytes);
  if (!key.ok()) return base::Annotate(key.status(), "--image_handle_key_file");
  return key;
}

std::string SignHandle(const ImageHandle& handle, absl::string_view tenant, absl::string_view key) {
  const std::string body = Body(handle);
  return absl::WebSafeBase64Escape(absl::StrCat(body, Mac(body, tenant, key)));
}

absl::StatusOr<ImageHandle> VerifyHandle(absl::string_view text, absl::string_view tenant,
                                         absl::string_view key, absl::Time now) {
  std::string bytes;
  if (text.size() > 256 || !absl::WebSafeBase64Unescape(text, &bytes) ||
      bytes.size() != kDigestBytes + kExpiryBytes + kMacBytes) {
    return NotFound("IMAGE_HANDLE_UNKNOWN",
                    "this is no image handle of this server: upload the picture again", text);
  }
  const absl::string_view all = bytes;
  const absl::string_view body = all.substr(0, kDigestBytes + kExpiryBytes);
  if (!base::ConstantTimeEqual(Mac(body, tenant, key), all.substr(body.size()))) {
    return NotFound("IMAGE_HANDLE_UNKNOWN",
                    "this is no image handle of this server: upload the picture again", text);
  }
  ImageHandle handle;
  std::memcpy(handle.digest.data(), body.data(), kDigestBytes);
  uint64_t seconds = 0;
  for (size_t i = 0; i < kExpiryBytes; ++i) {
    seconds |= uint64_t{static_cast<uint8_t>(body[kDigestBytes + i])} << (8 * i);
  }
  handle.expiry = absl::FromUnixSeconds(static_cast<int64_t>(seconds));
  if (handle.expiry <= now) {
    return NotFound("IMAGE_EXPIRED", "this image handle has expired: upload the picture again",
                    text);
  }
  return handle;
}

}  // namespace tessera::gateway
