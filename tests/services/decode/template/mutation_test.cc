#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "common/base/error.h"
#include "common/base/json.h"
#include "services/decode/template/chat_template.h"
#include "tests/services/decode/template/json_value.h"
#include "tests/services/decode/template/run_template.h"

namespace tessera::decode::jinja {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> Sources() {
  const char* goldens = std::getenv("TESSERA_GOLDENS");
  const fs::path folder =
      fs::path(goldens != nullptr ? goldens : "tests/goldens") / "chat_templates";
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> sources;
  for (const fs::path& path : paths) sources.push_back(*base::ReadFile(path.string()));
  return sources;
}

std::string Mutant(const std::vector<std::string>& sources, std::mt19937* random) {
  static constexpr const char* kPieces[] = {
      "{{",   "}}",        "{%", "%}",   "{#",   "-",    "'",
      "\"",   "|",         ".",  "(",    ")",    "[",    "]",
      "\\",   "\xff",      "\n", "not ", " if ", " in ", "{% endfor %}",
      "loop", "9999999999"};
  const auto below = [random](size_t n) { return (*random)() % n; };
  std::string text = sources[below(sources.size())];
  for (size_t edits = 1 + below(4); edits > 0 && !text.empty(); --edits) {
    const size_t at = below(text.size());
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, 1 + below(20));
        break;
      case 2:
        text.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), below(40)));
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

TEST(TemplateMutation, AMutantRendersOrFailsWithAType) {
  const Value messages = *ValueFromJson(
      R"([{"role": "system", "content": "s"},
          {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "é 1"}]},
          {"role": "assistant", "content": "a </think> b"}])",
      true);
  const std::vector<std::string> sources = Sources();
  ASSERT_FALSE(sources.empty());
  std::mt19937 random(20240229);
  Limits limits;
  limits.max_steps = 200'000;
  limits.max_total_bytes = size_t{16} << 20;
  int rendered = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string source = Mutant(sources, &random);
    const absl::StatusOr<Text> text = RunTemplate(
        source, {{"messages", messages}, {"add_generation_prompt", Value::Bool(true)}}, limits);
    if (text.ok()) {
      ++rendered;
      for (const ByteRange& range : text->untrusted()) ASSERT_LE(range.end, text->size());
      continue;
    }
    const std::string reason = base::ReasonOf(text.status());
    ASSERT_TRUE(reason == "TEMPLATE_FAILED" || reason == "TEMPLATE_RAISED") << text.status();
  }
  EXPECT_GT(rendered, 100);
}

TEST(TemplateMutation, LoadingAMutantFailsWithAType) {
  const std::vector<std::string> sources = Sources();
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    ChatTemplate::Options options;
    options.source = Mutant(sources, &random);
    options.limits.max_steps = 100'000;
    const absl::StatusOr<ChatTemplate> loaded = ChatTemplate::Create(options);
    if (!loaded.ok()) {
      EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(base::ReasonOf(loaded.status()), "");
    }
  }
}

}  // namespace
}  // namespace tessera::decode::jinja
