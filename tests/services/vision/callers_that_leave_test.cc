// Callers that have gone by the time that their turn comes.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "common/metrics/names.h"
#include "tests/services/vision/vision_service_fixture.h"

namespace tessera::vision {
namespace {

class CallersThatLeaveTest : public VisionServiceTest {
 protected:
  // The work of `threads` stands still until Open.
  void Close(base::WorkerPool& threads) {
    ASSERT_TRUE(threads.TryPush([opened = gate_.get_future().share()] { opened.wait(); }));
  }
  void Open() { gate_.set_value(); }

  // All that was sent before has come.
  void GoThereAndBack() {
    grpc::ClientContext context;
    v1::VisionServiceGetInfoResponse info;
    ASSERT_TRUE(stub_->GetInfo(&context, {}, &info).ok());
  }

  // Begun by a test, and then left.
  template <typename AnyStream>
  void Leave(std::vector<std::unique_ptr<AnyStream>>& streams) {
    GoThereAndBack();
    for (auto& context : contexts_) context->TryCancel();
    for (auto& stream : streams) {
      EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
    }
    GoThereAndBack();
  }
  grpc::ClientContext* NewContext() {
    contexts_.push_back(std::make_unique<grpc::ClientContext>());
    return contexts_.back().get();
  }

 private:
  std::promise<void> gate_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
};

TEST_F(CallersThatLeaveTest, TheStoreIsNotAskedForThem) {
  Start();
  Close(*lookups_);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(stub_->Encode(NewContext()));
    streams.back()->Write(Offer(Bmp(3, static_cast<char>('a' + i))));
  }
  Leave(streams);
  Open();
  Stop();
  EXPECT_LT(store_.gets(), all_metrics_.GetCounter(metrics::kVisionImages, {"cancelled"}).value());
}

TEST_F(CallersThatLeaveTest, TheirRecordsAreNotSealed) {
  Start();
  Close(*records_);
  v1::GetRecordRequest request;
  request.set_key(std::string(32, 'k'));
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GetRecordResponse>>> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(stub_->GetRecord(NewContext(), request));
  Leave(streams);
  Open();
  Stop();
  EXPECT_LT(store_.gets(), 8);
}

}  // namespace
}  // namespace tessera::vision
