// A model's chat template: compiled, then rendered with a few messages under small limits. Output
// is bounded and in order, and no word of a user is ever taken for the template's own.
#include "absl/strings/match.h"
#include "common/base/check.h"
#include "common/text/utf8.h"
#include "services/decode/template/chat_template.h"
#include "tests/fuzz/check_refusal.h"

namespace tessera::fuzz {
namespace {

using decode::ChatTemplate;
using decode::Message;
using decode::Part;

// A character of the private use area that only users write.
constexpr absl::string_view kUsers = "\xEE\x82\xA1";

ChatTemplate::Options Options(absl::string_view source) {
  ChatTemplate::Options options;
  options.source = std::string(source);
  options.tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  options.limits.max_source_bytes = 16 << 10;
  options.limits.max_steps = 100'000;
  options.limits.max_value_weight = 50'000;
  options.limits.max_output_bytes = 32 << 10;
  options.limits.max_total_bytes = 2 << 20;
  options.limits.max_range = 1000;
  return options;
}

std::vector<Message> Conversation() {
  const std::string word(kUsers.data(), kUsers.size());
  return {{"system", {{Part::kText, "Be " + word + " brief."}}},
          {"user", {{Part::kImage, ""}, {Part::kText, " What\n is it, " + word + word + "7?"}}},
          {"assistant", {{Part::kText, "A <s> " + word}}},
          {"user", {{Part::kText, word}}}};
}

// Whether the template might write the users' character by itself.
bool MayWriteIt(absl::string_view source) {
  for (const char* hint : {"e0a1", "E0a1", "e0A1", "E0A1", "57505"}) {
    if (absl::StrContains(source, hint)) return true;
  }
  return absl::StrContains(source, kUsers);
}

void CheckRendered(const decode::Rendered& rendered, absl::string_view source) {
  CHECK_LE(rendered.text.size(), Options("").limits.max_output_bytes);
  if (text::ValidateUtf8(source).ok()) CHECK(text::ValidateUtf8(rendered.text).ok());
  const bool sure = !MayWriteIt(source);
  size_t at = 0;
  const auto check_own = [&](size_t end) {
    const absl::string_view own = absl::string_view(rendered.text).substr(at, end - at);
    if (sure) CHECK(!absl::StrContains(own, kUsers));
  };
  for (const text::ByteRange& range : rendered.untrusted) {
    CHECK(range.begin >= at && range.begin < range.end && range.end <= rendered.text.size());
    check_own(range.begin);
    at = range.end;
  }
  check_own(rendered.text.size());
}

void Run(absl::string_view source) {
  const absl::StatusOr<ChatTemplate> chat = ChatTemplate::Create(Options(source));
  if (!chat.ok()) {
    return CheckRefusal(chat.status(), {"TEMPLATE_FAILED", "TEMPLATE_HIDES_TEXT", "TEMPLATE_RAISED",
                                        "INVALID_UTF8"});
  }
  std::vector<Message> messages = Conversation();
  while (!messages.empty()) {
    const absl::StatusOr<decode::Rendered> rendered =
        chat->Render(messages, messages.back().role == "user");
    if (rendered.ok()) {
      CheckRendered(*rendered, source);
    } else {
      CheckRefusal(rendered.status(), {"UNSUPPORTED_ROLE", "TEMPLATE_RAISED", "TEMPLATE_FAILED",
                                       "TEMPLATE_HIDES_TEXT", "IMAGE_NOT_SUPPORTED"});
    }
    messages.pop_back();
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::Run(tessera::fuzz::Bytes(data, size));
  return 0;
}
