#include "common/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::base {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(absl::string_view text, const JsonLimits& limits = {}) {
  const auto json = ParseJson(text, limits);
  EXPECT_FALSE(json.ok()) << text.substr(0, 100);
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ReasonOf(json.status()).empty());
  return std::string(json.status().message());
}

TEST(JsonTest, KeepsTheOrderOfKeysAndEveryKindOfValue) {
  const auto json = ParseJson(R"( {"z":1,"a":[true,null,-2,3.5,"é\n"],"m":{}} )");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->dump(), R"({"z":1,"a":[true,null,-2,3.5,"é\n"],"m":{}})");
}

TEST(JsonTest, ErrorsTellTheByteOffset) {
  EXPECT_THAT(ErrorOf(R"({"a": x})"), HasSubstr("at byte 6:"));
  EXPECT_THAT(ErrorOf(R"({"a":1} {)"), HasSubstr("at byte 8:"));
  EXPECT_THAT(ErrorOf(R"({"a":1,"a":2})"), HasSubstr("at byte 9: the key \"a\" occurs twice"));
  EXPECT_THAT(ErrorOf("[1,]"), HasSubstr("at byte 3:"));
  ErrorOf("");
  ErrorOf("  ");
}

TEST(JsonTest, RefusesAKeyTwiceInOneObjectOnly) {
  EXPECT_THAT(ErrorOf(R"({"a":1,"\u0061":2})"), HasSubstr("occurs twice"));
  EXPECT_THAT(ErrorOf(R"([{"b":{"a":1,"a":2}}])"), HasSubstr("occurs twice"));
  EXPECT_TRUE(ParseJson(R"({"a":{"a":1},"b":{"a":2}})").ok());
  EXPECT_TRUE(ParseJson(R"([{"a":1},{"a":1}])").ok());
}

TEST(JsonTest, DepthHasALimitWithoutUsingTheStack) {
  EXPECT_TRUE(ParseJson("[[[1]]]", {.max_depth = 3}).ok());
  EXPECT_THAT(ErrorOf("[[[[1]]]]", {.max_depth = 3}), HasSubstr("deeper than 3"));
  EXPECT_THAT(ErrorOf(std::string(100'000, '[')), HasSubstr("deeper than 64"));
  std::string objects;
  for (int i = 0; i < 50'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(ErrorOf(objects), HasSubstr("deeper than 64"));
}

TEST(JsonTest, SizeHasALimit) {
  EXPECT_EQ(ReasonOf(ParseJson("[1,2]", {.max_bytes = 4}).status()), "JSON_TOO_LARGE");
}

TEST(JsonTest, ValuesHaveALimitAtEveryDepth) {
  EXPECT_TRUE(ParseJson(R"({"a":[1,{}]})", {.max_values = 4}).ok());
  for (const char* more : {R"({"a":[1,{}],"b":null})", "[[],[],[],[]]", R"([[["a","b"]]])"}) {
    EXPECT_THAT(ErrorOf(more, {.max_values = 4}), HasSubstr("more than 4 values")) << more;
  }
}

TEST(JsonTest, RefusesWhatIsNoUtf8) {
  for (const char* bad :
       {"\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xc0\xaf\"", R"("\ud800")"}) {
    ErrorOf(bad);
    ErrorOf(absl::StrCat("{", bad, ":1}"));
  }
}

TEST(JsonTest, RefusesANulWhereverItStands) {
  for (const std::string& text : {std::string("{}\0", 3), std::string("{}\0{}", 5),
                                  std::string("\"a\0b\"", 5), std::string("\0{}", 3)}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("NUL"));
  }
}

TEST(JsonTest, RefusesWhatIsNoJson) {
  for (const char* bad : {"NaN", "Infinity", "1e999", "01", "+1", "'a'", "{a:1}", "[1 2]",
                          "// c\n1", "tru", "\"a", "\"\n\"", "1.", ".5", "{\"a\"}", "[}"}) {
    ErrorOf(bad);
  }
}

TEST(JsonTest, AMessageIsPrintableAndShort) {
  const std::string message =
      ErrorOf(absl::StrCat("[\"", std::string(100'000, 'x'), "\x01\xff\"]"));
  EXPECT_LT(message.size(), 1000u);
  for (char c : message) EXPECT_TRUE(c >= ' ' && c <= '~');
  EXPECT_LT(ErrorOf(absl::StrCat("{\"", std::string(9999, 'k'), "\":1,\"", std::string(9999, 'k'),
                                 "\":1}"))
                .size(),
            1000u);
}

TEST(JsonTest, SurvivesSeededMutations) {
  const std::string seed = R"({"a":[1,-2.5e3,"\u00e9",{"b":null}],"c":{"d":[[],{}]},"e":"text"})";
  std::mt19937 random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = seed;
    for (int edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      if (random() % 2)
        text[at] = seed[random() % seed.size()];
      else
        text[at] = static_cast<char>(random());
    }
    if (const auto json = ParseJson(text); json.ok()) {
      ASSERT_TRUE(ParseJson(json->dump()).ok());
    }
  }
}

TEST(ReadFileTest, NamesThePathOfWhatIsMissingTooLargeOrNoFile) {
  const std::string absent = "tests/no/such/file.json";
  EXPECT_EQ(ReadFile(absent).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadJsonFile(absent).status().message()), HasSubstr(absent));
  EXPECT_THAT(std::string(ReadFile("CMakeLists.txt", 10).status().message()),
              HasSubstr("limit of 10 bytes"));
  EXPECT_EQ(ReadFile("tests").status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status status = ReadJsonFile("CMakeLists.txt").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("CMakeLists.txt"));
  EXPECT_EQ(ReasonOf(status), "JSON_INVALID");
}

// `json` with what the signs in it stand for.
Json Restored(Json json, const LongStrings& long_strings) {
  if (json.is_string()) return std::string(long_strings.Of(json.get_ref<std::string&>()));
  if (json.is_structured()) {
    for (Json& value : json) value = Restored(value, long_strings);
  }
  return json;
}

TEST(LongStringsTest, StayInTheTextUnderTheirKeysAlone) {
  const std::string text = R"({"url":"abcdefgh","other":"abcdefgh","list":["abcdefgh"],"url2":""})";
  LongStrings strings({"url"}, 8);
  auto json = ParseJson(text, {}, strings);
  ASSERT_TRUE(json.ok()) << json.status();
  const absl::string_view url = strings.Of((*json)["url"].get_ref<std::string&>());
  EXPECT_EQ(url, "abcdefgh");
  EXPECT_EQ(url.data(), text.data() + text.find("abcdefgh"));
  EXPECT_NE((*json)["url"], "abcdefgh");
  EXPECT_EQ((*json)["other"], "abcdefgh");
  EXPECT_EQ((*json)["list"][0], "abcdefgh");
  EXPECT_EQ((*json)["url2"], "");
}

TEST(LongStringsTest, WhatIsShortEscapedOrNoAsciiIsInTheDocument) {
  for (const char* value : {"abcdefg", R"(abcdefg\n)", R"(\u0061bcdefgh)", "abcdefgh\u00e9"}) {
    LongStrings strings({"url"}, 8);
    auto json = ParseJson(absl::StrCat(R"({"url":")", value, R"("})"), {}, strings);
    ASSERT_TRUE(json.ok()) << json.status();
    const auto plain = ParseJson(absl::StrCat("[\"", value, "\"]"));
    EXPECT_EQ((*json)["url"], (*plain)[0]);
  }
}

TEST(LongStringsTest, ADocumentCannotForgeASign) {
  LongStrings strings({"url"}, 8);
  EXPECT_FALSE(ParseJson("{\"url\":\"abcdefgh\",\"x\":\"\xff"
                         "0\"}",
                         {}, strings)
                   .ok());
}

// Text that is JSON or nearly so.
class RandomText {
 public:
  explicit RandomText(uint32_t seed) : random_(seed) {}

  std::string Next() {
    std::string text = Value(4);
    for (int edits = Below(3); edits > 0 && !text.empty(); --edits) Edit(text);
    return text;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  std::string Space() { return Below(4) == 0 ? std::string(1, " \t\n\r"[Below(4)]) : ""; }
  std::string String() {
    static constexpr const char* kPieces[] = {"a",       "data:",  "0123456789", "\\\"", "\\\\",
                                              "\\u0041", "\u00e9", "{",          ":",    "]"};
    std::string text = "\"";
    for (int pieces = Below(5); pieces > 0; --pieces) text += kPieces[Below(Below(2) ? 10 : 3)];
    return text + "\"";
  }
  std::string Key() { return Below(2) ? "\"url\"" : Below(2) ? "\"0123456789\"" : String(); }
  std::string Value(int depth) {
    const int kind = Below(depth > 0 ? 6 : 3);
    if (kind == 0) return Below(2) ? "12" : "null";
    if (kind <= 2) return String();
    std::string text = kind <= 4 ? "{" : "[";
    for (int values = Below(4), i = 0; i < values; ++i) {
      if (i > 0) text += "," + Space();
      if (kind <= 4) text += Space() + Key() + Space() + ":";
      text += Space() + Value(depth - 1) + Space();
    }
    return text + (kind <= 4 ? "}" : "]");
  }
  void Edit(std::string& text) {
    const size_t at = static_cast<size_t>(Below(static_cast<int>(text.size())));
    switch (Below(3)) {
      case 0:
        text.erase(at, 1);
        return;
      case 1:
        text.insert(at, 1, "\"\\:,{}[]\xff\n\0a"[Below(12)]);
        return;
      default:
        text.resize(at);
    }
  }

  std::mt19937 random_;
};

TEST(LongStringsTest, AnyTextIsReadOrRefusedAsWithoutThem) {
  RandomText texts(7);
  JsonLimits limits;
  limits.max_depth = 3;
  limits.max_values = 12;
  int taken = 0, stayed = 0;
  for (int i = 0; i < 50'000; ++i) {
    const std::string text = texts.Next();
    LongStrings strings({"url", "a"}, 6);
    const auto plain = ParseJson(text, limits);
    const auto json = ParseJson(text, limits, strings);
    ASSERT_EQ(json.status(), plain.status()) << text;
    if (!plain.ok()) continue;
    ++taken;
    ASSERT_EQ(Restored(*json, strings), *plain) << text;
    if (*json != *plain) ++stayed;
  }
  EXPECT_GT(taken, 10'000);
  EXPECT_GT(stayed, 300);
}

}  // namespace
}  // namespace tessera::base
