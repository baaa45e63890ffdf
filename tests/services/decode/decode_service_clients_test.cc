// Clients that go away, do not read, wait too long, or come in crowds.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "tests/services/decode/decode_service_fixture.h"
#include "tests/support/send_raw.h"

namespace tessera::decode {
namespace {

using testing::FakeRecord;

TEST_F(DecodeServiceTest, AClientThatGoesAwayFreesItsBlocks) {
  Start({.stops = false});
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

TEST_F(DecodeServiceTest, AClientThatDoesNotReadIsPausedAndGetsTheWholeAnswerInTheEnd) {
  Start({.sink_bytes = 20, .stops = false, .small_window = true});
  const v1::DecodeStart start = TextStart("Tell me everything.", 200);
  const Answer quick = Ask(start);
  ASSERT_TRUE(quick.status.ok()) << quick.status;
  grpc::ClientContext context;
  auto slow = stub_->Generate(&context);
  Send(*slow, start);
  while (engine_->stats().running + engine_->stats().waiting == 0) std::this_thread::yield();
  // Comes later, is in each step with the slow one, and ends before it.
  EXPECT_TRUE(Ask(TextStart("Tell me more.", 200)).status.ok());
  EXPECT_EQ(engine_->stats().finished_length, 2);
  EXPECT_EQ(engine_->stats().running + engine_->stats().waiting, 1);
  const Answer answer = ReadAll(*slow);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text, quick.text);
  EXPECT_EQ(answer.end.usage().output_tokens(), 200u);
}

TEST_F(DecodeServiceTest, AClientThatDoesNotReadForTooLongIsAborted) {
  Start({.sink_bytes = 20,
         .stops = false,
         .slow_client_timeout = absl::Milliseconds(20),
         .small_window = true});
  grpc::ClientContext context;
  auto slow = stub_->Generate(&context);
  Send(*slow, TextStart("Tell me everything.", 200));
  while (engine_->stats().finished_abort == 0) std::this_thread::yield();
  EXPECT_EQ(engine_->stats().blocks_used, 0);
  const Answer answer = ReadAll(*slow);
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(answer.status), "SLOW_CLIENT");
}

TEST_F(DecodeServiceTest, WhatCannotBeParsedIsInternal) {
  Start();
  const std::string cut("\x0a\x7f");  // a length without its bytes
  const std::string rows_ready("\x12\x00", 2);
  for (const std::vector<std::string>& messages :
       {std::vector<std::string>{cut}, std::vector<std::string>{rows_ready, cut}}) {
    const absl::Status status =
        testing::SendRaw(channel_, "/tessera.v1.DecodeService/Generate", messages);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_NE(status.message().find("parsed"), absl::string_view::npos) << status;
  }
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
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

// Its reads end, too, as if it had closed its side.
TEST_F(DecodeServiceTest, AClientThatGoesAwayWhileRowsAreMissingIsNoError) {
  Start();
  for (int round = 0; round < 20; ++round) {
    grpc::ClientContext context;
    auto stream = stub_->Generate(&context);
    v1::DecodeStart start = TextStart("What is this?");
    AddPicture(*FakeRecord(1, 5), start);
    Send(*stream, start);
    v1::DecodeServiceGenerateResponse response;
    while (!response.has_need_rows()) ASSERT_TRUE(stream->Read(&response));
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
  EXPECT_EQ(engine_->stats().finished_abort, 20);
  EXPECT_EQ(engine_->stats().finished_error, 0);
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

TEST_F(DecodeServiceTest, ItsLoadIsToldAtOnceAndAgain) {
  Start({});
  grpc::ClientContext context;
  v1::DecodeServiceWatchLoadRequest request;
  request.set_interval_milliseconds(10);
  const auto stream = stub_->WatchLoad(&context, request);
  v1::DecodeServiceWatchLoadResponse load;
  ASSERT_TRUE(stream->Read(&load));
  EXPECT_FALSE(load.draining());
  EXPECT_GT(load.blocks_total(), 0u);
  EXPECT_EQ(load.blocks_free(), load.blocks_total());
  EXPECT_GT(load.block_tokens(), 0u);
  EXPECT_EQ(load.waiting_limit(), 9u);
  EXPECT_EQ(load.requests_ended(), 0u);
  engine_->Drain(absl::InfinitePast());
  while (!load.draining()) ASSERT_TRUE(stream->Read(&load));
  context.TryCancel();
  while (stream->Read(&load)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace tessera::decode
