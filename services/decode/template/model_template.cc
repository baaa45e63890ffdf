#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "services/decode/template/chat_template.h"

// Where a model directory keeps its chat template and the tokens that it may name.
namespace tessera::decode {
namespace {

using base::Json;

absl::Status Bad(const std::string& path, absl::string_view what) {
  return base::Error(absl::StatusCode::kInvalidArgument, "BAD_CHAT_TEMPLATE",
                     absl::StrCat(path, ": ", what));
}

// An object in a JSON file, or null where there is no such file.
absl::StatusOr<Json> OptionalObject(const std::string& path) {
  absl::StatusOr<Json> json = base::ReadJsonFile(path);
  if (absl::IsNotFound(json.status())) return Json();
  if (!json.ok()) return json.status();
  if (!json->is_object()) return Bad(path, "expected an object");
  return json;
}

// `chat_template`: text, or a list of {name, template} with one named "default".
absl::StatusOr<std::string> SourceIn(const Json& file, const std::string& path) {
  const auto found = file.find("chat_template");
  if (file.is_null() || found == file.end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return Bad(path, "chat_template is neither text nor a list");
  for (const Json& entry : *found) {
    const auto name = entry.is_object() ? entry.find("name") : entry.end();
    if (!entry.is_object() || name == entry.end() || *name != "default") continue;
    const auto source = entry.find("template");
    if (source == entry.end() || !source->is_string()) {
      return Bad(path, "the chat_template named 'default' has no text");
    }
    return source->get<std::string>();
  }
  return Bad(path, "chat_template is a list without one named 'default'");
}

using Tokens = std::vector<std::pair<std::string, std::string>>;

// Adds every `*_token` that is text or {"content": text}; those already known win.
void AddTokens(const Json& file, Tokens* tokens) {
  if (!file.is_object()) return;
  for (const auto& [key, value] : file.items()) {
    if (!absl::EndsWith(key, "_token")) continue;
    const Json* text = &value;
    if (value.is_object() && value.contains("content")) text = &value["content"];
    if (!text->is_string()) continue;
    bool known = false;
    for (const auto& [name, old] : *tokens) known |= name == key;
    if (!known) tokens->emplace_back(key, text->get<std::string>());
  }
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Load(const std::string& model_dir) {
  const std::string config_path = model_dir + "/tokenizer_config.json";
  ASSIGN_OR_RETURN(const Json config, OptionalObject(config_path));
  ASSIGN_OR_RETURN(const Json map, OptionalObject(model_dir + "/special_tokens_map.json"));
  Options options;
  AddTokens(config, &options.tokens);
  AddTokens(map, &options.tokens);

  options.origin = model_dir + "/chat_template.jinja";
  absl::StatusOr<std::string> plain = base::ReadFile(options.origin);
  if (plain.ok()) {
    options.source = *std::move(plain);
    return Create(std::move(options));
  }
  if (!absl::IsNotFound(plain.status())) return plain.status();

  options.origin = model_dir + "/chat_template.json";
  ASSIGN_OR_RETURN(const Json file, OptionalObject(options.origin));
  ASSIGN_OR_RETURN(options.source, SourceIn(file, options.origin));
  if (options.source.empty()) {
    options.origin = config_path;
    ASSIGN_OR_RETURN(options.source, SourceIn(config, options.origin));
  }
  if (options.source.empty()) {
    return base::Error(absl::StatusCode::kNotFound, "NO_CHAT_TEMPLATE",
                       absl::StrCat(model_dir,
                                    ": no chat template, neither chat_template.jinja nor "
                                    "chat_template.json nor in tokenizer_config.json"));
  }
  return Create(std::move(options));
}

}  // namespace tessera::decode
