#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "services/gateway/api/gateway_service.h"
#include "tests/support/fake_clients.h"
#include "tests/support/fake_clock.h"
#include "tests/support/send_raw.h"

namespace tessera::gateway {

// Answers every question with its own text, from another thread, as gRPC would; each piece with a
// log-probability where the options ask for them, and first one without text.
class EchoDecodeClient final : public DecodeClient {
 public:
  struct EchoCall final : testing::InstantCall<DecodeCall> {
    using InstantCall::InstantCall;
    void RowsReady(const std::vector<uint32_t>&) override {}
    void Resume() override {}
  };
  ~EchoDecodeClient() override {
    for (std::thread& thread : threads_) thread.join();
  }
  std::shared_ptr<DecodeCall> Generate(std::shared_ptr<const v1::DecodeStart> start,
                                       const rpc::RequestContext&, const Placement&,
                                       std::shared_ptr<DecodeEvents> events) override {
    return std::make_shared<EchoCall>([this, start, events] { Echo(*start, events); });
  }
  std::shared_ptr<Call> Prefill(const v1::DecodeServicePrefillRequest&, const rpc::RequestContext&,
                                const std::string&, PrefillDone done) override {
    return std::make_shared<testing::InstantCall<Call>>([this, done] {
      ++prefills;
      done(base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "no room"));
    });
  }

  std::atomic<int> prefills{0};

 private:
  void Echo(const v1::DecodeStart& start, const std::shared_ptr<DecodeEvents>& events) {
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
  }
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
  std::shared_ptr<EncodeCall> Encode(const Picture& picture, bool, const rpc::RequestContext&,
                                     EncodeEvents events) override {
    ++asked;
    return std::make_shared<testing::InstantEncode>([has_bytes = picture.bytes != nullptr, events] {
      if (!has_bytes) {
        events.on_done(base::Error(absl::StatusCode::kNotFound, "IMAGE_EXPIRED", "gone"));
        return;
      }
      EncodedImage image;
      image.ready.mutable_ref()->set_vision_fingerprint("f");
      events.on_done(std::move(image));
    });
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

  // An upload of which this much has come, and that goes on.
  std::unique_ptr<grpc::ClientWriter<v1::UploadImageRequest>> BeginUpload(
      grpc::ClientContext& context, v1::UploadImageResponse& response) {
    auto writer = stub_->UploadImage(&context, &response);
    v1::UploadImageRequest chunk;
    chunk.set_data("half a picture");
    EXPECT_TRUE(writer->Write(chunk));
    return writer;
  }

  metrics::Metrics all_metrics_{"m"};
  RequestMetrics metrics_{all_metrics_};
  ApiOptions options_;
  RunningRequests running_;
  InstantVisionClient vision_;
  EchoDecodeClient decode_;
  testing::FakeClock clock_;
  KnownImages known_{16};
  ImageResolver resolver_{vision_, known_, clock_, "f"};
  Admission admission_{{.max_requests = 2}, clock_};
  Pace pace_;
  GatewayService service_{
      {options_, {options_, resolver_, decode_, clock_, metrics_, admission_, pace_, running_}},
      {}};
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::GatewayService::Stub> stub_;
};

}  // namespace tessera::gateway
