#include "services/gateway/answer/parse_request.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/gateway/pictures/image_source.h"

namespace tessera::gateway {
namespace {

constexpr int kMaxMessages = 1024;
constexpr int kMaxParts = 16384;  // of all messages
constexpr int kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxSessionBytes = 256;
constexpr int kMaxBiases = 1024;
constexpr uint32_t kMaxTopLogprobs = 5;

absl::Status CheckModel(const v1::GenerateRequest& request, const AnswerOptions& options) {
  if (request.model().empty() || request.model() == options.model_name) return absl::OkStatus();
  return base::WithResource(
      base::Error(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
                  absl::StrCat("model \"", request.model().substr(0, 128),
                               "\" is not served here; served: \"", options.model_name, "\"")),
      "model", request.model().substr(0, 128));
}

// NaN fails every comparison, so each rule says what is allowed.
absl::Status CheckRange(absl::string_view field, double value, bool allowed,
                        absl::string_view range) {
  if (allowed) return absl::OkStatus();
  return base::BadField(field, "BAD_PARAMETER",
                        absl::StrCat(field, " is ", value, "; it must be ", range));
}

absl::Status CheckPenalties(const v1::GenerationOptions& options) {
  if (options.has_repetition_penalty()) {
    const float p = options.repetition_penalty();
    RETURN_IF_ERROR(
        CheckRange("options.repetition_penalty", p, p >= 0.1f && p <= 10, "from 0.1 to 10"));
  }
  const float frequency = options.frequency_penalty();
  RETURN_IF_ERROR(CheckRange("options.frequency_penalty", frequency,
                             frequency >= -2 && frequency <= 2, "from -2 to 2"));
  const float presence = options.presence_penalty();
  RETURN_IF_ERROR(CheckRange("options.presence_penalty", presence, presence >= -2 && presence <= 2,
                             "from -2 to 2"));
  if (options.logit_bias_size() > kMaxBiases) {
    return base::BadField("options.logit_bias", "BAD_PARAMETER",
                          absl::StrCat("options.logit_bias has ", options.logit_bias_size(),
                                       " tokens; at most ", kMaxBiases, " are allowed"));
  }
  for (const auto& [id, bias] : options.logit_bias()) {
    RETURN_IF_ERROR(CheckRange(absl::StrCat("options.logit_bias[", id, "]"), bias,
                               bias >= -100 && bias <= 100, "from -100 to 100"));
  }
  return absl::OkStatus();
}

absl::Status CheckCounts(const v1::GenerationOptions& options) {
  if (options.has_n() && options.n() != 1) {
    return base::BadField("options.n", "BAD_PARAMETER",
                          absl::StrCat("options.n is ", options.n(),
                                       "; one answer per request is produced: leave it out, or ask "
                                       "several times with seeds of your own"));
  }
  return CheckRange("options.top_logprobs", options.top_logprobs(),
                    options.top_logprobs() <= kMaxTopLogprobs, "at most 5");
}

absl::Status CheckStops(const v1::GenerationOptions& options) {
  if (options.stop_size() > kMaxStops) {
    return base::BadField("options.stop", "BAD_PARAMETER",
                          absl::StrCat("options.stop has ", options.stop_size(), " texts; at most ",
                                       kMaxStops, " are allowed"));
  }
  for (int i = 0; i < options.stop_size(); ++i) {
    const std::string field = absl::StrCat("options.stop[", i, "]");
    if (options.stop(i).empty() || options.stop(i).size() > kMaxStopBytes) {
      return base::BadField(field, "BAD_PARAMETER",
                            absl::StrCat(field, " must have 1 to ", kMaxStopBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const v1::GenerationOptions& options) {
  if (options.has_max_tokens() && options.max_tokens() < 1) {
    return base::BadField("options.max_tokens", "BAD_PARAMETER",
                          "options.max_tokens is 0; it must be at least 1");
  }
  if (options.has_temperature()) {
    const float t = options.temperature();
    RETURN_IF_ERROR(CheckRange("options.temperature", t, t >= 0 && t <= 2, "from 0 to 2"));
  }
  if (options.has_top_p()) {
    const float p = options.top_p();
    RETURN_IF_ERROR(CheckRange("options.top_p", p, p > 0 && p <= 1, "above 0 and at most 1"));
  }
  if (options.has_min_p()) {
    const float p = options.min_p();
    RETURN_IF_ERROR(CheckRange("options.min_p", p, p >= 0 && p <= 1, "from 0 to 1"));
  }
  RETURN_IF_ERROR(CheckPenalties(options));
  RETURN_IF_ERROR(CheckCounts(options));
  return CheckStops(options);
}

absl::Status CheckParts(const v1::GenerateRequest& request) {
  int parts = 0;
  for (int i = 0; i < request.messages_size(); ++i) {
    parts += request.messages(i).parts_size();
    if (parts <= kMaxParts) continue;
    const std::string field = absl::StrCat("messages[", i, "].parts");
    return base::BadField(field, "BAD_PARAMETER",
                          absl::StrCat(field, ": the messages have more than ", kMaxParts,
                                       " parts; write texts that follow each other as one"));
  }
  return absl::OkStatus();
}

// Collects the parts of one message into `out`.
class MessageParser {
 public:
  MessageParser(absl::string_view tenant, const AnswerOptions& options, absl::Time now,
                ParsedRequest& out)
      : tenant_(tenant), options_(options), now_(now), out_(out) {}

  // Takes what it can of `message`: nothing of a picture is copied.
  absl::Status Parse(v1::Message& message, int index) {
    const std::string field = absl::StrCat("messages[", index, "]");
    if (message.role().empty()) {
      return base::BadField(absl::StrCat(field, ".role"), "BAD_PARAMETER",
                            absl::StrCat(field, ".role is empty: system, user or assistant"));
    }
    if (message.parts().empty()) {
      return base::BadField(absl::StrCat(field, ".parts"), "BAD_PARAMETER",
                            absl::StrCat(field, ".parts is empty: at least one text or image"));
    }
    v1::DecodeMessage& turn = *out_.start.add_messages();
    turn.set_role(std::move(*message.mutable_role()));
    for (int i = 0; i < message.parts_size(); ++i) {
      RETURN_IF_ERROR(ParsePart(*message.mutable_parts(i), absl::StrCat(field, ".parts[", i, "]"),
                                index, *turn.add_parts()));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ParsePart(v1::Part& part, const std::string& field, int turn, v1::DecodePart& out) {
    if (part.kind_case() == v1::Part::kText) {
      out.set_text(std::move(*part.mutable_text()));
      return absl::OkStatus();
    }
    if (part.kind_case() != v1::Part::kImage) {
      return base::BadField(field, "BAD_PARAMETER",
                            absl::StrCat(field, " is empty: set text or image"));
    }
    if (static_cast<int>(out_.pictures.size()) >= options_.max_images) {
      return base::BadField(field, "TOO_MANY_IMAGES",
                            absl::StrCat("more than ", options_.max_images,
                                         " pictures in one request (--max_images)"));
    }
    std::string place = absl::StrCat(field, ".image");
    ASSIGN_OR_RETURN(Picture picture, ResolveSource(std::move(*part.mutable_image()), place,
                                                    tenant_, options_, now_));
    out.set_image(static_cast<uint32_t>(out_.pictures.size()));
    out_.pictures.push_back(std::move(picture));
    out_.picture_turns.push_back(turn);
    out_.picture_fields.push_back(std::move(place));
    return absl::OkStatus();
  }

  const absl::string_view tenant_;
  const AnswerOptions& options_;
  const absl::Time now_;
  ParsedRequest& out_;
};

}  // namespace

std::string AffinityOf(absl::string_view tenant, absl::string_view session) {
  if (session.empty()) return "";
  return absl::StrCat("session\n", tenant, "\n", session);
}

absl::Status CheckSession(absl::string_view session) {
  if (session.size() <= kMaxSessionBytes) return absl::OkStatus();
  return base::BadField("session", "BAD_PARAMETER",
                        absl::StrCat("session is longer than ", kMaxSessionBytes, " bytes"));
}

absl::StatusOr<ParsedRequest> ParseRequest(v1::GenerateRequest request, absl::string_view tenant,
                                           const AnswerOptions& options, absl::Time now) {
  RETURN_IF_ERROR(CheckModel(request, options));
  RETURN_IF_ERROR(CheckOptions(request.options()));
  RETURN_IF_ERROR(CheckSession(request.session()));
  if (!v1::EncoderLoss_IsValid(request.on_encoder_loss())) {
    return base::BadField("on_encoder_loss", "BAD_PARAMETER",
                          absl::StrCat("on_encoder_loss is ", request.on_encoder_loss(),
                                       "; give ENCODER_LOSS_FAIL or ENCODER_LOSS_TEXT_ONLY"));
  }
  if (request.messages().empty() || request.messages_size() > kMaxMessages) {
    return base::BadField("messages", "BAD_PARAMETER",
                          absl::StrCat("messages has ", request.messages_size(),
                                       " entries; it needs 1 to ", kMaxMessages));
  }
  RETURN_IF_ERROR(CheckParts(request));
  ParsedRequest parsed;
  parsed.start.set_tenant(std::string(tenant));
  *parsed.start.mutable_options() = std::move(*request.mutable_options());
  MessageParser parser(tenant, options, now, parsed);
  for (int i = 0; i < request.messages_size(); ++i) {
    RETURN_IF_ERROR(parser.Parse(*request.mutable_messages(i), i));
  }
  parsed.text_only_without_encoder = request.on_encoder_loss() == v1::ENCODER_LOSS_TEXT_ONLY;
  parsed.affinity = AffinityOf(tenant, request.session());
  if (parsed.affinity.empty() && !parsed.pictures.empty()) {
    parsed.affinity =
        absl::StrCat("picture\n", tenant, "\n", base::ToHex(parsed.pictures[0].digest));
  }
  return parsed;
}

}  // namespace tessera::gateway
