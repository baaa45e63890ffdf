#include "services/gateway/pictures/image_resolver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "tests/support/fake_clients.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {
namespace {

// The first encoding is an upload's, which a test ends; who asks later is told that there is none.
// Any thread, once the upload has begun.
class OneUpload final : public VisionClient {
 public:
  std::shared_ptr<EncodeCall> Encode(const Picture&, bool, const rpc::RequestContext&,
                                     EncodeEvents events) override {
    if (!upload_.on_done) {
      upload_ = std::move(events);
      return std::make_shared<testing::InstantEncode>([] {});
    }
    return std::make_shared<testing::InstantEncode>(
        [done = std::move(events.on_done)] { done(absl::NotFoundError("gone")); });
  }
  void End(absl::StatusOr<EncodedImage> image) { upload_.on_done(std::move(image)); }

 private:
  EncodeEvents upload_;
};

class ImageResolverTest : public ::testing::Test {
 protected:
  Picture WithBytes(const std::string& bytes) {
    Picture picture;
    picture.digest = base::Sha256Of(bytes);
    picture.bytes = std::make_shared<const absl::Cord>(bytes);
    return picture;
  }
  Picture Handle(const std::string& bytes) {
    Picture picture;
    picture.digest = base::Sha256Of(bytes);
    return picture;
  }
  // Collects what became of a picture.
  static ImageResolver::Done Into(std::vector<absl::StatusOr<ResolvedImage>>& out) {
    return [&out](absl::StatusOr<ResolvedImage> image) { out.push_back(std::move(image)); };
  }
  // Begins to resolve.
  std::shared_ptr<EncodeCall> Resolve(const Picture& picture,
                                      std::vector<absl::StatusOr<ResolvedImage>>& out) {
    return Begin(resolver_.Resolve(picture, request_, {nullptr, Into(out)}));
  }
  static std::shared_ptr<EncodeCall> Begin(std::shared_ptr<EncodeCall> call) {
    call->Start();
    return call;
  }

  testing::FakeClock clock_;
  testing::FakeVisionClient vision_;
  KnownImages known_{16};
  ImageResolver resolver_{vision_, known_, clock_, "f"};
  rpc::RequestContext request_{.request_id = {}, .trace = {}, .deadline = absl::InfiniteFuture()};
  std::vector<absl::StatusOr<ResolvedImage>> results_;
};

TEST_F(ImageResolverTest, AKnownPictureIsNotAskedAboutAgain) {
  Resolve(WithBytes("a"), results_);
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  Resolve(WithBytes("a"), results_);
  ASSERT_EQ(results_.size(), 2u);
  EXPECT_EQ(vision_.calls.size(), 1u);
  EXPECT_EQ(results_[0]->cache, v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(results_[1]->cache, v1::CACHE_TIER_UNSPECIFIED);
  EXPECT_EQ(results_[1]->ref.key(), results_[0]->ref.key());
}

TEST_F(ImageResolverTest, RowsThatDecodeCannotReadAreNoRows) {
  ImageResolver resolver(vision_, known_, clock_, "", 0, /*width=*/8);  // of the fake: 0
  for (size_t i = 0; i < 2; ++i) {
    Begin(resolver.Resolve(WithBytes("a"), request_, {nullptr, Into(results_)}));
    vision_.calls.at(i)->Ready(v1::CACHE_TIER_COMPUTED);
    EXPECT_EQ(base::ReasonOf(results_.at(i).status()), "WIDTH_MISMATCH");
  }
}

TEST_F(ImageResolverTest, AnErrorIsNotRememberedForBytes) {
  Resolve(WithBytes("cut"), results_);
  vision_.calls.at(0)->Fail(absl::InvalidArgumentError("cut"));
  Resolve(WithBytes("cut"), results_);
  EXPECT_EQ(vision_.calls.size(), 2u);
  EXPECT_FALSE(results_.at(0).ok());
}

TEST_F(ImageResolverTest, AQuestionWaitsForTheUploadOfItsPicture) {
  resolver_.EncodeAhead(WithBytes("a"), request_);
  Resolve(Handle("a"), results_);
  Resolve(WithBytes("a"), results_);
  EXPECT_EQ(vision_.calls.size(), 1u);
  EXPECT_TRUE(results_.empty());
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(results_.size(), 2u);
  Resolve(Handle("a"), results_);
  EXPECT_EQ(results_.size(), 3u);
  EXPECT_TRUE(results_[2].ok());
}

TEST_F(ImageResolverTest, WhatAnUploadTookIsNotTheTimeOfTheQuestionsThatWaitedForIt) {
  resolver_.EncodeAhead(WithBytes("a"), request_);
  Resolve(Handle("a"), results_);
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED, v1::QUALITY_VERDICT_PASS, 2.5);
  ASSERT_TRUE(results_.at(0).ok());
  EXPECT_EQ(results_[0]->stages.encode_seconds(), 0);
  EXPECT_EQ(results_[0]->cache, v1::CACHE_TIER_COMPUTED);
}

TEST_F(ImageResolverTest, AnUploadThatNoQuestionWaitedForIsTold) {
  resolver_.EncodeAhead(WithBytes("a"), request_);
  resolver_.EncodeAhead(WithBytes("a"), request_, Into(results_));  // joins the first
  EXPECT_EQ(vision_.calls.size(), 1u);
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_TRUE(results_[0].ok());
  std::vector<absl::StatusOr<ResolvedImage>> unasked;
  resolver_.EncodeAhead(WithBytes("b"), request_, Into(unasked));
  Resolve(Handle("b"), results_);
  vision_.calls.at(1)->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(results_.size(), 2u);
  EXPECT_TRUE(unasked.empty());
}

TEST_F(ImageResolverTest, ARefusedUploadIsToldToTheQuestionsThatCome) {
  resolver_.EncodeAhead(WithBytes("gif"), request_);
  vision_.calls.at(0)->Fail(base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_FORMAT", "gif"));
  Resolve(Handle("gif"), results_);
  EXPECT_EQ(vision_.calls.size(), 1u);
  EXPECT_EQ(base::ReasonOf(results_.at(0).status()), "IMAGE_FORMAT");
  // A new upload of the same bytes is judged anew.
  resolver_.EncodeAhead(WithBytes("gif"), request_);
  EXPECT_EQ(vision_.calls.size(), 2u);
  vision_.calls.at(1)->Fail(absl::UnavailableError("down"));
  Resolve(Handle("gif"), results_);
  EXPECT_EQ(vision_.calls.size(), 3u);  // the first verdict is none any more
}

TEST_F(ImageResolverTest, AnUploadThatFailsTakesNothingAwayOfWhatWasKnown) {
  Resolve(WithBytes("a"), results_);
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  resolver_.EncodeAhead(WithBytes("a"), request_);
  Resolve(Handle("a"), results_);
  EXPECT_EQ(results_.size(), 1u) << "it waits for the upload";
  vision_.calls.at(1)->Fail(absl::UnavailableError("down"));
  Resolve(Handle("a"), results_);
  EXPECT_EQ(vision_.calls.size(), 2u);
  ASSERT_EQ(results_.size(), 3u);
  for (size_t i = 1; i < 3; ++i) {
    ASSERT_TRUE(results_[i].ok()) << results_[i].status();
    EXPECT_EQ(results_[i]->ref.key(), results_[0]->ref.key());
    EXPECT_EQ(results_[i]->cache, v1::CACHE_TIER_UNSPECIFIED);
  }
}

// Another's deadline, or another's share.
TEST_F(ImageResolverTest, AQuestionThatHasTheBytesDoesNotFailWithAnUpload) {
  resolver_.EncodeAhead(WithBytes("a"), request_);
  std::vector<absl::StatusOr<ResolvedImage>> handles;
  Resolve(WithBytes("a"), results_);
  Resolve(Handle("a"), handles);
  vision_.calls.at(0)->Fail(absl::ResourceExhaustedError("full"));
  ASSERT_EQ(handles.size(), 1u);
  EXPECT_EQ(handles[0].status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(vision_.calls.size(), 2u);
  EXPECT_TRUE(results_.empty());
  vision_.calls.at(1)->Ready(v1::CACHE_TIER_COMPUTED);
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_TRUE(results_[0].ok());
}

TEST_F(ImageResolverTest, APassingFailureOfAnUploadIsNotRemembered) {
  resolver_.EncodeAhead(WithBytes("a"), request_);
  vision_.calls.at(0)->Fail(absl::UnavailableError("down"));
  Resolve(Handle("a"), results_);
  EXPECT_EQ(vision_.calls.size(), 2u);
}

TEST_F(ImageResolverTest, NothingHappensBeforeItBegins) {
  Resolve(WithBytes("a"), results_);
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  const auto known = resolver_.Resolve(Handle("a"), request_, {nullptr, Into(results_)});
  const auto other = resolver_.Resolve(WithBytes("b"), request_, {nullptr, Into(results_)});
  EXPECT_EQ(results_.size(), 1u);
  EXPECT_EQ(vision_.calls.size(), 1u);
  known->Start();
  EXPECT_EQ(results_.size(), 2u);
  other->Start();
  EXPECT_EQ(vision_.calls.size(), 2u);
}

TEST_F(ImageResolverTest, APictureIsPlannedAndEncodedWhenTheRowsAreWanted) {
  std::vector<uint32_t> plans;
  const auto call = Begin(resolver_.Resolve(
      WithBytes("a"), request_,
      {[&](const v1::ImageRef& planned) { plans.push_back(planned.rows()); }, Into(results_)}));
  EXPECT_TRUE(vision_.calls.at(0)->likely_new);
  vision_.calls[0]->Plan(9);
  EXPECT_EQ(plans, std::vector<uint32_t>{9});
  EXPECT_FALSE(vision_.calls[0]->proceeded);
  call->Proceed();
  EXPECT_TRUE(vision_.calls[0]->proceeded);
}

TEST_F(ImageResolverTest, OnlyWhatIsNotKnownIsLikelyToBeNew) {
  Resolve(Handle("a"), results_);
  EXPECT_FALSE(vision_.calls.at(0)->likely_new) << "there are no bytes";
  vision_.calls[0]->Ready(v1::CACHE_TIER_COMPUTED);
  Begin(resolver_.Encode(WithBytes("a"), request_, {nullptr, Into(results_)}));
  EXPECT_FALSE(vision_.calls.at(1)->likely_new) << "its record was there";
  resolver_.EncodeAhead(WithBytes("a"), request_);
  EXPECT_FALSE(vision_.calls.at(2)->likely_new);
  EXPECT_TRUE(vision_.calls[2]->proceeded) << "an upload waits for nobody";
  resolver_.EncodeAhead(WithBytes("b"), request_);
  EXPECT_TRUE(vision_.calls.at(3)->likely_new);
  EXPECT_TRUE(vision_.calls[3]->proceeded);
}

TEST_F(ImageResolverTest, WhatWasSaidWhileAQuestionWaitedForAnUploadIsSaidToVision) {
  resolver_.EncodeAhead(WithBytes("a"), request_);
  Resolve(WithBytes("a"), results_)->Proceed();
  vision_.calls.at(0)->Fail(absl::ResourceExhaustedError("full"));
  ASSERT_EQ(vision_.calls.size(), 2u);
  EXPECT_TRUE(vision_.calls[1]->proceeded);
}

TEST_F(ImageResolverTest, AQuestionThatIsCancelledWaitsForNoUploadAndKeepsNoBytes) {
  resolver_.EncodeAhead(WithBytes("a"), request_);
  Picture picture = WithBytes("a");
  const std::weak_ptr<const absl::Cord> bytes = picture.bytes;
  const auto cancelled = Resolve(picture, results_);
  const auto other = Resolve(Handle("a"), results_);
  picture.bytes = nullptr;
  EXPECT_FALSE(bytes.expired());
  cancelled->Cancel();
  cancelled->Cancel();
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_TRUE(absl::IsCancelled(results_[0].status()));
  EXPECT_TRUE(bytes.expired());
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  ASSERT_EQ(results_.size(), 2u);
  EXPECT_TRUE(results_[1].ok()) << results_[1].status();
}

TEST_F(ImageResolverTest, OneThatWasCancelledBeforeItBeganWaitsForNoUpload) {
  resolver_.EncodeAhead(WithBytes("a"), request_);
  const auto call = resolver_.Resolve(Handle("a"), request_, {nullptr, Into(results_)});
  call->Cancel();
  EXPECT_TRUE(results_.empty());
  call->Start();
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_TRUE(absl::IsCancelled(results_[0].status()));
}

TEST_F(ImageResolverTest, AQuestionWaitsForAnUploadUntilItsDeadlineAndNoLonger) {
  resolver_.EncodeAhead(WithBytes("a"), request_);
  request_.deadline = clock_.Now() + absl::Seconds(1);
  std::promise<absl::Status> ended;
  const auto call = Begin(resolver_.Resolve(
      WithBytes("a"), request_, {nullptr, [&](const absl::StatusOr<ResolvedImage>& image) {
                                   ended.set_value(image.status());
                                 }}));
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(ended.get_future().get()));
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
}

// Uploads that end well, end badly and are refused, while questions about their pictures begin, are
// cancelled and reach their deadlines, each on its own thread.
TEST_F(ImageResolverTest, EveryQuestionIsAnsweredOnceWhateverHappensToUploadsMeanwhile) {
  std::mt19937 random(20'261'201);
  for (int round = 0; round < 300; ++round) {
    OneUpload vision;
    ImageResolver resolver(vision, known_, clock_, "f");
    const std::string name = absl::StrCat("picture ", round);
    resolver.EncodeAhead(WithBytes(name), request_);
    constexpr int kQuestions = 4;
    std::atomic<int> answers[kQuestions] = {};
    std::vector<std::shared_ptr<EncodeCall>> questions;
    for (std::atomic<int>& answer : answers) {
      request_.deadline = random() % 3 == 0 ? clock_.Now() : absl::InfiniteFuture();
      questions.push_back(resolver.Resolve(
          Handle(name), request_,
          {nullptr, [&answer](const absl::StatusOr<ResolvedImage>&) { ++answer; }}));
    }
    std::vector<std::thread> threads;
    for (const std::shared_ptr<EncodeCall>& question : questions) {
      threads.emplace_back([question] { question->Start(); });
      if (random() % 2 == 0) threads.emplace_back([question] { question->Cancel(); });
    }
    const uint32_t end = random() % 3;
    threads.emplace_back([&vision, end] {
      if (end == 0) return vision.End(EncodedImage{});
      vision.End(end == 1 ? absl::InvalidArgumentError("cut")
                          : absl::ResourceExhaustedError("full"));
    });
    for (std::thread& thread : threads) thread.join();
    for (const std::atomic<int>& answer : answers) {
      while (answer.load() == 0) std::this_thread::yield();  // its deadline is told by a timer
      ASSERT_EQ(answer.load(), 1) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace tessera::gateway
