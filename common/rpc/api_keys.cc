#include "common/rpc/api_keys.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace tessera::rpc {
namespace {

constexpr size_t kMaxKeyFileBytes = 16 << 20;  // of the file
constexpr size_t kMaxTenant = 64;

bool IsTenant(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxTenant &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ||
                  c == '-';
         });
}

absl::Status Missing(absl::string_view why) {
  return base::Error(absl::StatusCode::kUnauthenticated, "KEY_MISSING",
                     absl::StrCat(why, ": send \"authorization: Bearer KEY\""));
}

absl::string_view View(const base::Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ApiKeys>> ApiKeys::Create(std::string path, base::Clock& clock) {
  auto keys = std::unique_ptr<ApiKeys>(new ApiKeys(std::move(path), clock));
  if (keys->on()) RETURN_IF_ERROR(keys->Read());
  return keys;
}

absl::StatusOr<ApiKeys::Entries> ApiKeys::Parse(absl::string_view text) {
  Entries entries;
  std::set<base::Sha256Digest> seen;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    const std::vector<absl::string_view> fields =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    const auto bad = [number](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", why));
    };
    if (fields.size() != 2) return bad("write TENANT sha256:HEX");
    if (!IsTenant(fields[0])) return bad("a tenant is 1 to 64 of A-Z a-z 0-9 _ . -");
    absl::string_view hex = fields[1];
    if (!absl::ConsumePrefix(&hex, "sha256:")) {
      return bad("the second field must be sha256: and the SHA-256 of the key in hex");
    }
    const absl::StatusOr<base::Sha256Digest> digest = base::DigestFromHex(hex);
    if (!digest.ok()) return bad(digest.status().message());
    if (!seen.insert(*digest).second) return bad("the key of an earlier line again");
    entries.push_back({std::string(fields[0]), *digest});
  }
  if (entries.empty()) return absl::InvalidArgumentError("holds no key: nobody could ask");
  return entries;
}

absl::Status ApiKeys::Read() const {
  const absl::StatusOr<std::string> text = base::ReadFile(path_, kMaxKeyFileBytes);
  absl::StatusOr<Entries> entries = text.ok() ? Parse(*text) : text.status();
  if (!entries.ok()) {
    return base::BadField(
        "api_keys_file", "BAD_OPTION",
        absl::StrCat("--api_keys_file ", path_, ": ", entries.status().message()));
  }
  auto fresh = std::make_shared<const Entries>(*std::move(entries));
  base::MutexLock lock(mutex_);
  entries_ = std::move(fresh);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ApiKeys::TenantOf(absl::string_view authorization) const {
  if (!on()) return std::string();
  constexpr absl::string_view kBearer = "bearer ";
  const absl::string_view value = absl::StripAsciiWhitespace(authorization);
  if (value.empty()) return Missing("this server asks for a key");
  if (!absl::StartsWithIgnoreCase(value, kBearer)) {
    return Missing("the authorization is no bearer key");
  }
  const base::Sha256Digest digest =
      base::Sha256Of(absl::StripLeadingAsciiWhitespace(value.substr(kBearer.size())));
  const std::shared_ptr<const Entries> entries = Current();
  const Entry* found = nullptr;
  for (const Entry& entry : *entries) {
    if (base::ConstantTimeEqual(View(entry.digest), View(digest))) found = &entry;
  }
  if (found != nullptr) return found->tenant;
  return base::Error(absl::StatusCode::kUnauthenticated, "KEY_UNKNOWN",
                     "the bearer key is not one of this server's");
}

absl::StatusOr<std::string> ApiKeys::TenantOf(const grpc::ServerContextBase& context) const {
  if (!on()) return std::string();
  const auto [first, last] = context.client_metadata().equal_range("authorization");
  if (first == last) return TenantOf(absl::string_view());
  if (std::next(first) != last) return Missing("there is more than one authorization");
  return TenantOf(absl::string_view(first->second.data(), first->second.size()));
}

std::shared_ptr<const ApiKeys::Entries> ApiKeys::Current() const {
  watch_.Look(clock_.Now(), [this] { return Read(); });
  base::MutexLock lock(mutex_);
  return entries_;
}

}  // namespace tessera::rpc
