#include "tools/report/receipt_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/text/utf8.h"

namespace tessera::tools {
namespace {

std::vector<std::pair<const char*, double>> Stages(const v1::Receipt& receipt) {
  const v1::StageSeconds& s = receipt.stages();
  return {{"queue_seconds", s.queue_seconds()},
          {"fetch_seconds", s.fetch_seconds()},
          {"image_decode_seconds", s.image_decode_seconds()},
          {"preprocess_seconds", s.preprocess_seconds()},
          {"encode_seconds", s.encode_seconds()},
          {"store_seconds", s.store_seconds()},
          {"prefill_seconds", s.prefill_seconds()},
          {"first_token_seconds", s.first_token_seconds()},
          {"generation_seconds", s.generation_seconds()},
          {"total_seconds", receipt.total_seconds()}};
}

std::string TierText(v1::CacheTier tier) {
  const std::string name = v1::CacheTier_Name(tier);
  return std::string(absl::StripPrefix(name, "CACHE_TIER_"));
}

std::string VerdictText(v1::QualityVerdict verdict) {
  const std::string name = v1::QualityVerdict_Name(verdict);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "QUALITY_VERDICT_"));
}

std::string FinishText(v1::FinishReason reason) {
  const std::string name = v1::FinishReason_Name(reason);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "FINISH_REASON_"));
}

base::Json TokenJson(const v1::TokenProbability& token) {
  base::Json bytes = base::Json::array();
  for (const char c : token.token()) bytes.push_back(static_cast<unsigned char>(c));
  base::Json text;
  if (text::ValidateUtf8(token.token()).ok()) text = token.token();
  return {{"id", token.id()}, {"token", text}, {"bytes", bytes}, {"logprob", token.logprob()}};
}

base::Json ImageJson(const v1::ImageReceipt& image) {
  base::Json scores = base::Json::object();
  // A map field has no order of its own.
  std::vector<std::string> names;
  for (const auto& [name, value] : image.quality().scores()) names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) scores[name] = image.quality().scores().at(name);
  base::Json reasons = base::Json::array();
  for (const std::string& reason : image.quality().reasons()) reasons.push_back(reason);
  return {{"cache", TierText(image.cache())},
          {"rows", image.rows()},
          {"rows_kept", image.rows_kept()},
          {"bytes_moved", image.bytes_moved()},
          {"replica", image.replica()},
          {"replica_reason", image.replica_reason()},
          {"quality",
           {{"verdict", VerdictText(image.quality().verdict())},
            {"reasons", reasons},
            {"scores", scores}}}};
}

}  // namespace

std::string ReceiptTable(const v1::GenerateResponse& response) {
  const v1::Receipt& receipt = response.receipt();
  const v1::Usage& usage = response.usage();
  std::string out = "receipt\n";
  for (const auto& [name, seconds] : Stages(receipt)) {
    absl::StrAppendFormat(&out, "  %-22s %9.1f ms\n", absl::StripSuffix(name, "_seconds"),
                          seconds * 1e3);
  }
  const std::string ahead =
      receipt.ahead_tokens() > 0 ? absl::StrCat(", ahead ", receipt.ahead_tokens()) : "";
  absl::StrAppendFormat(&out, "  %-22s %9d (text %d, image %d, cached %d%s)\n", "prompt tokens",
                        usage.prompt_tokens(), usage.prompt_tokens() - usage.image_tokens(),
                        usage.image_tokens(), usage.cached_tokens(), ahead);
  absl::StrAppendFormat(&out, "  %-22s %9d (%s)\n", "output tokens", usage.output_tokens(),
                        FinishText(response.finish_reason()));
  absl::StrAppendFormat(&out, "  %-22s %9d new, %d reused\n", "KV blocks", receipt.kv_blocks_new(),
                        receipt.kv_blocks_reused());
  if (receipt.preemptions() > 0) {
    absl::StrAppendFormat(&out, "  %-22s %9d\n", "preemptions", receipt.preemptions());
  }
  for (int i = 0; i < receipt.images_size(); ++i) {
    const v1::ImageReceipt& image = receipt.images(i);
    absl::StrAppendFormat(&out, "  %-22s %9s, %d rows, %d bytes moved, quality %s%s\n",
                          absl::StrCat("picture ", i + 1), TierText(image.cache()), image.rows(),
                          image.bytes_moved(), VerdictText(image.quality().verdict()),
                          image.quality().reasons().empty()
                              ? ""
                              : " (" + absl::StrJoin(image.quality().reasons(), ", ") + ")");
    if (!image.replica().empty()) {
      absl::StrAppend(&out, "    made by ", image.replica(), " (", image.replica_reason(), ")\n");
    }
  }
  if (!receipt.replica().empty()) {
    absl::StrAppend(&out, "  answered by ", receipt.replica(), " (", receipt.replica_reason(),
                    ")\n");
  }
  for (const std::string& what : receipt.degraded()) {
    absl::StrAppend(&out, "  degraded: ", what, "\n");
  }
  return out;
}

base::Json AnswerJson(const std::string& text, const v1::GenerateResponse& response) {
  const v1::Receipt& receipt = response.receipt();
  const v1::Usage& usage = response.usage();
  base::Json stages = base::Json::object();
  for (const auto& [name, seconds] : Stages(receipt)) stages[name] = seconds;
  base::Json out_receipt = stages;
  out_receipt["images"] = base::Json::array();
  for (const v1::ImageReceipt& image : receipt.images()) {
    out_receipt["images"].push_back(ImageJson(image));
  }
  out_receipt["kv_blocks_new"] = receipt.kv_blocks_new();
  out_receipt["kv_blocks_reused"] = receipt.kv_blocks_reused();
  out_receipt["ahead_tokens"] = receipt.ahead_tokens();
  out_receipt["preemptions"] = receipt.preemptions();
  out_receipt["replica"] = receipt.replica();
  out_receipt["replica_reason"] = receipt.replica_reason();
  base::Json degraded = base::Json::array();
  for (const std::string& step : receipt.degraded()) degraded.push_back(step);
  out_receipt["degraded"] = degraded;
  base::Json out = base::Json::object();
  out["text"] = text;
  out["finish_reason"] = FinishText(response.finish_reason());
  out["usage"] = {{"prompt_tokens", usage.prompt_tokens()},
                  {"image_tokens", usage.image_tokens()},
                  {"cached_tokens", usage.cached_tokens()},
                  {"output_tokens", usage.output_tokens()}};
  out["receipt"] = std::move(out_receipt);
  return out;
}

base::Json LogprobsJson(const LogprobList& logprobs) {
  base::Json out = base::Json::array();
  for (const v1::TokenLogprob& token : logprobs) {
    base::Json one = TokenJson(token.chosen());
    one["top"] = base::Json::array();
    for (const v1::TokenProbability& rival : token.top()) one["top"].push_back(TokenJson(rival));
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace tessera::tools
