#include "common/weights/safetensors.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace tessera::weights {
namespace {

using base::Json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxRank = 32;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return base::Error(absl::StatusCode::kInvalidArgument, "WEIGHTS_INVALID", absl::StrCat(parts...));
}

// What people pass by accident instead of a safetensors file.
absl::string_view WhatElseItMayBe(absl::string_view file) {
  if (absl::StartsWith(file, "version https://git-lfs")) {
    return "; this is a Git LFS pointer: the real file was not fetched (git lfs pull)";
  }
  if (absl::StartsWith(file, "PK\x03\x04") || absl::StartsWith(file, "\x80\x02")) {
    return "; this looks like a PyTorch checkpoint: convert it to safetensors";
  }
  if (absl::StartsWith(file, "GGUF")) return "; this is a GGUF file: safetensors are needed";
  return "";
}

// The header's JSON text.
absl::StatusOr<absl::string_view> HeaderText(absl::string_view file) {
  if (file.size() < kLengthBytes) {
    return Bad("a file of ", file.size(), " bytes is too short for the header length at offset 0");
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
  }
  if (length > file.size() - kLengthBytes) {
    return Bad("the header length at offset 0 is ", length, ", but the file has ", file.size(),
               " bytes", WhatElseItMayBe(file));
  }
  if (length > kMaxHeaderBytes) {
    return Bad("the header length at offset 0 is ", length, "; the limit is ", kMaxHeaderBytes);
  }
  const absl::string_view text = file.substr(kLengthBytes, length);
  if (!absl::StartsWith(text, "{")) {
    return Bad("the header at offset ", kLengthBytes, " does not begin with {",
               WhatElseItMayBe(file));
  }
  return text;
}

absl::StatusOr<Json> ParseHeader(absl::string_view text) {
  absl::StatusOr<Json> header = base::ParseJson(text, {.max_bytes = kMaxHeaderBytes});
  if (header.ok()) return header;
  return base::WithReason(
      base::Annotate(header.status(), absl::StrCat("header at offset ", kLengthBytes)),
      "WEIGHTS_INVALID");
}

std::optional<DType> DTypeNamed(absl::string_view name) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kU8, DType::kI32,
                      DType::kI64, DType::kF64, DType::kI16, DType::kU16, DType::kU32, DType::kU64,
                      DType::kBool, DType::kF8E4M3, DType::kF8E5M2}) {
    if (Name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

// A non-negative integer literal of at most 64 bits; 16.0, 1e3, -1 and "7" are none.
std::optional<uint64_t> Natural(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

absl::StatusOr<DType> ReadDType(const std::string& who, const Json& entry) {
  const auto it = entry.find("dtype");
  if (it == entry.end()) return Bad(who, ": dtype is missing");
  if (!it->is_string()) return Bad(who, ": dtype is no string");
  const auto& name = it->get_ref<const std::string&>();
  const std::optional<DType> dtype = DTypeNamed(name);
  if (!dtype) return Bad(who, ": unknown dtype ", Quoted(name));
  return *dtype;
}

absl::StatusOr<Shape> ReadShape(const std::string& who, const Json& entry) {
  const auto it = entry.find("shape");
  if (it == entry.end()) return Bad(who, ": shape is missing");
  if (!it->is_array()) return Bad(who, ": shape is no list");
  if (it->size() > kMaxRank) return Bad(who, ": more than ", kMaxRank, " dimensions");
  Shape shape;
  for (const Json& extent : *it) {
    const std::optional<uint64_t> value = Natural(extent);
    if (!value || *value > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return Bad(who, ": a dimension is no integer from 0 to 2^63-1");
    }
    shape.push_back(static_cast<int64_t>(*value));
  }
  return shape;
}

// Bytes of a dense tensor. Every partial product must fit an int64_t (a 0 does not excuse the
// rest).
absl::StatusOr<uint64_t> DenseBytes(const std::string& who, DType dtype, const Shape& shape) {
  int64_t bytes = static_cast<int64_t>(SizeOf(dtype));
  bool overflow = false;
  for (int64_t extent : shape) overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
  if (!overflow) return static_cast<uint64_t>(bytes);
  return Bad(who, ": the size of shape ", ShapeText(shape), " overflows 64 bits");
}

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
};

absl::StatusOr<Range> ReadRange(const std::string& who, const Json& entry) {
  const auto it = entry.find("data_offsets");
  if (it == entry.end()) return Bad(who, ": data_offsets is missing");
  if (!it->is_array() || it->size() != 2) return Bad(who, ": data_offsets is no list of two");
  const std::optional<uint64_t> begin = Natural((*it)[0]);
  const std::optional<uint64_t> end = Natural((*it)[1]);
  if (!begin || !end) return Bad(who, ": data_offsets must be two integers from 0 to 2^64-1");
  if (*begin > *end) return Bad(who, ": data_offsets end at ", *end, ", before ", *begin);
  return Range{*begin, *end};
}

struct Entry {
  NamedTensor tensor;
  Range range;
};

absl::StatusOr<Entry> ReadEntry(const std::string& name, const Json& json) {
  const std::string who = absl::StrCat("tensor ", Quoted(name));
  if (!json.is_object()) return Bad(who, ": its entry is no object");
  Entry entry;
  entry.tensor.name = name;
  ASSIGN_OR_RETURN(entry.tensor.view.dtype, ReadDType(who, json));
  ASSIGN_OR_RETURN(entry.tensor.view.shape, ReadShape(who, json));
  ASSIGN_OR_RETURN(entry.range, ReadRange(who, json));
  ASSIGN_OR_RETURN(const uint64_t bytes,
                   DenseBytes(who, entry.tensor.view.dtype, entry.tensor.view.shape));
  if (bytes != entry.range.end - entry.range.begin) {
    return Bad(who, ": ", Name(entry.tensor.view.dtype), ShapeText(entry.tensor.view.shape),
               " needs ", bytes, " bytes, data_offsets give ", entry.range.end - entry.range.begin);
  }
  return entry;
}

absl::Status CheckMetadata(const Json& metadata) {
  if (!metadata.is_object()) return Bad("__metadata__ is no object");
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) return Bad("__metadata__: ", Quoted(key), " is no string");
  }
  return absl::OkStatus();
}

// The ranges, sorted, must cover the data part exactly.
absl::Status CheckCoverage(const std::vector<Entry>& entries, uint64_t data_bytes) {
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.range.begin != at) {
      return Bad("tensor ", Quoted(entry.tensor.name), ": begins at data offset ",
                 entry.range.begin, entry.range.begin < at ? ", overlapping" : ", leaving a gap",
                 "; the tensor before it ends at ", at);
    }
    at = entry.range.end;
    if (at > data_bytes) {
      return Bad("tensor ", Quoted(entry.tensor.name), ": ends at data offset ", at,
                 ", but the data has ", data_bytes, " bytes; the file may be cut");
    }
  }
  if (at == data_bytes) return absl::OkStatus();
  return Bad(data_bytes - at, " bytes at data offset ", at, " belong to no tensor");
}

}  // namespace

std::string Quoted(absl::string_view name) {
  constexpr size_t kMaxBytes = 200;
  if (name.size() <= kMaxBytes) return absl::StrCat("\"", absl::Utf8SafeCHexEscape(name), "\"");
  size_t cut = kMaxBytes;  // not inside a character
  while (cut > 0 && (static_cast<unsigned char>(name[cut]) & 0xc0) == 0x80) --cut;
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(name.substr(0, cut)), "...\"");
}

absl::StatusOr<std::map<std::string, std::string>> ParseMetadata(absl::string_view file) {
  ASSIGN_OR_RETURN(const absl::string_view text, HeaderText(file));
  ASSIGN_OR_RETURN(const Json header, ParseHeader(text));
  std::map<std::string, std::string> metadata;
  const auto found = header.find("__metadata__");
  if (found == header.end()) return metadata;
  RETURN_IF_ERROR(CheckMetadata(*found));
  for (const auto& [key, value] : found->items()) metadata[key] = value.get<std::string>();
  return metadata;
}

absl::StatusOr<std::vector<NamedTensor>> ParseSafetensors(absl::string_view file) {
  ASSIGN_OR_RETURN(const absl::string_view text, HeaderText(file));
  ASSIGN_OR_RETURN(const Json header, ParseHeader(text));
  std::vector<Entry> entries;
  entries.reserve(header.size());
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      RETURN_IF_ERROR(CheckMetadata(json));
      continue;
    }
    ASSIGN_OR_RETURN(Entry entry, ReadEntry(name, json));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.range.begin, a.range.end) < std::pair(b.range.begin, b.range.end);
  });
  const absl::string_view data = file.substr(kLengthBytes + text.size());
  RETURN_IF_ERROR(CheckCoverage(entries, data.size()));
  std::vector<NamedTensor> tensors;
  tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.tensor.view.data = reinterpret_cast<const std::byte*>(data.data() + entry.range.begin);
    tensors.push_back(std::move(entry.tensor));
  }
  return tensors;
}

}  // namespace tessera::weights
