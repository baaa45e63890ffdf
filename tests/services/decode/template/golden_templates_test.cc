#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "common/base/error.h"
#include "common/base/json.h"
#include "tests/services/decode/template/json_value.h"
#include "tests/services/decode/template/run_template.h"

namespace tessera::decode::jinja {
namespace {

namespace fs = std::filesystem;

fs::path Folder() {
  const char* goldens = std::getenv("TESSERA_GOLDENS");
  return fs::path(goldens != nullptr ? goldens : "tests/goldens") / "chat_templates";
}

// A file's text again as Value, so that big integers survive.
Value ReadValue(const fs::path& path) {
  absl::StatusOr<std::string> text = base::ReadFile(path.string());
  EXPECT_TRUE(text.ok()) << text.status();
  absl::StatusOr<Value> value = ValueFromJson(*text, true);
  EXPECT_TRUE(value.ok()) << path;
  return *value;
}

std::string TextOf(const Value& dict, absl::string_view key) {
  const Value* value = dict.Find(key);
  return value == nullptr ? "" : value->text().bytes();
}

Globals GlobalsOf(const Value& holder) {
  Globals globals = {{"messages", *holder.Find("messages")},
                     {"add_generation_prompt", *holder.Find("add_generation_prompt")}};
  for (const auto& [name, value] : holder.Find("kwargs")->entries()) {
    globals.emplace_back(name.text().bytes(), value);
  }
  return globals;
}

// `expected` has `rendered`, or `error` and perhaps `error_message`, and may be `rare`.
void Check(const std::string& source, const Globals& globals, const Value& expected) {
  const absl::StatusOr<Text> result = RunTemplate(source, globals);
  const bool rare = expected.Find("rare") != nullptr;
  if (expected.Find("rendered") != nullptr) {
    if (rare && !result.ok()) {
      EXPECT_NE(result.status().message().find("line "), absl::string_view::npos);
      return;
    }
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->bytes(), TextOf(expected, "rendered"));
    return;
  }
  ASSERT_FALSE(result.ok()) << result->bytes();
  const bool raised = TextOf(expected, "error") == "raise_exception";
  EXPECT_EQ(base::ReasonOf(result.status()), raised ? "TEMPLATE_RAISED" : "TEMPLATE_FAILED");
  if (raised) {
    EXPECT_EQ(std::string(result.status().message()), TextOf(expected, "error_message"));
  } else {
    EXPECT_NE(result.status().message().find("line "), absl::string_view::npos) << result.status();
  }
}

TEST(GoldenTemplates, EveryTemplateRendersEveryCase) {
  int cases = 0;
  for (const auto& entry : fs::directory_iterator(Folder())) {
    if (entry.path().extension() != ".jinja") continue;
    absl::StatusOr<std::string> source = base::ReadFile(entry.path().string());
    ASSERT_TRUE(source.ok()) << source.status();
    fs::path path = entry.path();
    const Value list = ReadValue(path.replace_extension(".cases.json"));
    for (const Value& one : list.items()) {
      SCOPED_TRACE(entry.path().filename().string() + " " + TextOf(one, "name"));
      Check(*source, GlobalsOf(one), one);
      ++cases;
    }
  }
  std::cout << "GoldenTemplates: " << cases << " cases of templates\n";
  EXPECT_GT(cases, 0);
}

TEST(GoldenTemplates, SnippetsAndErrors) {
  int cases = 0;
  for (const char* name : {"snippets.json", "errors.json"}) {
    const Value file = ReadValue(Folder() / name);
    const Globals globals = GlobalsOf(file);
    for (const Value& one : file.Find("cases")->items()) {
      SCOPED_TRACE(TextOf(one, "template"));
      Check(TextOf(one, "template"), globals, one);
      ++cases;
    }
  }
  std::cout << "GoldenTemplates: " << cases << " snippets\n";
  EXPECT_GT(cases, 0);
}

}  // namespace
}  // namespace tessera::decode::jinja
