#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tests/kernels/lab.h"

// CopyKvBlocks: a copy is its original, to the bit, in every layer, and nothing else moves.
namespace tessera::kernels {
namespace {

constexpr int kHeads = 4;
constexpr int64_t kBlocks = 7;

std::vector<KvCacheSpec> Specs() {
  std::vector<KvCacheSpec> specs;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kI8, DType::kI8}) {
    const bool zero_point = !specs.empty() && specs.back().dtype == DType::kI8;
    for (const int block_size : {1, 5, 7, 16, 33}) {
      for (const int layers : {1, 3}) {
        specs.push_back({.layers = layers,
                         .kv_heads = layers == 1 ? 1 : 2,
                         .head_dim = block_size == 7 ? 34 : 20,
                         .blocks = kBlocks,
                         .block_size = block_size,
                         .dtype = dtype,
                         .zero_point = zero_point});
      }
    }
  }
  return specs;
}

std::string NameOf(const KvCacheSpec& spec) {
  return absl::StrCat(std::string(Name(spec.dtype)), spec.zero_point ? " with zeros" : "", ", ",
                      spec.layers, " layers, blocks of ", spec.block_size);
}

// A cache with something different in every layer, block and place.
class Filled {
 public:
  Filled(const KvCacheSpec& spec, Lab& lab) : spec_(spec), lab_(lab), cache_(lab.Cache(spec)) {
    std::vector<int32_t> slots(spec.blocks * spec.block_size);
    std::iota(slots.begin(), slots.end(), 0);
    Write(slots, /*seed=*/1);
  }

  // Other keys and values into these slots of all layers.
  void Write(const std::vector<int32_t>& slots, uint32_t seed) {
    const auto tokens = static_cast<int64_t>(slots.size());
    const int64_t cols = int64_t{spec_.kv_heads} * spec_.head_dim, half = spec_.head_dim / 2;
    const absl::Span<const int32_t> kept = lab_.Keep(slots);
    for (int layer = 0; layer < spec_.layers; ++layer) {
      const uint32_t own = seed + 100 * static_cast<uint32_t>(layer);
      RotaryKvParams write;
      write.q = lab_.Put(Floats(tokens * kHeads * spec_.head_dim), tokens, kHeads * spec_.head_dim);
      write.k = lab_.Put(Random(tokens * cols, own), tokens, cols);
      write.v = lab_.Put(Random(tokens * cols, own + 50), tokens, cols);
      write.cos = lab_.Put(Floats(tokens * half, 1.0f), tokens, half);
      write.sin = lab_.Put(Floats(tokens * half, 0.0f), tokens, half);
      write.cache = cache_;
      write.layer = layer;
      write.slots = kept;
      lab_.backend().RotaryKvWrite(write);
    }
  }

  void Copy(const std::vector<BlockCopy>& copies) {
    copies_.push_back(std::make_unique<std::vector<BlockCopy>>(copies));  // read at Synchronize
    lab_.backend().CopyKvBlocks(*cache_, *copies_.back());
  }

  // Attention of a query in every layer over all of these blocks: [layers, heads * head_dim].
  Floats Attend(const std::vector<int32_t>& blocks) {
    const int64_t cols = int64_t{kHeads} * spec_.head_dim;
    const auto places = static_cast<int32_t>(blocks.size()) * spec_.block_size;
    std::vector<DeviceView> outs;
    for (int layer = 0; layer < spec_.layers; ++layer) {
      PagedAttentionParams params;
      params.q = lab_.Put(Random(cols, 77), 1, cols);
      params.out = lab_.Out(1, cols);
      params.cache = cache_;
      params.layer = layer;
      params.heads = kHeads;
      params.scale = 0.3f;
      params.query_begin = lab_.Keep({0, 1});
      params.context = lab_.Keep({places});
      params.block_table = lab_.Keep(blocks);
      params.table_width = static_cast<int64_t>(blocks.size());
      lab_.backend().PagedAttention(params);
      outs.push_back(params.out);
    }
    Floats all;
    for (const DeviceView& out : outs) {
      const Floats one = lab_.Get(out);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  // What every block holds, one Attend each.
  std::vector<Floats> EachBlock() {
    std::vector<Floats> all;
    for (int32_t block = 0; block < kBlocks; ++block) all.push_back(Attend({block}));
    return all;
  }

  // The slots of places [begin, block_size) of a block.
  std::vector<int32_t> SlotsFrom(int32_t block, int begin) const {
    std::vector<int32_t> slots(spec_.block_size - begin);
    std::iota(slots.begin(), slots.end(), block * spec_.block_size + begin);
    return slots;
  }

 private:
  const KvCacheSpec spec_;
  Lab& lab_;
  const KvCache* cache_;
  std::vector<std::unique_ptr<std::vector<BlockCopy>>> copies_;
};

class CopyKvBlocksTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CopyKvBlocksTest, AttentionOverCopiesIsThatOverTheOriginals) {
  for (const KvCacheSpec& spec : Specs()) {
    Lab lab(GetParam());
    Filled cache(spec, lab);
    const Floats original = cache.Attend({4, 0, 2});
    const std::vector<Floats> before = cache.EachBlock();
    cache.Copy({{4, 6}, {2, 1}});
    ExpectSameBits(cache.Attend({6, 0, 1}), original, NameOf(spec));
    ExpectSameBits(cache.Attend({4, 0, 2}), original, NameOf(spec));
    const std::vector<Floats> after = cache.EachBlock();
    const int32_t holds[kBlocks] = {0, 2, 2, 3, 4, 5, 4};
    for (int32_t block = 0; block < kBlocks; ++block) {
      ExpectSameBits(after[block], before[holds[block]],
                     absl::StrCat(NameOf(spec), ", block ", block));
    }
    EXPECT_NE(before[1], before[2]) << NameOf(spec);
    EXPECT_NE(before[6], before[4]) << NameOf(spec);
  }
}

TEST_P(CopyKvBlocksTest, OneBlockMayBeCopiedOntoSeveral) {
  for (const KvCacheSpec& spec : Specs()) {
    Lab lab(GetParam());
    Filled cache(spec, lab);
    cache.Copy({{3, 0}, {3, 6}, {3, 5}});
    const std::vector<Floats> after = cache.EachBlock();
    for (const int block : {0, 5, 6}) ExpectSameBits(after[block], after[3], NameOf(spec));
  }
}

// What a sequence does that shares the beginning of another's block: it writes its own second half
// into the copy. Both are then as if nobody had shared.
TEST_P(CopyKvBlocksTest, TheRestOfACopyIsWrittenAndTheOriginalStays) {
  for (const KvCacheSpec& spec : Specs()) {
    for (int shared = 0; shared < spec.block_size; shared += 3) {
      Lab lab(GetParam()), plain(GetParam());
      Filled cache(spec, lab), expected(spec, plain);
      cache.Copy({{2, 5}});
      cache.Write(cache.SlotsFrom(5, shared), /*seed=*/9);
      expected.Write(expected.SlotsFrom(2, shared), /*seed=*/9);
      const std::string what = absl::StrCat(NameOf(spec), ", shared ", shared);
      ExpectSameBits(cache.Attend({0, 5}), expected.Attend({0, 2}), what);
      Lab fresh(GetParam());
      ExpectSameBits(cache.Attend({2}), Filled(spec, fresh).Attend({2}), what);
    }
  }
}

TEST_P(CopyKvBlocksTest, AnEmptyListCopiesNothing) {
  const KvCacheSpec spec = Specs().front();
  Lab lab(GetParam());
  Filled cache(spec, lab);
  const std::vector<Floats> before = cache.EachBlock();
  cache.Copy({});
  EXPECT_EQ(cache.EachBlock(), before);
}

TEST_P(CopyKvBlocksTest, ABlockBeyondTheCacheIsOurBug) {
  for (const BlockCopy bad : {BlockCopy{-1, 0}, BlockCopy{0, -1}, BlockCopy{kBlocks, 0},
                              BlockCopy{0, static_cast<int32_t>(kBlocks)}}) {
    EXPECT_DEATH(
        {
          Lab lab(GetParam(), 1);
          Filled cache(Specs().front(), lab);
          cache.Copy({bad});
          cache.Attend({0});
        },
        "CHECK failed");
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CopyKvBlocksTest, ::testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::kernels
