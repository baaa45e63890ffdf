#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "services/decode/decode_service.h"
#include "services/decode/translate.h"
#include "tests/services/decode/engine/fake_engine.h"

namespace tessera::decode {

inline constexpr char kModel[] = "models/shelf-vqa";
inline constexpr int32_t kImageToken = 4;
inline constexpr int32_t kVocabulary = 640;  // of its tokenizer

inline v1::DecodeStart TextStart(const std::string& text, uint32_t max_tokens = 30) {
  v1::DecodeStart start;
  v1::DecodeMessage& message = *start.add_messages();
  message.set_role("user");
  message.add_parts()->set_text(text);
  start.mutable_options()->set_max_tokens(max_tokens);
  return start;
}

inline void AddPicture(const store::EmbeddingRecord& record, v1::DecodeStart& start) {
  v1::ImageRef& ref = *start.add_images();
  ref.set_key(std::string(record.key.bytes()));
  ref.set_rows(static_cast<uint32_t>(record.rows));
  ref.set_width(static_cast<uint32_t>(record.width));
  start.mutable_messages(0)->add_parts()->set_image(start.images_size() - 1);
}

// What a test starts the service with.
struct ServiceSetup {
  size_t sink_bytes = 1 << 20;
  bool stops = true;          // false: no token ends an answer
  bool prefix_cache = false;  // else every block of the cache may be kept
  absl::Duration slow_client_timeout = absl::Hours(1);
  bool small_window = false;  // a client that does not read holds its server's writes up at once
};

struct Answer {
  absl::Status status;
  bool accepted = false;
  v1::Accepted acceptance;
  std::string text;
  std::vector<v1::TokenLogprob> logprobs;
  int pieces = 0;
  v1::DecodeEnd end;
};

// The service over an in-process channel, with a real template and tokenizer and a fake model.
class DecodeServiceTest : public ::testing::Test {
 protected:
  using Stream =
      grpc::ClientReaderWriter<v1::DecodeServiceGenerateRequest, v1::DecodeServiceGenerateResponse>;

  void SetUp() override {
    tokenizer_ = *text::Tokenizer::Load(kModel);
    template_.emplace(*ChatTemplate::Load(kModel));
    PromptOptions options;
    options.image_token_id = kImageToken;
    prompts_.emplace(*PromptBuilder::Create(*tokenizer_, &*template_, options));
  }

  ~DecodeServiceTest() override { Stop(absl::ZeroDuration()); }

  // Start may follow. `grace`: of the calls that are there.
  void Stop(absl::Duration grace = absl::InfiniteDuration()) {
    stub_.reset();
    channel_.reset();
    if (server_ != nullptr) server_->Shutdown(grace);
    store_.Release();
    prompt_threads_.reset();
    engine_.reset();
    server_.reset();
    service_.reset();
  }

  void Start(const ServiceSetup& setup = {}) {
    EngineOptions options = testing::SmallEngine();
    options.scheduler.context_tokens = 250;
    options.vocabulary = kVocabulary;
    if (!setup.stops) options.scheduler.stop_ids.clear();
    if (setup.prefix_cache) options.prefix_cache_blocks = options.blocks;
    options.slow_client_timeout = setup.slow_client_timeout;
    options.max_ahead = 2;
    engine_ = std::make_unique<Engine>(options, testing::MakeFakeDevice(options, pool_), reader_,
                                       base::RealClock());
    prompt_threads_ = std::make_unique<base::WorkerPool>(1, 100);
    v1::DecodeServiceGetInfoResponse info;
    info.set_family("llava");
    service_ = std::make_unique<DecodeService>(
        CallDeps{*engine_, *prompts_, *tokenizer_, *prompt_threads_, delivery_, base::RealClock(),
                 testing::kFakeWidth, setup.sink_bytes, absl::Seconds(120)},
        info, 9);
    grpc::Service* services[] = {service_.get()};
    server_ = *rpc::Server::Start({.address = setup.small_window ? "127.0.0.1:0" : ""}, services,
                                  {"tessera.v1.DecodeService"});
    channel_ = setup.small_window ? SmallWindow() : server_->InProcessChannel();
    stub_ = v1::DecodeService::NewStub(channel_);
  }

  // A channel that takes hardly more than is read of a stream.
  std::shared_ptr<grpc::Channel> SmallWindow() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                             grpc::InsecureChannelCredentials(), arguments);
    EXPECT_TRUE(
        channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::minutes(5)));
    return channel;
  }

  static void Send(Stream& stream, const v1::DecodeStart& start) {
    v1::DecodeServiceGenerateRequest request;
    *request.mutable_start() = start;
    stream.Write(request);
  }
  static void SendRowsReady(Stream& stream, const std::vector<uint32_t>& images) {
    v1::DecodeServiceGenerateRequest request;
    request.mutable_rows_ready();
    for (const uint32_t image : images) request.mutable_rows_ready()->add_images(image);
    stream.Write(request);
  }

  // Reads to the end. `on_need_rows` may write to the stream.
  static Answer ReadAll(Stream& stream,
                        const std::function<void(const v1::NeedRows&)>& on_need_rows = nullptr) {
    Answer answer;
    v1::DecodeServiceGenerateResponse response;
    while (stream.Read(&response)) {
      if (response.has_accepted()) {
        EXPECT_EQ(answer.pieces, 0);
        answer.accepted = true;
        answer.acceptance = response.accepted();
      } else if (response.has_need_rows()) {
        EXPECT_NE(on_need_rows, nullptr);
        if (on_need_rows != nullptr) on_need_rows(response.need_rows());
      } else if (response.has_piece()) {
        EXPECT_TRUE(answer.accepted);
        EXPECT_FALSE(response.piece().text().empty() && response.piece().logprobs().empty());
        for (const auto& token : response.piece().logprobs()) answer.logprobs.push_back(token);
        answer.text += response.piece().text();
        ++answer.pieces;
      } else {
        answer.end = response.end();
      }
    }
    answer.status = rpc::FromGrpc(stream.Finish());
    return answer;
  }

  Answer Ask(const v1::DecodeStart& start) {
    grpc::ClientContext context;
    auto stream = stub_->Generate(&context);
    Send(*stream, start);
    stream->WritesDone();
    return ReadAll(*stream);
  }

  absl::StatusOr<v1::DecodeServicePrefillResponse> Prefill(
      const v1::DecodeServicePrefillRequest& request) {
    grpc::ClientContext context;
    v1::DecodeServicePrefillResponse response;
    const grpc::Status status = stub_->Prefill(&context, request, &response);
    if (!status.ok()) return rpc::FromGrpc(status);
    return response;
  }

  // What the fake model answers where a token may end it: as ids, and as text.
  std::vector<int32_t> ExpectedIds(const v1::DecodeStart& start,
                                   const std::vector<store::RecordPtr>& pictures = {}) {
    const AskedFor asked = *ParseStart(start, testing::kFakeWidth);
    const PromptPlan plan = *prompts_->Build(asked.messages, asked.images);
    return testing::ExpectedAnswer(ToRequest(asked, plan), pictures);
  }
  std::string Expected(const v1::DecodeStart& start,
                       const std::vector<store::RecordPtr>& pictures = {}, int* tokens = nullptr) {
    const std::vector<int32_t> ids = ExpectedIds(start, pictures);
    if (tokens != nullptr) *tokens = static_cast<int>(ids.size());
    return tokenizer_->Decode(ids, true);
  }

  void AwaitFreeBlocks() {
    while (engine_->stats().blocks_used > 0) std::this_thread::yield();
  }

  base::ComputePool pool_{1};
  testing::FakeStore store_;
  RecordReader reader_{store_};
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::optional<PromptBuilder> prompts_;
  Delivery delivery_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<base::WorkerPool> prompt_threads_;
  std::unique_ptr<DecodeService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::DecodeService::Stub> stub_;
};

}  // namespace tessera::decode
