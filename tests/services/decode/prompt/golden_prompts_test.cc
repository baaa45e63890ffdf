#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include "common/base/json.h"
#include "services/decode/prompt/prompt_builder.h"

namespace tessera::decode {
namespace {

namespace fs = std::filesystem;
using base::Json;

// Families without a chat template, or whose prompts are built another way; this list only shrinks.
const std::set<std::string>& LaterModelTypes() {
  static const auto* const types =
      new std::set<std::string>{"blip-2", "instructblip", "clip", "internvl"};
  return *types;
}

std::vector<fs::path> ModelFolders() {
  const char* goldens = std::getenv("TESSERA_GOLDENS");
  const fs::path root = fs::path(goldens != nullptr ? goldens : "tests/goldens") / "models";
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root)) folders.push_back(entry.path());
  folders.push_back("models/shelf-vqa");
  return folders;
}

std::vector<Message> MessagesOf(const Json& list) {
  std::vector<Message> messages;
  for (const Json& item : list) {
    Message message;
    message.role = item["role"];
    const Json& content = item["content"];
    if (content.is_string()) message.parts.push_back({Part::kText, content});
    for (const Json& part : content.is_array() ? content : Json::array()) {
      if (part["type"] == "text") {
        message.parts.push_back({Part::kText, part["text"]});
      } else {
        message.parts.push_back({Part::kImage, ""});
      }
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

int CheckFolder(const fs::path& folder) {
  SCOPED_TRACE(folder.string());
  const auto cases = base::ReadJsonFile((folder / "expected/cases.json").string());
  const auto tokenizer = text::Tokenizer::Load(folder.string());
  const auto chat_template = ChatTemplate::Load(folder.string());
  EXPECT_TRUE(cases.ok()) << cases.status();
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE(chat_template.ok()) << chat_template.status();
  if (!cases.ok() || !tokenizer.ok() || !chat_template.ok()) return 0;
  PromptOptions options;
  options.image_token_id = (*cases)["image_token_id"].get<int32_t>();
  const auto builder = PromptBuilder::Create(**tokenizer, &*chat_template, options);
  EXPECT_TRUE(builder.ok()) << builder.status();
  if (!builder.ok()) return 0;
  int count = 0;
  for (const Json& one : (*cases)["cases"]) {
    SCOPED_TRACE(one["id"].get<std::string>());
    const std::vector<Message> messages = MessagesOf(one["messages"]);
    const auto rendered = chat_template->Render(messages, true);
    EXPECT_TRUE(rendered.ok()) << rendered.status();
    if (rendered.ok()) {
      EXPECT_EQ(rendered->text, one["prompt"].get<std::string>());
    }
    std::vector<PromptImage> images;
    for (const Json& rows : one["image_rows"]) images.push_back({rows.get<int64_t>()});
    const auto plan = builder->Build(messages, images);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (plan.ok()) {
      std::vector<int32_t> ids = plan->ids;
      std::replace(ids.begin(), ids.end(), -1, *options.image_token_id);
      EXPECT_EQ(ids, one["input_ids"].get<std::vector<int32_t>>());
    }
    ++count;
  }
  return count;
}

TEST(GoldenPrompts, TextAndIdsOfEveryCase) {
  int count = 0;
  for (const fs::path& folder : ModelFolders()) {
    const auto config = base::ReadJsonFile((folder / "config.json").string());
    ASSERT_TRUE(config.ok()) << config.status();
    const std::string type = (*config)["model_type"];
    if (LaterModelTypes().count(type) > 0) continue;
    const int cases = CheckFolder(folder);
    EXPECT_GT(cases, 0) << folder;
    count += cases;
  }
  std::cout << "GoldenPrompts: " << count << " cases\n";
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace tessera::decode
