#include "tests/common/text/tiny_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/text/byte_level.h"

namespace tessera::text {
namespace {

void AddMerges(const std::vector<std::string>& merges, base::Json* model) {
  for (const std::string& merge : merges) {
    (*model)["merges"].push_back(merge);
    const std::string merged = absl::StrReplaceAll(merge, {{" ", ""}});
    base::Json& vocab = (*model)["vocab"];
    if (!vocab.contains(merged)) vocab[merged] = vocab.size();
  }
}

base::Json EmptyModel() {
  return {{"type", "BPE"}, {"vocab", base::Json::object()}, {"merges", base::Json::array()}};
}

}  // namespace

base::Json TinyByteLevel(const std::vector<std::string>& merges) {
  base::Json model = EmptyModel();
  for (int byte = 0; byte < 256; ++byte) {
    const std::string raw(1, static_cast<char>(byte));
    model["vocab"][std::string(ToByteChars({raw, "", true}).View(true).text)] = byte;
  }
  AddMerges(merges, &model);
  const base::Json step = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"added_tokens", base::Json::array()}, {"normalizer", nullptr}, {"pre_tokenizer", step},
          {"post_processor", nullptr},           {"decoder", step},       {"model", model}};
}

base::Json TinyMetaspace(const std::vector<std::string>& merges) {
  base::Json model = EmptyModel();
  base::Json& vocab = model["vocab"];
  for (const char* token : {"<unk>", "<s>", "</s>"}) vocab[token] = vocab.size();
  for (int byte = 0; byte < 256; ++byte) vocab[absl::StrFormat("<0x%02X>", byte)] = vocab.size();
  vocab["\u2581"] = vocab.size();
  for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = vocab.size();
  AddMerges(merges, &model);
  model["unk_token"] = "<unk>";
  model["fuse_unk"] = true;
  model["byte_fallback"] = true;
  base::Json decoders = base::Json::parse(R"([
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}])");
  base::Json pre = base::Json::parse(R"({"type": "Metaspace", "replacement": "▁",
      "prepend_scheme": "first", "split": false})");
  base::Json file = {{"added_tokens", base::Json::array()},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", pre},
                     {"post_processor", nullptr},
                     {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
                     {"model", model}};
  for (const char* token : {"<unk>", "<s>", "</s>"}) AddToken(token, {{"special", true}}, &file);
  return file;
}

int32_t AddToken(const std::string& content, const base::Json& flags, base::Json* file) {
  const base::Json& vocab = (*file)["model"]["vocab"];
  int32_t id = static_cast<int32_t>(vocab.size());
  for (const base::Json& token : (*file)["added_tokens"]) {
    id = std::max(id, token["id"].get<int32_t>() + 1);
  }
  if (vocab.contains(content)) id = vocab[content];
  base::Json token = {{"id", id},        {"content", content}, {"single_word", false},
                      {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                      {"special", true}};
  if (!flags.is_null()) token.update(flags);
  (*file)["added_tokens"].push_back(token);
  return id;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> TryMake(const base::Json& file) {
  return Tokenizer::FromJson(file.dump(), "tiny");
}

std::unique_ptr<Tokenizer> Make(const base::Json& file) {
  auto tokenizer = TryMake(file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

Prompt& Prompt::Template(const std::string& part) {
  text += part;
  return *this;
}

Prompt& Prompt::User(const std::string& part) {
  untrusted.push_back({text.size(), text.size() + part.size()});
  text += part;
  return *this;
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::string& text) {
  return Encode(tokenizer, Prompt{text, {}}, {});
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const Prompt& prompt,
                            std::vector<int32_t> control_ids) {
  std::sort(control_ids.begin(), control_ids.end());
  EncodeOptions options;
  options.untrusted = prompt.untrusted;
  options.control_ids = control_ids;
  const auto ids = tokenizer.Encode(prompt.text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : std::vector<int32_t>{};
}

}  // namespace tessera::text
