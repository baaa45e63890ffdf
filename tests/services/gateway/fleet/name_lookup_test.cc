#include "services/gateway/fleet/name_lookup.h"

#include <gtest/gtest.h>

#include <thread>

#include "common/base/mutex.h"

namespace tessera::gateway {
namespace {

TEST(NameLookupTest, EveryNameHasItsAnswerEachTime) {
  int asked = 0;
  NameLookup lookup(
      {"a", "b"},
      [&](const std::string& name) -> NameLookup::Addresses {
        if (name == "b") return absl::UnavailableError("no such name");
        return std::vector<std::string>{name + std::to_string(++asked)};
      },
      absl::InfiniteDuration());
  for (const char* address : {"a1", "a2"}) {
    const std::vector<NameLookup::Addresses> found = lookup.Ask();
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(*found[0], std::vector<std::string>{address});
    EXPECT_TRUE(absl::IsUnavailable(found[1].status()));
  }
}

TEST(NameLookupTest, AResolverThatHangsHoldsNobody) {
  struct Hanging {
    base::Mutex mutex;
    base::CondVar changed;
    bool asked ABSL_GUARDED_BY(mutex) = false;
    bool over ABSL_GUARDED_BY(mutex) = false;
    bool left ABSL_GUARDED_BY(mutex) = false;
    void Await(const bool& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      while (!what) changed.Wait(mutex);
    }
  } hanging;
  {
    NameLookup lookup(
        {"a"},
        [&](const std::string&) -> NameLookup::Addresses {
          base::MutexLock lock(hanging.mutex);
          hanging.asked = true;
          hanging.changed.SignalAll();
          hanging.Await(hanging.over);
          hanging.left = true;
          hanging.changed.SignalAll();
          return std::vector<std::string>{"late"};
        },
        absl::InfiniteDuration());
    std::thread waiter([&] { EXPECT_TRUE(lookup.Ask().empty()); });
    {
      base::MutexLock lock(hanging.mutex);
      hanging.Await(hanging.asked);
    }
    lookup.Cancel();
    waiter.join();
    EXPECT_TRUE(lookup.Ask().empty());
  }  // and it may go
  base::MutexLock lock(hanging.mutex);
  hanging.over = true;
  hanging.changed.SignalAll();
  hanging.Await(hanging.left);
}

TEST(NameLookupTest, ANameThatHangsHoldsNoOtherAndIsAnsweredLater) {
  struct Gate {
    base::Mutex mutex;
    base::CondVar changed;
    bool open ABSL_GUARDED_BY(mutex) = false;
  };
  const auto gate = std::make_shared<Gate>();  // a thread may have it when the test is over
  NameLookup lookup(
      {"slow", "quick"},
      [gate](const std::string& name) -> NameLookup::Addresses {
        base::MutexLock lock(gate->mutex);
        while (name == "slow" && !gate->open) gate->changed.Wait(gate->mutex);
        return std::vector<std::string>{name + "1"};
      },
      absl::Milliseconds(300));
  std::vector<NameLookup::Addresses> found;
  do {  // a slow machine may not start the quick one in time
    found = lookup.Ask();
    ASSERT_EQ(found.size(), 2u);
    EXPECT_TRUE(absl::IsDeadlineExceeded(found[0].status()));
  } while (!found[1].ok());
  EXPECT_EQ(*found[1], std::vector<std::string>{"quick1"});
  {
    base::MutexLock lock(gate->mutex);
    gate->open = true;
    gate->changed.SignalAll();
  }
  do {
    found = lookup.Ask();
    ASSERT_EQ(found.size(), 2u);
  } while (!found[0].ok());
  EXPECT_EQ(*found[0], std::vector<std::string>{"slow1"});
}

}  // namespace
}  // namespace tessera::gateway
