#include "kernels/free_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/kernels/lab.h"

namespace tessera::kernels {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

// A root directory with what /proc and /sys of some machine say.
class FreeHostMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(::testing::TempDir(), "/free_memory_test_", getpid());
    Put("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:  8388608 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(FreeHostMemoryTest, WithoutCgroupsIsWhatTheMachineHas) {
  EXPECT_EQ(FreeHostMemory(root_), 8 * kGiB);
  Put("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(FreeHostMemory(root_), 8 * kGiB);
}

TEST_F(FreeHostMemoryTest, IsNoMoreThanEveryCgroupAboveLeaves) {
  Put("/proc/self/cgroup", "0::/pod/server\n");
  const std::string pod = "/sys/fs/cgroup/pod", server = pod + "/server";
  Put(server + "/memory.max", "max\n");
  Put(server + "/memory.current", "1073741824\n");
  EXPECT_EQ(FreeHostMemory(root_), 8 * kGiB);
  Put(pod + "/memory.max", "4294967296\n");
  Put(pod + "/memory.current", "3221225472\n");
  EXPECT_EQ(FreeHostMemory(root_), kGiB);
  Put(pod + "/memory.stat", "anon 5\nfile 2147483648\ninactive_file 1073741824\nslab 3\n");
  EXPECT_EQ(FreeHostMemory(root_), 2 * kGiB);
  Put(server + "/memory.max", "1610612736\n");
  EXPECT_EQ(FreeHostMemory(root_), kGiB / 2);
  Put(server + "/memory.current", "1610612737\n");  // over its limit for a moment
  EXPECT_EQ(FreeHostMemory(root_), 0u);
}

TEST_F(FreeHostMemoryTest, KnowsVersionOneAndANamespaceThatHidesThePath) {
  Put("/proc/self/cgroup", "12:cpu,cpuacct:/docker/a\n7:memory:/docker/a\n0::/docker/a\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  Put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1610612736\n");
  Put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 536870912\n");
  EXPECT_EQ(FreeHostMemory(root_), kGiB);
}

TEST_F(FreeHostMemoryTest, NonsenseIsPassedOver) {
  Put("/proc/self/cgroup", "\n::\n0:\n0::relative\n1:memory\n");
  EXPECT_EQ(FreeHostMemory(root_), 8 * kGiB);
  Put("/proc/meminfo", "MemAvailable: much\n");
  EXPECT_EQ(FreeHostMemory(root_), 0u);
  EXPECT_EQ(FreeHostMemory(root_ + "/nowhere"), 0u);
}

class FreeMemoryTest : public ::testing::TestWithParam<std::string> {};

TEST_P(FreeMemoryTest, IsMoreThanNothingAndLessThanTheMachine) {
  Lab lab(GetParam());
  const size_t free = lab.backend().FreeMemory();
  EXPECT_GT(free, 0u);
  EXPECT_LT(free, static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                      static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

INSTANTIATE_TEST_SUITE_P(Kernels, FreeMemoryTest, ::testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::kernels
