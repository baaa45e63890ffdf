#include "common/ops/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include "absl/time/clock.h"

namespace tessera::ops {
namespace {

// Each in a process of its own: signals are the whole process's.
class StopSignalDeathTest : public ::testing::Test {
 protected:
  StopSignalDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StopSignalDeathTest, TheFirstIsWaitedForAndTheSecondEndsTheProcess) {
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_EXIT(
        {
          StopSignal stop;
          if (stop.Wait(absl::Milliseconds(1))) std::_Exit(1);
          kill(getpid(), signal);
          if (!stop.Wait(absl::Minutes(1))) std::_Exit(2);
          kill(getpid(), signal);
          pause();
        },
        [signal](int status) {  // the latter as the first process of a container, or with tsan
          return ::testing::KilledBySignal(signal)(status) ||
                 ::testing::ExitedWithCode(128 + signal)(status);
        },
        "");
  }
}

TEST_F(StopSignalDeathTest, WhileItLoadsTheFirstEndsTheProcess) {
  EXPECT_EXIT(
      {
        StopSignal stop;
        const StopSignal::EndsProcess ends(stop);
        kill(getpid(), SIGTERM);
        pause();
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(StopSignalDeathTest, OnceItHasLoadedTheFirstIsWaitedFor) {
  EXPECT_EXIT(
      {
        StopSignal stop;
        std::optional<StopSignal::EndsProcess> ends(std::in_place, stop);
        ends.reset();
        kill(getpid(), SIGTERM);
        std::_Exit(stop.Wait(absl::Minutes(1)) ? 3 : 4);
      },
      ::testing::ExitedWithCode(3), "");
}

TEST_F(StopSignalDeathTest, AnEndThatHangsIsCutShort) {
  EXPECT_EXIT(
      {
        EndWithin(absl::Milliseconds(10));
        absl::SleepFor(absl::InfiniteDuration());
      },
      ::testing::ExitedWithCode(1), "the end of this process was not reached within 10ms");
}

}  // namespace
}  // namespace tessera::ops
