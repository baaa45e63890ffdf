#include "services/decode/call_end.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/rpc/trace/request_end.h"

namespace tessera::decode {
namespace {

constexpr const char* kTiers[] = {"none", "prefix_kv", "local", "store", "origin"};

// Of the picture whose rows were the furthest away.
const char* TierOf(const Outcome& outcome) {
  size_t tier = 0;
  for (const PictureOutcome& picture : outcome.pictures) {
    tier = std::max(tier, static_cast<size_t>(picture.tier));
  }
  return kTiers[tier];
}

}  // namespace

absl::Status ClientGone() {
  return base::Error(absl::StatusCode::kCancelled, "CLIENT_GONE", "the call was cancelled");
}

std::vector<rpc::SpanStage> StagesOf(const Outcome& outcome, absl::Time arrival) {
  std::vector<rpc::SpanStage> stages;
  const auto add = [&stages](const char* name, absl::Time start, absl::Duration time) {
    if (time > absl::ZeroDuration()) stages.push_back({name, start, start + time});
  };
  absl::Duration queued = outcome.queue;
  if (outcome.fetch > absl::ZeroDuration()) {
    const absl::Duration before = std::min(queued, outcome.first_fetch - arrival);
    add("queue", arrival, before);
    add("fetch", outcome.first_fetch, outcome.fetch);
    queued -= before;
  }
  if (outcome.first_step == absl::InfinitePast()) {
    // It never got to a step: where the rest of its waiting was is not known.
    if (outcome.fetch == absl::ZeroDuration()) add("queue", arrival, queued);
    return stages;
  }
  add("queue", outcome.first_step - queued, queued);
  add("prefill", outcome.first_step, outcome.prefill);
  add("generation", outcome.first_step + outcome.prefill, outcome.generation);
  return stages;
}

void TellCallEnd(const CallEnd& end, rpc::SpanExporter* spans) {
  const Outcome& outcome = end.outcome;
  rpc::RequestEnd told = {.service = "decode",
                          .method = end.method,
                          .protocol = "grpc",
                          .request = end.request,
                          .start = end.arrival,
                          .end = end.end,
                          .status = end.status,
                          .facts = {{"images", outcome.pictures.size()},
                                    {"prompt_tokens", outcome.prompt_tokens},
                                    {"cached_tokens", outcome.cached_tokens},
                                    {"output_tokens", outcome.output_tokens},
                                    {"cache", TierOf(outcome)},
                                    {"preemptions", outcome.preemptions}}};
  if (spans != nullptr && end.request.trace.sampled) {
    told.stages = StagesOf(outcome, end.arrival);
  }
  rpc::TellEnd(std::move(told), spans);
}

}  // namespace tessera::decode
