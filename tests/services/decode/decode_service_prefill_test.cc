// Work ahead of a question through the wire.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/bounded_queue.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/rpc/trace/trace_context.h"
#include "tests/services/decode/decode_service_fixture.h"
#include "tests/support/log_lines.h"

namespace tessera::decode {
namespace {

using testing::FakeRecord;

class DecodePrefillTest : public DecodeServiceTest {
 protected:
  static v1::ImageRef RefOf(const store::EmbeddingRecord& record) {
    v1::DecodeStart start = TextStart("");
    AddPicture(record, start);
    return start.images(0);
  }
  static v1::DecodeServicePrefillRequest Ahead(const store::EmbeddingRecord& record) {
    v1::DecodeServicePrefillRequest request;
    *request.add_images() = RefOf(record);
    return request;
  }
  // The picture first, then the question.
  static v1::DecodeStart Question(const store::EmbeddingRecord& record, const std::string& text) {
    v1::DecodeStart start;
    v1::DecodeMessage& message = *start.add_messages();
    message.set_role("user");
    message.add_parts()->set_image(0);
    message.add_parts()->set_text(text);
    *start.add_images() = RefOf(record);
    return start;
  }

  // What was sent before has come.
  void GoThereAndBack() {
    grpc::ClientContext context;
    v1::DecodeServiceGetInfoResponse info;
    EXPECT_TRUE(stub_->GetInfo(&context, {}, &info).ok());
  }
  int UnreadOfTheCancelled();
};

TEST_F(DecodePrefillTest, TheFirstQuestionFindsItsPictureRead) {
  std::atomic<int> gets{0};
  store_.on_get = [&gets] { ++gets; };
  Start({.prefix_cache = true});
  const store::RecordPtr record = FakeRecord(1, 9);
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  const auto done = Prefill(Ahead(*record));
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_FALSE(done->dropped());
  EXPECT_GT(done->prompt_tokens(), 9u);
  EXPECT_EQ(done->computed_tokens(), done->prompt_tokens());
  EXPECT_EQ(gets.load(), 1);

  const v1::DecodeStart start = Question(*record, "Which shelf is fuller?");
  const Answer answer = Ask(start);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text, Expected(start, {record}));
  EXPECT_EQ(answer.end.images(0).cache(), v1::CACHE_TIER_PREFIX_KV);
  EXPECT_EQ(answer.end.images(0).bytes_moved(), 0u);
  EXPECT_EQ(answer.end.ahead_tokens(), done->prompt_tokens());
  EXPECT_EQ(answer.end.usage().cached_tokens(), done->prompt_tokens());
  EXPECT_EQ(answer.end.stages().fetch_seconds(), 0);
  EXPECT_EQ(gets.load(), 1);
  EXPECT_EQ(engine_->stats().ahead_used, done->prompt_tokens());
}

TEST_F(DecodePrefillTest, TheNextTurnOfAConversationIsReadAhead) {
  Start({.prefix_cache = true});
  const store::RecordPtr record = FakeRecord(1, 9);
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  v1::DecodeStart start = Question(*record, "Which shelf is fuller?");
  v1::DecodeMessage& said = *start.add_messages();
  said.set_role("assistant");
  said.add_parts()->set_text("The upper one.");
  v1::DecodeServicePrefillRequest ahead = Ahead(*record);
  *ahead.mutable_messages() = start.messages();
  const auto done = Prefill(ahead);
  ASSERT_TRUE(done.ok()) << done.status();
  v1::DecodeMessage& next = *start.add_messages();
  next.set_role("user");
  next.add_parts()->set_text("Why?");
  const Answer answer = Ask(start);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text, Expected(start, {record}));
  EXPECT_EQ(answer.end.ahead_tokens(), done->prompt_tokens());
  EXPECT_LT(answer.end.usage().prompt_tokens() - answer.end.ahead_tokens(), 20u);
}

TEST_F(DecodePrefillTest, AnotherTenantFindsNothing) {
  Start({.prefix_cache = true});
  const store::RecordPtr record = FakeRecord(1, 9);
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  v1::DecodeServicePrefillRequest ahead = Ahead(*record);
  ahead.set_tenant("somebody");
  ASSERT_TRUE(Prefill(ahead).ok());
  const Answer answer = Ask(Question(*record, "Which shelf is fuller?"));
  EXPECT_EQ(answer.end.images(0).cache(), v1::CACHE_TIER_LOCAL);
  EXPECT_EQ(answer.end.ahead_tokens(), 0u);
}

TEST_F(DecodePrefillTest, WhatIsNotToBeReadIsRefusedByName) {
  Start({.prefix_cache = true});
  const auto empty = Prefill({});
  EXPECT_EQ(empty.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::FieldOf(empty.status()), "images");
  const auto narrow = Prefill(Ahead(*FakeRecord(1, 9, /*width=*/8)));
  EXPECT_EQ(base::FieldOf(narrow.status()), "images[0].width");
  EXPECT_EQ(base::ReasonOf(Prefill(Ahead(*FakeRecord(1, 249))).status()), "CONTEXT_TOO_LONG");
}

TEST_F(DecodePrefillTest, RowsThatNobodyHasAreNotWaitedFor) {
  Start({.prefix_cache = true});
  const auto done = Prefill(Ahead(*FakeRecord(1, 9)));
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->dropped());
  EXPECT_EQ(done->computed_tokens(), 0u);
}

TEST_F(DecodePrefillTest, ACancelledCallEndsItsWork) {
  Start({.prefix_cache = true});
  const store::RecordPtr record = FakeRecord(1, 9);
  store_.Block(record->key);
  grpc::ClientContext context;
  grpc::Status status;
  std::thread client([&] {
    v1::DecodeServicePrefillResponse response;
    status = stub_->Prefill(&context, Ahead(*record), &response);
  });
  while (engine_->stats().ahead == 0) std::this_thread::yield();
  EXPECT_EQ(engine_->stats().waiting, 0) << "it keeps no question waiting";
  context.TryCancel();
  client.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  while (engine_->stats().ahead > 0) std::this_thread::yield();
  EXPECT_EQ(engine_->stats().blocks_used, 0);
  store_.Release();
}

// How many of 20 calls that are cancelled while they queue are not read.
int DecodePrefillTest::UnreadOfTheCancelled() {
  Start();
  std::promise<void> gate;
  EXPECT_TRUE(prompt_threads_->TryPush([opened = gate.get_future().share()] { opened.wait(); }));
  ::testing::internal::CaptureStderr();
  const v1::DecodeServicePrefillRequest without_pictures;  // which would be said if it were read
  struct Ahead {
    grpc::ClientContext context;
    v1::DecodeServicePrefillResponse response;
    std::promise<void> ended;
  };
  std::vector<Ahead> calls(20);
  for (Ahead& call : calls) {
    stub_->async()->Prefill(&call.context, &without_pictures, &call.response,
                            [&call](const grpc::Status&) { call.ended.set_value(); });
  }
  GoThereAndBack();
  for (Ahead& call : calls) call.context.TryCancel();
  for (Ahead& call : calls) call.ended.get_future().wait();
  GoThereAndBack();  // behind the others
  gate.set_value();
  Stop();  // a line comes behind its answer
  const std::string log = ::testing::internal::GetCapturedStderr();
  int unread = 0;
  for (auto& [id, line] : testing::LinesById(log)) {
    unread += line["method"] == "Prefill" && line["reason"] == "CLIENT_GONE";
  }
  return unread;
}

TEST_F(DecodePrefillTest, ACallThatIsCancelledWhileItQueuesIsNotRead) {
  const absl::Time end = absl::Now() + absl::Minutes(1);
  int unread = 0;
  // A slow machine may read them all before it hears that they are cancelled.
  while (unread == 0 && absl::Now() < end) unread = UnreadOfTheCancelled();
  EXPECT_GT(unread, 0);
}

TEST_F(DecodePrefillTest, ItsEndIsOneLineOfTheLogWithTheCallersName) {
  Start({.prefix_cache = true});
  const store::RecordPtr record = FakeRecord(1, 9);
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  ::testing::internal::CaptureStderr();
  for (const bool empty : {false, true}) {
    grpc::ClientContext context;
    context.AddMetadata("x-request-id", empty ? "empty" : "whole");
    context.AddMetadata("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    v1::DecodeServicePrefillResponse response;
    stub_->Prefill(&context, empty ? v1::DecodeServicePrefillRequest() : Ahead(*record), &response);
  }
  server_->Shutdown(absl::InfiniteDuration());  // a line comes behind its answer
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  std::map<std::string, base::Json> by_id = testing::LinesById(log);
  ASSERT_EQ(by_id.size(), 2u) << log;
  for (auto& [id, line] : by_id) {
    EXPECT_EQ(line["service"], "decode");
    EXPECT_EQ(line["method"], "Prefill");
    EXPECT_EQ(line["trace_id"], "0af7651916cd43dd8448eb211c80319c");
  }
  const base::Json& done = by_id["whole"];
  EXPECT_EQ(done["code"], "OK");
  EXPECT_EQ(done["images"], 1);
  EXPECT_EQ(done["cache"], "local");
  EXPECT_GT(done["prompt_tokens"], 9);
  EXPECT_EQ(by_id["empty"]["reason"], "IMAGE_COUNT");
}

// What decode asks of others for a request is asked in its name.
TEST_F(DecodePrefillTest, RowsAreReadInTheNameOfTheCall) {
  base::BoundedQueue<ReadContext> askers(10);
  reader_ = RecordReader([&askers](const WantedRecord&, const ReadContext& asker) -> ReadRecord {
    askers.TryPush(ReadContext(asker));
    return {FakeRecord(1, 9), RowTier::kLocal};
  });
  Start();
  const auto named = [](grpc::ClientContext& context) {
    context.AddMetadata("x-request-id", "id-1");
    context.AddMetadata("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(100));
  };
  grpc::ClientContext ahead, asked;
  named(ahead);
  named(asked);
  v1::DecodeServicePrefillResponse response;
  ASSERT_TRUE(stub_->Prefill(&ahead, Ahead(*FakeRecord(1, 9)), &response).ok());
  auto stream = stub_->Generate(&asked);
  Send(*stream, Question(*FakeRecord(1, 9), "Which shelf is fuller?"));
  stream->WritesDone();
  ASSERT_TRUE(ReadAll(*stream).status.ok());
  std::string last_span = "b7ad6b7169203331";
  for (int call = 0; call < 2; ++call) {
    const ReadContext asker = *askers.Pop();
    EXPECT_EQ(asker.name.request_id, "id-1");
    const auto trace = rpc::ParseTraceparent(asker.name.traceparent);
    ASSERT_TRUE(trace.has_value()) << asker.name.traceparent;
    EXPECT_EQ(base::ToHex(trace->trace_id), "0af7651916cd43dd8448eb211c80319c");
    EXPECT_TRUE(trace->sampled);
    EXPECT_NE(std::exchange(last_span, base::ToHex(trace->span_id)), last_span);  // its own
    EXPECT_LT(asker.deadline, absl::Now() + absl::Seconds(101));
  }
}

}  // namespace
}  // namespace tessera::decode
