#include "common/text/utf8.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::text {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

struct Lead {
  size_t length;        // 0: no character starts so
  uint8_t first, last;  // allowed range of the second byte
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) {
    return {3, static_cast<uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte < 0xF5) {
    return {4, static_cast<uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

}  // namespace

Utf8Scan ScanUtf8(absl::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const Lead lead = LeadOf(byte(0));
  if (lead.length == 0) return {Utf8Scan::kInvalid, 1, 0};
  if (lead.length == 1) return {Utf8Scan::kValid, 1, byte(0)};
  uint32_t code_point = byte(0) & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    if (at + i >= text.size()) return {Utf8Scan::kIncomplete, i, 0};
    const uint8_t first = i == 1 ? lead.first : 0x80;
    const uint8_t last = i == 1 ? lead.last : 0xBF;
    if (byte(i) < first || byte(i) > last) return {Utf8Scan::kInvalid, i, 0};
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  return {Utf8Scan::kValid, lead.length, code_point};
}

absl::Status ValidateUtf8(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word;
    if (at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const Utf8Scan scan = ScanUtf8(text, at);
    if (scan.kind != Utf8Scan::kValid) {
      return base::Error(absl::StatusCode::kInvalidArgument, "INVALID_UTF8",
                         absl::StrCat("the text is not valid UTF-8: first bad byte at offset ", at,
                                      " of ", text.size(), "; send UTF-8"));
    }
    at += scan.bytes;
  }
  return absl::OkStatus();
}

size_t PreviousChar(absl::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3F)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string Utf8Repair::Add(absl::string_view bytes) {
  held_.append(bytes.data(), bytes.size());
  std::string out;
  size_t at = 0;
  while (at < held_.size()) {
    const Utf8Scan scan = ScanUtf8(held_, at);
    if (scan.kind == Utf8Scan::kIncomplete) break;
    if (scan.kind == Utf8Scan::kValid) {
      out.append(held_, at, scan.bytes);
    } else {
      out += kReplacement;
    }
    at += scan.bytes;
  }
  held_.erase(0, at);
  return out;
}

std::string Utf8Repair::Flush() {
  std::string out = held_.empty() ? "" : kReplacement;
  held_.clear();
  return out;
}

}  // namespace tessera::text
