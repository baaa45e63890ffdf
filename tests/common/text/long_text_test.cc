#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "tests/common/text/golden_cases.h"
#include "tests/common/text/tiny_tokenizer.h"

namespace tessera::text {
namespace {

// Sanitizers need stack of their own.
#ifdef TESSERA_SANITIZED
constexpr size_t kStackBytes = 1 << 20;
#else
constexpr size_t kStackBytes = 128 << 10;
#endif

void RunOnSmallStack(std::function<void()> work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread;
  const auto call = [](void* arg) -> void* {
    (*static_cast<std::function<void()>*>(arg))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, call, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

std::string Repeat(const std::string& unit, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += unit;
  return out;
}

// What has taken servers down (FAULTS B022), and texts near it.
std::vector<std::string> LongTexts() {
  return {std::string(100'000, 'A'),
          std::string(100'000, '\n'),
          std::string(1'000'000, 'a'),
          std::string(200'000, ' '),
          std::string(200'000, '1'),
          Repeat(" \n", 100'000),
          Repeat(" \t\u00A0\u3000", 50'000),
          std::string(100'000, ' ') + "x",
          Repeat("\r\n ", 100'000) + "x",
          Repeat("'", 100'000),
          "e" + Repeat("\u0301\u0323", 200'000),
          Repeat("\U0001F600", 50'000),
          Repeat("<|im_", 50'000),
          Repeat("<s>", 50'000)};
}

TEST(LongTextTest, EveryGoldenTokenizerTakesLongRunsOnASmallStack) {
  int tokenizers = 0;
  for (const auto& folder : FoldersOf(GoldenDir() / "tokenizers")) {
    const auto tokenizer = Tokenizer::Load(folder.string());
    if (!tokenizer.ok()) continue;
    ++tokenizers;
    for (const std::string& text : LongTexts()) {
      SCOPED_TRACE(absl::StrCat(folder.string(), " ", text.substr(0, 8), "..."));
      RunOnSmallStack([&] {
        const auto ids = (*tokenizer)->Encode(text, {});
        EXPECT_TRUE(ids.ok()) << ids.status();
        EXPECT_GT(ids->size(), 0);
      });
    }
  }
  EXPECT_GT(tokenizers, 0);
}

TEST(LongTextTest, OneWordOfAMillionLettersMergesInOrder) {
  base::Json file = TinyByteLevel({"a a", "aa aa", "aaaa aaaa"});
  const auto tokenizer = Make(file);
  RunOnSmallStack([&] {
    const std::vector<int32_t> ids = Encode(*tokenizer, std::string(1'000'001, 'a'));
    ASSERT_EQ(ids.size(), 125'001);
    EXPECT_EQ(ids[0], 258);
    EXPECT_EQ(ids.back(), 'a');
  });
}

TEST(LongTextTest, MarkedTextOfAMillionLettersIsNoSlower) {
  base::Json file = TinyByteLevel({"a a", "aa aa"});
  const auto tokenizer = Make(file);
  Prompt prompt;
  for (int i = 0; i < 1000; ++i) prompt.User(std::string(500, 'a')).Template(std::string(500, 'a'));
  RunOnSmallStack([&] {
    // No merge may make "aaaa" where a user wrote a part of it.
    const std::vector<int32_t> ids = Encode(*tokenizer, prompt, {257});
    EXPECT_EQ(ids.size(), 1000 * (250 + 125));
  });
}

}  // namespace
}  // namespace tessera::text
