#include "services/gateway/gateway_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/metrics/names.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "tests/support/fake_clock.h"
#include "tests/support/send_raw.h"

namespace tessera::gateway {
namespace {

// Answers every question with its own text, from another thread, as gRPC would; each piece with a
// log-probability where the options ask for them, and first one without text.
class EchoDecodeClient final : public DecodeClient {
 public:
  struct NoCall : DecodeCall {
    void RowsReady(const std::vector<uint32_t>&) override {}
    void Resume() override {}
    void Cancel() override {}
  };
  ~EchoDecodeClient() override {
    for (std::thread& thread : threads_) thread.join();
  }
  std::shared_ptr<DecodeCall> Generate(const v1::DecodeStart& start, const rpc::RequestContext&,
                                       const Placement&,
                                       std::shared_ptr<DecodeEvents> events) override {
    const std::string text = start.messages(0).parts(start.messages(0).parts_size() - 1).text();
    base::MutexLock lock(mutex_);
    const bool tells = start.options().has_top_logprobs();
    threads_.emplace_back([text, tells, events] {
      if (tells) events->OnPiece(Piece("", 1000));
      for (char c : text) events->OnPiece(Piece(std::string(1, c), tells ? c : -1));
      v1::DecodeEnd end;
      end.set_finish_reason(v1::FINISH_REASON_STOP);
      events->OnDone(absl::OkStatus(), end);
    });
    return std::make_shared<NoCall>();
  }
  std::shared_ptr<Call> Prefill(const v1::DecodeServicePrefillRequest&, const rpc::RequestContext&,
                                const std::string&, PrefillDone done) override {
    ++prefills;
    done(base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "no room"));
    return std::make_shared<NoCall>();
  }

  std::atomic<int> prefills{0};

 private:
  static v1::TextPiece Piece(const std::string& text, int token) {
    v1::TextPiece piece;
    piece.set_text(text);
    if (token >= 0) piece.add_logprobs()->mutable_chosen()->set_id(static_cast<uint32_t>(token));
    return piece;
  }

  base::Mutex mutex_;
  std::vector<std::thread> threads_;
};

class InstantVisionClient final : public VisionClient {
 public:
  std::shared_ptr<Call> Encode(const Picture& picture, const rpc::RequestContext&,
                               EncodeDone done) override {
    ++asked;
    if (!picture.bytes) {
      done(base::Error(absl::StatusCode::kNotFound, "IMAGE_EXPIRED", "gone"));
      return nullptr;
    }
    EncodedImage image;
    image.ready.mutable_ref()->set_vision_fingerprint("f");
    done(std::move(image));
    return nullptr;
  }
  std::atomic<int> asked{0};
};

class GatewayServiceTest : public ::testing::Test {
 protected:
  GatewayServiceTest() {
    options_.model_name = "m";
    options_.handle_key = std::string(32, 'k');
    options_.max_image_bytes = 3 << 20;
    Start();
  }

  void Start() {
    auto server =
        rpc::Server::Start({.address = "127.0.0.1:0"}, {&service_}, {"tessera.v1.GatewayService"});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::GatewayService::NewStub(server_->InProcessChannel());
  }
  // Nothing reads options_ until Start.
  void Stop() { server_->Shutdown(absl::ZeroDuration()); }

  v1::GenerateRequest Question(const std::string& text) {
    v1::GenerateRequest request;
    v1::Message& message = *request.add_messages();
    message.set_role("user");
    message.add_parts()->set_text(text);
    return request;
  }
  absl::Status Raw(const std::string& method, const std::vector<std::string>& messages) {
    return testing::SendRaw(server_->InProcessChannel(), "/tessera.v1.GatewayService/" + method,
                            messages);
  }
  // They begin behind the upload's answer.
  void AwaitPrefills(int count) {
    for (int i = 0; i < 6000 && decode_.prefills.load() < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(decode_.prefills.load(), count);
  }
  absl::StatusOr<v1::UploadImageResponse> Upload(size_t bytes, const std::string& session = "") {
    grpc::ClientContext context;
    v1::UploadImageResponse response;
    const auto writer = stub_->UploadImage(&context, &response);
    v1::UploadImageRequest chunk;
    chunk.set_session(session);
    while (bytes > 0) {
      const size_t count = std::min<size_t>(bytes, 1 << 20);
      chunk.set_data(std::string(count, 'x'));
      bytes -= count;
      if (!writer->Write(chunk)) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (!status.ok()) return rpc::FromGrpc(status);
    return response;
  }

  metrics::Metrics all_metrics_{"m"};
  GatewayMetrics metrics_{all_metrics_};
  GatewayOptions options_;
  RunningRequests running_;
  InstantVisionClient vision_;
  EchoDecodeClient decode_;
  testing::FakeClock clock_;
  KnownImages known_{16};
  ImageResolver resolver_{vision_, known_, "f"};
  Admission admission_{{.max_requests = 2}, clock_};
  Pace pace_;
  GatewayService service_{
      {options_, resolver_, decode_, clock_, metrics_, admission_, pace_, running_}, {}};
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::GatewayService::Stub> stub_;
};

TEST_F(GatewayServiceTest, UnaryAndStreamedAnswersAreEqual) {
  grpc::ClientContext unary;
  v1::GenerateResponse response;
  ASSERT_TRUE(stub_->Generate(&unary, Question("hello shelf"), &response).ok());
  EXPECT_EQ(response.text(), "hello shelf");
  grpc::ClientContext streamed;
  v1::GenerateStreamRequest request;
  *request.mutable_request() = Question("hello shelf");
  const auto reader = stub_->GenerateStream(&streamed, request);
  std::string text;
  int ends = 0;
  v1::GenerateStreamResponse event;
  while (reader->Read(&event)) {
    EXPECT_EQ(ends, 0) << "an event after the end";
    if (event.has_end()) {
      ++ends;
      EXPECT_EQ(event.end().finish_reason(), v1::FINISH_REASON_STOP);
    }
    text += event.text();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, "hello shelf");
  EXPECT_EQ(ends, 1);
}

// One per token, in order, though the first comes before there is text.
TEST_F(GatewayServiceTest, LogProbabilitiesComeBesideTheTextWhenTheyAreAskedFor) {
  v1::GenerateStreamRequest request;
  *request.mutable_request() = Question("shelf");
  grpc::ClientContext without;
  v1::GenerateResponse response;
  ASSERT_TRUE(stub_->Generate(&without, request.request(), &response).ok());
  EXPECT_EQ(response.logprobs_size(), 0);
  request.mutable_request()->mutable_options()->set_top_logprobs(0);
  grpc::ClientContext unary;
  ASSERT_TRUE(stub_->Generate(&unary, request.request(), &response).ok());
  EXPECT_EQ(response.text(), "shelf");
  std::vector<uint32_t> ids;
  for (const v1::TokenLogprob& token : response.logprobs()) ids.push_back(token.chosen().id());
  EXPECT_EQ(ids, (std::vector<uint32_t>{1000, 's', 'h', 'e', 'l', 'f'}));
  grpc::ClientContext streamed;
  const auto reader = stub_->GenerateStream(&streamed, request);
  std::vector<uint32_t> told;
  v1::GenerateStreamResponse event;
  while (reader->Read(&event)) {
    for (const v1::TokenLogprob& token : event.logprobs()) told.push_back(token.chosen().id());
    EXPECT_EQ(event.end().logprobs_size(), 0);
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(told, ids);
}

TEST_F(GatewayServiceTest, RequestIdsAreEchoedOrMade) {
  for (const std::string& id : {std::string("my-request-7"), std::string()}) {
    grpc::ClientContext context;
    if (!id.empty()) context.AddMetadata("x-request-id", id);
    v1::GetModelInfoResponse response;
    ASSERT_TRUE(stub_->GetModelInfo(&context, {}, &response).ok());
    const auto& metadata = context.GetServerInitialMetadata();
    const auto found = metadata.find("x-request-id");
    ASSERT_NE(found, metadata.end());
    const std::string echoed(found->second.data(), found->second.size());
    if (id.empty()) {
      EXPECT_EQ(echoed.size(), 32u);
    } else {
      EXPECT_EQ(echoed, id);
    }
  }
}

TEST_F(GatewayServiceTest, ErrorsTravelWithTheirDetails) {
  grpc::ClientContext context;
  v1::GenerateRequest request = Question("x");
  request.mutable_options()->set_top_p(7);
  v1::GenerateResponse response;
  const absl::Status status = rpc::FromGrpc(stub_->Generate(&context, request, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(status), "BAD_PARAMETER");
  EXPECT_EQ(base::FieldOf(status), "options.top_p");
}

TEST_F(GatewayServiceTest, WhatCannotBeParsedIsInternalInEveryMethod) {
  const std::string no_utf8(
      "\x12\x0d\x0a\x04user\x12\x05\x0a\x03"
      "a\xff"
      "b");                                                       // GenerateRequest
  const std::string wrapped = std::string("\x0a\x0f") + no_utf8;  // GenerateStreamRequest
  const std::string session("\x12\x02\xff\xfe");                  // UploadImageRequest
  const std::string data(
      "\x0a\x03"
      "abc");
  const std::string cut("\x0a\x7f");  // a length without its bytes
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"Generate", {no_utf8}},       {"Generate", {cut}},
      {"GenerateStream", {wrapped}}, {"GenerateStream", {cut}},
      {"GetModelInfo", {cut}},       {"UploadImage", {session}},
      {"UploadImage", {data, cut}},  {"UploadImage", {data, session, data}}};
  for (const auto& [method, messages] : cases) {
    const absl::Status status = Raw(method, messages);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << method << ": " << status;
    EXPECT_NE(status.message().find("UTF-8"), absl::string_view::npos) << status;
  }
  EXPECT_EQ(Raw("UploadImage", {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Raw("UploadImage", {data, data}).ok());
  EXPECT_EQ(Raw("NoSuchMethod", {data}).code(), absl::StatusCode::kUnimplemented);
  admission_.Drain(absl::InfiniteFuture());  // no refused call keeps its place
}

TEST_F(GatewayServiceTest, BeyondTheLimitIsRefusedAtOnceWithADelay) {
  std::vector<absl::StatusOr<Admission::Place>> places;
  for (int i = 0; i < 2; ++i) places.push_back(admission_.Enter(""));
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const absl::Status status = rpc::FromGrpc(stub_->Generate(&context, Question("x"), &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(base::RetryOf(status).has_value());
  places.clear();
  grpc::ClientContext again;
  EXPECT_TRUE(stub_->Generate(&again, Question("x"), &response).ok());
}

TEST_F(GatewayServiceTest, DrainingRefusesNewWork) {
  admission_.Drain(clock_.Now());
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const absl::Status status = rpc::FromGrpc(stub_->Generate(&context, Question("x"), &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(base::ReasonOf(status), "DRAINING");
  EXPECT_TRUE(base::RetryOf(status).has_value());
}

TEST_F(GatewayServiceTest, AnUploadedPictureCanBeAskedAbout) {
  const absl::StatusOr<v1::UploadImageResponse> upload = Upload(2'500'000);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_EQ(upload->sha256().size(), 64u);
  v1::GenerateRequest request = Question("with a handle");
  request.mutable_messages(0)->add_parts()->mutable_image()->set_handle(upload->handle());
  request.mutable_messages(0)->mutable_parts()->SwapElements(0, 1);
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = stub_->Generate(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.text(), "with a handle");
}

// What has come of it is no picture.
TEST_F(GatewayServiceTest, AnUploadWhoseClientLeavesIsNotFinished) {
  constexpr int kUploads = 20;
  for (int i = 0; i < kUploads; ++i) {
    grpc::ClientContext context;
    v1::UploadImageResponse response;
    const auto writer = stub_->UploadImage(&context, &response);
    v1::UploadImageRequest chunk;
    chunk.set_data("half of it");
    ASSERT_TRUE(writer->Write(chunk));
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  Stop();  // behind it, all has ended
  // Reads may end a moment before gRPC says why.
  EXPECT_LT(vision_.asked, kUploads / 2);
  EXPECT_GE(
      vision_.asked,
      all_metrics_.GetCounter(metrics::kGatewayRequests, {"UploadImage", "OK", "false"}).value());
}

TEST_F(GatewayServiceTest, AnEmptyOrTooLargeUploadIsRefused) {
  EXPECT_EQ(base::ReasonOf(Upload(0).status()), "IMAGE_EMPTY");
  EXPECT_EQ(base::ReasonOf(Upload((3 << 20) + 1).status()), "IMAGE_TOO_LARGE");
  EXPECT_TRUE(Upload(3 << 20).ok());
}

// Decode refuses here each time, and nobody hears of it.
TEST_F(GatewayServiceTest, AnUploadIsReadAheadWhenItNamesItsSession) {
  EXPECT_TRUE(Upload(100).ok());
  EXPECT_EQ(decode_.prefills.load(), 0);
  EXPECT_TRUE(Upload(100, "s").ok());
  AwaitPrefills(1);
  EXPECT_TRUE(Upload(200, std::string(256, 's')).ok());
  AwaitPrefills(2);
  EXPECT_EQ(base::FieldOf(Upload(100, std::string(257, 's')).status()), "session");
  Stop();
  options_.ahead_prefill = false;
  Start();
  EXPECT_TRUE(Upload(300, "s").ok());
  EXPECT_EQ(decode_.prefills.load(), 2);
}

TEST_F(GatewayServiceTest, AForgedHandleIsNotFound) {
  v1::GenerateRequest request = Question("x");
  request.mutable_messages(0)->add_parts()->mutable_image()->set_handle("forged");
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const absl::Status status = rpc::FromGrpc(stub_->Generate(&context, request, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(base::ResourceOf(status).first, "image_handle");
}

TEST_F(GatewayServiceTest, AnUploadThatIsNotFinishedEndsWithItsDeadline) {
  Stop();
  options_.deadline_cap = absl::Milliseconds(50);
  Start();
  grpc::ClientContext context;
  v1::UploadImageResponse response;
  const auto writer = stub_->UploadImage(&context, &response);
  v1::UploadImageRequest chunk;
  chunk.set_data("half a picture");
  writer->Write(chunk);
  while (admission_.inflight() < 1) std::this_thread::yield();
  clock_.Advance(absl::Seconds(1));
  const absl::Status status = rpc::FromGrpc(writer->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(base::FactsOf(status)["stage"], "upload");
}

TEST_F(GatewayServiceTest, UploadsUnderWayCountAsRequests) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::UploadImageRequest>>> writers;
  std::vector<v1::UploadImageResponse> responses(2);
  v1::UploadImageRequest chunk;
  chunk.set_data("half a picture");
  for (v1::UploadImageResponse& response : responses) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    writers.push_back(stub_->UploadImage(contexts.back().get(), &response));
    writers.back()->Write(chunk);
  }
  while (admission_.inflight() < 2) std::this_thread::yield();  // until the server has seen both
  EXPECT_EQ(base::ReasonOf(Upload(10).status()), "QUEUE_FULL");
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& writer : writers) writer->Finish();
  admission_.Drain(absl::InfiniteFuture());  // both places come back
}

TEST_F(GatewayServiceTest, ManyClientsGetTheirOwnText) {
  Admission wide({.max_requests = 64}, clock_);
  GatewayService service({options_, resolver_, decode_, clock_, metrics_, wide, pace_, running_},
                         {});
  auto server = rpc::Server::Start({}, {&service}, {});
  ASSERT_TRUE(server.ok());
  const auto stub = v1::GatewayService::NewStub((*server)->InProcessChannel());
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&, i] {
      const std::string text = "client " + std::to_string(i);
      grpc::ClientContext context;
      v1::GenerateResponse response;
      if (stub->Generate(&context, Question(text), &response).ok() && response.text() == text) {
        right.fetch_add(1);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right.load(), 16);
}

}  // namespace
}  // namespace tessera::gateway
