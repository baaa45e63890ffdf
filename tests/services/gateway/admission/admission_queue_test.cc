#include "services/gateway/admission/admission_queue.h"

#include <gtest/gtest.h>

#include "common/base/error.h"

namespace tessera::gateway {
namespace {

using Outcome = AdmissionQueue::Outcome;

class AdmissionQueueTest : public ::testing::Test {
 protected:
  Outcome Ask(AdmissionQueue& queue, AdmissionQueue::Ticket ticket, int64_t tokens,
              const std::string& tenant = "a", absl::Duration left = absl::Minutes(2)) {
    return queue.Ask(ticket, {.tenant = tenant, .tokens = tokens, .deadline = now_ + left}, now_,
                     refusal_);
  }
  static std::vector<AdmissionQueue::Ticket> LetIn(AdmissionQueue& queue) {
    std::vector<AdmissionQueue::Ticket> tickets;
    while (const auto next = queue.Next()) tickets.push_back(*next);
    return tickets;
  }
  using Tickets = std::vector<AdmissionQueue::Ticket>;

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  absl::Status refusal_;
};

TEST_F(AdmissionQueueTest, WhatDecodeHasFreeIsGivenOutAndTheRestWaits) {
  AdmissionQueue queue({});
  queue.Report({.replicas = 1, .free_tokens = 1000}, now_);
  EXPECT_EQ(Ask(queue, 1, 600), Outcome::kAdmitted);
  EXPECT_EQ(Ask(queue, 2, 500), Outcome::kQueued);
  EXPECT_EQ(Ask(queue, 3, 10), Outcome::kQueued) << "behind one that waits";
  EXPECT_EQ(LetIn(queue), Tickets{});
  EXPECT_TRUE(queue.Release(1, now_));
  EXPECT_EQ(LetIn(queue), (Tickets{2, 3}));
  EXPECT_EQ(queue.tokens_free(), 490);
}

TEST_F(AdmissionQueueTest, ARequestThatHasBegunIsCountedByDecodesReportInstead) {
  AdmissionQueue queue({});
  queue.Report({.replicas = 1, .free_tokens = 1000}, now_);
  Ask(queue, 1, 900);
  EXPECT_EQ(Ask(queue, 2, 500), Outcome::kQueued);
  queue.Report({.replicas = 1, .free_tokens = 1000}, now_);
  EXPECT_EQ(LetIn(queue), Tickets{}) << "no report has seen it yet";
  queue.Began(1);
  queue.Report({.replicas = 1, .free_tokens = 700}, now_);  // it took 300 of its 900
  EXPECT_EQ(LetIn(queue), Tickets{2});
  EXPECT_EQ(queue.tokens_free(), 200);
  queue.Release(1, now_);
  EXPECT_EQ(queue.tokens_free(), 1100) << "until a report says it exactly";
  queue.Report({.replicas = 1, .free_tokens = 1000}, now_);
  EXPECT_EQ(queue.tokens_free(), 500);
}

TEST_F(AdmissionQueueTest, AReportThatCameBehindANewerOneSaysNothing) {
  AdmissionQueue queue({});
  queue.Report({.replicas = 1, .free_tokens = 1000, .number = 2}, now_);
  queue.Report({.replicas = 1, .free_tokens = 10, .number = 1}, now_);
  EXPECT_EQ(queue.tokens_free(), 1000);
  queue.Report({.replicas = 1, .free_tokens = 500, .number = 3}, now_);
  EXPECT_EQ(queue.tokens_free(), 500);
}

TEST_F(AdmissionQueueTest, WithoutReportsTheWholeCacheIsSharedOut) {
  AdmissionQueue queue({});
  EXPECT_EQ(Ask(queue, 1, 1 << 30), Outcome::kAdmitted) << "nothing is known";
  queue.Release(1, now_);
  queue.SetTotal(1000);
  Ask(queue, 2, 700);
  queue.Began(2);
  EXPECT_EQ(Ask(queue, 3, 400), Outcome::kQueued);
  queue.Release(2, now_);
  EXPECT_EQ(LetIn(queue), Tickets{3});
  EXPECT_EQ(queue.tokens_free(), 600);
}

TEST_F(AdmissionQueueTest, OneIsAlwaysLetInForDecodeHasTheLastWord) {
  AdmissionQueue queue({});
  queue.Report({.replicas = 1, .free_tokens = 0}, now_);
  EXPECT_EQ(Ask(queue, 1, 5000), Outcome::kAdmitted);
  EXPECT_EQ(Ask(queue, 2, 1), Outcome::kQueued);
}

TEST_F(AdmissionQueueTest, WithNoReplicaNobodyWaits) {
  AdmissionQueue queue({});
  queue.Report({.replicas = 1, .free_tokens = 10}, now_);
  Ask(queue, 1, 10);
  EXPECT_EQ(Ask(queue, 2, 10), Outcome::kQueued);
  queue.Report({.replicas = 0}, now_);
  EXPECT_EQ(LetIn(queue), Tickets{2});
  EXPECT_EQ(Ask(queue, 3, 10), Outcome::kAdmitted);
}

TEST_F(AdmissionQueueTest, TenantsTakeTurnsByWhatTheyHave) {
  AdmissionQueue queue({});
  queue.Report({.replicas = 1, .free_tokens = 100}, now_);
  Ask(queue, 1, 100, "greedy");
  for (AdmissionQueue::Ticket ticket = 2; ticket < 6; ++ticket) Ask(queue, ticket, 20, "greedy");
  Ask(queue, 10, 20, "modest");
  Ask(queue, 11, 20, "modest");
  queue.Release(1, now_);
  EXPECT_EQ(LetIn(queue), (Tickets{10, 2, 11, 3, 4}))
      << "of equals the one that was let in longest ago";
}

TEST_F(AdmissionQueueTest, ALargeRequestIsNotPassedByOfItsTurn) {
  AdmissionQueue queue({});
  queue.Report({.replicas = 1, .free_tokens = 100}, now_);
  Ask(queue, 1, 60);
  Ask(queue, 2, 90);
  Ask(queue, 3, 10);
  EXPECT_EQ(LetIn(queue), Tickets{}) << "10 would fit, but it is not their turn";
  queue.Release(1, now_);
  EXPECT_EQ(LetIn(queue), (Tickets{2, 3}));
}

TEST_F(AdmissionQueueTest, PlacesAreBoundedAndSharedByTenants) {
  AdmissionQueue queue({.max_requests = 4, .tenant_share = 0.5});
  EXPECT_TRUE(queue.Enter("a", now_).ok());
  EXPECT_TRUE(queue.Enter("a", now_).ok());
  const absl::Status quota = queue.Enter("a", now_);
  EXPECT_EQ(quota.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(quota), "QUOTA_EXCEEDED");
  EXPECT_EQ(base::RetryOf(quota), absl::Seconds(1)) << "nothing is known of the rate";
  EXPECT_TRUE(queue.Enter("b", now_).ok());
  EXPECT_TRUE(queue.Enter("c", now_).ok());
  EXPECT_EQ(base::ReasonOf(queue.Enter("d", now_)), "QUEUE_FULL");
  queue.Leave("a", now_);
  EXPECT_TRUE(queue.Enter("d", now_).ok());
  EXPECT_EQ(queue.places(), 4);
}

TEST_F(AdmissionQueueTest, TheQueueIsBoundedAndSharedByTenants) {
  AdmissionQueue queue({.max_queued = 4, .tenant_share = 0.5});
  queue.Report({.replicas = 1, .free_tokens = 10}, now_);
  Ask(queue, 1, 10, "a");
  EXPECT_EQ(Ask(queue, 2, 10, "a"), Outcome::kQueued);
  EXPECT_EQ(Ask(queue, 3, 10, "a"), Outcome::kQueued);
  EXPECT_EQ(Ask(queue, 4, 10, "a"), Outcome::kRefused);
  EXPECT_EQ(base::ReasonOf(refusal_), "QUOTA_EXCEEDED");
  EXPECT_EQ(Ask(queue, 5, 10, "b"), Outcome::kQueued);
  EXPECT_EQ(Ask(queue, 6, 10, "c"), Outcome::kQueued);
  EXPECT_EQ(Ask(queue, 7, 10, "d"), Outcome::kRefused);
  EXPECT_EQ(base::ReasonOf(refusal_), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(refusal_).has_value());
  queue.Release(2, now_);  // one that waits goes away
  EXPECT_EQ(queue.queued(), 3);
  EXPECT_EQ(Ask(queue, 8, 10, "a"), Outcome::kQueued);
  EXPECT_FALSE(queue.Release(4, now_)) << "it was refused";
}

TEST_F(AdmissionQueueTest, TheRetryIsWhatTheQueueTakesToDrain) {
  AdmissionQueue queue({.max_queued = 3});
  queue.Report({.replicas = 1, .free_tokens = 10, .waiting = 4, .ended = 100}, now_);
  Ask(queue, 1, 10);
  for (AdmissionQueue::Ticket ticket = 2; ticket < 5; ++ticket) Ask(queue, ticket, 10);
  for (int i = 1; i <= 8; ++i) {  // 4 a second
    now_ += absl::Milliseconds(250);
    queue.Report(
        {.replicas = 1, .free_tokens = 0, .waiting = 4, .ended = 100 + static_cast<uint64_t>(i)},
        now_);
  }
  EXPECT_EQ(Ask(queue, 9, 10), Outcome::kRefused);
  EXPECT_EQ(base::RetryOf(refusal_), absl::Seconds(2)) << "3 here, 4 there and itself";
}

TEST_F(AdmissionQueueTest, WhoWouldWaitTooLongIsRefusedAtOnce) {
  for (const bool refuse : {true, false}) {
    AdmissionQueue queue({.refuse_late = refuse});
    absl::Time at = now_;
    queue.Report({.replicas = 1, .free_tokens = 10, .waiting = 1, .ended = 0}, at);
    Ask(queue, 1, 10);
    for (uint64_t i = 1; i <= 4; ++i) {  // one a second
      at += absl::Seconds(1);
      queue.Report({.replicas = 1, .free_tokens = 0, .waiting = 1, .ended = i}, at);
    }
    const auto ask = [&](AdmissionQueue::Ticket ticket, absl::Duration left) {
      return queue.Ask(ticket, {.tenant = "", .tokens = 10, .deadline = at + left}, at, refusal_);
    };
    EXPECT_EQ(ask(2, absl::Seconds(3)), Outcome::kQueued);
    EXPECT_EQ(ask(3, absl::Seconds(3)), refuse ? Outcome::kRefused : Outcome::kQueued);
    if (!refuse) continue;
    EXPECT_EQ(refusal_.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(base::FactsOf(refusal_)["stage"], "admission");
  }
}

TEST_F(AdmissionQueueTest, NothingIsLeftOfThoseThatHaveGone) {
  AdmissionQueue queue({});
  queue.Report({.replicas = 1, .free_tokens = 50}, now_);
  for (AdmissionQueue::Ticket ticket = 1; ticket <= 1000; ++ticket) {
    const std::string tenant = "t" + std::to_string(ticket % 7);
    ASSERT_TRUE(queue.Enter(tenant, now_).ok());
    Ask(queue, ticket, 30, tenant);
    if (ticket % 3 == 0) queue.Began(ticket);
    if (ticket % 10 == 0) queue.Report({.replicas = 1, .free_tokens = 50}, now_);
    if (ticket > 5) {
      queue.Release(ticket - 5, now_);
      queue.Leave("t" + std::to_string((ticket - 5) % 7), now_);
    }
    LetIn(queue);
  }
  for (AdmissionQueue::Ticket ticket = 996; ticket <= 1000; ++ticket) queue.Release(ticket, now_);
  queue.Report({.replicas = 1, .free_tokens = 50}, now_);
  EXPECT_EQ(queue.queued(), 0);
  EXPECT_EQ(queue.tokens_admitted(), 0);
  EXPECT_EQ(queue.tokens_free(), 50);
}

}  // namespace
}  // namespace tessera::gateway
