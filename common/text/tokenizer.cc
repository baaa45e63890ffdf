#include "common/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer_parts.h"

namespace tessera::text {
namespace {

// Positions within a word are 32 bits, and normalizing may lengthen a text.
constexpr size_t kMaxTextBytes = size_t{64} << 20;

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text,
                                                       const EncodeOptions& options) const {
  CHECK(std::is_sorted(options.control_ids.begin(), options.control_ids.end()));
  if (text.size() > kMaxTextBytes) {
    return base::Error(absl::StatusCode::kInvalidArgument, "TEXT_TOO_LONG",
                       absl::StrCat("the text has ", text.size(), " bytes; at most ", kMaxTextBytes,
                                    " are tokenized at once"));
  }
  RETURN_IF_ERROR(ValidateUtf8(text));
  const bool marked = !options.untrusted.empty() && !options.control_ids.empty();
  const std::string marks = marked ? MarksOf(options.untrusted, text.size()) : "";
  const MatchRules rules{options.parse_special, options.control_ids};

  std::vector<int32_t> ids;
  BpeModel::Scratch scratch;
  const auto on_token = [&](int32_t id) { ids.push_back(id); };
  const auto on_word = [&](const MarkedView& word) {
    parts_->model->Encode(word, rules, &scratch, &ids);
    return absl::OkStatus();
  };
  const auto on_plain = [&](const MarkedView& plain) {
    return parts_->pre_tokenizer == nullptr ? on_word(plain)
                                            : parts_->pre_tokenizer->Run(plain, on_word);
  };
  const auto on_raw = [&](const MarkedView& raw) -> absl::Status {
    if (parts_->normalizer == nullptr) {
      return parts_->normalized_matcher->ForEachPart(raw, rules, on_plain, on_token);
    }
    ASSIGN_OR_RETURN(const MarkedText normal, parts_->normalizer->Normalize(raw));
    return parts_->normalized_matcher->ForEachPart(normal.View(raw.first), rules, on_plain,
                                                   on_token);
  };
  RETURN_IF_ERROR(parts_->raw_matcher->ForEachPart({text, marks, true}, rules, on_raw, on_token));
  return ids;
}

std::vector<int32_t> Tokenizer::AddSpecial(std::vector<int32_t> ids) const {
  const PostProcessor& post = parts_->post_processor;
  ids.insert(ids.begin(), post.before.begin(), post.before.end());
  ids.insert(ids.end(), post.behind.begin(), post.behind.end());
  return ids;
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special) const {
  BatchDecode decode(parts_->decoder);
  for (const int32_t id : ids) {
    const absl::string_view token = TokenView(id);
    if (!token.empty() && !(skip_special && IsSpecial(id))) decode.Add(token);
  }
  return decode.Finish();
}

std::string Tokenizer::BytesOf(int32_t id) const {
  const absl::string_view token = TokenView(id);
  if (token.empty()) return std::string();
  return parts_->decoder.BytesOf(token, /*first=*/false).bytes;
}

std::optional<int32_t> Tokenizer::IdOf(absl::string_view token) const {
  const auto it = parts_->added_ids.find(token);
  if (it != parts_->added_ids.end()) return it->second;
  return parts_->model->IdOf(token);
}

absl::string_view Tokenizer::TokenView(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return parts_->tokens[id];
}

std::string Tokenizer::TokenOf(int32_t id) const { return std::string(TokenView(id)); }

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && parts_->special[id];
}

std::vector<int32_t> Tokenizer::special_ids() const {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (parts_->special[id]) ids.push_back(id);
  }
  return ids;
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const { return parts_->added; }
int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(parts_->tokens.size()); }
const Decoder& Tokenizer::decoder() const { return parts_->decoder; }

}  // namespace tessera::text
