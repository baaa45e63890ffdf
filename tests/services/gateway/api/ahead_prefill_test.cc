#include "services/gateway/pictures/ahead_prefill.h"

#include <gtest/gtest.h>

#include "services/gateway/api/upload.h"
#include "tests/support/fake_clients.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {
namespace {

class AheadPrefillTest : public ::testing::Test {
 protected:
  AheadPrefillTest() { options_.handle_key = std::string(32, 'k'); }
  ~AheadPrefillTest() override { ahead_->Close(); }

  void UploadPicture(const std::string& bytes, const std::string& session) {
    ByteBudget budget(options_.upload_limits());
    Upload upload(options_, budget, "tenant");
    v1::UploadImageRequest message;
    message.set_session(session);
    message.set_data(bytes);
    ASSERT_TRUE(upload.Add(message).ok());
    ASSERT_TRUE(upload.Finish({}, resolver_, ahead_, clock_).ok());
  }

  testing::FakeClock clock_;
  ApiOptions options_;
  testing::FakeVisionClient vision_;
  testing::FakeDecodeClient decode_;
  KnownImages known_{16};
  ImageResolver resolver_{vision_, known_, clock_, "f"};
  const std::shared_ptr<AheadPrefill> ahead_ = std::make_shared<AheadPrefill>(decode_);
};

TEST_F(AheadPrefillTest, ThePictureIsReadAheadAndItsRowsKeptUntilThen) {
  UploadPicture("a", "session");
  EXPECT_TRUE(decode_.prefills.empty()) << "there are no rows yet";
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  ASSERT_EQ(decode_.prefills.size(), 1u);
  const v1::DecodeServicePrefillRequest& start = decode_.prefills[0]->start;
  EXPECT_EQ(start.tenant(), "tenant");
  EXPECT_EQ(start.messages_size(), 0);
  ASSERT_EQ(start.images_size(), 1);
  EXPECT_EQ(start.images(0).rows(), 16u);
  EXPECT_FALSE(vision_.calls[0]->rows.expired());
  decode_.prefills[0]->End(v1::DecodeServicePrefillResponse());
  EXPECT_TRUE(vision_.calls[0]->rows.expired());
}

TEST_F(AheadPrefillTest, NothingIsReadAheadWithoutASessionOrAPicture) {
  UploadPicture("a", "");
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  UploadPicture("b", "session");
  vision_.calls.at(1)->Fail(absl::InvalidArgumentError("no picture"));
  EXPECT_TRUE(decode_.prefills.empty());
}

TEST_F(AheadPrefillTest, AKnownPictureIsReadAheadToo) {
  for (int i = 0; i < 2; ++i) {
    UploadPicture("a", "session");
    vision_.calls.at(i)->Ready(i == 0 ? v1::CACHE_TIER_COMPUTED : v1::CACHE_TIER_LOCAL);
    ASSERT_EQ(decode_.prefills.size(), 1u + i);
    decode_.prefills[i]->End(absl::ResourceExhaustedError("no room"));  // nobody hears of it
  }
}

TEST_F(AheadPrefillTest, WhatIsUnderWayIsBounded) {
  for (int i = 0; i < 100; ++i) ahead_->Start("", "", {}, {});
  const size_t most = decode_.prefills.size();
  EXPECT_LT(most, 100u);
  decode_.prefills[3]->End(absl::UnavailableError("down"));
  for (int i = 0; i < 100; ++i) ahead_->Start("", "", {}, {});
  EXPECT_EQ(decode_.prefills.size(), most + 1);
}

TEST_F(AheadPrefillTest, ClosingEndsWhatIsUnderWayAndNothingMoreBegins) {
  for (int i = 0; i < 3; ++i) ahead_->Start("", "", {}, {});
  decode_.prefills[1]->End(v1::DecodeServicePrefillResponse());
  ahead_->Close();
  EXPECT_TRUE(decode_.prefills[0]->cancelled);
  EXPECT_FALSE(decode_.prefills[1]->cancelled);
  EXPECT_TRUE(decode_.prefills[2]->cancelled);
  ahead_->Start("", "", {}, {});
  EXPECT_EQ(decode_.prefills.size(), 3u);
}

}  // namespace
}  // namespace tessera::gateway
