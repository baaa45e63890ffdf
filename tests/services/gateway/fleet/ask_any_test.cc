#include "services/gateway/fleet/ask_any.h"

#include <atomic>
#include <future>
#include <thread>

#include "tests/services/gateway/fleet/replica_set_fixture.h"

namespace tessera::gateway {
namespace {

// Nothing but a change wakes who waits here.
constexpr absl::Duration kForever = absl::Hours(1);

class AskAnyTest : public ReplicaSetTest {};

TEST_F(AskAnyTest, AReplicaThatComesUpIsAskedAtOnce) {
  Start({"r0:1"});
  std::promise<void> refused;
  std::atomic<bool> serves{false};
  std::promise<absl::StatusOr<int>> answer;
  std::thread asker([&] {
    answer.set_value(AskAny<int>(*set_, {.patience = kForever, .interval = kForever},
                                 [&](const std::string&) -> absl::StatusOr<int> {
                                   if (serves.load()) return 7;
                                   refused.set_value();
                                   return absl::UnavailableError("connection refused");
                                 }));
  });
  refused.get_future().get();
  serves = true;
  Tell("r0:1");
  const absl::StatusOr<int> info = answer.get_future().get();
  EXPECT_TRUE(info.ok() && *info == 7) << info.status();
  asker.join();
}

TEST_F(AskAnyTest, WhoHasAnsweredIsAwaitedUntilItTakesRequests) {
  Start({"r0:1"});
  std::promise<void> asked;
  std::promise<absl::StatusOr<int>> answer;
  std::thread asker([&] {
    answer.set_value(AskAny<int>(*set_, {.patience = kForever, .interval = kForever},
                                 [&](const std::string&) -> absl::StatusOr<int> {
                                   asked.set_value();
                                   return 7;
                                 }));
  });
  asked.get_future().get();
  Tell("r0:1", {.draining = true});
  auto future = answer.get_future();
  Tell("r0:1");
  EXPECT_TRUE(future.get().ok());
  EXPECT_TRUE(AnyUp());
  asker.join();
}

TEST_F(AskAnyTest, WhoGivesUpIsToldTheCause) {
  Start({"r0:1"});
  int asks = 0;
  const absl::StatusOr<int> info = AskAny<int>(
      *set_, {.patience = kForever, .given_up = [&] { return asks == 3; }, .interval = {}},
      [&](const std::string&) -> absl::StatusOr<int> {
        if (++asks == 1) return absl::UnavailableError("connection refused");
        return absl::DeadlineExceededError("no answer");
      });
  EXPECT_EQ(info.status(), absl::UnavailableError("connection refused"));
  EXPECT_EQ(asks, 3);
}

}  // namespace
}  // namespace tessera::gateway
