#include "services/vision/encoder/refused_pictures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"

namespace tessera::vision {
namespace {

store::EmbeddingKey KeyOf(absl::string_view name) {
  return store::EmbeddingKey(base::Sha256Of(name));
}

TEST(RefusedPicturesTest, WhatWasRefusedIsToldAgain) {
  RefusedPictures refused(10, 5);
  EXPECT_EQ(refused.Find(KeyOf("a")), std::nullopt);
  refused.Add("t", KeyOf("a"), absl::InvalidArgumentError("cut"));
  EXPECT_EQ(refused.Find(KeyOf("a")), absl::InvalidArgumentError("cut"));
  EXPECT_EQ(refused.Find(KeyOf("b")), std::nullopt);
}

// Against a list that is looked through from end to end.
TEST(RefusedPicturesTest, TheOldestOfTheTenantThenTheOldestOfAllLeave) {
  std::mt19937 random(44);
  RefusedPictures refused(12, 5);
  std::vector<std::pair<std::string, std::string>> known;  // tenant, picture; the oldest first
  for (int i = 0; i < 20'000; ++i) {
    const std::string tenant = absl::StrCat("tenant ", random() % 4);
    const std::string picture = absl::StrCat(tenant, " ", random() % 40);
    refused.Add(tenant, KeyOf(picture), absl::InvalidArgumentError(picture));
    const std::pair<std::string, std::string> entry(tenant, picture);
    if (std::find(known.begin(), known.end(), entry) == known.end()) known.push_back(entry);
    const auto same = [&](const auto& other) { return other.first == tenant; };
    if (std::count_if(known.begin(), known.end(), same) > 5) {
      known.erase(std::find_if(known.begin(), known.end(), same));
    }
    if (known.size() > 12) known.erase(known.begin());
    ASSERT_EQ(refused.size(), known.size());
    for (const auto& [whose, name] : known) {
      ASSERT_EQ(refused.Find(KeyOf(name)), absl::InvalidArgumentError(name));
    }
  }
}

}  // namespace
}  // namespace tessera::vision
