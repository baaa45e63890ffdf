#include "common/text/normalizer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"
#include "common/text/split.h"
#include "common/text/unicode.h"
#include "common/text/utf8.h"

namespace tessera::text {
namespace {

constexpr size_t kMaxReplaced = size_t{256} << 20;  // bytes
constexpr char kNormalizers[] = "Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip";

MarkedText CopyOf(const MarkedView& text) {
  MarkedText out(!text.marks.empty());
  out.Append(text);
  return out;
}

class NormalizerChain final : public Normalizer {
 public:
  explicit NormalizerChain(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}
  absl::StatusOr<MarkedText> Normalize(const MarkedView& text) const override {
    MarkedText out = CopyOf(text);
    for (const auto& step : steps_) {
      ASSIGN_OR_RETURN(out, step->Normalize(out.View(text.first)));
    }
    return out;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class Form final : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  absl::StatusOr<MarkedText> Normalize(const MarkedView& text) const override {
    MarkedText out(!text.marks.empty());
    out.Reserve(text.text.size());
    for (size_t begin = 0; begin < text.text.size();) {
      const size_t end = SegmentEnd(text.text, begin);
      AppendSegment(text.Sub(begin, end), &out);
      begin = end;
    }
    return out;
  }

 private:
  size_t SegmentEnd(absl::string_view text, size_t begin) const {
    size_t end = begin + Utf8Length(text[begin]);
    while (end < text.size()) {
      const Utf8Scan scan = ScanUtf8(text, end);
      if (StartsSegment(scan.code_point, form_)) break;
      end += scan.bytes;
    }
    return end;
  }

  void AppendSegment(const MarkedView& segment, MarkedText* out) const {
    if (segment.text.size() == 1) {  // ASCII is its own normal form
      out->Append(segment);
      return;
    }
    std::vector<int32_t> code_points;
    for (size_t at = 0; at < segment.text.size();) {
      const Utf8Scan scan = ScanUtf8(segment.text, at);
      code_points.push_back(static_cast<int32_t>(scan.code_point));
      at += scan.bytes;
    }
    std::string normal;
    for (const int32_t code_point : text::Normalize(std::move(code_points), form_)) {
      AppendUtf8(static_cast<uint32_t>(code_point), &normal);
    }
    out->Append(normal, segment.Untrusted(0, segment.text.size()));
  }

  NormalForm form_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  absl::StatusOr<MarkedText> Normalize(const MarkedView& text) const override {
    MarkedText out(!text.marks.empty());
    if (!text.text.empty()) out.Append(prefix_, text.Untrusted(0, 1));
    out.Append(text);
    return out;
  }

 private:
  std::string prefix_;
};

class ReplaceAll final : public Normalizer {
 public:
  ReplaceAll(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::StatusOr<MarkedText> Normalize(const MarkedView& text) const override {
    // A file whose every match grows a thousandfold must not eat the memory.
    if (content_.size() > 16 && text.text.size() > kMaxReplaced / content_.size()) {
      return base::Error(absl::StatusCode::kInvalidArgument, "TEXT_TOO_LONG",
                         absl::StrCat("the tokenizer's Replace normalizer could make more than ",
                                      kMaxReplaced, " bytes of this text"));
    }
    return pattern_.Replace(text, content_);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  absl::StatusOr<MarkedText> Normalize(const MarkedView& text) const override {
    size_t begin = 0, end = text.text.size();
    while (left_ && begin < end && SpaceAt(text.text, begin)) begin += Utf8Length(text.text[begin]);
    while (right_ && end > begin && SpaceAt(text.text, PreviousChar(text.text, end))) {
      end = PreviousChar(text.text, end);
    }
    return CopyOf(text.Sub(begin, end));
  }

 private:
  static bool SpaceAt(absl::string_view text, size_t at) {
    return IsWhiteSpace(ScanUtf8(text, at).code_point);
  }

  bool left_, right_;
};

absl::StatusOr<std::unique_ptr<Normalizer>> ParseNormalizers(const Fields& fields) {
  ASSIGN_OR_RETURN(const base::Json* list, fields.Array("normalizers"));
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = absl::StrCat(fields.PathOf("normalizers"), "[", i, "]");
    ASSIGN_OR_RETURN(auto step, ParseNormalizer(&(*list)[i], path));
    if (step == nullptr) return BadTokenizer(path, "is null");
    steps.push_back(std::move(step));
  }
  return std::make_unique<NormalizerChain>(std::move(steps));
}

absl::StatusOr<std::unique_ptr<Normalizer>> ParseReplace(const Fields& fields) {
  if (fields.Find("pattern") == nullptr)
    return BadTokenizer(fields.PathOf("pattern"), "is missing");
  ASSIGN_OR_RETURN(Pattern pattern,
                   Pattern::Parse(*fields.Find("pattern"), fields.PathOf("pattern")));
  ASSIGN_OR_RETURN(std::string content, fields.String("content"));
  return std::make_unique<ReplaceAll>(std::move(pattern), std::move(content));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> ParseNormalizer(const base::Json* json,
                                                            absl::string_view path) {
  if (json == nullptr || json->is_null()) return std::unique_ptr<Normalizer>();
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*json, path));
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (type == "Sequence") return ParseNormalizers(fields);
  if (type == "NFC") return std::make_unique<Form>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<Form>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<Form>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<Form>(NormalForm::kNfkd);
  if (type == "Replace") return ParseReplace(fields);
  if (type == "Prepend") {
    ASSIGN_OR_RETURN(std::string prefix, fields.String("prepend"));
    return std::make_unique<Prepend>(std::move(prefix));
  }
  if (type == "Strip") {
    ASSIGN_OR_RETURN(const bool left, fields.Bool("strip_left"));
    ASSIGN_OR_RETURN(const bool right, fields.Bool("strip_right"));
    return std::make_unique<Strip>(left, right);
  }
  return UnsupportedTokenizer(path, absl::StrCat("normalizer type \"", type, "\""), kNormalizers);
}

}  // namespace tessera::text
