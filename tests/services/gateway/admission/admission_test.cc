#include "services/gateway/admission/admission.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {
namespace {

class AdmissionTest : public ::testing::Test {
 protected:
  // Its ticket; `told` gets what it is told.
  Admission::Ticket Ask(int64_t tokens, std::optional<absl::Status>& told,
                        absl::Duration left = absl::Minutes(1)) {
    const Admission::Ticket ticket = admission_.NewTicket();
    admission_.Ask(ticket, {.tenant = "", .tokens = tokens, .deadline = clock_.Now() + left},
                   [&told](const absl::Status& status) {
                     EXPECT_FALSE(told.has_value()) << "told twice";
                     told = status;
                   });
    return ticket;
  }

  testing::FakeClock clock_;
  Admission admission_{{.max_requests = 2}, clock_};
};

TEST_F(AdmissionTest, APlaceComesBackOnceWhoeverHoldsIt) {
  absl::StatusOr<Admission::Place> first = admission_.Enter("");
  Admission::Place second = *admission_.Enter("");
  EXPECT_EQ(base::ReasonOf(admission_.Enter("").status()), "QUEUE_FULL");
  second = *std::move(first);
  EXPECT_EQ(admission_.inflight(), 1);
  Admission::Place third(std::move(second));
  second.Reset();
  EXPECT_EQ(admission_.inflight(), 1);
  third.Reset();
  third.Reset();
  EXPECT_EQ(admission_.inflight(), 0);
}

TEST_F(AdmissionTest, AReleaseLetsTheNextOnesIn) {
  admission_.SetTotal(100);
  std::optional<absl::Status> first, second, third;
  const Admission::Ticket ticket = Ask(100, first);
  EXPECT_EQ(first, absl::OkStatus());
  Ask(50, second);
  Ask(50, third);
  EXPECT_FALSE(second.has_value());
  admission_.Release(ticket);
  EXPECT_EQ(second, absl::OkStatus());
  EXPECT_EQ(third, absl::OkStatus());
}

TEST_F(AdmissionTest, WhoeverGoesAwayIsToldNothingAndGivesWay) {
  admission_.SetTotal(100);
  std::optional<absl::Status> first, second, third;
  Ask(60, first);
  const Admission::Ticket large = Ask(90, second);
  Ask(40, third);
  admission_.Release(large);
  EXPECT_FALSE(second.has_value());
  EXPECT_EQ(third, absl::OkStatus());
}

TEST_F(AdmissionTest, ADeadlineEndsTheWait) {
  admission_.SetTotal(100);
  std::optional<absl::Status> first, second;
  Ask(100, first);
  std::atomic<bool> over{false};
  admission_.Ask(admission_.NewTicket(),
                 {.tenant = "", .tokens = 10, .deadline = clock_.Now() + absl::Seconds(1)},
                 [&](const absl::Status& status) {
                   second = status;
                   over = true;
                 });
  clock_.Advance(absl::Seconds(2));
  while (!over) std::this_thread::yield();
  EXPECT_EQ(second->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(admission_.stats().queued, 0);
}

TEST_F(AdmissionTest, OneThatFailsAtOnceLetsTheNextInWithoutDeepeningTheStack) {
  admission_.SetTotal(10);
  std::optional<absl::Status> first;
  const Admission::Ticket holder = Ask(10, first);
  int turns = 0;
  const void* lowest = nullptr;
  for (int i = 0; i < 100; ++i) {
    const Admission::Ticket ticket = admission_.NewTicket();
    admission_.Ask(ticket, {.tenant = "", .tokens = 10, .deadline = absl::InfiniteFuture()},
                   [&, ticket](const absl::Status& status) {
                     EXPECT_TRUE(status.ok());
                     const char here = 0;
                     if (turns++ == 0) lowest = &here;
                     EXPECT_EQ(lowest, &here);
                     admission_.Release(ticket);
                   });
  }
  admission_.Release(holder);
  EXPECT_EQ(turns, 100);
}

TEST_F(AdmissionTest, DrainingRefusesNewPlacesAndWaitsForTheOthers) {
  Admission::Place place = *admission_.Enter("");
  std::thread drain([&] { admission_.Drain(absl::InfiniteFuture()); });
  absl::Status refused;
  while (refused.ok()) refused = admission_.Enter("").status();
  EXPECT_EQ(base::ReasonOf(refused), "DRAINING");
  EXPECT_TRUE(base::RetryOf(refused).has_value());
  place.Reset();
  drain.join();
}

TEST_F(AdmissionTest, ManyThreadsNeverHaveMoreThanThereIs) {
  admission_.SetTotal(100);
  std::atomic<int> inside{0}, served{0}, most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const Admission::Ticket ticket = admission_.NewTicket();
        std::atomic<int> told{0};
        admission_.Ask(ticket, {.tenant = "", .tokens = 40, .deadline = absl::InfiniteFuture()},
                       [&](const absl::Status& status) { told = status.ok() ? 1 : 2; });
        while (told == 0) std::this_thread::yield();
        ASSERT_EQ(told, 1);
        const int now = ++inside;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        --inside;
        ++served;
        admission_.Release(ticket);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, 1600);
  EXPECT_LE(most, 2);
  EXPECT_EQ(admission_.stats().tokens_free, 100);
}

}  // namespace
}  // namespace tessera::gateway
