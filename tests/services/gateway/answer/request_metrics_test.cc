#include "services/gateway/answer/request_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/metrics/names.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {
namespace {

using ::testing::HasSubstr;

absl::Status Because(absl::StatusCode code, absl::string_view reason) {
  return base::Error(code, reason, "why");
}

class RequestMetricsTest : public ::testing::Test {
 protected:
  double Requests(const char* method, const char* code, const char* stream) {
    return all_.GetCounter(metrics::kGatewayRequests, {method, code, stream}).value();
  }
  double Rejected(const char* reason) {
    return all_.GetCounter(metrics::kGatewayRejectedRequests, {reason}).value();
  }
  double AllRejected() {
    double sum = 0;
    for (const char* reason :
         {"queue_full", "quota", "too_large", "draining", "deadline", "quality"}) {
      sum += Rejected(reason);
    }
    return sum;
  }
  double Left(const char* phase) {
    return all_.GetCounter(metrics::kGatewayClientCancellations, {phase}).value();
  }
  double Queued() { return all_.GetGauge(metrics::kGatewayQueuedRequests).value(); }
  void ExpectLine(const std::string& line) {
    EXPECT_THAT(all_.Text(), HasSubstr(absl::StrCat("tessera_gateway_", line, "\n")));
  }
  static v1::GenerateResponse Response(std::vector<v1::CacheTier> tiers) {
    v1::GenerateResponse response;
    response.mutable_usage()->set_prompt_tokens(300);
    response.mutable_usage()->set_image_tokens(256);
    response.mutable_usage()->set_output_tokens(5);
    for (const v1::CacheTier tier : tiers) {
      response.mutable_receipt()->add_images()->set_cache(tier);
    }
    return response;
  }

  testing::FakeClock clock_;
  metrics::Metrics all_{"m"};
  RequestMetrics metrics_{all_};
  rpc::RequestContext request_;
};

TEST_F(RequestMetricsTest, EverySeriesIsThereAtZeroFromTheStart) {
  for (const char* line :
       {"requests_total{model_name=\"m\",code=\"OK\",method=\"Generate\",stream=\"false\"} 0",
        "requests_total{model_name=\"m\",code=\"CANCELLED\",method=\"GenerateStream\",stream="
        "\"true\"} 0",
        "requests_total{model_name=\"m\",code=\"INTERNAL\",method=\"UploadImage\",stream=\"false\"}"
        " 0",
        "queued_requests{model_name=\"m\"} 0",
        "request_duration_seconds_count{model_name=\"m\",error_type=\"none\",stream=\"true\"} 0",
        "request_duration_seconds_count{model_name=\"m\",error_type=\"cancelled\",stream=\"false\"}"
        " 0",
        "time_to_first_token_seconds_count{model_name=\"m\",image_cache=\"prefix_kv\"} 0",
        "inter_token_latency_seconds_count{model_name=\"m\"} 0",
        "time_per_output_token_seconds_count{model_name=\"m\"} 0",
        "request_prompt_tokens_count{model_name=\"m\"} 0",
        "request_image_tokens_count{model_name=\"m\"} 0",
        "request_output_tokens_count{model_name=\"m\"} 0",
        "request_images_count{model_name=\"m\"} 0", "image_bytes_count{model_name=\"m\"} 0",
        "rejected_requests_total{model_name=\"m\",reason=\"quota\"} 0",
        "client_cancellations_total{model_name=\"m\",phase=\"upload\"} 0"}) {
    ExpectLine(line);
  }
}

TEST_F(RequestMetricsTest, AnAnswerIsTimedFromArrivalToEnd) {
  RequestTimeline timeline(metrics_, RequestKind::kGenerateStream, request_, clock_.Now());
  EXPECT_EQ(Queued(), 1);
  Picture picture;
  picture.size = 1000;
  timeline.OnPictures({picture, Picture()});
  clock_.Advance(absl::Seconds(3));
  timeline.OnPiece(clock_.Now());
  EXPECT_EQ(Queued(), 0);
  clock_.Advance(absl::Seconds(1));
  timeline.OnPiece(clock_.Now());
  clock_.Advance(absl::Seconds(7));
  timeline.OnPiece(clock_.Now());
  clock_.Advance(absl::Seconds(4));
  timeline.OnEnd(clock_.Now(), absl::OkStatus(), "generation",
                 Response({v1::CACHE_TIER_PREFIX_KV, v1::CACHE_TIER_LOCAL}), false);
  for (const char* line :
       {"time_to_first_token_seconds_sum{model_name=\"m\",image_cache=\"local\"} 3",
        "inter_token_latency_seconds_sum{model_name=\"m\"} 8",
        "inter_token_latency_seconds_count{model_name=\"m\"} 2",
        "time_per_output_token_seconds_sum{model_name=\"m\"} 2",  // 8 s for 4 tokens
        "request_duration_seconds_sum{model_name=\"m\",error_type=\"none\",stream=\"true\"} 15",
        "request_prompt_tokens_sum{model_name=\"m\"} 300",
        "request_image_tokens_sum{model_name=\"m\"} 256",
        "request_output_tokens_sum{model_name=\"m\"} 5", "request_images_sum{model_name=\"m\"} 2",
        "image_bytes_sum{model_name=\"m\"} 1000", "image_bytes_count{model_name=\"m\"} 1"}) {
    ExpectLine(line);
  }
  EXPECT_EQ(Requests("GenerateStream", "OK", "true"), 1);
  EXPECT_EQ(AllRejected(), 0);
}

TEST_F(RequestMetricsTest, TheFirstTokenIsLabelledByTheCostliestTier) {
  const auto answer = [&](std::vector<v1::CacheTier> tiers) {
    RequestTimeline timeline(metrics_, RequestKind::kGenerate, request_, clock_.Now());
    timeline.OnPictures(std::vector<Picture>(tiers.size()));
    timeline.OnPiece(clock_.Now());
    timeline.OnEnd(clock_.Now(), absl::OkStatus(), "generation", Response(std::move(tiers)), false);
  };
  answer({});
  answer({v1::CACHE_TIER_PREFIX_KV});
  answer({v1::CACHE_TIER_STORE, v1::CACHE_TIER_PREFIX_KV});
  answer({v1::CACHE_TIER_ORIGIN});
  answer({v1::CACHE_TIER_COMPUTED, v1::CACHE_TIER_LOCAL});
  for (const char* tier : {"none", "prefix_kv", "store", "origin", "computed"}) {
    ExpectLine(absl::StrCat("time_to_first_token_seconds_count{model_name=\"m\",image_cache=\"",
                            tier, "\"} 1"));
  }
  ExpectLine("time_to_first_token_seconds_count{model_name=\"m\",image_cache=\"local\"} 0");
}

// Whoever had a first token has one sample of it, however the answer ended; nobody else has.
TEST_F(RequestMetricsTest, OneFirstTokenForEachAnswerThatBegan) {
  const auto request = [&](int pieces, const absl::Status& status, bool computed) {
    RequestTimeline timeline(metrics_, RequestKind::kGenerate, request_, clock_.Now());
    timeline.OnPictures(std::vector<Picture>(1));
    for (int i = 0; i < pieces; ++i) timeline.OnPiece(clock_.Now());
    timeline.OnEnd(clock_.Now(), status, pieces > 0 ? "generation" : "encode", {}, computed);
  };
  request(2, absl::CancelledError(), true);
  request(1, absl::DeadlineExceededError(""), false);
  request(0, absl::CancelledError(), true);
  request(0, absl::DeadlineExceededError(""), false);
  EXPECT_EQ(Queued(), 0);
  ExpectLine("time_to_first_token_seconds_count{model_name=\"m\",image_cache=\"computed\"} 1");
  ExpectLine("time_to_first_token_seconds_count{model_name=\"m\",image_cache=\"local\"} 1");
  ExpectLine("request_output_tokens_count{model_name=\"m\"} 0");
  EXPECT_EQ(Left("generation"), 1);
  EXPECT_EQ(Left("encode"), 1);
  EXPECT_EQ(Rejected("deadline"), 1);  // the other one had begun
}

TEST_F(RequestMetricsTest, RefusalsCountByTheirReason) {
  const struct {
    absl::Status status;
    const char* reason;
  } cases[] = {
      {Because(absl::StatusCode::kResourceExhausted, "QUEUE_FULL"), "queue_full"},
      {Because(absl::StatusCode::kUnavailable, "BODIES_FULL"), "queue_full"},
      {Because(absl::StatusCode::kResourceExhausted, "TENANT_QUOTA"), "quota"},
      {Because(absl::StatusCode::kInvalidArgument, "IMAGE_TOO_LARGE"), "too_large"},
      {Because(absl::StatusCode::kInvalidArgument, "CONTEXT_TOO_LONG"), "too_large"},
      {Because(absl::StatusCode::kUnavailable, "DRAINING"), "draining"},
      {Because(absl::StatusCode::kDeadlineExceeded, "DEADLINE"), "deadline"},
      {Because(absl::StatusCode::kInvalidArgument, "IMAGE_QUALITY"), "quality"},
  };
  for (const auto& one : cases) {
    const double before = Rejected(one.reason), all = AllRejected();
    metrics_.OnEnd({RequestKind::kGenerate, request_, clock_.Now(), clock_.Now()}, one.status,
                   "admission");
    EXPECT_EQ(Rejected(one.reason), before + 1) << one.status;
    EXPECT_EQ(AllRejected(), all + 1) << one.status;
  }
  const double all = AllRejected();
  for (const absl::Status& other :
       {Because(absl::StatusCode::kResourceExhausted, "SLOW_CLIENT"),
        Because(absl::StatusCode::kUnavailable, "ROWS_MISSING"),
        Because(absl::StatusCode::kInvalidArgument, "IMAGE_FORMAT"),
        Because(absl::StatusCode::kInternal, "DEVICE_FAILED"), absl::NotFoundError("")}) {
    metrics_.OnEnd({RequestKind::kGenerate, request_, clock_.Now(), clock_.Now()}, other,
                   "generation");
  }
  EXPECT_EQ(AllRejected(), all);
}

TEST_F(RequestMetricsTest, EveryStatusHasACodeAndAnErrorType) {
  for (int code = 0; code < 20; ++code) {
    RequestTimeline timeline(metrics_, RequestKind::kGenerate, request_, clock_.Now());
    timeline.OnEnd(clock_.Now(), absl::Status(static_cast<absl::StatusCode>(code), "x"), "decode",
                   {}, false);
  }
  EXPECT_EQ(Requests("Generate", "UNAUTHENTICATED", "false"), 1);
  EXPECT_EQ(Requests("Generate", "UNKNOWN", "false"), 4);  // with those that gRPC does not have
  ExpectLine(
      "request_duration_seconds_count{model_name=\"m\",error_type=\"authentication_error\","
      "stream=\"false\"} 2");
}

TEST_F(RequestMetricsTest, WhatNeverEndsWaitsNoLongerThanItLives) {
  auto timeline =
      std::make_unique<RequestTimeline>(metrics_, RequestKind::kGenerate, request_, clock_.Now());
  EXPECT_EQ(Queued(), 1);
  timeline = nullptr;
  EXPECT_EQ(Queued(), 0);
}

}  // namespace
}  // namespace tessera::gateway
