#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>

#include "tests/services/decode/model/paged_runner.h"
#include "tests/support/tiny_models.h"

// Counts what the whole process takes from the heap.
namespace {
std::atomic<int64_t> allocations{0};

void* Counted(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* CountedAligned(size_t size, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t align = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t size) { return Counted(size); }
void* operator new[](size_t size) { return Counted(size); }
void* operator new(size_t size, std::align_val_t alignment) {
  return CountedAligned(size, alignment);
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return CountedAligned(size, alignment);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tessera::decode {
namespace {

// Two sequences, one token each, at place `at`.
void FillDecodeStep(int32_t at, BatchPlan& plan) {
  plan.Clear();
  LayerGroup& group = plan.groups[0];
  group.table_width = 4;
  for (int32_t sequence = 0; sequence < 2; ++sequence) {
    plan.logit_tokens.push_back(sequence);
    plan.ids.push_back(5 + at);
    for (auto& axis : plan.positions) axis.push_back(at);
    plan.rotary_length.push_back(at + 1);
    plan.query_begin.push_back(sequence + 1);
    plan.adapter.push_back(0);
    group.slots.push_back(sequence * 64 + at);
    group.context.push_back(at + 1);
    for (int32_t block = 0; block < 4; ++block) group.block_table.push_back(sequence * 4 + block);
  }
}

TEST(AllocationTest, AWarmDecodeStepTakesNothingFromTheHeap) {
  for (const char* rope : {"linear", "dynamic"}) {
    testing::TempDir dir;
    const base::Json scaling = {{"type", rope}, {"factor", 2.0}};
    testing::WriteTinyModel(dir.path(), {.max_position_embeddings = 16, .rope_scaling = scaling});
    testing::PagedRunner runner(dir.path(), {.device = "cpu", .threads = 2});
    BatchPlan plan;
    std::vector<float> logits(2 * 96);
    int64_t taken = 0;
    for (int32_t at = 0; at < 60; ++at) {
      FillDecodeStep(at, plan);
      const int64_t before = allocations.load();
      const auto output = runner.model().Forward(plan, runner.cache());
      ASSERT_TRUE(output.ok()) << output.status();
      runner.backend().Download(output->logits, absl::MakeSpan(logits));
      ASSERT_TRUE(runner.backend().Synchronize().ok());
      if (at >= 40) taken += allocations.load() - before;
    }
    EXPECT_EQ(taken, 0) << rope;
  }
}

}  // namespace
}  // namespace tessera::decode
