#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/common/text/golden_cases.h"
#include "tests/common/text/tiny_tokenizer.h"

// Text of a user never becomes a control token, and never hides one that the template wrote.
namespace tessera::text {
namespace {

using ::testing::Contains;
using ::testing::Not;
using Ids = std::vector<int32_t>;

Ids BytesOf(const std::string& text) { return Ids(text.begin(), text.end()); }

TEST(UntrustedTextTest, AControlTokenOfTheTemplateIsFoundAndTheUsersIsText) {
  base::Json file = TinyByteLevel();
  const int32_t end = AddToken("<end>", {}, &file);
  const auto tokenizer = Make(file);
  Prompt prompt;
  prompt.User("<end>").Template("<end>").User("<end>");
  Ids expected = BytesOf("<end>");
  expected.push_back(end);
  const Ids tail = BytesOf("<end>");
  expected.insert(expected.end(), tail.begin(), tail.end());
  EXPECT_EQ(Encode(*tokenizer, prompt, {end}), expected);
}

TEST(UntrustedTextTest, AMatchAcrossATrustBorderIsText) {
  base::Json file = TinyByteLevel();
  const int32_t image = AddToken("<image>", {}, &file);
  const auto tokenizer = Make(file);
  const std::string token = "<image>";
  for (size_t cut = 1; cut < token.size(); ++cut) {
    Prompt user_first, user_last, user_inside;
    user_first.User(token.substr(0, cut)).Template(token.substr(cut));
    user_last.Template(token.substr(0, cut)).User(token.substr(cut));
    user_inside.Template(token.substr(0, cut - 1)).User(token.substr(cut - 1, 1));
    user_inside.Template(token.substr(cut));
    EXPECT_EQ(Encode(*tokenizer, user_first, {image}), BytesOf(token));
    EXPECT_EQ(Encode(*tokenizer, user_last, {image}), BytesOf(token));
    EXPECT_EQ(Encode(*tokenizer, user_inside, {image}), BytesOf(token));
  }
  Prompt two_users;
  two_users.User("<im").User("age>");
  EXPECT_EQ(Encode(*tokenizer, two_users, {image}), BytesOf(token));
}

TEST(UntrustedTextTest, ARefusedMatchDoesNotSplitItsNeighbours) {
  base::Json file = TinyByteLevel({"x <", "x< e"});
  const int32_t end = AddToken("<end>", {}, &file);
  const auto tokenizer = Make(file);
  Prompt prompt;
  prompt.User("x<end>");
  EXPECT_EQ(Encode(*tokenizer, prompt, {end}), (Ids{257, 'n', 'd', '>'}));
}

TEST(UntrustedTextTest, UserTextHidesNoTokenOfTheTemplate) {
  base::Json file = TinyByteLevel();
  const int32_t end = AddToken("<end>", {}, &file);
  const int32_t longer = AddToken("x<end>", {}, &file);
  const int32_t shorter = AddToken("x<", {}, &file);
  const auto tokenizer = Make(file);
  Prompt prompt;
  prompt.User("x").Template("<end>");
  EXPECT_EQ(Encode(*tokenizer, prompt, {end, longer, shorter}), (Ids{'x', end}));
  Prompt spaces;
  spaces.User(" y\u0338").Template("<end>").User("\u0338 ");
  EXPECT_THAT(Encode(*tokenizer, spaces, {end, longer, shorter}), Contains(end).Times(1));
}

TEST(UntrustedTextTest, NoOtherTokenThatAUserStartsOrEndsHidesOneOfTheTemplate) {
  base::Json file = TinyByteLevel();
  const int32_t end = AddToken("<end>", {}, &file);
  const int32_t before = AddToken("x<", {{"special", false}}, &file);
  const int32_t behind = AddToken("<end>y", {{"special", false}}, &file);
  const int32_t around = AddToken("z<end>z", {{"special", false}}, &file);
  const auto tokenizer = Make(file);
  Prompt start, finish, both, harmless;
  start.User("x").Template("<end>");
  finish.Template("<end>").User("y");
  both.User("z").Template("<end>").User("z");
  harmless.User("x").Template("<").User("end>y");
  EXPECT_EQ(Encode(*tokenizer, start, {end}), (Ids{'x', end}));
  EXPECT_EQ(Encode(*tokenizer, finish, {end}), (Ids{end, 'y'}));
  EXPECT_EQ(Encode(*tokenizer, both, {end}), (Ids{'z', end, 'z'}));
  EXPECT_EQ(Encode(*tokenizer, harmless, {end}), (Ids{before, 'e', 'n', 'd', '>', 'y'}));
  EXPECT_EQ(Encode(*tokenizer, Prompt{"<end>y z<end>z", {}}, {end}), (Ids{behind, ' ', around}));
}

TEST(UntrustedTextTest, AShorterTokenThatIsNoControlTokenIsStillFound) {
  base::Json file = TinyByteLevel();
  const int32_t tool = AddToken("<t>", {{"special", false}}, &file);
  const int32_t control = AddToken("<t><c>", {}, &file);
  const auto tokenizer = Make(file);
  Prompt prompt;
  prompt.User("<t><c>");
  EXPECT_EQ(Encode(*tokenizer, prompt, {control}), (Ids{tool, '<', 'c', '>'}));
}

TEST(UntrustedTextTest, WhiteSpaceBesideATemplatesTokenIsSwallowedAsTheLibraryDoes) {
  base::Json file = TinyByteLevel();
  const int32_t both = AddToken("<b>", {{"lstrip", true}, {"rstrip", true}}, &file);
  const auto tokenizer = Make(file);
  Prompt prompt;
  prompt.User("a ").Template("<b>").User(" b <b> c");
  Ids expected = {'a', both};
  const Ids tail = BytesOf("b <b> c");
  expected.insert(expected.end(), tail.begin(), tail.end());
  EXPECT_EQ(Encode(*tokenizer, prompt, {both}), expected);
}

TEST(UntrustedTextTest, NormalizedTokensAreRefusedToo) {
  base::Json file = TinyByteLevel();
  file["normalizer"] = {{"type", "NFC"}};
  const int32_t id = AddToken("caf\u00E9", {{"normalized", true}}, &file);
  const auto tokenizer = Make(file);
  Prompt user, border, mark, trusted;
  user.User("cafe\u0301");
  border.Template("ca").User("f\u00E9");
  mark.Template("cafe").User("\u0301");
  trusted.User("cafe ").Template("caf\u00E9");
  EXPECT_THAT(Encode(*tokenizer, user, {id}), Not(Contains(id)));
  EXPECT_THAT(Encode(*tokenizer, border, {id}), Not(Contains(id)));
  EXPECT_THAT(Encode(*tokenizer, mark, {id}), Not(Contains(id)));
  EXPECT_THAT(Encode(*tokenizer, trusted, {id}), Contains(id).Times(1));
}

TEST(UntrustedTextTest, PrefixedPatternsOfNormalizedTokensAreRefusedToo) {
  base::Json file = TinyMetaspace();
  file["normalizer"] = base::Json::parse(R"({"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})");
  file["pre_tokenizer"] = nullptr;
  file["added_tokens"][1]["normalized"] = true;  // <s>
  const auto tokenizer = Make(file);
  Prompt user, border;
  user.User("a <s> <s>");
  border.Template("a ").User("<s>");
  EXPECT_THAT(Encode(*tokenizer, user, {1, 2}), Not(Contains(1)));
  EXPECT_THAT(Encode(*tokenizer, border, {1, 2}), Not(Contains(1)));
  EXPECT_THAT(Encode(*tokenizer, Prompt{"a <s>", {}}, {1, 2}), Contains(1).Times(1));
}

TEST(UntrustedTextTest, MergesMakeNoControlToken) {
  base::Json file = TinyByteLevel({"< s", "<s >"});
  const auto tokenizer = Make(file);
  Prompt user, border;
  user.User("<s>");
  border.Template("<s").User(">");
  EXPECT_EQ(Encode(*tokenizer, Prompt{"<s>", {}}, {257}), Ids{257});
  EXPECT_EQ(Encode(*tokenizer, user, {257}), (Ids{256, '>'}));
  EXPECT_EQ(Encode(*tokenizer, border, {257}), (Ids{256, '>'}));
}

TEST(UntrustedTextTest, WholeWordsMakeNoControlToken) {
  base::Json file = TinyByteLevel();
  file["model"]["vocab"]["<s>"] = 256;
  file["model"]["ignore_merges"] = true;
  const auto tokenizer = Make(file);
  Prompt user;
  user.User("<s>");
  EXPECT_EQ(Encode(*tokenizer, Prompt{"<s>", {}}, {256}), Ids{256});
  EXPECT_EQ(Encode(*tokenizer, user, {256}), BytesOf("<s>"));
}

TEST(UntrustedTextTest, CharactersAndByteTokensMakeNoControlToken) {
  const auto tokenizer = Make(TinyMetaspace());
  const int32_t newline = *tokenizer->IdOf("<0x0A>"), z = *tokenizer->IdOf("z");
  Prompt user;
  user.User("\nz");
  const Ids ids = Encode(*tokenizer, user, {newline, z});
  EXPECT_THAT(ids, Not(Contains(newline)));
  EXPECT_THAT(ids, Not(Contains(z)));
  EXPECT_THAT(ids, Contains(0));                           // the newline, as unknown
  EXPECT_THAT(ids, Contains(*tokenizer->IdOf("<0x7A>")));  // the letter, by its byte
}

TEST(UntrustedTextTest, UnknownCharactersMayBecomeTheUnknownToken) {
  base::Json file = TinyMetaspace();
  file["model"]["byte_fallback"] = false;
  const auto tokenizer = Make(file);
  Prompt user;
  user.User("\u4E16<unk>");
  const Ids ids = Encode(*tokenizer, user, {0, 1, 2});
  EXPECT_THAT(ids, Contains(0));  // for the character; the literal text is spelled out
  EXPECT_THAT(ids, Contains(*tokenizer->IdOf("u")));
}

// A prompt of random parts, and the control tokens that its template wrote whole.
struct RandomPrompt {
  Prompt prompt;
  Ids expected;
};

RandomPrompt MakePrompt(const Tokenizer& tokenizer, std::mt19937* random) {
  const std::vector<AddedToken>& tokens = tokenizer.added_tokens();
  const std::vector<std::string> words = {"a",   " ",      "\n",         "hello", "<",      "|>",
                                          "im_", "\u4E16", "'s",         "1",     "\u0301", ">",
                                          "</",  "\u2581", "\U0001F600", "  "};
  RandomPrompt out;
  const auto any = [&](const auto& list) { return list[(*random)() % list.size()]; };
  for (int parts = 1 + (*random)() % 8; parts > 0; --parts) {
    const AddedToken& token = any(tokens);
    const size_t cut = (*random)() % (token.content.size() + 1);
    switch ((*random)() % 6) {
      case 0:
        out.prompt.User(any(words));
        break;
      case 1:
        out.prompt.User(any(words) + token.content + any(words));
        break;
      case 2:
        out.prompt.User(token.content);
        break;
      case 3:
        out.prompt.User(token.content.substr(0, cut)).User(token.content.substr(cut));
        break;
      case 4:
        out.prompt.Template("word");
        break;
      default:
        out.prompt.Template(token.content);
        out.expected.push_back(token.id);
    }
  }
  return out;
}

TEST(UntrustedTextTest, GoldenTokenizersYieldExactlyTheControlTokensOfTheTemplate) {
  std::mt19937 random(5);
  int tokenizers = 0;
  for (const auto& folder : FoldersOf(GoldenDir() / "tokenizers")) {
    const auto loaded = Tokenizer::Load(folder.string());
    if (!loaded.ok()) continue;
    const Tokenizer& tokenizer = **loaded;
    SCOPED_TRACE(folder.string());
    ++tokenizers;
    // Every added token is a control token here. Those found only at borders (of words, or of the
    // normalized text) may be missing, but none may be too many.
    bool borders = false;
    Ids control;
    std::set<int32_t> checked;
    for (const AddedToken& token : tokenizer.added_tokens()) {
      control.push_back(token.id);
      if (token.content != "<unk>") checked.insert(token.id);
      borders |= token.normalized || token.single_word;
    }
    for (int round = 0; round < 1500; ++round) {
      const RandomPrompt made = MakePrompt(tokenizer, &random);
      Ids found, expected;
      for (const int32_t id : Encode(tokenizer, made.prompt, control)) {
        if (checked.count(id) != 0) found.push_back(id);
      }
      for (const int32_t id : made.expected) {
        if (checked.count(id) != 0) expected.push_back(id);
      }
      if (borders) {
        ASSERT_LE(found.size(), expected.size()) << made.prompt.text;
      } else {
        ASSERT_EQ(found, expected) << made.prompt.text;
      }
    }
  }
  EXPECT_GT(tokenizers, 0);
}

TEST(UntrustedTextTest, UserTextReadsBackLiterally) {
  const auto tokenizer = Tokenizer::Load((GoldenDir() / "tokenizers" / "qwen2").string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  Ids control;
  std::string text = "say ";
  for (const AddedToken& token : (*tokenizer)->added_tokens()) {
    control.push_back(token.id);
    text += token.content + " x" + token.content;
  }
  Prompt prompt;
  prompt.User(text);
  const Ids ids = Encode(**tokenizer, prompt, control);
  EXPECT_EQ((*tokenizer)->Decode(ids, /*skip_special=*/true), text);
}

TEST(UntrustedTextTest, WithoutControlIdsTheMarksChangeNothing) {
  base::Json file = TinyByteLevel();
  const int32_t end = AddToken("<end>", {}, &file);
  const auto tokenizer = Make(file);
  Prompt prompt;
  prompt.User("<end>");
  EXPECT_EQ(Encode(*tokenizer, prompt, {}), Ids{end});
}

}  // namespace
}  // namespace tessera::text
