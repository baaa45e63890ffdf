#include "services/gateway/api/upload.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "services/gateway/pictures/image_handle.h"
#include "tests/support/fake_clients.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {
namespace {

class UploadTest : public ::testing::Test {
 protected:
  UploadTest() {
    options_.handle_key = std::string(32, 'k');
    options_.max_upload_bytes = options_.max_image_bytes = 1000;
  }

  absl::Status UploadOf(const std::string& bytes) {
    Upload upload(options_, budget(), "tenant");
    v1::UploadImageRequest message;
    message.set_data(bytes);
    const absl::Status status = upload.Add(message);
    return status.ok() ? upload.Finish({}, resolver_, nullptr, clock_).status() : status;
  }
  ByteBudget& budget() {
    if (!budget_) budget_.emplace(options_.upload_limits());
    return *budget_;
  }

  testing::FakeClock clock_;
  ApiOptions options_;
  std::optional<ByteBudget> budget_;
  testing::FakeVisionClient vision_;
  KnownImages known_{16};
  ImageResolver resolver_{vision_, known_, clock_, "f"};
};

TEST_F(UploadTest, ItsBytesCountForAsLongAsVisionNeedsThem) {
  EXPECT_TRUE(UploadOf(std::string(600, 'a')).ok());
  const absl::Status full = UploadOf(std::string(600, 'b'));
  EXPECT_EQ(base::ReasonOf(full), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(full).has_value());
  EXPECT_EQ(vision_.calls.at(0)->picture.bytes->size(), 600u);
  vision_.calls.clear();
  EXPECT_TRUE(UploadOf(std::string(600, 'b')).ok());
}

TEST_F(UploadTest, ItsHandleExpiresByTheDateOfNowNotOfTheStart) {
  clock_.SetDateAhead(absl::Hours(24 * 365));
  Upload upload(options_, budget(), "tenant");
  v1::UploadImageRequest message;
  message.set_data("abc");
  ASSERT_TRUE(upload.Add(message).ok());
  const auto response = upload.Finish({}, resolver_, nullptr, clock_);
  ASSERT_TRUE(response.ok()) << response.status();
  const auto handle =
      VerifyHandle(response->handle(), "tenant", options_.handle_key, clock_.WallTime());
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_EQ(handle->expiry, clock_.WallTime() + options_.handle_ttl);
  EXPECT_EQ(vision_.calls.at(0)->request.deadline, clock_.Now() + options_.deadline_cap)
      << "which nobody but this process reads";
}

TEST_F(UploadTest, VisionMayNeedItsBytesWhenTheBudgetIsGone) {
  EXPECT_TRUE(UploadOf("abc").ok());
  budget_.reset();
  EXPECT_EQ(*vision_.calls.at(0)->picture.bytes, "abc");
  vision_.calls.clear();
}

TEST_F(UploadTest, ChunksOfAnySizeAreOnePictureInTheirOrder) {
  options_.max_upload_bytes = options_.max_image_bytes = 1 << 20;
  Upload upload(options_, budget(), "tenant");
  std::string all;
  for (const size_t size : {1, 0, 1, 4095, 1, 5000, 3, 100'000, 2, 4096}) {
    v1::UploadImageRequest message;
    message.set_data(std::string(size, static_cast<char>('a' + all.size() % 26)));
    all += message.data();
    ASSERT_TRUE(upload.Add(std::move(message)).ok());
  }
  ASSERT_TRUE(upload.Finish({}, resolver_, nullptr, clock_).ok());
  const Picture& picture = vision_.calls.at(0)->picture;
  EXPECT_EQ(*picture.bytes, all);
  EXPECT_EQ(picture.digest, base::Sha256Of(all));
  EXPECT_EQ(picture.size, all.size());
}

TEST_F(UploadTest, LargeMessagesAreMovedNotCopied) {
  options_.max_upload_bytes = options_.max_image_bytes = 1 << 20;
  Upload upload(options_, budget(), "tenant");
  std::vector<const char*> sent, arrived;
  for (const char c : {'a', 'b', 'c'}) {
    v1::UploadImageRequest message;
    message.set_data(std::string(5000, c));
    sent.push_back(message.data().data());
    ASSERT_TRUE(upload.Add(std::move(message)).ok());
  }
  ASSERT_TRUE(upload.Finish({}, resolver_, nullptr, clock_).ok());
  const std::shared_ptr<const absl::Cord> bytes = vision_.calls.at(0)->picture.bytes;
  for (const absl::string_view piece : bytes->Chunks()) arrived.push_back(piece.data());
  EXPECT_EQ(arrived, sent);
}

TEST_F(UploadTest, SmallMessagesAreGathered) {
  Upload upload(options_, budget(), "tenant");
  for (int i = 0; i < 1000; ++i) {
    v1::UploadImageRequest message;
    message.set_data("x");
    ASSERT_TRUE(upload.Add(std::move(message)).ok());
  }
  ASSERT_TRUE(upload.Finish({}, resolver_, nullptr, clock_).ok());
  EXPECT_LT(vision_.calls.at(0)->picture.bytes->EstimatedMemoryUsage(), 2000u);
}

TEST_F(UploadTest, OneThatIsRefusedLeavesNothing) {
  EXPECT_EQ(base::ReasonOf(UploadOf(std::string(1001, 'a'))), "IMAGE_TOO_LARGE");
  EXPECT_TRUE(UploadOf(std::string(1000, 'a')).ok());
}

}  // namespace
}  // namespace tessera::gateway
