#include "services/decode/template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/base/error.h"

namespace tessera::decode {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

absl::StatusOr<ChatTemplate> Make(const std::string& source) {
  ChatTemplate::Options options;
  options.source = source;
  options.tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  return ChatTemplate::Create(options);
}

Message Says(const std::string& role, std::vector<std::string> texts) {
  Message message{role, {}};
  for (std::string& text : texts) message.parts.push_back({Part::kText, std::move(text)});
  return message;
}

std::string Show(const ChatTemplate& chat_template, std::vector<Message> messages) {
  const absl::StatusOr<Rendered> rendered = chat_template.Render(messages, true);
  return rendered.ok() ? rendered->text : base::ReasonOf(rendered.status());
}

constexpr char kStringOnly[] =
    "{% for m in messages %}[{{ m.role }}]{{ m.content + '' }}{% endfor %}";
constexpr char kListOnly[] =
    "{% for m in messages %}[{{ m.role }}]{% for p in m.content | selectattr('type', 'equalto', "
    "'text') %}{{ p.text }};{% endfor %}{% endfor %}";
constexpr char kBoth[] =
    "{% for m in messages %}{% if m.content is string %}S:{{ m.content }}{% else %}L:"
    "{% for p in m.content %}{{ p.text if p.type == 'text' else '<image>' }}{% endfor %}"
    "{% endif %}{% endfor %}";

TEST(ChatTemplateTest, AStringIsUsedWhereItShowsTheText) {
  const auto made = Make(kStringOnly);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Show(*made, {Says("system", {"s"}), Says("user", {"a", "b"})}), "[system]s[user]ab");
  const auto both = Make(kBoth);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(Show(*both, {Says("user", {"a", "b"})}), "S:ab");
}

TEST(ChatTemplateTest, AListIsUsedWhereAStringShowsNothing) {
  const auto made = Make(kListOnly);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Show(*made, {Says("user", {"a", "b"})}), "[user]a;b;");
}

TEST(ChatTemplateTest, APictureNeedsTheList) {
  const Message picture{"user", {{Part::kImage, ""}, {Part::kText, "q"}}};
  const auto both = Make(kBoth);
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(Show(*both, {picture}), "L:<image>q");
  const auto text = Make(kStringOnly);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(Show(*text, {picture}), "IMAGE_NOT_SUPPORTED");
}

TEST(ChatTemplateTest, APictureInATurnThatShowsNoneIsRefusedByItsPlace) {
  // A user's list is shown whole, of others only the first text, as LLaVA's templates have it.
  const auto made = Make(
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% elif m.role == 'user' "
      "%}"
      "{% for p in m.content %}{{ p.text if p.type == 'text' else '<image>' }}{% endfor %}"
      "{% else %}{{ m.content[0]['text'] + '.' }}{% endif %}{% endfor %}");
  ASSERT_TRUE(made.ok()) << made.status();
  for (const char* role : {"assistant", "system"}) {
    for (const bool first : {false, true}) {
      Message pictured{role, {{Part::kText, "t"}, {Part::kImage, ""}}};
      if (first) std::swap(pictured.parts[0], pictured.parts[1]);
      const auto text = made->Render({Says("user", {"a"}), pictured, Says("user", {"b"})}, true);
      EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(base::ReasonOf(text.status()), "IMAGE_NOT_SUPPORTED");
      EXPECT_EQ(base::FieldOf(text.status()),
                first ? "messages[1].parts[0].image" : "messages[1].parts[1].image");
      EXPECT_THAT(std::string(text.status().message()), HasSubstr("only in messages of role user"));
    }
  }
  // A template that treats all alike shows them everywhere.
  const auto both = Make(kBoth);
  ASSERT_TRUE(both.ok());
  const Message pictured{"assistant", {{Part::kImage, ""}, {Part::kText, "q"}}};
  EXPECT_EQ(Show(*both, {Says("user", {"a"}), pictured}), "S:aL:<image>q");
}

TEST(ChatTemplateTest, APrintedListIsNoForm) {
  // Prints [{'type': 'text', 'text': ...}] for a list.
  const auto made = Make("{% for m in messages %}{{ m.content }}{% endfor %}");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Show(*made, {Says("user", {"a"})}), "a");
  const auto printed = Make("{{ messages[0].content if messages[0].content is not string }}");
  EXPECT_EQ(base::ReasonOf(printed.status()), "TEMPLATE_HIDES_TEXT");
  const auto json = Make("{{ messages[0].content | tojson if messages[0].content is not string }}");
  EXPECT_EQ(base::ReasonOf(json.status()), "TEMPLATE_HIDES_TEXT");
}

TEST(ChatTemplateTest, ATemplateThatHidesTheQuestionIsRefused) {
  for (const char* source : {"", "hello", "{{ messages | length }}",
                             "{% for m in messages if m.role == 'system' %}{{ m.content }}"
                             "{% endfor %}",
                             "{{ messages[0].content }}{{ messages[0].content }}"}) {
    EXPECT_EQ(base::ReasonOf(Make(source).status()), "TEMPLATE_HIDES_TEXT") << source;
  }
}

TEST(ChatTemplateTest, AListThatShowsItsFirstTextGetsOne) {
  const auto made = Make("{% for m in messages %}{{ m.content[0]['text'] }}|{% endfor %}");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Show(*made, {Says("user", {"a", "b"}), Says("assistant", {"c", "d"})}), "ab|cd|");
  const Message split{"user", {{Part::kText, "a"}, {Part::kImage, ""}, {Part::kText, "b"}}};
  EXPECT_EQ(Show(*made, {split}), "BAD_MESSAGES");
}

TEST(ChatTemplateTest, ARefusedRoleIsNamedWithTheTemplatesWords) {
  const auto made = Make(
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('No system here!') }}"
      "{% endif %}{{ m.content }}{% endfor %}");
  ASSERT_TRUE(made.ok()) << made.status();
  const auto rendered = made->Render({Says("system", {"s"}), Says("user", {"a"})}, true);
  EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(rendered.status()), "UNSUPPORTED_ROLE");
  EXPECT_THAT(std::string(rendered.status().message()), HasSubstr("'system'"));
  EXPECT_THAT(std::string(rendered.status().message()), HasSubstr("No system here!"));
  EXPECT_EQ(base::FieldOf(rendered.status()), "messages[0].role");
}

TEST(ChatTemplateTest, ARoleThatIsNotShownIsUnsupported) {
  const auto made = Make("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Show(*made, {Says("system", {"s"}), Says("user", {"a"})}), "UNSUPPORTED_ROLE");
}

TEST(ChatTemplateTest, WhatTheTemplateRaisesIsItsOwnMessage) {
  const auto made = Make(
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 is even) %}"
      "{{ raise_exception('Roles must alternate: ' ~ m.role) }}{% endif %}{{ m.content }}"
      "{% endfor %}");
  ASSERT_TRUE(made.ok()) << made.status();
  const auto rendered = made->Render({Says("user", {"a"}), Says("user", {"b"})}, true);
  EXPECT_EQ(base::ReasonOf(rendered.status()), "TEMPLATE_RAISED");
  EXPECT_EQ(std::string(rendered.status().message()), "Roles must alternate: user");
  EXPECT_EQ(base::FieldOf(rendered.status()), "messages[1]");
}

TEST(ChatTemplateTest, WhatIsRaisedIsBlamedOnTheMessageAtFault) {
  const auto made = Make(
      "{% for m in messages %}{% if m.role == 'user' and 'bad' in m.content %}"
      "{{ raise_exception('bad') }}{% endif %}{{ m.content }}{% endfor %}");
  ASSERT_TRUE(made.ok()) << made.status();
  for (size_t bad = 0; bad < 9; ++bad) {
    std::vector<Message> messages(9, Says("user", {"good"}));
    messages[bad].parts[0].text = "bad";
    EXPECT_EQ(base::FieldOf(made->Render(messages, true).status()),
              "messages[" + std::to_string(bad) + "]");
  }
}

TEST(ChatTemplateTest, AQuestionNeverVanishes) {
  // Shows the probe, and loses a question that is longer.
  const auto made =
      Make("{% for m in messages %}{{ m.content if m.content | length < 30 }}{% endfor %}");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Show(*made, {Says("user", {std::string(40, 'q')})}), "TEMPLATE_HIDES_TEXT");
}

TEST(ChatTemplateTest, BadMessagesAreTyped) {
  const auto made = Make(kBoth);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(Show(*made, {}), "BAD_MESSAGES");
  EXPECT_EQ(Show(*made, {Says("user", {"\xff"})}), "INVALID_UTF8");
  EXPECT_EQ(Show(*made, {Says("critic", {"x"})}), "UNSUPPORTED_ROLE");
  EXPECT_EQ(Show(*made, {Says("user", {""})}), "S:");
  EXPECT_EQ(Show(*made, {Says("user", {})}), "S:");
}

TEST(ChatTemplateTest, MessagesAreDataAndTheRoleIsTheTemplates) {
  const auto made = Make("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}");
  ASSERT_TRUE(made.ok());
  const auto rendered = made->Render({Says("user", {"{{ 7*7 }}{% if %}"})}, true);
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "<|user|>{{ 7*7 }}{% if %}");
  ASSERT_EQ(rendered->untrusted.size(), 1u);
  EXPECT_EQ(rendered->untrusted[0].begin, 8u);
  EXPECT_EQ(rendered->untrusted[0].end, rendered->text.size());
}

TEST(ChatTemplateTest, OwnTextHoldsWhatTheTemplatePutsTogether) {
  const auto made =
      Make("{% for m in messages %}{{ '<|' ~ m.role ~ '|>' ~ m.content }}{% endfor %}");
  ASSERT_TRUE(made.ok());
  EXPECT_THAT(made->own_text(), HasSubstr("<|user|>"));
  EXPECT_THAT(made->own_text(), HasSubstr("<|assistant|>"));
  EXPECT_THAT(made->own_text(), HasSubstr(made->source()));
}

class ChatTemplateLoadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "chat_template_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  absl::StatusOr<ChatTemplate> Load() { return ChatTemplate::Load(folder_.string()); }
  std::string Shown() {
    const auto loaded = Load();
    if (!loaded.ok()) return base::ReasonOf(loaded.status());
    return Show(*loaded, {Says("user", {"hi"})});
  }

  fs::path folder_;
};

TEST_F(ChatTemplateLoadTest, EachPlaceInItsTurn) {
  EXPECT_EQ(Shown(), "NO_CHAT_TEMPLATE");
  Write("tokenizer_config.json",
        R"({"bos_token": "<b>", "chat_template": "{{ bos_token }}A{{ messages[0].content }}"})");
  EXPECT_EQ(Shown(), "<b>Ahi");
  Write("chat_template.json", R"({"chat_template": "B{{ messages[0].content }}"})");
  EXPECT_EQ(Shown(), "Bhi");
  Write("chat_template.jinja", "C{{ messages[0].content }}");
  EXPECT_EQ(Shown(), "Chi");
}

TEST_F(ChatTemplateLoadTest, AListNamesItsDefault) {
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "rag", "template": "no"},
                              {"name": "default", "template": "D{{ messages[0].content }}"}]})");
  EXPECT_EQ(Shown(), "Dhi");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "no"}]})");
  EXPECT_EQ(Shown(), "BAD_CHAT_TEMPLATE");
  Write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_EQ(Shown(), "BAD_CHAT_TEMPLATE");
  Write("tokenizer_config.json", R"([])");
  EXPECT_EQ(Shown(), "BAD_CHAT_TEMPLATE");
}

TEST_F(ChatTemplateLoadTest, TokensAreTextOrObjectsAndAbsentOnesUndefined) {
  Write("chat_template.jinja",
        "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ messages[0].content }}");
  Write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>", "lstrip": false}, "pad_token": null})");
  Write("special_tokens_map.json", R"({"eos_token": {"content": "</s>"}, "bos_token": "<x>"})");
  EXPECT_EQ(Shown(), "<s></s>Falsehi");
}

TEST_F(ChatTemplateLoadTest, ErrorsNameFileAndLine) {
  Write("chat_template.jinja", "\n{% frob %}");
  const auto loaded = Load();
  EXPECT_EQ(base::ReasonOf(loaded.status()), "TEMPLATE_FAILED");
  EXPECT_THAT(std::string(loaded.status().message()),
              HasSubstr("chat_template.jinja: line 2: unknown tag 'frob'"));
  Write("chat_template.jinja", "\xff{{ messages[0].content }}");
  EXPECT_EQ(base::ReasonOf(Load().status()), "INVALID_UTF8");
}

}  // namespace
}  // namespace tessera::decode
