#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tests/services/decode/model/paged_runner.h"
#include "tests/support/golden_case.h"

// A prompt may be cut anywhere, also within a picture's rows, and may begin in a copy of another
// sequence's block: the logits are those of one chunk, to the bit, in every format of the cache.
namespace tessera::decode {
namespace {

using testing::GoldenCase;
using testing::GoldenModel;
using testing::PagedRunner;
using testing::SameBits;
using testing::Script;

struct KvFormat {
  DType dtype;
  bool zero_point;
};
constexpr KvFormat kFormats[] = {
    {DType::kF32, false}, {DType::kF16, false}, {DType::kI8, false}, {DType::kI8, true}};

// Every border costs a few passes over the whole prompt: not for the bundled model.
constexpr int64_t kHiddenOfBundled = 128;

struct BorderSubject {
  std::string dir, id;
  bool grouped_queries;
  Script script;
};

// Of each small golden model the first case with one picture and the first without.
std::vector<BorderSubject> BorderSubjects() {
  std::vector<BorderSubject> subjects;
  const auto models = testing::FindGoldenModels();
  EXPECT_TRUE(models.ok()) << models.status();
  if (!models.ok()) return subjects;
  for (const GoldenModel& model : *models) {
    const DecoderConfig config = DecoderConfig::Load(model.dir).value();
    if (config.hidden_size > kHiddenOfBundled) continue;
    for (const size_t pictures : {0, 1}) {
      for (const GoldenCase& golden : model.cases) {
        if (golden.images.size() != pictures) continue;
        std::optional<Script> script = testing::ScriptOf(model, golden, DType::kF32);
        if (!script.has_value()) continue;
        subjects.push_back(
            {model.dir, golden.id, config.kv_heads < config.heads, *std::move(script)});
        break;
      }
    }
  }
  return subjects;
}

// Around the picture: one before its first row, each row, one behind the last. In a text each
// token.
std::vector<int64_t> Borders(const Script& script) {
  const auto first = std::find(script.ids.begin(), script.ids.end(), -1);
  const int64_t rows = std::count(script.ids.begin(), script.ids.end(), -1);
  const int64_t at = first - script.ids.begin();
  std::vector<int64_t> borders;
  for (int64_t border = 1; border < script.size(); ++border) {
    if (rows == 0 || (border >= at - 1 && border <= at + rows + 1)) borders.push_back(border);
  }
  return borders;
}

// Another sequence with the same first `shared` tokens, which fills the block that they end in with
// something else.
Script OwnerOf(const Script& script, int64_t shared, int64_t block_size) {
  Script owner = script;
  const int64_t end = (shared / block_size + 1) * block_size;
  owner.ids.resize(shared);
  owner.positions.resize(shared);
  owner.Append(std::vector<int32_t>(end - shared, 7));
  return owner;
}

class ChunkBorders : public ::testing::TestWithParam<const char*> {
 protected:
  PagedRunner Make(const BorderSubject& subject, const KvFormat& format, int threads,
                   uint32_t block_seed) const {
    return PagedRunner(subject.dir, {.device = GetParam(),
                                     .threads = threads,
                                     .kv_dtype = format.dtype,
                                     .kv_tokens = 512,
                                     .block_seed = block_seed,
                                     .kv_zero_point = format.zero_point});
  }
};

TEST_P(ChunkBorders, AnywhereInTextAndPictureGiveTheLogitsOfOneChunk) {
  int kinds[2][2] = {};  // [grouped queries][picture]
  for (const BorderSubject& subject : BorderSubjects()) {
    const Script& script = subject.script;
    const std::vector<int64_t> borders = Borders(script);
    const int64_t rows = std::count(script.ids.begin(), script.ids.end(), -1);
    ASSERT_GE(static_cast<int64_t>(borders.size()), rows == 0 ? script.size() - 1 : rows + 3);
    for (const KvFormat& format : kFormats) {
      PagedRunner ordered = Make(subject, format, /*threads=*/1, /*block_seed=*/0);
      const auto once = ordered.Run({script}, testing::AtOnce(script))[0];
      EXPECT_TRUE(SameBits(once, ordered.Run({script}, testing::Alone(script))[0]));
      PagedRunner dealt = Make(subject, format, /*threads=*/2, /*block_seed=*/5);
      for (const int64_t border : borders) {
        EXPECT_TRUE(SameBits(once, dealt.Run({script}, testing::CutAt(script, border))[0]))
            << subject.dir << " " << subject.id << " " << Name(format.dtype) << " cut at "
            << border;
      }
    }
    kinds[subject.grouped_queries][rows > 0] += static_cast<int>(borders.size());
  }
  std::printf("ChunkBorders on %s: %d and %d borders of texts, %d and %d of pictures (MHA, GQA)\n",
              GetParam(), kinds[0][0], kinds[1][0], kinds[0][1], kinds[1][1]);
  for (const auto& by_heads : kinds) {
    for (const int borders : by_heads) EXPECT_GT(borders, 0);
  }
}

TEST_P(ChunkBorders, ASequenceGoesOnInACopyOfAnothersBlock) {
  for (const BorderSubject& subject : BorderSubjects()) {
    const Script& script = subject.script;
    for (const KvFormat& format : kFormats) {
      PagedRunner solo = Make(subject, format, /*threads=*/1, /*block_seed=*/0);
      const std::vector<float> once = solo.Run({script}, testing::AtOnce(script))[0];
      const int64_t vocab = static_cast<int64_t>(once.size()) / script.size();
      PagedRunner runner = Make(subject, format, /*threads=*/2, /*block_seed=*/9);
      for (const int64_t shared : Borders(script)) {
        const Script owner = OwnerOf(script, shared, kernels::KvCacheSpec().block_size);
        const std::vector<float> behind = runner.RunBehind(owner, script, shared);
        EXPECT_TRUE(SameBits(absl::MakeConstSpan(once).subspan(shared * vocab), behind))
            << subject.dir << " " << subject.id << " " << Name(format.dtype) << " shares "
            << shared;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ChunkBorders, ::testing::Values("reference", "cpu"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tessera::decode
