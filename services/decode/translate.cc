#include "services/decode/translate.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/decode/stream/stop_matcher.h"

namespace tessera::decode {
namespace {

constexpr int64_t kDefaultMaxTokens = 256;
constexpr uint32_t kMostTopLogprobs = 5;

absl::Status ParseMessage(v1::DecodeMessage& message, const std::string& field, uint32_t& images,
                          Message& out) {
  out.role = std::move(*message.mutable_role());
  out.parts.reserve(static_cast<size_t>(message.parts_size()));
  for (int i = 0; i < message.parts_size(); ++i) {
    v1::DecodePart& part = *message.mutable_parts(i);
    const std::string name = absl::StrCat(field, ".parts[", i, "]");
    switch (part.kind_case()) {
      case v1::DecodePart::kText:
        out.parts.push_back({Part::kText, std::move(*part.mutable_text())});
        break;
      case v1::DecodePart::kImage:
        if (part.image() != images) {
          return base::BadField(name, "IMAGE_ORDER",
                                absl::StrCat(name, " is picture ", part.image(), "; picture ",
                                             images, " comes next: each is used once, in order"));
        }
        ++images;
        out.parts.push_back({Part::kImage, std::string()});
        break;
      case v1::DecodePart::KIND_NOT_SET:
        return base::BadField(name, "PART_EMPTY",
                              absl::StrCat(name, " is neither text nor picture"));
    }
  }
  return absl::OkStatus();
}

absl::Status ParseMessages(v1::DecodeStart& start, AskedFor& asked) {
  if (start.messages().empty()) {
    return base::BadField("messages", "MESSAGES_EMPTY", "at least one message is needed");
  }
  uint32_t images = 0;
  for (int i = 0; i < start.messages_size(); ++i) {
    RETURN_IF_ERROR(ParseMessage(*start.mutable_messages(i), absl::StrCat("messages[", i, "]"),
                                 images, asked.messages.emplace_back()));
  }
  if (static_cast<int>(images) == start.images_size()) return absl::OkStatus();
  return base::BadField("images", "IMAGE_COUNT",
                        absl::StrCat("the messages use ", images, " pictures; ",
                                     start.images_size(), " references came with them"));
}

absl::Status ParseImages(v1::DecodeStart& start, int64_t row_width, AskedFor& asked) {
  for (int i = 0; i < start.images_size(); ++i) {
    const v1::ImageRef& ref = start.images(i);
    const std::string field = absl::StrCat("images[", i, "]");
    absl::StatusOr<store::EmbeddingKey> key = store::EmbeddingKey::FromBytes(ref.key());
    if (!key.ok()) {
      return base::WithField(base::Annotate(key.status(), field), absl::StrCat(field, ".key"));
    }
    if (ref.width() != row_width) {
      return base::BadField(absl::StrCat(field, ".width"), "ROWS_MISMATCH",
                            absl::StrCat(field, " has rows of ", ref.width(),
                                         " columns; this model takes ", row_width));
    }
    if (ref.rows() == 0 || ref.rows() > uint32_t{std::numeric_limits<int32_t>::max()}) {
      return base::BadField(absl::StrCat(field, ".rows"), "ROWS_MISMATCH",
                            absl::StrCat(field, " has ", ref.rows(), " rows"));
    }
    asked.images.push_back({int64_t{ref.rows()}});
    asked.pictures.push_back({*key, 0, static_cast<int32_t>(ref.rows()),
                              std::move(*start.mutable_images(i)->mutable_origin())});
  }
  return absl::OkStatus();
}

uint64_t DrawSeed() {
  uint64_t seed = 0;
  const std::string bytes = base::RandomBytes(sizeof(seed));
  std::memcpy(&seed, bytes.data(), sizeof(seed));
  return seed;
}

absl::Status ParseBias(const v1::GenerationOptions& options, SamplingOptions& sampling) {
  for (const auto& [id, bias] : options.logit_bias()) {
    if (id > uint32_t{std::numeric_limits<int32_t>::max()}) {
      return base::BadField(
          "options.logit_bias", "SAMPLING_INVALID",
          absl::StrCat("options.logit_bias names token ", id, ", which no vocabulary has"));
    }
    sampling.logit_bias.push_back({static_cast<int32_t>(id), bias});
  }
  // The map has no order; the engine's numbers are summed in one.
  std::sort(sampling.logit_bias.begin(), sampling.logit_bias.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  return absl::OkStatus();
}

absl::Status ParseCounts(const v1::GenerationOptions& options, AskedFor& asked) {
  if (options.has_n() && options.n() != 1) {
    return base::BadField("options.n", "SAMPLING_INVALID",
                          absl::StrCat("options.n is ", options.n(),
                                       "; one answer per request is produced: leave it out or ask "
                                       "several times with seeds of your own"));
  }
  if (!options.has_top_logprobs()) return absl::OkStatus();
  if (options.top_logprobs() > kMostTopLogprobs) {
    return base::BadField("options.top_logprobs", "SAMPLING_INVALID",
                          absl::StrCat("options.top_logprobs is ", options.top_logprobs(),
                                       "; at most ", kMostTopLogprobs, " are told"));
  }
  asked.top_logprobs = static_cast<int>(options.top_logprobs());
  return absl::OkStatus();
}

absl::Status ParseOptions(const v1::GenerationOptions& options, AskedFor& asked) {
  if (options.has_max_tokens() && options.max_tokens() == 0) {
    return base::BadField("options.max_tokens", "MAX_TOKENS_INVALID",
                          "options.max_tokens is 0; it must be at least 1");
  }
  asked.max_tokens = options.has_max_tokens() ? options.max_tokens() : kDefaultMaxTokens;
  SamplingOptions& sampling = asked.sampling;
  if (options.has_temperature()) sampling.temperature = options.temperature();
  if (options.has_top_k()) sampling.top_k = options.top_k();
  if (options.has_top_p()) sampling.top_p = options.top_p();
  if (options.has_min_p()) sampling.min_p = options.min_p();
  if (options.has_repetition_penalty()) sampling.repetition_penalty = options.repetition_penalty();
  if (options.has_frequency_penalty()) sampling.frequency_penalty = options.frequency_penalty();
  if (options.has_presence_penalty()) sampling.presence_penalty = options.presence_penalty();
  RETURN_IF_ERROR(ParseBias(options, sampling));
  RETURN_IF_ERROR(ParseCounts(options, asked));
  sampling.seed = options.has_seed() ? options.seed() : DrawSeed();
  RETURN_IF_ERROR(Validate(sampling));
  if (options.stop_size() <= static_cast<int>(kMaxStops)) {
    asked.stops.assign(options.stop().begin(), options.stop().end());
    return ValidateStops(asked.stops);
  }
  return ValidateStops(std::vector<std::string>(options.stop_size()));
}

v1::CacheTier ToTier(RowTier tier) {
  switch (tier) {
    case RowTier::kNone:
      return v1::CACHE_TIER_UNSPECIFIED;
    case RowTier::kPrefixKv:
      return v1::CACHE_TIER_PREFIX_KV;
    case RowTier::kLocal:
      return v1::CACHE_TIER_LOCAL;
    case RowTier::kStore:
      return v1::CACHE_TIER_STORE;
    case RowTier::kOrigin:
      return v1::CACHE_TIER_ORIGIN;
  }
  return v1::CACHE_TIER_UNSPECIFIED;
}

}  // namespace

absl::StatusOr<AskedFor> ParseStart(v1::DecodeStart start, int64_t row_width) {
  AskedFor asked;
  asked.tenant = std::move(*start.mutable_tenant());
  RETURN_IF_ERROR(ParseMessages(start, asked));
  RETURN_IF_ERROR(ParseImages(start, row_width, asked));
  RETURN_IF_ERROR(ParseOptions(start.options(), asked));
  return asked;
}

Request ToRequest(AskedFor asked, PromptPlan plan) {
  CHECK_EQ(asked.pictures.size(), plan.images.size());
  Request request;
  request.ids = std::move(plan.ids);
  request.pictures = std::move(asked.pictures);
  for (size_t i = 0; i < plan.images.size(); ++i) {
    request.pictures[i].first_token = plan.images[i].first_token;
  }
  request.tenant = std::move(asked.tenant);
  request.sampling = std::move(asked.sampling);
  request.max_tokens = asked.max_tokens;
  return request;
}

RequestName ToName(const rpc::RequestContext& request) {
  return {request.request_id,
          request.trace.empty() ? std::string() : rpc::ToTraceparent(request.trace)};
}

v1::TokenLogprob ToTokenLogprob(const kernels::Sampled& sampled, int top,
                                const text::Tokenizer& tokenizer) {
  const auto fill = [&tokenizer](int32_t id, float logprob, v1::TokenProbability& out) {
    out.set_id(static_cast<uint32_t>(id));
    out.set_token(tokenizer.BytesOf(id));
    out.set_logprob(std::min(logprob, 0.0f));  // rounding may leave a little more than certain
  };
  v1::TokenLogprob token;
  fill(sampled.id, sampled.logprob, *token.mutable_chosen());
  for (int i = 0; i < top && sampled.top_ids[i] >= 0; ++i) {
    fill(sampled.top_ids[i], sampled.top_logprobs[i], *token.add_top());
  }
  return token;
}

v1::DecodeEnd ToDecodeEnd(const Outcome& outcome, absl::string_view stop) {
  v1::DecodeEnd end;
  const bool stopped = outcome.finish == FinishReason::kStop || !stop.empty();
  end.set_finish_reason(stopped ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
  end.set_stop_reason(std::string(stop));
  v1::Usage& usage = *end.mutable_usage();
  usage.set_prompt_tokens(outcome.prompt_tokens);
  usage.set_image_tokens(outcome.image_tokens);
  usage.set_cached_tokens(outcome.cached_tokens);
  usage.set_output_tokens(outcome.output_tokens);
  v1::StageSeconds& stages = *end.mutable_stages();
  stages.set_queue_seconds(absl::ToDoubleSeconds(outcome.queue));
  stages.set_fetch_seconds(absl::ToDoubleSeconds(outcome.fetch));
  stages.set_prefill_seconds(absl::ToDoubleSeconds(outcome.prefill));
  stages.set_generation_seconds(absl::ToDoubleSeconds(outcome.generation));
  for (const PictureOutcome& picture : outcome.pictures) {
    v1::ImageReceipt& image = *end.add_images();
    image.set_cache(ToTier(picture.tier));
    image.set_rows(picture.rows);
    image.set_rows_kept(picture.rows);
    image.set_bytes_moved(picture.bytes_moved);
  }
  end.set_kv_blocks_new(outcome.kv_blocks_new);
  end.set_kv_blocks_reused(outcome.kv_blocks_reused);
  end.set_ahead_tokens(outcome.ahead_tokens);
  end.set_preemptions(outcome.preemptions);
  return end;
}

}  // namespace tessera::decode
