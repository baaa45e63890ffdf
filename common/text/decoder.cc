#include "common/text/decoder.h"

#include <charconv>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/text/byte_level.h"
#include "common/text/json_fields.h"
#include "common/text/utf8.h"

namespace tessera::text {
namespace {

constexpr char kDecoders[] =
    "ByteLevel; Metaspace; Sequence of Replace (strings) or Metaspace, ByteFallback, Fuse, Strip "
    "(start), in this order";

// The order of steps within a Sequence. Replace may repeat.
enum Stage { kTokens = 0, kBytes = 1, kFuse = 2, kText = 3, kAlone = 4 };

bool ParseByteToken(absl::string_view token, char* byte) {
  if (token.size() != 6 || !absl::StartsWith(token, "<0x") || token[5] != '>') return false;
  uint8_t value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return false;
  *byte = static_cast<char>(value);
  return true;
}

// Drops up to `count` of `what` from the start.
absl::string_view StripStart(absl::string_view text, absl::string_view what, int count) {
  while (count-- > 0 && absl::StartsWith(text, what)) text.remove_prefix(what.size());
  return text;
}

}  // namespace

absl::StatusOr<Decoder> Decoder::Parse(const base::Json* json) {
  if (json == nullptr || json->is_null()) {
    return UnsupportedTokenizer("decoder", "none", kDecoders);
  }
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*json, "decoder"));
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  Decoder decoder;
  if (type != "Sequence") {
    RETURN_IF_ERROR(decoder.AddStep(*json, "decoder"));
  } else {
    ASSIGN_OR_RETURN(const base::Json* list, fields.Array("decoders"));
    for (size_t i = 0; i < list->size(); ++i) {
      RETURN_IF_ERROR(decoder.AddStep((*list)[i], absl::StrCat("decoder.decoders[", i, "]")));
    }
  }
  return decoder;
}

absl::Status Decoder::AddStep(const base::Json& json, absl::string_view path) {
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(json, path));
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  const auto refuse = [&] {
    return UnsupportedTokenizer(path, absl::StrCat("decoder type \"", type, "\" here"), kDecoders);
  };
  // Steps come in rising stages; only Replace may stand beside its like.
  int stage = kAlone;
  if (type == "Replace" || type == "Metaspace") stage = kTokens;
  if (type == "ByteFallback") stage = kBytes;
  if (type == "Fuse") stage = kFuse;
  if (type == "Strip") stage = kText;
  const bool beside = type == "Replace" && metaspace_.empty();
  if (stage < stage_ || (stage == kAlone && (type != "ByteLevel" || stage_ != 0))) return refuse();
  if (type == "Metaspace" && (!metaspace_.empty() || !replacements_.empty())) return refuse();
  if (type == "ByteLevel" && !replacements_.empty()) return refuse();
  if (type == "Replace" && !beside) return refuse();
  stage_ = stage == kTokens ? kTokens : stage + 1;
  if (type == "Replace") return AddReplace(fields);
  if (type == "Metaspace") return AddMetaspace(fields);
  if (type == "Strip") return AddStrip(fields);
  byte_level_ |= type == "ByteLevel";
  byte_fallback_ |= type == "ByteFallback";
  fused_ |= type == "Fuse";
  return absl::OkStatus();
}

absl::Status Decoder::AddReplace(const Fields& fields) {
  if (fields.Find("pattern") == nullptr)
    return BadTokenizer(fields.PathOf("pattern"), "is missing");
  ASSIGN_OR_RETURN(const Fields pattern,
                   Fields::Of(*fields.Find("pattern"), fields.PathOf("pattern")));
  if (pattern.Find("Regex") != nullptr) {
    return UnsupportedTokenizer(pattern.PathOf("Regex"), "a regex", "{\"String\": ..}");
  }
  ASSIGN_OR_RETURN(std::string from, pattern.String("String"));
  if (from.empty()) return BadTokenizer(pattern.PathOf("String"), "is empty");
  ASSIGN_OR_RETURN(std::string to, fields.String("content"));
  replacements_.emplace_back(std::move(from), std::move(to));
  return absl::OkStatus();
}

absl::Status Decoder::AddMetaspace(const Fields& fields) {
  ASSIGN_OR_RETURN(metaspace_, fields.String("replacement"));
  if (metaspace_.empty()) return BadTokenizer(fields.PathOf("replacement"), "is empty");
  ASSIGN_OR_RETURN(const bool add_prefix_space, fields.Bool("add_prefix_space", true));
  ASSIGN_OR_RETURN(const std::string scheme,
                   fields.String("prepend_scheme", add_prefix_space ? "always" : "never"));
  metaspace_drops_first_ = scheme != "never";
  return absl::OkStatus();
}

absl::Status Decoder::AddStrip(const Fields& fields) {
  if (!fused_) {
    return UnsupportedTokenizer(fields.path(), "Strip without Fuse before it", kDecoders);
  }
  ASSIGN_OR_RETURN(strip_char_, fields.String("content"));
  if (strip_char_.empty() || Utf8Length(strip_char_[0]) != strip_char_.size()) {
    return BadTokenizer(fields.PathOf("content"), "must be one character");
  }
  for (const char* key : {"start", "stop"}) {
    const base::Json* count = fields.Find(key);
    if (count == nullptr || !count->is_number_unsigned() || count->get<uint64_t>() > 1024) {
      return BadTokenizer(fields.PathOf(key), "must be an integer from 0 to 1024");
    }
  }
  strip_count_ = fields.Find("start")->get<int>();
  if (fields.Find("stop")->get<int>() != 0) {
    // Text that may be taken back at the end cannot be streamed.
    return UnsupportedTokenizer(fields.PathOf("stop"), fields.Find("stop")->dump(), "0");
  }
  return absl::OkStatus();
}

TokenBytes Decoder::BytesOf(absl::string_view token, bool first) const {
  TokenBytes out;
  if (byte_level_) {
    AppendTokenBytes(token, &out.bytes);
    return out;
  }
  out.bytes = std::string(token);
  for (const auto& [from, to] : replacements_) {
    out.bytes = absl::StrReplaceAll(out.bytes, {{from, to}});
  }
  if (!metaspace_.empty()) {
    const bool drop = first && metaspace_drops_first_;
    out.bytes = absl::StrReplaceAll(out.bytes, {{metaspace_, drop ? "" : " "}});
  }
  char byte = 0;
  if (byte_fallback_ && ParseByteToken(out.bytes, &byte)) {
    out.bytes.assign(1, byte);
    out.is_byte = true;
  }
  return out;
}

void BatchDecode::Add(absl::string_view token) {
  const TokenBytes piece = decoder_.BytesOf(token, first_);
  first_ = false;
  if (piece.is_byte) {
    run_ += piece.bytes;
    return;
  }
  EndRun();
  text_ += piece.bytes;
}

void BatchDecode::EndRun() {
  if (ValidateUtf8(run_).ok()) {
    text_ += run_;
  } else {
    for (size_t i = 0; i < run_.size(); ++i) text_ += "\xEF\xBF\xBD";
  }
  run_.clear();
}

std::string BatchDecode::Finish() {
  EndRun();
  Utf8Repair repair;
  std::string text = repair.Add(text_);
  text += repair.Flush();
  return std::string(StripStart(text, decoder_.strip_char(), decoder_.strip_count()));
}

}  // namespace tessera::text
