#include "common/text/pre_tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/byte_level.h"
#include "common/text/json_fields.h"
#include "common/text/split.h"
#include "common/text/unicode.h"
#include "common/text/utf8.h"

namespace tessera::text {
namespace {

constexpr char kPreTokenizers[] = "Sequence, ByteLevel, Split, Metaspace, Digits";
// Each step of a chain is one frame of the stack.
constexpr size_t kMaxSteps = 16;
constexpr char kGpt2Regex[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

using PreTokenizerPtr = std::unique_ptr<PreTokenizer>;

absl::Status Emit(const MarkedView& text, const std::vector<SplitPiece>& pieces, WordSink sink) {
  for (const SplitPiece& piece : pieces) {
    RETURN_IF_ERROR(sink(text.Sub(piece.begin, piece.end)));
  }
  return absl::OkStatus();
}

class PreTokenizerChain final : public PreTokenizer {
 public:
  explicit PreTokenizerChain(std::vector<PreTokenizerPtr> steps) : steps_(std::move(steps)) {}
  absl::Status Run(const MarkedView& text, WordSink sink) const override {
    return RunFrom(0, text, sink);
  }

 private:
  absl::Status RunFrom(size_t step, const MarkedView& text, WordSink sink) const {
    if (step == steps_.size()) return sink(text);
    return steps_[step]->Run(text,
                             [&](const MarkedView& word) { return RunFrom(step + 1, word, sink); });
  }
  std::vector<PreTokenizerPtr> steps_;
};

class Split final : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  absl::Status Run(const MarkedView& text, WordSink sink) const override {
    std::vector<SplitPiece> pieces;
    RETURN_IF_ERROR(pattern_.ForEachMatch(
        text.text, [&](size_t begin, size_t end) { AddMatch(begin, end, &pieces); }));
    AddRest(text.text.size(), &pieces);
    if (invert_) {
      for (SplitPiece& piece : pieces) piece.match = !piece.match;
    }
    return Emit(text, ApplyBehavior(std::move(pieces), behavior_), sink);
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class ByteLevel final : public PreTokenizer {
 public:
  // `words` may be nullptr: no cutting.
  ByteLevel(bool add_prefix_space, PreTokenizerPtr words)
      : add_prefix_space_(add_prefix_space), words_(std::move(words)) {}
  absl::Status Run(const MarkedView& text, WordSink sink) const override {
    if (!add_prefix_space_ || text.text.empty() || text.text[0] == ' ') return Cut(text, sink);
    MarkedText prefixed(!text.marks.empty());
    prefixed.Append(" ", text.Untrusted(0, 1));
    prefixed.Append(text);
    return Cut(prefixed.View(text.first), sink);
  }

 private:
  absl::Status Cut(const MarkedView& text, WordSink sink) const {
    const auto encode = [&](const MarkedView& word) {
      const MarkedText encoded = ToByteChars(word);
      return sink(encoded.View(word.first));
    };
    return words_ == nullptr ? encode(text) : words_->Run(text, encode);
  }
  bool add_prefix_space_;
  PreTokenizerPtr words_;
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Scheme { kAlways, kFirst, kNever };
  Metaspace(std::string mark, Scheme scheme, bool split)
      : mark_(std::move(mark)), spaces_(Pattern::Literal(" ")), scheme_(scheme) {
    if (split) marks_ = Pattern::Literal(mark_);
  }
  absl::Status Run(const MarkedView& text, WordSink sink) const override {
    ASSIGN_OR_RETURN(const MarkedText replaced, spaces_.Replace(text, mark_));
    const MarkedView view = replaced.View(text.first);
    const bool wanted = scheme_ == Scheme::kAlways || (scheme_ == Scheme::kFirst && text.first);
    if (!wanted || view.text.empty() || absl::StartsWith(view.text, mark_)) return Cut(view, sink);
    MarkedText prefixed(!text.marks.empty());
    prefixed.Append(mark_, view.Untrusted(0, 1));
    prefixed.Append(view);
    return Cut(prefixed.View(text.first), sink);
  }

 private:
  absl::Status Cut(const MarkedView& text, WordSink sink) const {
    std::vector<SplitPiece> pieces;
    RETURN_IF_ERROR(marks_.ForEachMatch(
        text.text, [&](size_t begin, size_t end) { AddMatch(begin, end, &pieces); }));
    AddRest(text.text.size(), &pieces);
    return Emit(text, ApplyBehavior(std::move(pieces), SplitBehavior::kMergedWithNext), sink);
  }
  std::string mark_;
  Pattern spaces_;
  Pattern marks_ = Pattern::Literal("");  // matches nothing: no cutting
  Scheme scheme_;
};

class Digits final : public PreTokenizer {
 public:
  explicit Digits(bool individual) : individual_(individual) {}
  absl::Status Run(const MarkedView& text, WordSink sink) const override {
    std::vector<SplitPiece> pieces;
    for (size_t at = 0; at < text.text.size();) {
      const Utf8Scan scan = ScanUtf8(text.text, at);
      if (IsNumeric(scan.code_point)) AddMatch(at, at + scan.bytes, &pieces);
      at += scan.bytes;
    }
    AddRest(text.text.size(), &pieces);
    const auto behavior = individual_ ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    return Emit(text, ApplyBehavior(std::move(pieces), behavior), sink);
  }

 private:
  bool individual_;
};

absl::StatusOr<PreTokenizerPtr> ParsePreTokenizers(const Fields& fields) {
  ASSIGN_OR_RETURN(const base::Json* list, fields.Array("pretokenizers"));
  if (list->size() > kMaxSteps) {
    return BadTokenizer(fields.PathOf("pretokenizers"),
                        absl::StrCat(list->size(), " steps, at most ", kMaxSteps, " are allowed"));
  }
  std::vector<PreTokenizerPtr> steps;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = absl::StrCat(fields.PathOf("pretokenizers"), "[", i, "]");
    ASSIGN_OR_RETURN(PreTokenizerPtr step, ParsePreTokenizer(&(*list)[i], path));
    if (step == nullptr) return BadTokenizer(path, "is null");
    steps.push_back(std::move(step));
  }
  return std::make_unique<PreTokenizerChain>(std::move(steps));
}

absl::StatusOr<PreTokenizerPtr> ParseSplit(const Fields& fields) {
  if (fields.Find("pattern") == nullptr)
    return BadTokenizer(fields.PathOf("pattern"), "is missing");
  ASSIGN_OR_RETURN(Pattern pattern,
                   Pattern::Parse(*fields.Find("pattern"), fields.PathOf("pattern")));
  ASSIGN_OR_RETURN(const std::string name, fields.String("behavior"));
  ASSIGN_OR_RETURN(const SplitBehavior behavior,
                   ParseSplitBehavior(name, fields.PathOf("behavior")));
  ASSIGN_OR_RETURN(const bool invert, fields.Bool("invert", false));
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}

absl::StatusOr<PreTokenizerPtr> ParseByteLevel(const Fields& fields) {
  ASSIGN_OR_RETURN(const bool add_prefix_space, fields.Bool("add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, fields.Bool("use_regex", true));
  PreTokenizerPtr words;
  if (use_regex) {
    ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse({{"Regex", kGpt2Regex}}, fields.path()));
    words = std::make_unique<Split>(std::move(pattern), SplitBehavior::kIsolated, false);
  }
  return std::make_unique<ByteLevel>(add_prefix_space, std::move(words));
}

absl::StatusOr<PreTokenizerPtr> ParseMetaspace(const Fields& fields) {
  ASSIGN_OR_RETURN(std::string mark, fields.String("replacement"));
  if (mark.empty() || Utf8Length(mark[0]) != mark.size()) {
    return BadTokenizer(fields.PathOf("replacement"), "must be one character");
  }
  ASSIGN_OR_RETURN(const bool split, fields.Bool("split", true));
  // Older files have only add_prefix_space.
  ASSIGN_OR_RETURN(const bool add_prefix_space, fields.Bool("add_prefix_space", true));
  ASSIGN_OR_RETURN(const std::string scheme,
                   fields.String("prepend_scheme", add_prefix_space ? "always" : "never"));
  const std::string path = fields.PathOf("prepend_scheme");
  if (!add_prefix_space && scheme != "never") {
    return BadTokenizer(path, absl::StrCat("\"", scheme, "\" contradicts add_prefix_space false"));
  }
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return UnsupportedTokenizer(path, absl::StrCat("\"", scheme, "\""), "always, first, never");
  }
  const auto kind = scheme == "always"  ? Metaspace::Scheme::kAlways
                    : scheme == "first" ? Metaspace::Scheme::kFirst
                                        : Metaspace::Scheme::kNever;
  return std::make_unique<Metaspace>(std::move(mark), kind, split);
}

}  // namespace

absl::StatusOr<PreTokenizerPtr> ParsePreTokenizer(const base::Json* json, absl::string_view path) {
  if (json == nullptr || json->is_null()) return PreTokenizerPtr();
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*json, path));
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (type == "Sequence") return ParsePreTokenizers(fields);
  if (type == "ByteLevel") return ParseByteLevel(fields);
  if (type == "Split") return ParseSplit(fields);
  if (type == "Metaspace") return ParseMetaspace(fields);
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, fields.Bool("individual_digits", false));
    return std::make_unique<Digits>(individual);
  }
  return UnsupportedTokenizer(path, absl::StrCat("pre_tokenizer type \"", type, "\""),
                              kPreTokenizers);
}

}  // namespace tessera::text
