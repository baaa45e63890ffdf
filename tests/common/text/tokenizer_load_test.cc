#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "tests/common/text/tiny_tokenizer.h"

namespace tessera::text {
namespace {

using Json = base::Json;

struct BadFile {
  const char* what;
  std::string pointer;  // JSON pointer of what is replaced
  Json value;
  std::string names;  // a part of the message
};

std::vector<BadFile> BadFiles() {
  return {
      {"model is a list", "/model", Json::array(), "model"},
      {"vocab is a list", "/model/vocab", Json::array({1}), "model.vocab"},
      {"vocab is empty", "/model/vocab", Json::object(), "model.vocab"},
      {"vocab is missing", "/model/vocab", nullptr, "model.vocab"},
      {"an id is a string", "/model/vocab/a", "97", "model.vocab[\"a\"]"},
      {"an id is negative", "/model/vocab/a", -1, "-1"},
      {"an id is a fraction", "/model/vocab/a", 1.5, "model.vocab[\"a\"]"},
      {"an id is huge", "/model/vocab/a", 2147483647, "2147483647"},
      {"an id is beyond 64 bits", "/model/vocab/a", 18446744073709551615u, "outside"},
      {"an id occurs twice", "/model/vocab/a", 98, "id 98"},
      {"merges are missing", "/model/merges", nullptr, "model.merges"},
      {"merges are an object", "/model/merges", Json::object(), "model.merges"},
      {"a merge is a number", "/model/merges/0", 3, "model.merges[0]"},
      {"a merge is one token", "/model/merges/0", "ab", "model.merges[0]"},
      {"a merge is three tokens", "/model/merges/0", "a b c", "model.merges[0]"},
      {"a merge pair is short", "/model/merges/0", Json::array({"a"}), "model.merges[0]"},
      {"a merge names an unknown token", "/model/merges/0", "a \u4E16", "\u4E16"},
      {"a merge makes an unknown token", "/model/merges/0", "b a", "\"ba\""},
      {"the unknown token is unknown", "/model/unk_token", "<none>", "<none>"},
      {"unk_token is a number", "/model/unk_token", 0, "model.unk_token"},
      {"fuse_unk is a string", "/model/fuse_unk", "yes", "model.fuse_unk"},
      {"dropout is a string", "/model/dropout", "no", "model.dropout"},
      {"added_tokens is an object", "/added_tokens", Json::object(), "added_tokens"},
      {"an added token is a string", "/added_tokens/0", "<s>", "added_tokens[0]"},
      {"an added token has no id", "/added_tokens/0/id", nullptr, "added_tokens[0].id"},
      {"an added id is taken", "/added_tokens/0/id", 97, "\"a\""},
      {"an added id is huge", "/added_tokens/0/id", 1 << 30, "added_tokens[0].id"},
      {"an added token is empty", "/added_tokens/0/content", "", "added_tokens[0].content"},
      {"an added token is too long", "/added_tokens/0/content", std::string(5000, 'x'), "longer"},
      {"an added token is known by another id", "/added_tokens/0/content", "b", "\"b\""},
      {"an added token occurs twice", "/added_tokens/1/content", "<s>", "twice"},
      {"a flag is a number", "/added_tokens/0/lstrip", 1, "added_tokens[0].lstrip"},
      {"the normalizer is a list", "/normalizer", Json::array(), "normalizer"},
      {"the normalizer has no type", "/normalizer", Json::object(), "normalizer.type"},
      {"a normalizer has no pattern", "/normalizer", {{"type", "Replace"}}, "normalizer.pattern"},
      {"a chain of normalizers is no list",
       "/normalizer",
       {{"type", "Sequence"}, {"normalizers", 1}},
       "normalizer.normalizers"},
      {"a split has no pattern", "/pre_tokenizer", {{"type", "Split"}}, "pre_tokenizer.pattern"},
      {"a regex does not compile",
       "/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}},
       "pre_tokenizer.pattern.Regex"},
      {"a mark is two characters",
       "/pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "__"}},
       "pre_tokenizer.replacement"},
      {"a chain is endless",
       "/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", Json(Json::array_t(100, Json::object()))}},
       "at most"},
      {"a post-processor names a token of no id",
       "/post_processor",
       {{"type", "BertProcessing"}, {"cls", {"x", 4000}}, {"sep", {"<s>", 257}}},
       "4000"},
      {"a template has no sequence",
       "/post_processor",
       {{"type", "TemplateProcessing"}, {"single", Json::array()}},
       "post_processor.single"},
      {"a template names a token that is missing", "/post_processor",
       Json::parse(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>"}},
                       {"Sequence": {"id": "A"}}], "special_tokens": {}})"),
       "<x>"},
      {"the decoder is a string", "/decoder", "ByteLevel", "decoder"},
  };
}

std::vector<BadFile> UnsupportedFiles() {
  return {
      {"Unigram", "/model/type", "Unigram", "Unigram"},
      {"WordPiece", "/model/type", "WordPiece", "WordPiece"},
      {"words with a suffix", "/model/end_of_word_suffix", "</w>", "</w>"},
      {"pieces with a prefix", "/model/continuing_subword_prefix", "##", "##"},
      {"dropout", "/model/dropout", 0.1, "0.1"},
      {"a normalizer", "/normalizer", {{"type", "Lowercase"}}, "Lowercase"},
      {"a pre-tokenizer", "/pre_tokenizer", {{"type", "BertPreTokenizer"}}, "BertPreTokenizer"},
      {"a split behaviour",
       "/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Sideways"}},
       "Sideways"},
      {"a prepend scheme",
       "/pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "last"}},
       "last"},
      {"a post-processor", "/post_processor", {{"type", "Other"}}, "Other"},
      {"a decoder", "/decoder", {{"type", "CTC"}}, "CTC"},
      {"no decoder", "/decoder", nullptr, "decoder"},
  };
}

Json GoodFile() {
  Json file = TinyByteLevel({"a b"});
  AddToken("<s>", {}, &file);
  AddToken("</s>", {}, &file);
  return file;
}

void ExpectRefused(const std::vector<BadFile>& files, const std::string& reason) {
  for (const BadFile& bad : files) {
    SCOPED_TRACE(bad.what);
    Json file = GoodFile();
    file[Json::json_pointer(bad.pointer)] = bad.value;
    const auto tokenizer = TryMake(file);
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(base::ReasonOf(tokenizer.status()), reason) << tokenizer.status();
    EXPECT_THAT(std::string(tokenizer.status().message()), ::testing::HasSubstr(bad.names));
    EXPECT_THAT(std::string(tokenizer.status().message()), ::testing::StartsWith("tiny: "));
  }
}

TEST(TokenizerLoadTest, MalformedFilesAreRefusedByPath) {
  ExpectRefused(BadFiles(), "BAD_TOKENIZER");
}

TEST(TokenizerLoadTest, UnsupportedKindsAreRefusedByName) {
  ExpectRefused(UnsupportedFiles(), "UNSUPPORTED_TOKENIZER");
}

TEST(TokenizerLoadTest, TextThatIsNoJsonIsRefused) {
  for (const char* text : {"", "{", "[]", "3", "\"x\"", "{\"model\": 1, \"model\": 2}", "\xFF"}) {
    EXPECT_EQ(base::ReasonOf(Tokenizer::FromJson(text, "tiny").status()), "BAD_TOKENIZER") << text;
  }
}

TEST(TokenizerLoadTest, DamagedFilesNeverCrash) {
  std::mt19937 random(11);
  const std::string good = GoodFile().dump();
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      if (random() % 4 == 0)
        text.erase(at, 1 + random() % 40);
      else
        text[at] = "{}[]\",:019-atnull\\"[random() % 18];
      if (text.empty()) break;
    }
    const auto tokenizer = Tokenizer::FromJson(text, "tiny");
    if (tokenizer.ok()) (void)(*tokenizer)->Encode("ab <s> \u4E16", {});
  }
}

TEST(TokenizerLoadTest, OlderFilesWithoutATypeAreBpe) {
  Json file = GoodFile();
  file["model"].erase("type");
  EXPECT_TRUE(TryMake(file).ok());
}

}  // namespace
}  // namespace tessera::text
