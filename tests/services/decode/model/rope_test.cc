#include "services/decode/model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tessera::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Expected values: inv_freq of LlamaRotaryEmbedding, transformers 5.24.0 with torch 2.9.0, f32.
void ExpectFrequencies(const RopeConfig& config, int64_t length,
                       const std::vector<float>& expected) {
  const Rope rope(config, static_cast<int>(2 * expected.size()));
  std::vector<float> found(expected.size());
  rope.Frequencies(length, absl::MakeSpan(found));
  for (size_t c = 0; c < expected.size(); ++c) {
    // A few units in the last place: two libraries' powers.
    EXPECT_NEAR(found[c] / expected[c], 1.0, 5e-7) << "component " << c << ", length " << length;
  }
}

const std::vector<float> kPlain16 = {1.0f,           0.316227764f,   0.100000001f,
                                     0.0316227786f,  0.00999999978f, 0.00316227786f,
                                     0.00100000005f, 0.000316227786f};

TEST(RopeTest, DefaultIsAGeometricSeries) { ExpectFrequencies({.theta = 10000}, 1000, kPlain16); }

TEST(RopeTest, LinearDividesEveryFrequency) {
  ExpectFrequencies({.kind = RopeKind::kLinear, .theta = 10000, .factor = 4}, 1,
                    {0.25f, 0.079056941f, 0.0250000004f, 0.00790569466f, 0.00249999994f,
                     0.000790569466f, 0.000250000012f, 7.90569466e-05f});
  ExpectFrequencies({.kind = RopeKind::kLinear, .theta = 500000, .factor = 2.5}, 1,
                    {0.400000006f, 0.0775691047f, 0.0150424121f, 0.00291706598f, 0.00056568539f,
                     0.000109699278f, 2.12731829e-05f, 4.12535428e-06f});
}

TEST(RopeTest, DynamicStretchesBeyondTheTrainedLengthOnly) {
  const RopeConfig config = {
      .kind = RopeKind::kDynamic, .theta = 10000, .factor = 2, .max_position_embeddings = 32};
  ExpectFrequencies(config, 5, kPlain16);
  ExpectFrequencies(config, 32, kPlain16);
  ExpectFrequencies(config, 33,
                    {1.0f, 0.313500851f, 0.0982827842f, 0.0308117364f, 0.00965950545f,
                     0.00302826311f, 0.000949363108f, 0.000297626131f});
  ExpectFrequencies(config, 40,
                    {1.0f, 0.298431128f, 0.0890611336f, 0.0265786126f, 0.00793188531f,
                     0.0023671214f, 0.000706422667f, 0.000210818514f});
  ExpectFrequencies(config, 100,
                    {1.0f, 0.249528468f, 0.0622644536f, 0.0155367535f, 0.00387686281f,
                     0.000967387517f, 0.000241390735f, 6.02338623e-05f});
  ExpectFrequencies(config, 4096,
                    {1.0f, 0.143287584f, 0.0205313321f, 0.00294188457f, 0.000421535515f,
                     6.04008055e-05f, 8.6546861e-06f, 1.24010899e-06f});
  ExpectFrequencies(
      {.kind = RopeKind::kDynamic, .theta = 1000000, .factor = 8, .max_position_embeddings = 64},
      150, {1.0f, 0.0139097935f, 0.000193482381f, 2.6913001e-06f});
}

TEST(RopeTest, Llama3KeepsShortWavesAndInterpolatesBetween) {
  const RopeConfig config = {.kind = RopeKind::kLlama3,
                             .theta = 500000,
                             .factor = 8,
                             .low_freq_factor = 1,
                             .high_freq_factor = 4,
                             .original_max_position_embeddings = 64};
  ExpectFrequencies(config, 1,
                    {1.0f,
                     0.663601279f,
                     0.440366626f,
                     0.205000967f,
                     0.079403013f,
                     0.0277513936f,
                     0.0106746377f,
                     0.00708370237f,
                     0.00470075384f,
                     0.00311942608f,
                     0.00207005511f,
                     0.00137369114f,
                     0.000911583134f,
                     0.000604927656f,
                     0.000401430763f,
                     0.00026638995f,
                     0.000176776681f,
                     0.000117309231f,
                     7.78465546e-05f,
                     5.16590699e-05f,
                     3.42810235e-05f,
                     2.2748929e-05f,
                     1.50962178e-05f,
                     1.00178686e-05f,
                     6.64786967e-06f,
                     4.41153452e-06f,
                     2.92749974e-06f,
                     1.94269251e-06f,
                     1.28917316e-06f,
                     8.55496921e-07f,
                     5.6770881e-07f,
                     3.7673226e-07f});
}

TEST(RopeTest, APlanGivesEachTokenTheSetOfItsOwnLength) {
  Rope rope({.kind = RopeKind::kDynamic, .factor = 2, .max_position_embeddings = 32}, 16);
  // A prompt of 40, one that decodes at 33, one below the trained length, one that decodes at 40.
  rope.Plan({40, 40, 40, 33, 12, 32, 40});
  EXPECT_THAT(rope.frequency_set(), ElementsAre(1, 1, 1, 2, 0, 0, 3));
  ASSERT_EQ(rope.inverse_frequency().size(), 4u * 8);
  std::vector<float> expected(8);
  for (const auto& [set, length] : {std::pair{0, 1}, {1, 40}, {2, 33}, {3, 40}}) {
    rope.Frequencies(length, absl::MakeSpan(expected));
    EXPECT_EQ(rope.inverse_frequency().subspan(set * 8, 8), absl::MakeConstSpan(expected));
  }
  rope.Plan({3});
  EXPECT_THAT(rope.frequency_set(), ElementsAre(0));
  EXPECT_EQ(rope.inverse_frequency().size(), 8u);
}

TEST(RopeTest, OtherKindsHaveOneSet) {
  Rope rope({.kind = RopeKind::kLinear, .factor = 2}, 16);
  rope.Plan({40, 5000});
  EXPECT_THAT(rope.frequency_set(), IsEmpty());
  EXPECT_EQ(rope.inverse_frequency().size(), 8u);
}

}  // namespace
}  // namespace tessera::decode
