// A tokenizer.json, then a few texts through what it describes. Ids are within the vocabulary,
// texts are valid UTF-8, a stream gives what the whole gives, and what a user wrote becomes no
// control token.
#include "common/text/tokenizer.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "tests/fuzz/check_refusal.h"

namespace tessera::fuzz {
namespace {

using text::Tokenizer;

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

void CheckDecoding(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  const std::string whole = tokenizer.Decode(ids, /*skip_special=*/true);
  CHECK(text::ValidateUtf8(whole).ok());
  CHECK(text::ValidateUtf8(tokenizer.Decode(ids, /*skip_special=*/false)).ok());
  text::StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) streamed += stream.Add(id);
  streamed += stream.Flush();
  CHECK(text::ValidateUtf8(streamed).ok());
  if (!absl::StrContains(whole, kReplacement) && !absl::StrContains(streamed, kReplacement)) {
    CHECK_EQ(whole, streamed);
  }
}

// The unknown token stands for unknown characters whoever wrote them.
std::optional<int32_t> UnknownId(const Tokenizer& tokenizer, absl::string_view json) {
  const absl::StatusOr<base::Json> parsed = base::ParseJson(json);
  CHECK(parsed.ok());
  const base::Json model = parsed->value("model", base::Json::object());
  if (!model.is_object() || !model.contains("unk_token") || !model["unk_token"].is_string()) {
    return std::nullopt;
  }
  return tokenizer.IdOf(model["unk_token"].get_ref<const std::string&>());
}

void CheckText(const Tokenizer& tokenizer, absl::string_view json, absl::string_view words) {
  const std::vector<int32_t> control = tokenizer.special_ids();
  const text::ByteRange all{0, words.size()};
  for (const bool users : {false, true}) {
    text::EncodeOptions options;
    if (users) {
      options.untrusted = absl::MakeConstSpan(&all, words.empty() ? 0 : 1);
      options.control_ids = control;
    }
    const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(words, options);
    if (!ids.ok()) {
      CHECK(ids.status().code() == absl::StatusCode::kResourceExhausted);
      CHECK_EQ(base::ReasonOf(ids.status()), "REGEX_LIMIT");
      return CheckMessage(ids.status());
    }
    const std::optional<int32_t> unknown = UnknownId(tokenizer, json);
    for (const int32_t id : *ids) {
      CHECK(id >= 0 && id < tokenizer.vocab_size());
      if (users && id != unknown) CHECK(!tokenizer.IsSpecial(id));
    }
    CheckDecoding(tokenizer, *ids);
  }
}

void Run(absl::string_view json) {
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromJson(json, "fuzz");
  if (!tokenizer.ok()) {
    CHECK(!base::ReasonOf(tokenizer.status()).empty());
    CheckMessage(tokenizer.status());
    if (tokenizer.status().code() == absl::StatusCode::kUnimplemented) return;
    return CheckRefusal(tokenizer.status(), {"BAD_TOKENIZER"});
  }
  std::string specials = "a";
  for (const text::AddedToken& token : (*tokenizer)->added_tokens()) {
    if (specials.size() < 200) absl::StrAppend(&specials, token.content, " ");
  }
  for (const absl::string_view words :
       {absl::string_view("  Hello wörld,\tit's 12345 \n\n"),
        absl::string_view("日本語 e\u0301 🙂\u200d"), absl::string_view(specials)}) {
    CheckText(**tokenizer, json, words);
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::Run(tessera::fuzz::Bytes(data, size));
  return 0;
}
