#include "services/gateway/fleet/grpc_vision_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/rpc/server.h"
#include "tessera/v1/vision.grpc.pb.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {
namespace {

constexpr size_t kMiB = 1 << 20;

// A vision service that does what a test says, then waits until the record is let go.
class ScriptedVision final : public v1::VisionService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::EncodeResponse, v1::EncodeRequest>;

  // The call's side of a script.
  class Talk {
   public:
    explicit Talk(Stream& stream) : stream_(stream) {}
    // The offer, and the bytes that came so far.
    v1::EncodeOffer offer;
    std::string bytes;

    // Whether a message came.
    bool Read() {
      v1::EncodeRequest request;
      if (!stream_.Read(&request)) return false;
      if (request.has_offer()) offer = request.offer();
      bytes += request.has_offer() ? request.offer().first_chunk() : request.chunk();
      return true;
    }
    void ReadUntil(size_t count) {
      while (bytes.size() < count && Read()) {
      }
    }
    void NeedBytes() {
      v1::EncodeResponse response;
      response.mutable_need_bytes();
      stream_.Write(response);
    }
    void Plan() {
      v1::EncodeResponse response;
      response.mutable_plan()->mutable_ref()->set_rows(16);
      stream_.Write(response);
    }
    void Ready() {
      v1::EncodeResponse response;
      response.mutable_ready()->mutable_ref()->set_rows(16);
      stream_.Write(response);
    }

   private:
    Stream& stream_;
  };

  explicit ScriptedVision(std::function<void(Talk&)> script) : script_(std::move(script)) {}

  grpc::Status Encode(grpc::ServerContext*, Stream* stream) override {
    Talk talk(*stream);
    talk.Read();
    script_(talk);
    while (talk.Read()) {
    }
    return grpc::Status::OK;
  }

 private:
  const std::function<void(Talk&)> script_;
};

using Talk = ScriptedVision::Talk;

// What the service's thread has read, for the test's.
class Handover {
 public:
  void Give(std::string bytes) {
    base::MutexLock lock(mutex_);
    bytes_ = std::move(bytes);
  }
  std::string bytes() {
    base::MutexLock lock(mutex_);
    return bytes_;
  }

 private:
  base::Mutex mutex_;
  std::string bytes_ ABSL_GUARDED_BY(mutex_);
};

class GrpcVisionClientTest : public ::testing::Test {
 protected:
  void Serve(std::function<void(Talk&)> script) {
    client_ = nullptr;
    server_ = nullptr;
    vision_ = std::make_unique<ScriptedVision>(std::move(script));
    server_ = *rpc::Server::Start({}, {vision_.get()}, {"tessera.v1.VisionService"});
    client_ = MakeGrpcVisionClient(server_->InProcessChannel(), clock_);
  }
  static Picture Of(size_t size) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 131 % 251);
    Picture picture;
    picture.tenant = "tenant";
    picture.digest = base::Sha256Of(bytes);
    picture.size = size;
    picture.bytes = std::make_shared<const absl::Cord>(std::move(bytes));
    return picture;
  }
  std::shared_ptr<EncodeCall> Make(const Picture& picture, bool likely_new) {
    return client_->Encode(
        picture, likely_new,
        {.request_id = {}, .trace = {}, .deadline = clock_.Now() + absl::Minutes(5)},
        {[this](const v1::ImageRef& planned) { plan_.set_value(planned); },
         [this](absl::StatusOr<EncodedImage> image) { done_.set_value(std::move(image)); }});
  }
  absl::StatusOr<EncodedImage> Done() { return done_.get_future().get(); }

  testing::FakeClock clock_;
  std::promise<v1::ImageRef> plan_;  // told twice, it throws
  std::promise<absl::StatusOr<EncodedImage>> done_;
  std::unique_ptr<ScriptedVision> vision_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<VisionClient> client_;  // first to go: waits for its calls
};

TEST_F(GrpcVisionClientTest, BytesAreLetGoWhenTheRecordIsThereThoughTheRowsAreKept) {
  Handover taken;
  Serve([&](Talk& talk) {
    EXPECT_EQ(talk.offer.first_chunk(), "") << "only the digest is offered";
    EXPECT_EQ(talk.offer.held_bytes(), 0u);
    talk.NeedBytes();
    talk.ReadUntil(talk.offer.size_bytes());
    taken.Give(talk.bytes);
    talk.Ready();
  });
  Picture picture = Of(3'000'000);
  const std::string expected(*picture.bytes);
  const std::weak_ptr<const absl::Cord> bytes = picture.bytes;
  auto call = Make(picture, false);
  picture.bytes = nullptr;
  call->Start();
  absl::StatusOr<EncodedImage> image = Done();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_TRUE(taken.bytes() == expected);
  EXPECT_NE(image->rows, nullptr);
  EXPECT_TRUE(bytes.expired());
  image->rows = nullptr;
  call = nullptr;
  client_ = nullptr;  // waits for the call
}

TEST_F(GrpcVisionClientTest, ALikelyNewPictureIsPlannedBeforeItsLastBytesAreSent) {
  Handover taken;
  Serve([&](Talk& talk) {
    const v1::EncodeOffer offer = talk.offer;
    EXPECT_EQ(offer.first_chunk().size(), kMiB);
    EXPECT_EQ(offer.held_bytes(), 64u << 10);
    talk.ReadUntil(offer.size_bytes() - offer.held_bytes());
    EXPECT_EQ(talk.bytes.size(), offer.size_bytes() - offer.held_bytes());
    talk.Plan();
    talk.ReadUntil(offer.size_bytes());
    taken.Give(talk.bytes);
    talk.Ready();
  });
  const Picture picture = Of(3 * kMiB + 5);
  const auto call = Make(picture, true);
  call->Start();
  EXPECT_EQ(plan_.get_future().get().rows(), 16u);
  auto done = done_.get_future();
  EXPECT_EQ(done.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  call->Proceed();
  EXPECT_TRUE(done.get().ok());
  EXPECT_TRUE(taken.bytes() == *picture.bytes);
  call->Proceed();  // says nothing new
}

TEST_F(GrpcVisionClientTest, NothingIsHeldOfAPictureThatIsWantedBeforeItsCallBegins) {
  for (const size_t size : {size_t{1}, size_t{2}, 2 * kMiB + 1}) {
    done_ = {};
    Handover taken;
    Serve([&](Talk& talk) {
      EXPECT_EQ(talk.offer.held_bytes(), 0u);
      EXPECT_EQ(talk.offer.first_chunk().size(), std::min(size, kMiB));
      talk.ReadUntil(size);
      taken.Give(talk.bytes);
      talk.Ready();
    });
    const Picture picture = Of(size);
    const auto call = Make(picture, true);
    call->Proceed();
    call->Start();
    EXPECT_TRUE(Done().ok());
    EXPECT_TRUE(taken.bytes() == *picture.bytes);
  }
}

TEST_F(GrpcVisionClientTest, HeldBytesAreSentWhenVisionCannotPlanWithoutThem) {
  Handover taken;
  Serve([&](Talk& talk) {
    EXPECT_EQ(talk.offer.first_chunk().size(), 50u);
    EXPECT_EQ(talk.offer.held_bytes(), 51u);
    talk.NeedBytes();
    talk.ReadUntil(101);
    taken.Give(talk.bytes);
    talk.NeedBytes();  // there are none
    talk.Plan();
    talk.Ready();
  });
  const Picture picture = Of(101);
  const auto call = Make(picture, true);
  call->Start();
  EXPECT_TRUE(Done().ok());
  EXPECT_TRUE(taken.bytes() == *picture.bytes);
}

TEST_F(GrpcVisionClientTest, APictureOfOneByteHasNothingBeforeWhatIsHeld) {
  Handover taken;
  Serve([&](Talk& talk) {
    EXPECT_EQ(talk.offer.first_chunk(), "");
    EXPECT_EQ(talk.offer.held_bytes(), 0u);
    talk.NeedBytes();
    talk.ReadUntil(1);
    taken.Give(talk.bytes);
    talk.Ready();
  });
  const Picture picture = Of(1);
  const auto call = Make(picture, true);
  call->Start();
  EXPECT_TRUE(Done().ok());
  EXPECT_EQ(taken.bytes(), *picture.bytes);
}

// Vision has not asked for a byte: none may come before it does.
TEST_F(GrpcVisionClientTest, WantedRowsOfADigestWaitForVisionToAsk) {
  std::promise<void> offered, proceeded;
  Handover taken;
  Serve([&](Talk& talk) {
    offered.set_value();
    proceeded.get_future().get();
    EXPECT_EQ(talk.bytes, "");
    talk.NeedBytes();
    talk.ReadUntil(2 * kMiB);
    taken.Give(talk.bytes);
    talk.Ready();
  });
  const Picture picture = Of(2 * kMiB);
  const auto call = Make(picture, false);
  call->Start();
  offered.get_future().get();
  call->Proceed();
  proceeded.set_value();
  EXPECT_TRUE(Done().ok());
  EXPECT_TRUE(taken.bytes() == *picture.bytes);
}

TEST_F(GrpcVisionClientTest, ACallCancelledBetweenPlanAndBytesEndsWithoutThem) {
  std::promise<size_t> taken;
  Serve([&](Talk& talk) {
    talk.Plan();
    while (talk.Read()) {
    }
    taken.set_value(talk.bytes.size());
  });
  const auto call = Make(Of(1000), true);
  call->Start();
  plan_.get_future().get();
  call->Cancel();
  EXPECT_TRUE(absl::IsCancelled(Done().status()));
  call->Proceed();
  EXPECT_EQ(taken.get_future().get(), 500u);
}

TEST_F(GrpcVisionClientTest, ACallCancelledBeforeItBeginsEndsWhenItDoes) {
  Serve([](Talk&) {});
  const auto call = Make(Of(1000), true);
  call->Cancel();
  call->Start();
  EXPECT_TRUE(absl::IsCancelled(Done().status()));
}

TEST_F(GrpcVisionClientTest, AHandleWhosePictureIsGoneIsExpired) {
  Serve([](Talk& talk) { talk.NeedBytes(); });
  Picture picture = Of(1000);
  picture.bytes = nullptr;
  const auto call = Make(picture, true);
  call->Start();
  EXPECT_EQ(base::ReasonOf(Done().status()), "IMAGE_EXPIRED");
}

}  // namespace
}  // namespace tessera::gateway
