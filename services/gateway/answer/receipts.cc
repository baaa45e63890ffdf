#include "services/gateway/answer/receipts.h"

#include <algorithm>

namespace tessera::gateway {
namespace {

void AddVisionStages(const std::vector<ResolvedImage>& images, v1::StageSeconds& stages) {
  double queue = 0, decode = 0, preprocess = 0, encode = 0, store = 0;
  for (const ResolvedImage& image : images) {
    queue = std::max(queue, image.stages.queue_seconds());
    decode = std::max(decode, image.stages.image_decode_seconds());
    preprocess = std::max(preprocess, image.stages.preprocess_seconds());
    encode = std::max(encode, image.stages.encode_seconds());
    store = std::max(store, image.stages.store_seconds());
  }
  stages.set_queue_seconds(stages.queue_seconds() + queue);
  stages.set_image_decode_seconds(decode);
  stages.set_preprocess_seconds(preprocess);
  stages.set_encode_seconds(encode);
  stages.set_store_seconds(store);
}

void FillImage(const ResolvedImage& image, v1::ImageReceipt& receipt) {
  // What vision had to fetch is nearer to decode by then.
  const bool fetched =
      image.cache == v1::CACHE_TIER_STORE && receipt.cache() == v1::CACHE_TIER_LOCAL;
  if (image.cache == v1::CACHE_TIER_COMPUTED || fetched) receipt.set_cache(image.cache);
  receipt.set_rows(image.ref.rows());
  receipt.set_replica(image.replica);
  receipt.set_replica_reason(image.replica_reason);
  *receipt.mutable_quality() = image.ref.quality();
}

}  // namespace

v1::GenerateResponse MakeResponse(const v1::DecodeEnd& end,
                                  const std::vector<ResolvedImage>& images,
                                  const GatewayTimes& times, const Routed& by) {
  v1::GenerateResponse response;
  response.set_finish_reason(end.finish_reason());
  response.set_stop_reason(end.stop_reason());
  *response.mutable_usage() = end.usage();
  v1::Receipt& receipt = *response.mutable_receipt();
  *receipt.mutable_stages() = end.stages();
  AddVisionStages(images, *receipt.mutable_stages());
  receipt.mutable_stages()->set_queue_seconds(receipt.stages().queue_seconds() + times.queue);
  receipt.mutable_stages()->set_first_token_seconds(times.first_token);
  receipt.set_total_seconds(times.total);
  receipt.set_kv_blocks_new(end.kv_blocks_new());
  receipt.set_kv_blocks_reused(end.kv_blocks_reused());
  receipt.set_ahead_tokens(end.ahead_tokens());
  receipt.set_preemptions(end.preemptions());
  receipt.set_replica(by.replica);
  receipt.set_replica_reason(by.reason);
  for (size_t i = 0; i < images.size(); ++i) {
    v1::ImageReceipt& image = *receipt.add_images();
    if (static_cast<int>(i) < end.images_size()) image = end.images(static_cast<int>(i));
    FillImage(images[i], image);
  }
  return response;
}

}  // namespace tessera::gateway
