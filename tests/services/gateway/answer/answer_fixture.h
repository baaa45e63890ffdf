#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/answer/answer.h"
#include "tests/support/fake_clients.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {

struct RecordingSink final : AnswerSink {
  bool OnPiece(v1::TextPiece piece) override {
    texts += piece.text();
    logprobs += piece.logprobs_size();
    return !full;
  }
  void OnEnd(const absl::Status& end_status, const v1::GenerateResponse& end) override {
    ++ends;
    status = end_status;
    response = end;
  }
  std::string texts;
  int logprobs = 0;
  bool full = false;
  int ends = 0;
  absl::Status status;
  v1::GenerateResponse response;
};

class AnswerTest : public ::testing::Test {
 protected:
  AnswerTest() {
    options_.model_name = "m";
    options_.handle_key = std::string(32, 'k');
    options_.quality_warning = "(blurred)";
  }
  // An answer and its calls hold each other until an end comes, as they should: let it come.
  ~AnswerTest() override {
    for (const auto& call : decode_.calls) call->End(absl::CancelledError("test over"));
    for (const auto& call : vision_.calls) call->Cancel();
  }
  v1::GenerateRequest Question(std::vector<std::string> pictures) {
    v1::GenerateRequest request;
    v1::Message& message = *request.add_messages();
    message.set_role("user");
    for (const std::string& bytes : pictures) {
      message.add_parts()->mutable_image()->mutable_inline_data()->set_data(bytes);
    }
    message.add_parts()->set_text("What?");
    return request;
  }
  std::shared_ptr<Answer> Ask(std::vector<std::string> pictures) {
    return AskFor(Question(std::move(pictures)));
  }
  std::shared_ptr<Answer> AskFor(const v1::GenerateRequest& request,
                                 absl::Duration left = absl::Minutes(1)) {
    auto answer = std::make_shared<Answer>(
        AnswerDeps{options_, resolver_, decode_, clock_, metrics_, admission_, pace_, running_,
                   context_tokens_},
        rpc::RequestContext{.request_id = {}, .trace = {}, .deadline = clock_.Now() + left},
        clock_.Now(), sink_);
    answer->Start(request, "");
    return answer;
  }

  metrics::Metrics all_metrics_{"m"};
  RequestMetrics metrics_{all_metrics_};
  AnswerOptions options_;
  uint32_t context_tokens_ = 0;
  RunningRequests running_;
  testing::FakeVisionClient vision_;
  testing::FakeDecodeClient decode_;
  testing::FakeClock clock_;
  Admission admission_{{}, clock_};
  Pace pace_;
  KnownImages known_{16};
  ImageResolver resolver_{vision_, known_, clock_, "f"};
  RecordingSink sink_;
};

}  // namespace tessera::gateway
