#include "services/decode/translate.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/services/decode/engine/fake_engine.h"

namespace tessera::decode {
namespace {

using testing::FakeKey;
using testing::kFakeWidth;

const std::string kLong(1000, 'x');  // longer than what a string keeps within itself

v1::DecodeStart TwoPictures() {
  v1::DecodeStart start;
  start.set_tenant(kLong);
  v1::DecodeMessage& message = *start.add_messages();
  message.set_role("user");
  message.add_parts()->set_text(kLong);
  for (const int rows : {2, 3}) {
    v1::ImageRef& ref = *start.add_images();
    ref.set_key(std::string(FakeKey(static_cast<uint8_t>(rows)).bytes()));
    ref.set_rows(static_cast<uint32_t>(rows));
    ref.set_width(kFakeWidth);
    ref.set_origin(kLong);
    message.add_parts()->set_image(static_cast<uint32_t>(start.images_size() - 1));
  }
  start.mutable_options()->add_stop("end");
  start.mutable_options()->set_seed(7);
  return start;
}

TEST(TranslateTest, TheTextsOfAStartAreMovedNotCopied) {
  v1::DecodeStart start = TwoPictures();
  const char* const tenant = start.tenant().data();
  const char* const text = start.messages(0).parts(0).text().data();
  const char* const origin = start.images(1).origin().data();
  const AskedFor asked = ParseStart(std::move(start), kFakeWidth).value();
  EXPECT_EQ(asked.tenant.data(), tenant);
  EXPECT_EQ(asked.messages[0].parts[0].text.data(), text);
  EXPECT_EQ(asked.pictures[1].origin.data(), origin);
  EXPECT_EQ(asked.messages[0].parts[0].text, kLong);
}

TEST(TranslateTest, PicturesAreNamedAsTheReferencesSay) {
  const AskedFor asked = ParseStart(TwoPictures(), kFakeWidth).value();
  ASSERT_EQ(asked.pictures.size(), 2u);
  ASSERT_EQ(asked.images.size(), 2u);
  EXPECT_EQ(asked.pictures[1].key, FakeKey(3));
  EXPECT_EQ(asked.pictures[1].rows, 3);
  EXPECT_EQ(asked.pictures[1].origin, kLong);
  EXPECT_EQ(asked.images[1].rows, 3);
  EXPECT_EQ(asked.sampling.seed, 7u);
  EXPECT_EQ(asked.stops, std::vector<std::string>{"end"});
}

TEST(TranslateTest, TheIdsOfAPromptBecomeTheRequestsOwn) {
  AskedFor asked = ParseStart(TwoPictures(), kFakeWidth).value();
  const char* const tenant = asked.tenant.data();
  PromptPlan plan;
  plan.ids = {5, -1, -1, 6, -1, -1, -1, 7};
  plan.images = {{1, 2}, {4, 3}};
  const std::vector<int32_t> ids = plan.ids;
  const int32_t* const place = plan.ids.data();
  const Request request = ToRequest(std::move(asked), std::move(plan));
  EXPECT_EQ(request.ids.data(), place);
  EXPECT_EQ(request.ids, ids);
  EXPECT_EQ(request.tenant.data(), tenant);
  ASSERT_EQ(request.pictures.size(), 2u);
  EXPECT_EQ(request.pictures[0].first_token, 1);
  EXPECT_EQ(request.pictures[0].rows, 2);
  EXPECT_EQ(request.pictures[1].first_token, 4);
  EXPECT_EQ(request.pictures[1].end_token(), 7);
  EXPECT_EQ(request.pictures[1].key, FakeKey(3));
}

}  // namespace
}  // namespace tessera::decode
