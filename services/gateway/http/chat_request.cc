#include "services/gateway/http/chat_request.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "services/gateway/http/chat_messages.h"
#include "services/gateway/http/json_fields.h"

namespace tessera::gateway::http {
namespace {

constexpr size_t kMaxStops = 4;  // as OpenAI has it
// Values of a body: some hundred for each message that is allowed. Each takes far more memory than
// the two bytes that it may have in JSON.
constexpr size_t kMaxJsonValues = 1 << 17;

absl::Status BadRequest(absl::string_view param, absl::string_view message) {
  return base::BadField(param, "BAD_PARAMETER", absl::StrCat(param, " ", message));
}

// A count that a proto holds in 32 bits. `least` and above.
absl::StatusOr<std::optional<uint32_t>> Count(const JsonFields& fields, const char* name,
                                              int64_t least) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> value, fields.Int(name));
  if (!value) return std::nullopt;
  if (*value < least || *value > INT32_MAX) {
    return BadRequest(name,
                      absl::StrCat("is ", *value, "; it must be from ", least, " to ", INT32_MAX));
  }
  return static_cast<uint32_t>(*value);
}

absl::Status ReadMaxTokens(const JsonFields& fields, const ChatLimits& limits,
                           v1::GenerationOptions& options) {
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {  // the second wins
    ASSIGN_OR_RETURN(const std::optional<uint32_t> tokens, Count(fields, name, 1));
    if (!tokens) continue;
    if (limits.context_tokens > 0 && *tokens > limits.context_tokens) {
      return BadRequest(name, absl::StrCat("is ", *tokens, "; the model's context holds ",
                                           limits.context_tokens, " tokens"));
    }
    options.set_max_tokens(*tokens);
  }
  return absl::OkStatus();
}

absl::Status ReadSampling(const JsonFields& fields, v1::GenerationOptions& options) {
  const auto number = [&fields](const char* name, auto set) -> absl::Status {
    ASSIGN_OR_RETURN(const std::optional<float> value, fields.Float(name));
    if (value) set(*value);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(number("temperature", [&](float v) { options.set_temperature(v); }));
  RETURN_IF_ERROR(number("top_p", [&](float v) { options.set_top_p(v); }));
  RETURN_IF_ERROR(number("min_p", [&](float v) { options.set_min_p(v); }));
  RETURN_IF_ERROR(number("frequency_penalty", [&](float v) { options.set_frequency_penalty(v); }));
  RETURN_IF_ERROR(number("presence_penalty", [&](float v) { options.set_presence_penalty(v); }));
  RETURN_IF_ERROR(
      number("repetition_penalty", [&](float v) { options.set_repetition_penalty(v); }));
  // -1 keeps all tokens where others learnt it, as 0 does.
  ASSIGN_OR_RETURN(const std::optional<int64_t> top_k, fields.Int("top_k"));
  if (top_k && (*top_k < -1 || *top_k > INT32_MAX)) {
    return BadRequest("top_k", absl::StrCat("is ", *top_k, "; it must be 0 or more"));
  }
  if (top_k && *top_k > 0) options.set_top_k(static_cast<uint32_t>(*top_k));
  ASSIGN_OR_RETURN(const std::optional<int64_t> seed, fields.Int("seed"));
  if (seed) options.set_seed(static_cast<uint64_t>(*seed));
  ASSIGN_OR_RETURN(const std::optional<uint32_t> n, Count(fields, "n", 1));
  if (n) options.set_n(*n);
  return absl::OkStatus();
}

absl::Status ReadStops(const JsonFields& fields, v1::GenerationOptions& options) {
  base::Json* stop = fields.Find("stop");
  if (stop == nullptr) return absl::OkStatus();
  if (stop->is_string()) {
    options.add_stop(stop->get<std::string>());
    return absl::OkStatus();
  }
  if (!stop->is_array()) return JsonFields::Wrong("stop", "a string or a list", *stop);
  if (stop->size() > kMaxStops) {
    return BadRequest(
        "stop", absl::StrCat("has ", stop->size(), " texts; at most ", kMaxStops, " are allowed"));
  }
  for (size_t i = 0; i < stop->size(); ++i) {
    const base::Json& text = (*stop)[i];
    if (!text.is_string())
      return JsonFields::Wrong(absl::StrCat("stop[", i, "]"), "a string", text);
    options.add_stop(text.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadBias(const JsonFields& fields, v1::GenerationOptions& options) {
  ASSIGN_OR_RETURN(base::Json * bias, fields.Object("logit_bias"));
  if (bias == nullptr) return absl::OkStatus();
  for (const auto& [token, value] : bias->items()) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(token, &id)) {
      return BadRequest("logit_bias",
                        "has a key that is no token id: ids are whole numbers in strings");
    }
    // Not by its name: an object is searched from its beginning, and this one may be long.
    ASSIGN_OR_RETURN((*options.mutable_logit_bias())[id],
                     JsonFields::FloatOf(value, absl::StrCat("logit_bias[", id, "]")));
  }
  return absl::OkStatus();
}

absl::Status ReadLogprobs(const JsonFields& fields, v1::GenerationOptions& options) {
  ASSIGN_OR_RETURN(const std::optional<bool> wanted, fields.Bool("logprobs"));
  ASSIGN_OR_RETURN(const std::optional<uint32_t> top, Count(fields, "top_logprobs", 0));
  if (top && !wanted.value_or(false))
    return BadRequest("top_logprobs", "needs logprobs to be true");
  if (wanted.value_or(false)) options.set_top_logprobs(top.value_or(0));
  return absl::OkStatus();
}

absl::Status ReadStream(const JsonFields& fields, ChatRequest& out) {
  ASSIGN_OR_RETURN(const std::optional<bool> stream, fields.Bool("stream"));
  out.stream = stream.value_or(false);
  ASSIGN_OR_RETURN(base::Json * options, fields.Object("stream_options"));
  if (options == nullptr) return absl::OkStatus();
  if (!out.stream) return BadRequest("stream_options", "needs stream to be true");
  ASSIGN_OR_RETURN(const std::optional<bool> usage,
                   JsonFields(*options, "stream_options.").Bool("include_usage"));
  out.include_usage = usage.value_or(false);
  return absl::OkStatus();
}

absl::Status ReadOwn(const JsonFields& fields, ChatRequest& out) {
  ASSIGN_OR_RETURN(base::Json * own, fields.Object("tessera"));
  if (own == nullptr) return absl::OkStatus();
  const JsonFields inner(*own, "tessera.");
  for (const auto& field : own->items()) {
    if (field.key() != "receipt" && field.key() != "on_encoder_loss") {
      return BadRequest("tessera",
                        "has a field that is unknown: receipt and on_encoder_loss are known");
    }
  }
  ASSIGN_OR_RETURN(const std::optional<bool> receipt, inner.Bool("receipt"));
  out.receipt = receipt.value_or(false);
  ASSIGN_OR_RETURN(const std::string* loss, inner.String("on_encoder_loss"));
  if (loss == nullptr) return absl::OkStatus();
  const std::string name = absl::AsciiStrToUpper(*loss);
  if (name != "FAIL" && name != "TEXT_ONLY") {
    return BadRequest("tessera.on_encoder_loss", "must be FAIL or TEXT_ONLY");
  }
  out.request.set_on_encoder_loss(name == "FAIL" ? v1::ENCODER_LOSS_FAIL
                                                 : v1::ENCODER_LOSS_TEXT_ONLY);
  return absl::OkStatus();
}

// What others have and we have not: refused where it asks for something.
absl::Status RefuseTools(const JsonFields& fields) {
  for (const char* name : {"tools", "functions"}) {
    ASSIGN_OR_RETURN(const base::Json* list, fields.Array(name));
    if (list != nullptr && !list->empty())
      return BadRequest(name, "is not supported: models call no tools here");
  }
  for (const char* name : {"tool_choice", "function_call"}) {
    const base::Json* choice = fields.Find(name);
    if (choice == nullptr || *choice == "none" || *choice == "auto") continue;
    return BadRequest(name, "is not supported: models call no tools here");
  }
  ASSIGN_OR_RETURN(base::Json * format, fields.Object("response_format"));
  if (format == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string* type, JsonFields(*format, "response_format.").String("type"));
  if (type != nullptr && *type == "text") return absl::OkStatus();
  return BadRequest("response_format", "is not supported but for {\"type\": \"text\"}");
}

absl::Status ReadNames(const JsonFields& fields, v1::GenerateRequest& request) {
  if (fields.Has("model")) {
    ASSIGN_OR_RETURN(const std::string* model, fields.String("model"));
    if (model == nullptr)
      return BadRequest("model", "is null: name the model, or leave the field out");
    if (model->empty()) {
      return base::WithResource(
          base::Error(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
                      "model is empty: name the model, or leave the field out"),
          "model", "");
    }
    request.set_model(*model);
  }
  RETURN_IF_ERROR(fields.String("user").status());
  ASSIGN_OR_RETURN(const std::string* session, fields.String("prompt_cache_key"));
  if (session != nullptr) request.set_session(*session);
  return absl::OkStatus();
}

absl::Status ReadBody(base::Json& body, const base::LongStrings& urls, const ChatLimits& limits,
                      ChatRequest& out) {
  const JsonFields fields(body, "");
  v1::GenerationOptions& options = *out.request.mutable_options();
  RETURN_IF_ERROR(ReadNames(fields, out.request));
  RETURN_IF_ERROR(ReadMaxTokens(fields, limits, options));
  RETURN_IF_ERROR(ReadSampling(fields, options));
  RETURN_IF_ERROR(ReadStops(fields, options));
  RETURN_IF_ERROR(ReadBias(fields, options));
  RETURN_IF_ERROR(ReadLogprobs(fields, options));
  RETURN_IF_ERROR(ReadStream(fields, out));
  RETURN_IF_ERROR(ReadOwn(fields, out));
  RETURN_IF_ERROR(RefuseTools(fields));
  ASSIGN_OR_RETURN(base::Json * messages, fields.Array("messages"));
  if (messages == nullptr) return BadRequest("messages", "is missing: a list of messages");
  return ParseMessages(*messages, urls, limits, out);
}

}  // namespace

absl::StatusOr<ChatRequest> ParseChatRequest(absl::string_view body, const ChatLimits& limits) {
  base::JsonLimits json_limits;
  json_limits.max_bytes = limits.max_bytes;
  json_limits.max_values = kMaxJsonValues;
  base::LongStrings urls({"url", "image_url"}, limits.long_url_bytes);
  ASSIGN_OR_RETURN(base::Json json, base::ParseJson(body, json_limits, urls));
  if (!json.is_object()) {
    return base::Error(absl::StatusCode::kInvalidArgument, "JSON_INVALID",
                       absl::StrCat("the body must be a JSON object, not ", KindOf(json)));
  }
  ChatRequest out;
  RETURN_IF_ERROR(ReadBody(json, urls, limits, out));
  return out;
}

std::string ParamOf(absl::string_view field) {
  if (field == "session") return "prompt_cache_key";
  if (absl::ConsumePrefix(&field, "options.")) return std::string(field);
  const std::string param = absl::StrReplaceAll(field, {{".parts[", ".content["}});
  absl::string_view place = param;
  if (absl::ConsumeSuffix(&place, "].image")) return absl::StrCat(place, "].image_url");
  if (absl::ConsumeSuffix(&place, ".parts")) return absl::StrCat(place, ".content");
  return param;
}

}  // namespace tessera::gateway::http
