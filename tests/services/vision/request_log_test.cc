#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/services/vision/vision_service_fixture.h"

namespace tessera::vision {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A store that others have, too, behind the memory of this process.
class RequestLogTest : public VisionServiceTest {
 protected:
  RequestLogTest() { tiered_ = &all_; }
  ~RequestLogTest() override { Stop(); }

  void PutIntoSharedStore(const std::string& picture, int64_t rows) {
    auto record = std::make_shared<store::EmbeddingRecord>();
    record->key = KeyOf(identity_, "", base::Sha256Of(picture));
    record->rows = rows;
    record->width = 2;
    record->data.assign(static_cast<size_t>(rows) * 2 * 2, std::byte{0x11});
    ASSERT_TRUE(shared_.Put(record, absl::ZeroDuration()).ok());
  }
  // What the log says of this call.
  std::string LineOf(const std::string& picture) {
    ::testing::internal::CaptureStderr();
    Run(picture);
    return ::testing::internal::GetCapturedStderr();
  }

  FakeStore shared_;
  store::TieredStore all_{store_, shared_, {}, all_metrics_};
};

TEST_F(RequestLogTest, TheLineSaysWhereTheRowsCameFromAndHowManyThereAre) {
  PutIntoSharedStore(Bmp(3, 'b'), 5);
  Start();
  EXPECT_THAT(LineOf(Bmp(3, 'a')),
              AllOf(HasSubstr(R"("cache":"computed")"), HasSubstr(R"("rows":1)")));
  EXPECT_THAT(LineOf(Bmp(3, 'a')),
              AllOf(HasSubstr(R"("cache":"local")"), HasSubstr(R"("rows":1)")));
  EXPECT_THAT(LineOf(Bmp(3, 'b')),
              AllOf(HasSubstr(R"("cache":"store")"), HasSubstr(R"("rows":5)")));
  EXPECT_THAT(LineOf(Bmp(3, 'b')),
              AllOf(HasSubstr(R"("cache":"local")"), HasSubstr(R"("rows":5)")));
  EXPECT_THAT(LineOf("no picture"), AllOf(HasSubstr(R"("reason":"IMAGE_FORMAT")"),
                                          Not(HasSubstr("cache")), Not(HasSubstr("rows"))));
}

}  // namespace
}  // namespace tessera::vision
