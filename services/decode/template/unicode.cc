#include "services/decode/template/unicode.h"

#include <algorithm>
#include <iterator>

namespace tessera::decode::jinja {
namespace {

struct CaseRun {
  uint32_t first, last, step;
  int32_t distance;
};

struct CaseMany {
  uint32_t code;
  const char* text;
};

struct CodeRange {
  uint32_t first, last;
};

#include "services/decode/template/case_tables.inc"

// The last entry of a sorted table whose `first` is <= code, or null.
template <typename Range, size_t N>
const Range* RunBefore(const Range (&runs)[N], uint32_t code) {
  const Range* after =
      std::upper_bound(std::begin(runs), std::end(runs), code,
                       [](uint32_t value, const Range& run) { return value < run.first; });
  return after == std::begin(runs) ? nullptr : after - 1;
}

template <size_t N>
uint32_t MapOne(const CaseRun (&runs)[N], uint32_t code) {
  // Runs of step 2 interleave, so the one that holds `code` may lie one or two earlier.
  const CaseRun* run = RunBefore(runs, code);
  for (int back = 0; run != nullptr && back < 3; ++back) {
    if (code <= run->last && (code - run->first) % run->step == 0) return code + run->distance;
    run = run == std::begin(runs) ? nullptr : run - 1;
  }
  return code;
}

template <size_t N>
const char* MapMany(const CaseMany (&table)[N], uint32_t code) {
  const CaseMany* entry =
      std::lower_bound(std::begin(table), std::end(table), code,
                       [](const CaseMany& item, uint32_t value) { return item.code < value; });
  return entry != std::end(table) && entry->code == code ? entry->text : nullptr;
}

std::string Encoded(uint32_t code) {
  std::string out;
  AppendChar(code, &out);
  return out;
}

uint32_t SimpleUpper(uint32_t code) {
  if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 32 : code;
  return MapOne(kUpper, code);
}

}  // namespace

Char CharAt(absl::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xc2 ? 1
                        : lead < 0xe0 ? 2
                        : lead < 0xf0 ? 3
                        : lead < 0xf5 ? 4
                                      : 1;
  if (length == 1 || at + length > text.size()) return {lead, 1};
  uint32_t code = lead & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return {lead, 1};
    code = code << 6 | (byte(at + i) & 0x3f);
  }
  return {code, length};
}

size_t CountChars(absl::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += CharAt(text, at).bytes) ++count;
  return count;
}

void AppendChar(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  const uint32_t lead = more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0;
  out->push_back(static_cast<char>(lead | code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) {
    out->push_back(static_cast<char>(0x80 | (code >> (6 * i) & 0x3f)));
  }
}

bool IsSpace(uint32_t code) {
  return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
         code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
         code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool IsLineBreak(uint32_t code) {
  return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

bool IsPrintable(uint32_t code) {
  if (code < 0x80) return code >= 0x20 && code != 0x7f;
  const CodeRange* range = RunBefore(kUnprintable, code);
  return range == nullptr || code > range->last;
}

bool IsCased(uint32_t code) {
  return UpperOf(code) != Encoded(code) || LowerOf(code) != Encoded(code);
}

std::string UpperOf(uint32_t code) {
  const char* many = MapMany(kUpperMany, code);
  return many != nullptr ? many : Encoded(SimpleUpper(code));
}

std::string LowerOf(uint32_t code) {
  if (code < 0x80) return Encoded(code >= 'A' && code <= 'Z' ? code + 32 : code);
  const char* many = MapMany(kLowerMany, code);
  return many != nullptr ? many : Encoded(MapOne(kLower, code));
}

std::string TitleOf(uint32_t code) {
  if (const char* many = MapMany(kTitleMany, code); many != nullptr) return many;
  const uint32_t title = MapOne(kTitle, code);
  return Encoded(title != code ? title : SimpleUpper(code));
}

}  // namespace tessera::decode::jinja
