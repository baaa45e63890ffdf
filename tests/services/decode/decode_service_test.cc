#include "services/decode/decode_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "services/decode/translate.h"
#include "tests/services/decode/engine/fake_engine.h"

namespace tessera::decode {
namespace {

using testing::ExpectedAnswer;
using testing::FakeRecord;
using ::testing::HasSubstr;

constexpr char kModel[] = "models/shelf-vqa";
constexpr int32_t kImageToken = 4;

v1::DecodeStart TextStart(const std::string& text, uint32_t max_tokens = 30) {
  v1::DecodeStart start;
  v1::DecodeMessage& message = *start.add_messages();
  message.set_role("user");
  message.add_parts()->set_text(text);
  start.mutable_options()->set_max_tokens(max_tokens);
  return start;
}

void AddPicture(const store::EmbeddingRecord& record, v1::DecodeStart& start) {
  v1::ImageRef& ref = *start.add_images();
  ref.set_key(std::string(record.key.bytes()));
  ref.set_rows(static_cast<uint32_t>(record.rows));
  ref.set_width(static_cast<uint32_t>(record.width));
  start.mutable_messages(0)->add_parts()->set_image(start.images_size() - 1);
}

struct Answer {
  absl::Status status;
  bool accepted = false;
  v1::Accepted admission;
  std::string text;
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

  ~DecodeServiceTest() override {
    stub_.reset();
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
    store_.Release();
    prompt_threads_.reset();
    engine_.reset();
  }

  void Start(size_t sink_bytes = 1 << 20, bool stops = true) {
    EngineOptions options = testing::SmallEngine();
    options.scheduler.context_tokens = 250;
    if (!stops) options.scheduler.stop_ids.clear();
    engine_ = std::make_unique<Engine>(options, testing::MakeFakeDevice(options, pool_), store_,
                                       base::RealClock());
    prompt_threads_ = std::make_unique<WorkerThreads>(1, 100);
    v1::DecodeServiceGetInfoResponse info;
    info.set_family("llava");
    service_ = std::make_unique<DecodeService>(
        GenerateParts{*engine_, *prompts_, *tokenizer_, *prompt_threads_, delivery_,
                      base::RealClock(), testing::kFakeWidth, sink_bytes, absl::Seconds(120)},
        info);
    grpc::Service* services[] = {service_.get()};
    server_ = *rpc::Server::Start({}, services, {"tessera.v1.DecodeService"});
    stub_ = v1::DecodeService::NewStub(server_->InProcessChannel());
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
        answer.admission = response.accepted();
      } else if (response.has_need_rows()) {
        EXPECT_NE(on_need_rows, nullptr);
        if (on_need_rows != nullptr) on_need_rows(response.need_rows());
      } else if (response.has_piece()) {
        EXPECT_TRUE(answer.accepted);
        EXPECT_FALSE(response.piece().text().empty());
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

  // What the fake model answers, as text.
  std::string Expected(const v1::DecodeStart& start,
                       const std::vector<store::RecordPtr>& pictures = {}, int* tokens = nullptr) {
    const AskedFor asked = *ParseStart(start, testing::kFakeWidth);
    const PromptPlan plan = *prompts_->Build(asked.messages, asked.images);
    const std::vector<int32_t> ids = ExpectedAnswer(ToRequest(asked, plan), pictures);
    if (tokens != nullptr) *tokens = static_cast<int>(ids.size());
    return tokenizer_->Decode(ids, true);
  }

  void AwaitFreeBlocks() {
    while (engine_->stats().blocks_used > 0) std::this_thread::yield();
  }

  base::ComputePool pool_{1};
  testing::FakeStore store_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::optional<PromptBuilder> prompts_;
  Delivery delivery_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<WorkerThreads> prompt_threads_;
  std::unique_ptr<DecodeService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::DecodeService::Stub> stub_;
};

TEST_F(DecodeServiceTest, ATextIsAcceptedStreamedAndEndsWithItsCost) {
  Start();
  const v1::DecodeStart start = TextStart("How many red books are there?");
  int tokens = 0;
  const std::string expected = Expected(start, {}, &tokens);
  const Answer answer = Ask(start);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_TRUE(answer.accepted);
  EXPECT_EQ(answer.text, expected);
  EXPECT_EQ(answer.end.usage().prompt_tokens(), answer.admission.prompt_tokens());
  EXPECT_EQ(answer.end.usage().output_tokens(), static_cast<uint32_t>(tokens));
  EXPECT_EQ(answer.end.kv_blocks_new(), answer.admission.blocks());
  EXPECT_EQ(answer.end.finish_reason(),
            tokens < 30 ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
  EXPECT_GT(answer.end.stages().prefill_seconds(), 0);
}

TEST_F(DecodeServiceTest, PicturesInTheStoreAreReadAndToldInTheReceipt) {
  Start();
  const std::vector<store::RecordPtr> records = {FakeRecord(1, 5), FakeRecord(2, 9)};
  for (const auto& record : records) ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  v1::DecodeStart start = TextStart("Which shelf is fuller?");
  for (const auto& record : records) AddPicture(*record, start);
  const Answer answer = Ask(start);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text, Expected(start, records));
  EXPECT_EQ(answer.end.usage().image_tokens(), 14u);
  ASSERT_EQ(answer.end.images_size(), 2);
  EXPECT_EQ(answer.end.images(1).cache(), v1::CACHE_TIER_LOCAL);
  EXPECT_EQ(answer.end.images(1).rows(), 9u);
  EXPECT_EQ(answer.end.images(1).bytes_moved(), records[1]->data.size());
}

TEST_F(DecodeServiceTest, MissingRowsAreAskedForAndTheAnswerGoesOnWhenTheyAreReady) {
  Start();
  const std::vector<store::RecordPtr> records = {FakeRecord(1, 5), FakeRecord(2, 9)};
  ASSERT_TRUE(store_.Put(records[0], absl::ZeroDuration()).ok());
  v1::DecodeStart start = TextStart("Which shelf is fuller?");
  for (const auto& record : records) AddPicture(*record, start);
  grpc::ClientContext context;
  auto stream = stub_->Generate(&context);
  Send(*stream, start);
  const Answer answer = ReadAll(*stream, [&](const v1::NeedRows& need) {
    EXPECT_THAT(need.images(), ::testing::ElementsAre(1));
    ASSERT_TRUE(store_.Put(records[1], absl::ZeroDuration()).ok());
    SendRowsReady(*stream, {1});
    stream->WritesDone();
  });
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text, Expected(start, records));
  EXPECT_EQ(answer.end.images(0).cache(), v1::CACHE_TIER_LOCAL);
  EXPECT_EQ(answer.end.images(1).cache(), v1::CACHE_TIER_COMPUTED);
}

TEST_F(DecodeServiceTest, MissingRowsThatNobodyCanAnnounceEndTheCall) {
  Start();
  v1::DecodeStart start = TextStart("What is this?");
  AddPicture(*FakeRecord(1, 5), start);
  grpc::ClientContext context;
  auto stream = stub_->Generate(&context);
  Send(*stream, start);
  stream->WritesDone();
  const Answer answer = ReadAll(*stream, [](const v1::NeedRows&) {});
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(base::ReasonOf(answer.status), "ROWS_MISSING");
  AwaitFreeBlocks();
}

TEST_F(DecodeServiceTest, AStopTextCutsTheAnswerAndIsNamed) {
  Start(1 << 20, /*stops=*/false);
  v1::DecodeStart start = TextStart("Recite the alphabet.", 60);
  const std::string full = Ask(start).text;
  ASSERT_GT(full.size(), 20u);
  const std::string stop = full.substr(11, 4);
  start.mutable_options()->add_stop(stop);
  start.mutable_options()->add_stop("never said");
  const Answer answer = Ask(start);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text, full.substr(0, full.find(stop)));
  EXPECT_EQ(answer.end.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.end.stop_reason(), stop);
  EXPECT_LT(answer.end.usage().output_tokens(), 60u);
}

TEST_F(DecodeServiceTest, BadRequestsNameTheFieldAndTheNextOneWorks) {
  Start();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto options = [](v1::DecodeStart& start) { return start.mutable_options(); };
  const std::vector<std::pair<std::string, std::function<void(v1::DecodeStart&)>>> cases = {
      {"messages", [](auto& s) { s.clear_messages(); }},
      {"messages[0].parts[1]", [](auto& s) { s.mutable_messages(0)->add_parts(); }},
      {"messages[0].parts[1]", [](auto& s) { s.mutable_messages(0)->add_parts()->set_image(7); }},
      {"images", [](auto& s) { s.mutable_messages(0)->add_parts()->set_image(0); }},
      {"images[0].key",
       [](auto& s) {
         AddPicture(*FakeRecord(1, 5), s);
         s.mutable_images(0)->set_key("short");
       }},
      {"images[0].width", [](auto& s) { AddPicture(*FakeRecord(1, 5, 8), s); }},
      {"images[0].rows",
       [](auto& s) {
         AddPicture(*FakeRecord(1, 5), s);
         s.mutable_images(0)->set_rows(0);
       }},
      {"options.max_tokens", [&](auto& s) { options(s)->set_max_tokens(0); }},
      {"options.temperature", [&](auto& s) { options(s)->set_temperature(-1); }},
      {"options.temperature", [&](auto& s) { options(s)->set_temperature(nan); }},
      {"options.top_p", [&](auto& s) { options(s)->set_top_p(0); }},
      {"options.top_p", [&](auto& s) { options(s)->set_top_p(7); }},
      {"options.min_p", [&](auto& s) { options(s)->set_min_p(nan); }},
      {"options.stop", [&](auto& s) { options(s)->add_stop(""); }},
      {"options.stop",
       [&](auto& s) {
         for (int i = 0; i < 100'000; ++i) options(s)->add_stop("x");
       }},
  };
  for (const auto& [field, spoil] : cases) {
    v1::DecodeStart start = TextStart("What is this?");
    spoil(start);
    const Answer answer = Ask(start);
    EXPECT_EQ(answer.status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_EQ(base::FieldOf(answer.status), field) << answer.status;
    EXPECT_FALSE(base::ReasonOf(answer.status).empty()) << field;
    EXPECT_FALSE(answer.accepted);
  }
  v1::DecodeStart huge = TextStart("What is this?", 4'000'000'000u);
  huge.mutable_options()->set_top_k(4'000'000'000u);
  EXPECT_TRUE(Ask(huge).status.ok());
}

TEST_F(DecodeServiceTest, APromptThatCanNeverFitIsRefusedWithItsNumbers) {
  Start();
  v1::DecodeStart start = TextStart("What is this?");
  AddPicture(*FakeRecord(1, 240), start);
  const Answer answer = Ask(start);
  EXPECT_EQ(base::ReasonOf(answer.status), "CONTEXT_TOO_LONG");
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("240 of them rows"));
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("250"));
}

TEST_F(DecodeServiceTest, CallsWithoutOrWithTwoStartsAreRefused) {
  Start();
  {
    grpc::ClientContext context;
    auto stream = stub_->Generate(&context);
    stream->WritesDone();
    EXPECT_EQ(ReadAll(*stream).status.code(), absl::StatusCode::kInvalidArgument);
  }
  {
    grpc::ClientContext context;
    auto stream = stub_->Generate(&context);
    stream->Write({});
    EXPECT_EQ(base::ReasonOf(ReadAll(*stream).status), "REQUEST_EMPTY");
  }
  grpc::ClientContext context;
  auto stream = stub_->Generate(&context);
  v1::DecodeStart start = TextStart("What is this?");
  AddPicture(*FakeRecord(1, 5), start);
  Send(*stream, start);
  Send(*stream, start);
  const Answer answer = ReadAll(*stream, [](const v1::NeedRows&) {});
  EXPECT_EQ(base::ReasonOf(answer.status), "START_REPEATED");
  AwaitFreeBlocks();
}

TEST_F(DecodeServiceTest, AClientThatGoesAwayFreesItsBlocks) {
  Start(1 << 20, /*stops=*/false);
  for (int round = 0; round < 20; ++round) {
    grpc::ClientContext context;
    auto stream = stub_->Generate(&context);
    Send(*stream, TextStart("Tell me everything.", 200));
    v1::DecodeServiceGenerateResponse response;
    for (int i = 0; i < round % 4; ++i) ASSERT_TRUE(stream->Read(&response));
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
  EXPECT_EQ(engine_->stats().blocks_used, 0);
}

TEST_F(DecodeServiceTest, AClientThatDoesNotReadIsAbortedAndHoldsNobody) {
  Start(/*sink_bytes=*/20, /*stops=*/false);
  grpc::ClientContext context;
  auto slow = stub_->Generate(&context);
  Send(*slow, TextStart("Tell me everything.", 200));
  while (engine_->stats().finished_abort == 0) std::this_thread::yield();
  EXPECT_EQ(engine_->stats().blocks_used, 0);
  const Answer answer = ReadAll(*slow);
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(answer.status), "SLOW_CLIENT");
}

TEST_F(DecodeServiceTest, ADeadlineEndsACallThatWaitsForRows) {
  Start();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  auto stream = stub_->Generate(&context);
  v1::DecodeStart start = TextStart("What is this?");
  AddPicture(*FakeRecord(1, 5), start);
  Send(*stream, start);
  EXPECT_EQ(ReadAll(*stream, [](const v1::NeedRows&) {}).status.code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
}

TEST_F(DecodeServiceTest, ShuttingDownEndsSilentCalls) {
  Start();
  grpc::ClientContext silent_context;
  auto silent = stub_->Generate(&silent_context);
  grpc::ClientContext waiting_context;
  auto waiting = stub_->Generate(&waiting_context);
  v1::DecodeStart start = TextStart("What is this?");
  AddPicture(*FakeRecord(1, 5), start);
  Send(*waiting, start);
  v1::DecodeServiceGenerateResponse response;
  ASSERT_TRUE(waiting->Read(&response));
  server_->Shutdown(absl::Milliseconds(10));
  EXPECT_FALSE(silent->Finish().ok());
  while (waiting->Read(&response)) {
  }
  EXPECT_FALSE(waiting->Finish().ok());
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
}

TEST_F(DecodeServiceTest, ADrainingServiceRefusesWithUnavailable) {
  Start();
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
  const Answer answer = Ask(TextStart("What is this?"));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(base::ReasonOf(answer.status), "DRAINING");
  EXPECT_TRUE(base::RetryOf(answer.status).has_value());
}

TEST_F(DecodeServiceTest, GetInfoSaysWhatIsServed) {
  Start();
  grpc::ClientContext context;
  v1::DecodeServiceGetInfoResponse response;
  ASSERT_TRUE(stub_->GetInfo(&context, {}, &response).ok());
  EXPECT_EQ(response.family(), "llava");
}

TEST_F(DecodeServiceTest, ManyClientsThatComeAndGoLeaveNothingBehind) {
  Start();
  for (uint8_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(store_.Put(FakeRecord(i, 4), absl::ZeroDuration()).ok());
  }
  std::atomic<int> answered{0};
  const auto client = [&](uint32_t seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 40; ++i) {
      v1::DecodeStart start = TextStart("What is on shelf " + std::to_string(random() % 9) + "?");
      const uint8_t picture = static_cast<uint8_t>(random() % 4);  // 3 is in no tier
      std::vector<store::RecordPtr> records = {FakeRecord(picture, 4)};
      AddPicture(*records[0], start);
      grpc::ClientContext context;
      auto stream = stub_->Generate(&context);
      Send(*stream, start);
      if (random() % 2 == 0 || picture == 3) {
        v1::DecodeServiceGenerateResponse response;
        for (int reads = static_cast<int>(random() % 2); reads > 0; --reads) {
          if (!stream->Read(&response)) break;
        }
        context.TryCancel();
        stream->Finish();
        continue;
      }
      stream->WritesDone();
      const Answer answer = ReadAll(*stream);
      EXPECT_TRUE(answer.status.ok()) << answer.status;
      EXPECT_EQ(answer.text, Expected(start, records));
      ++answered;
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t) threads.emplace_back(client, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(answered.load(), 50);
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
  EXPECT_EQ(engine_->stats().blocks_used, 0);
}

}  // namespace
}  // namespace tessera::decode
