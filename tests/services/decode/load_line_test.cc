#include "services/decode/load_line.h"

#include <gtest/gtest.h>

namespace tessera::decode {
namespace {

TEST(LoadLineTest, TellsWhatWasDoneInTheSpan) {
  EngineStats before, now;
  before.prompt_tokens = 1000;
  before.prefix_queries = 1000;
  before.prefix_hits = 900;
  now = before;
  now.prompt_tokens += 50;
  now.generation_tokens += 25;
  now.running = 3;
  now.waiting = 2;
  now.blocks_total = 200;
  now.blocks_used = 50;
  now.prefix_queries += 40;
  now.prefix_hits += 10;
  EXPECT_EQ(LoadLine(now, before, absl::Seconds(10)),
            "prompt 5.0 tokens/s, generation 2.5 tokens/s, running 3, waiting 2, KV 25.0 %, prefix "
            "hit 25.0 %");
  now.preemptions = 4;
  EXPECT_TRUE(LoadLine(now, before, absl::Seconds(10))->ends_with(", preempted 4"));
}

TEST(LoadLineTest, NothingIsToldOfAnEngineThatHasNothingToDo) {
  EngineStats idle;
  idle.prompt_tokens = 7;
  idle.blocks_total = 200;
  idle.blocks_used = 50;
  EXPECT_EQ(LoadLine(idle, idle, absl::Seconds(10)), std::nullopt);
  EngineStats stuck = idle;
  stuck.waiting = 1;
  EXPECT_NE(LoadLine(stuck, stuck, absl::Seconds(10)), std::nullopt);
}

}  // namespace
}  // namespace tessera::decode
