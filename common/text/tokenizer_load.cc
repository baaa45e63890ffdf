#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/list_directory.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"
#include "common/text/tokenizer.h"
#include "common/text/tokenizer_parts.h"

namespace tessera::text {
namespace {

using PartsVocab = absl::flat_hash_map<std::string, int32_t>;

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const Fields& file) {
  std::vector<AddedToken> tokens;
  if (file.Find("added_tokens") == nullptr) return tokens;
  ASSIGN_OR_RETURN(const base::Json* list, file.Array("added_tokens"));
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = absl::StrCat("added_tokens[", i, "]");
    ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken((*list)[i], path));
    ASSIGN_OR_RETURN(const Fields fields, Fields::Of((*list)[i], path));
    ASSIGN_OR_RETURN(token.id, fields.Id("id"));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// Tokens that tokenizer_config.json adds to those of tokenizer.json: {"32000": {"content": ..}}.
absl::Status AppendConfigTokens(const base::Json& config, std::vector<AddedToken>* tokens) {
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(config, "tokenizer_config.json"));
  const base::Json* table = fields.Find("added_tokens_decoder");
  if (table == nullptr) return absl::OkStatus();
  const std::string path = fields.PathOf("added_tokens_decoder");
  if (!table->is_object()) return BadTokenizer(path, "must be an object");
  absl::flat_hash_map<std::string, int32_t> known;
  for (const AddedToken& token : *tokens) known.emplace(token.content, token.id);
  for (const auto& [key, value] : table->items()) {
    const std::string entry = absl::StrCat(path, "[\"", key, "\"]");
    ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken(value, entry));
    const base::Json id = base::Json::parse(key, nullptr, /*allow_exceptions=*/false);
    ASSIGN_OR_RETURN(token.id, ReadId(id, entry));
    const auto it = known.find(token.content);
    if (it == known.end()) {
      tokens->push_back(std::move(token));
    } else if (it->second != token.id) {
      return BadTokenizer(
          entry, absl::StrCat("\"", token.content, "\" has id ", it->second, " in tokenizer.json"));
    }
  }
  return absl::OkStatus();
}

// The table of ids: every id has one token, every token one id.
absl::Status FillIds(const BpeModel& model, const std::vector<AddedToken>& added,
                     PartsVocab* added_ids, std::vector<std::string>* tokens,
                     std::vector<bool>* special) {
  int32_t largest = 0;
  for (const auto& [token, id] : model.vocab()) largest = std::max(largest, id);
  for (const AddedToken& token : added) largest = std::max(largest, token.id);
  tokens->resize(largest + 1);
  special->resize(largest + 1);
  for (const auto& [token, id] : model.vocab()) (*tokens)[id] = token;
  for (const AddedToken& token : added) {
    if (!added_ids->emplace(token.content, token.id).second) {
      return BadTokenizer("added_tokens", absl::StrCat("\"", token.content, "\" occurs twice"));
    }
    const std::optional<int32_t> in_vocab = model.IdOf(token.content);
    if (in_vocab && *in_vocab != token.id) {
      return BadTokenizer("added_tokens",
                          absl::StrCat("\"", token.content, "\" has id ", token.id, " here and ",
                                       *in_vocab, " in the vocabulary"));
    }
    std::string& place = (*tokens)[token.id];
    if (!place.empty() && place != token.content) {
      return BadTokenizer("added_tokens", absl::StrCat("id ", token.id, " belongs to \"", place,
                                                       "\" and to \"", token.content, "\""));
    }
    place = token.content;
    (*special)[token.id] = token.special;
  }
  return absl::OkStatus();
}

struct Matchers {
  std::unique_ptr<AddedTokenMatcher> raw, normalized;
};

// Special tokens come first: of two that read alike after normalizing, the first one is found.
absl::StatusOr<Matchers> MakeMatchers(std::vector<AddedToken> added, const Normalizer* normalizer) {
  std::stable_partition(added.begin(), added.end(), [](const AddedToken& t) { return t.special; });
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_contents, normalized_contents;
  absl::flat_hash_set<std::string> seen;
  for (const AddedToken& token : added) {
    if (!token.normalized) {
      raw.push_back(token);
      raw_contents.push_back(token.content);
      continue;
    }
    std::string content = token.content;
    if (normalizer != nullptr) {
      ASSIGN_OR_RETURN(const MarkedText normal, normalizer->Normalize({content, "", true}));
      content = std::string(normal.View(true).text);
    }
    if (content.empty() || !seen.insert(content).second) continue;
    normalized.push_back(token);
    normalized_contents.push_back(std::move(content));
  }
  return Matchers{std::make_unique<AddedTokenMatcher>(raw, raw_contents),
                  std::make_unique<AddedTokenMatcher>(normalized, normalized_contents)};
}

absl::Status CheckIds(const std::vector<int32_t>& ids, const std::vector<std::string>& tokens) {
  for (const int32_t id : ids) {
    if (id >= static_cast<int32_t>(tokens.size()) || tokens[id].empty()) {
      return BadTokenizer("post_processor", absl::StrCat("id ", id, " has no token"));
    }
  }
  return absl::OkStatus();
}

bool HasFile(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

absl::StatusOr<base::Json> ReadFile(const std::filesystem::path& path) {
  auto json = base::ReadJsonFile(path.string());
  if (absl::IsInvalidArgument(json.status())) {
    return base::WithReason(json.status(), "BAD_TOKENIZER");
  }
  return json;
}

// No tokenizer.json: says what is there instead.
absl::Status MissingFile(const std::filesystem::path& dir) {
  for (const std::filesystem::path& entry : base::ListDirectory(dir)) {
    const std::string name = entry.filename().string();
    if (name == "tokenizer.model" || entry.extension() == ".tiktoken" || name == "vocab.txt" ||
        name == "vocab.json") {
      return UnsupportedTokenizer(dir.string(), absl::StrCat("a tokenizer of only \"", name, "\""),
                                  "tokenizer.json with a BPE model");
    }
  }
  return base::Error(absl::StatusCode::kNotFound, "TOKENIZER_NOT_FOUND",
                     absl::StrCat(dir.string(),
                                  ": has no tokenizer.json; supported: tokenizer.json "
                                  "with a BPE model"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromParsed(const base::Json& json,
                                                                 const base::Json* config) {
  ASSIGN_OR_RETURN(const Fields file, Fields::Of(json, ""));
  if (file.Find("model") == nullptr) return BadTokenizer("model", "is missing");
  ASSIGN_OR_RETURN(std::vector<AddedToken> added, ReadAddedTokens(file));
  if (config != nullptr) RETURN_IF_ERROR(AppendConfigTokens(*config, &added));
  ASSIGN_OR_RETURN(auto model, BpeModel::Parse(*file.Find("model"), added));
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Parse(file.Find("decoder")));
  auto parts = std::make_unique<TokenizerParts>(std::move(decoder));
  parts->model = std::move(model);
  ASSIGN_OR_RETURN(parts->normalizer, ParseNormalizer(file.Find("normalizer"), "normalizer"));
  ASSIGN_OR_RETURN(parts->pre_tokenizer,
                   ParsePreTokenizer(file.Find("pre_tokenizer"), "pre_tokenizer"));
  ASSIGN_OR_RETURN(parts->post_processor, ParsePostProcessor(file.Find("post_processor")));
  RETURN_IF_ERROR(
      FillIds(*parts->model, added, &parts->added_ids, &parts->tokens, &parts->special));
  RETURN_IF_ERROR(CheckIds(parts->post_processor.before, parts->tokens));
  RETURN_IF_ERROR(CheckIds(parts->post_processor.behind, parts->tokens));
  ASSIGN_OR_RETURN(Matchers matchers, MakeMatchers(added, parts->normalizer.get()));
  parts->raw_matcher = std::move(matchers.raw);
  parts->normalized_matcher = std::move(matchers.normalized);
  parts->added = std::move(added);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(parts)));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(absl::string_view tokenizer_json,
                                                               const std::string& origin) {
  auto json = base::ParseJson(tokenizer_json);
  if (!json.ok()) {
    return base::Annotate(base::WithReason(json.status(), "BAD_TOKENIZER"), origin);
  }
  auto tokenizer = FromParsed(*json, nullptr);
  if (!tokenizer.ok()) return base::Annotate(tokenizer.status(), origin);
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& model_dir) {
  const std::filesystem::path dir(model_dir);
  const std::filesystem::path path = dir / "tokenizer.json";
  const std::filesystem::path config_path = dir / "tokenizer_config.json";
  if (!HasFile(path)) return MissingFile(dir);
  ASSIGN_OR_RETURN(const base::Json json, ReadFile(path));
  base::Json config;
  if (HasFile(config_path)) {
    ASSIGN_OR_RETURN(config, ReadFile(config_path));
  }
  auto tokenizer = FromParsed(json, config.is_null() ? nullptr : &config);
  if (!tokenizer.ok()) return base::Annotate(tokenizer.status(), path.string());
  return tokenizer;
}

}  // namespace tessera::text
