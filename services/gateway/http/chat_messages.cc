#include "services/gateway/http/chat_messages.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/gateway/http/json_fields.h"
#include "services/gateway/pictures/image_source.h"

namespace tessera::gateway::http {
namespace {

constexpr absl::string_view kHandleScheme = "tessera-image:";

absl::Status BadPart(absl::string_view place, absl::string_view message) {
  return base::BadField(place, "BAD_PARAMETER", absl::StrCat(place, " ", message));
}

// One message of the list.
class MessageReader {
 public:
  MessageReader(const base::LongStrings& urls, const ChatLimits& limits, int index,
                ChatRequest& out)
      : urls_(urls),
        limits_(limits),
        index_(index),
        place_(absl::StrCat("messages[", index, "]")),
        out_(out),
        message_(*out.request.add_messages()) {}

  absl::Status Read(base::Json& json) {
    if (!json.is_object()) return JsonFields::Wrong(place_, "an object", json);
    const JsonFields fields(json, place_ + ".");
    RETURN_IF_ERROR(ReadRole(fields));
    ASSIGN_OR_RETURN(const base::Json* calls, fields.Array("tool_calls"));
    if (calls != nullptr && !calls->empty()) {
      return BadPart(fields.PlaceOf("tool_calls"), "is not supported: models call no tools here");
    }
    return ReadContent(fields);
  }

 private:
  absl::Status ReadRole(const JsonFields& fields) {
    const std::string place = fields.PlaceOf("role");
    ASSIGN_OR_RETURN(const std::string* role, fields.String("role"));
    if (role == nullptr) return BadPart(place, "is missing: system, user or assistant");
    if (*role == "tool" || *role == "function") {
      return BadPart(place, absl::StrCat("is \"", *role,
                                         "\", which is not supported: models call no tools here"));
    }
    if (*role != "system" && *role != "developer" && *role != "user" && *role != "assistant") {
      return BadPart(place, "must be system, developer, user or assistant");
    }
    message_.set_role(*role == "developer" ? "system" : *role);
    return absl::OkStatus();
  }

  absl::Status ReadContent(const JsonFields& fields) {
    const std::string place = fields.PlaceOf("content");
    base::Json* content = fields.Find("content");
    if (content == nullptr) {
      if (message_.role() != "assistant") return BadPart(place, "is missing: a string or a list");
      message_.add_parts()->set_text("");
      return absl::OkStatus();
    }
    if (content->is_string()) {
      message_.add_parts()->set_text(std::move(content->get_ref<std::string&>()));
      return absl::OkStatus();
    }
    if (!content->is_array()) return JsonFields::Wrong(place, "a string or a list", *content);
    if (content->empty()) return BadPart(place, "is an empty list: at least one text or picture");
    for (size_t i = 0; i < content->size(); ++i) {
      RETURN_IF_ERROR(ReadPart((*content)[i], absl::StrCat(place, "[", i, "]")));
    }
    return absl::OkStatus();
  }

  absl::Status ReadPart(base::Json& json, const std::string& place) {
    if (!json.is_object()) return JsonFields::Wrong(place, "an object", json);
    const JsonFields fields(json, place + ".");
    ASSIGN_OR_RETURN(const std::string* type, fields.String("type"));
    if (type == nullptr) return BadPart(fields.PlaceOf("type"), "is missing: text or image_url");
    if (*type == "image_url") return ReadImage(fields);
    if (*type != "text") return BadPart(fields.PlaceOf("type"), "must be text or image_url");
    ASSIGN_OR_RETURN(std::string * text, fields.String("text"));
    if (text == nullptr) return BadPart(fields.PlaceOf("text"), "is missing");
    message_.add_parts()->set_text(std::move(*text));
    return absl::OkStatus();
  }

  // An object with `url`, or the URL itself.
  absl::Status ReadImage(const JsonFields& fields) {
    const std::string place = fields.PlaceOf("image_url");
    if (message_.role() != "user") {
      return BadPart(place, absl::StrCat("stands in a message of the role ", message_.role(),
                                         ": pictures are read in user messages"));
    }
    base::Json* image = fields.Find("image_url");
    if (image == nullptr) return BadPart(place, "is missing");
    if (image->is_string()) return ReadUrl(urls_.Of(image->get_ref<std::string&>()), place);
    if (!image->is_object()) return JsonFields::Wrong(place, "an object or a string", *image);
    const JsonFields inner(*image, place + ".");
    RETURN_IF_ERROR(inner.String("detail").status());
    ASSIGN_OR_RETURN(std::string * url, inner.String("url"));
    if (url == nullptr) return BadPart(inner.PlaceOf("url"), "is missing");
    return ReadUrl(urls_.Of(*url), inner.PlaceOf("url"));
  }

  absl::Status ReadUrl(absl::string_view url, const std::string& place) {
    if (url.empty()) return BadPart(place, "is empty");
    v1::Image& image = *message_.add_parts()->mutable_image();
    if (absl::StartsWithIgnoreCase(url, kHandleScheme)) {
      image.set_handle(std::string(url.substr(kHandleScheme.size())));
      return absl::OkStatus();
    }
    if (!absl::StartsWithIgnoreCase(url, "http:") && !absl::StartsWithIgnoreCase(url, "https:")) {
      // What is no picture is refused, with its place, by what reads the request.
      absl::StatusOr<std::string> bytes = ParseDataUrl(url, limits_.max_image_bytes);
      if (bytes.ok()) {
        image.mutable_inline_data()->set_data(*std::move(bytes));
      } else {
        image.set_uri(std::string(url));
      }
      return absl::OkStatus();
    }
    if (!limits_.image_urls) {
      return base::BadField(place, "IMAGE_URL",
                            absl::StrCat(place,
                                         ": pictures are not fetched from URLs here "
                                         "(--image_url_hosts); send a data: URL, or upload the "
                                         "picture and send tessera-image: and its handle"));
    }
    out_.remote.push_back({index_, message_.parts_size() - 1, std::string(url)});
    return absl::OkStatus();
  }

  const base::LongStrings& urls_;
  const ChatLimits& limits_;
  const int index_;
  const std::string place_;
  ChatRequest& out_;
  v1::Message& message_;
};

}  // namespace

absl::Status ParseMessages(base::Json& messages, const base::LongStrings& urls,
                           const ChatLimits& limits, ChatRequest& out) {
  bool asked = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    RETURN_IF_ERROR(MessageReader(urls, limits, static_cast<int>(i), out).Read(messages[i]));
    asked |= out.request.messages(static_cast<int>(i)).role() == "user";
  }
  if (asked || messages.empty()) return absl::OkStatus();  // an empty list is refused further in
  return BadPart("messages", "has no user message: there is nothing to answer");
}

}  // namespace tessera::gateway::http
