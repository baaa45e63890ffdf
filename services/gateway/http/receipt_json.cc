#include "services/gateway/http/receipt_json.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace tessera::gateway::http {
namespace {

base::Json QualityJson(const v1::Quality& quality) {
  base::Json reasons = base::Json::array();
  for (const std::string& reason : quality.reasons()) reasons.push_back(reason);
  base::Json scores = base::Json::object();
  // A map field has no order of its own.
  for (const auto& [name, value] :
       std::map<std::string, double>(quality.scores().begin(), quality.scores().end())) {
    scores[name] = value;
  }
  const std::string verdict = v1::QualityVerdict_Name(quality.verdict());
  base::Json json = base::Json::object();
  json["verdict"] = absl::AsciiStrToLower(absl::StripPrefix(verdict, "QUALITY_VERDICT_"));
  json["reasons"] = std::move(reasons);
  json["scores"] = std::move(scores);
  return json;
}

base::Json ImageJson(const v1::ImageReceipt& image) {
  const std::string tier = v1::CacheTier_Name(image.cache());
  base::Json json = base::Json::object();
  json["cache"] = std::string(absl::StripPrefix(tier, "CACHE_TIER_"));
  json["rows"] = image.rows();
  json["rows_kept"] = image.rows_kept();
  json["bytes_moved"] = image.bytes_moved();
  json["quality"] = QualityJson(image.quality());
  json["replica"] = image.replica();
  json["replica_reason"] = image.replica_reason();
  return json;
}

void AddStages(const v1::StageSeconds& stages, base::Json& to) {
  to["queue_seconds"] = stages.queue_seconds();
  to["fetch_seconds"] = stages.fetch_seconds();
  to["image_decode_seconds"] = stages.image_decode_seconds();
  to["preprocess_seconds"] = stages.preprocess_seconds();
  to["encode_seconds"] = stages.encode_seconds();
  to["store_seconds"] = stages.store_seconds();
  to["prefill_seconds"] = stages.prefill_seconds();
  to["first_token_seconds"] = stages.first_token_seconds();
  to["generation_seconds"] = stages.generation_seconds();
}

}  // namespace

base::Json ReceiptJson(const v1::Receipt& receipt) {
  base::Json json = base::Json::object();
  AddStages(receipt.stages(), json);
  json["total_seconds"] = receipt.total_seconds();
  base::Json images = base::Json::array();
  for (const v1::ImageReceipt& image : receipt.images()) images.push_back(ImageJson(image));
  json["images"] = std::move(images);
  json["kv_blocks_new"] = receipt.kv_blocks_new();
  json["kv_blocks_reused"] = receipt.kv_blocks_reused();
  json["replica"] = receipt.replica();
  json["replica_reason"] = receipt.replica_reason();
  base::Json degraded = base::Json::array();
  for (const std::string& step : receipt.degraded()) degraded.push_back(step);
  json["degraded"] = std::move(degraded);
  json["ahead_tokens"] = receipt.ahead_tokens();
  json["preemptions"] = receipt.preemptions();
  return json;
}

}  // namespace tessera::gateway::http
