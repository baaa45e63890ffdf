#include "services/gateway/answer/receipts.h"

#include <gtest/gtest.h>

namespace tessera::gateway {
namespace {

TEST(ReceiptsTest, StagesOfPicturesOverlapAndQueuesAddUp) {
  v1::DecodeEnd end;
  end.mutable_stages()->set_queue_seconds(0.5);
  end.mutable_stages()->set_prefill_seconds(2);
  std::vector<ResolvedImage> images(2);
  images[0].stages.set_queue_seconds(0.25);
  images[0].stages.set_encode_seconds(3);
  images[1].stages.set_encode_seconds(4);
  images[1].stages.set_image_decode_seconds(1);
  const v1::StageSeconds stages =
      MakeResponse(end, images, {.first_token = 7, .total = 9}, {}).receipt().stages();
  EXPECT_EQ(stages.queue_seconds(), 0.75);
  EXPECT_EQ(stages.encode_seconds(), 4);
  EXPECT_EQ(stages.image_decode_seconds(), 1);
  EXPECT_EQ(stages.prefill_seconds(), 2);
  EXPECT_EQ(stages.first_token_seconds(), 7);
}

TEST(ReceiptsTest, ATierIsComputedOnlyForTheRequestThatPaid) {
  v1::DecodeEnd end;
  for (int i = 0; i < 3; ++i) end.add_images()->set_cache(v1::CACHE_TIER_LOCAL);
  end.mutable_images(2)->set_cache(v1::CACHE_TIER_PREFIX_KV);
  std::vector<ResolvedImage> images(3);
  images[0].cache = v1::CACHE_TIER_COMPUTED;
  images[1].cache = v1::CACHE_TIER_LOCAL;
  images[1].ref.set_rows(16);
  const v1::Receipt receipt = MakeResponse(end, images, {}, {"r1", "affinity"}).receipt();
  EXPECT_EQ(receipt.images(0).cache(), v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(receipt.images(1).cache(), v1::CACHE_TIER_LOCAL);
  EXPECT_EQ(receipt.images(1).rows(), 16u);
  EXPECT_EQ(receipt.images(2).cache(), v1::CACHE_TIER_PREFIX_KV);
}

TEST(ReceiptsTest, WhatVisionFetchedIsOfTheStoreThoughDecodeHadItNear) {
  v1::DecodeEnd end;
  for (const v1::CacheTier tier : {v1::CACHE_TIER_LOCAL, v1::CACHE_TIER_PREFIX_KV}) {
    end.add_images()->set_cache(tier);
  }
  std::vector<ResolvedImage> images(2);
  for (ResolvedImage& image : images) image.cache = v1::CACHE_TIER_STORE;
  const v1::Receipt receipt = MakeResponse(end, images, {}, {"r1", "affinity"}).receipt();
  EXPECT_EQ(receipt.images(0).cache(), v1::CACHE_TIER_STORE);
  EXPECT_EQ(receipt.images(1).cache(), v1::CACHE_TIER_PREFIX_KV);
}

TEST(ReceiptsTest, WhatDecodeCountedIsTold) {
  v1::DecodeEnd end;
  end.set_kv_blocks_new(3);
  end.set_kv_blocks_reused(4);
  end.set_ahead_tokens(17);
  end.set_preemptions(2);
  const v1::Receipt receipt = MakeResponse(end, {}, {}, {}).receipt();
  EXPECT_EQ(receipt.kv_blocks_new(), 3u);
  EXPECT_EQ(receipt.kv_blocks_reused(), 4u);
  EXPECT_EQ(receipt.ahead_tokens(), 17u);
  EXPECT_EQ(receipt.preemptions(), 2u);
}

}  // namespace
}  // namespace tessera::gateway
