#include <gtest/gtest.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tests/services/decode/model/paged_runner.h"
#include "tests/support/golden_case.h"

// "The same answer": logits equal to the bit whatever a row's batch mates, its chunk, its blocks
// and the number of threads.
namespace tessera::decode {
namespace {

using testing::GoldenCase;
using testing::GoldenModel;
using testing::PagedRunner;
using testing::SameBits;
using testing::Script;
using testing::Steps;

// The bundled model is a hundred times larger than the others: fewer of its cases, and one of them
// on the reference backend.
constexpr size_t kCasesOfLargeModel = 3;
constexpr int64_t kLargeHidden = 128;

struct Subject {
  std::string dir;
  std::vector<Script> scripts;
  std::vector<std::string> ids;
};

std::vector<Subject> Subjects(const std::string& device) {
  std::vector<Subject> subjects;
  auto models = testing::FindGoldenModels();
  if (!models.ok()) {
    ADD_FAILURE() << models.status();
    return subjects;
  }
  for (const GoldenModel& model : *models) {
    Subject subject;
    subject.dir = model.dir;
    const auto config = DecoderConfig::Load(model.dir);
    if (!config.ok()) {
      ADD_FAILURE() << config.status();
      continue;
    }
    for (const GoldenCase& golden : model.cases) {
      const bool enough =
          config->hidden_size > kLargeHidden &&
          subject.scripts.size() >= (device == "reference" ? 1 : kCasesOfLargeModel);
      std::optional<Script> script = testing::ScriptOf(model, golden, DType::kF32);
      if (enough || !script.has_value()) continue;
      subject.scripts.push_back(*std::move(script));
      subject.ids.push_back(golden.id);
    }
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

class SameAnswer : public ::testing::TestWithParam<const char*> {
 protected:
  PagedRunner Make(const Subject& subject, int threads, uint32_t block_seed) const {
    return PagedRunner(subject.dir, {.device = GetParam(),
                                     .threads = threads,
                                     .kv_dtype = DType::kF32,
                                     .block_seed = block_seed});
  }
};

TEST_P(SameAnswer, InABatchInChunksAndOverThreads) {
  int compared = 0;
  for (const Subject& subject : Subjects(GetParam())) {
    std::vector<std::vector<float>> alone;
    for (const Script& script : subject.scripts) {
      PagedRunner fresh = Make(subject, /*threads=*/1, /*block_seed=*/0);
      alone.push_back(fresh.Run({script}, testing::Alone(script))[0]);
    }
    for (int threads : {1, 2}) {
      PagedRunner runner = Make(subject, threads, /*block_seed=*/7);
      const auto mixed = runner.Run(subject.scripts, testing::Mixed(subject.scripts));
      for (size_t i = 0; i < alone.size(); ++i, ++compared) {
        EXPECT_TRUE(SameBits(alone[i], mixed[i]))
            << subject.dir << " " << subject.ids[i] << " in a batch, threads " << threads;
      }
    }
    // Borders of blocks, one beside them, and inside a picture's rows.
    for (int64_t size : {7, 16, 17, 32}) {
      PagedRunner runner = Make(subject, /*threads=*/2, static_cast<uint32_t>(size));
      for (size_t i = 0; i < alone.size(); ++i, ++compared) {
        const Script& script = subject.scripts[i];
        const auto chunked = runner.Run({script}, testing::InChunks(script, size))[0];
        EXPECT_TRUE(SameBits(alone[i], chunked))
            << subject.dir << " " << subject.ids[i] << " in chunks of " << size;
      }
    }
  }
  EXPECT_GT(compared, 0);
  std::printf("SameAnswer: %d comparisons on %s\n", compared, GetParam());
}

// FAULTS B066: rotary positions come from the plan, places in the cache from the slots. A picture
// whose rows take fewer positions than places must change the logits behind it, and the same way
// however it is chunked and wherever its blocks lie.
TEST_P(SameAnswer, PositionsAndPlacesInTheCacheAreTwoThings) {
  int pictures = 0;
  for (const Subject& subject : Subjects(GetParam())) {
    PagedRunner ordered = Make(subject, /*threads=*/1, /*block_seed=*/0);
    PagedRunner permuted = Make(subject, /*threads=*/1, /*block_seed=*/3);
    for (const Script& script : subject.scripts) {
      if (script.ids.size() > 200 && pictures > 0) continue;  // the small models are enough
      Script squeezed = script;
      int32_t next = 0;
      for (size_t i = 0; i < script.ids.size(); ++i) {
        const bool inside = i > 0 && script.ids[i] < 0 && script.ids[i - 1] < 0;
        squeezed.positions[i] = inside ? next - 1 : next++;
      }
      if (squeezed.positions == script.positions) continue;
      const auto plain = ordered.Run({script}, testing::Alone(script))[0];
      const auto whole = ordered.Run({squeezed}, testing::Alone(squeezed))[0];
      const auto chunked = permuted.Run({squeezed}, testing::InChunks(squeezed, 5))[0];
      EXPECT_FALSE(SameBits(plain, whole));
      EXPECT_TRUE(SameBits(whole, chunked));
      ++pictures;
    }
  }
  EXPECT_GT(pictures, 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, SameAnswer, ::testing::Values("reference", "cpu"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tessera::decode
