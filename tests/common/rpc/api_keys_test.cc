#include "common/rpc/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "tests/support/certificates.h"
#include "tests/support/fake_clock.h"
#include "tests/support/file_limit.h"
#include "tests/support/temp_dir.h"

namespace tessera::rpc {
namespace {

using testing::FakeClock;
using testing::FileLimit;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;
using testing::WriteOver;

std::string Line(const std::string& tenant, const std::string& key) {
  return absl::StrCat(tenant, " sha256:", base::ToHex(base::Sha256Of(key)), "\n");
}

class ApiKeysTest : public ::testing::Test {
 protected:
  std::string File() const { return dir_.path() + "/keys"; }
  absl::StatusOr<std::unique_ptr<ApiKeys>> Create(const std::string& content) {
    WriteOver(content, File());
    return ApiKeys::Create(File(), clock_);
  }
  static std::string TenantOf(const ApiKeys& keys, const std::string& authorization) {
    const absl::StatusOr<std::string> tenant = keys.TenantOf(authorization);
    if (tenant.ok()) return *tenant;
    EXPECT_EQ(tenant.status().code(), absl::StatusCode::kUnauthenticated);
    return base::ReasonOf(tenant.status());
  }

  const TempDir dir_;
  FakeClock clock_;
};

TEST_F(ApiKeysTest, AKeyIsItsTenants) {
  const auto keys = Create("# ours\n\n" + Line("one", "k-1") + Line("two.b_C-9", "k-2") +
                           "  one\tsha256:" + base::ToHex(base::Sha256Of("k-3")) + " \r\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_TRUE((*keys)->on());
  EXPECT_EQ(TenantOf(**keys, "Bearer k-1"), "one");
  EXPECT_EQ(TenantOf(**keys, "Bearer k-2"), "two.b_C-9");
  EXPECT_EQ(TenantOf(**keys, "bearer  k-3 "), "one");
  for (const char* none : {"", " ", "Bearer", "Bearer ", "Basic k-1", "k-1", "Bearerk-1"}) {
    EXPECT_EQ(TenantOf(**keys, none), "KEY_MISSING") << none;
  }
  for (const char* other :
       {"Bearer k-4", "Bearer K-1", "Bearer k-1 k-1", "Bearer k-", "Bearer k-11"}) {
    EXPECT_EQ(TenantOf(**keys, other), "KEY_UNKNOWN") << other;
  }
}

TEST_F(ApiKeysTest, TheHashOfAKeyIsNoKey) {
  const auto keys = Create(Line("one", "k-1"));
  EXPECT_EQ(TenantOf(**keys, "Bearer " + base::ToHex(base::Sha256Of("k-1"))), "KEY_UNKNOWN");
}

TEST_F(ApiKeysTest, ErrorsNeverHoldTheKey) {
  const auto keys = Create(Line("one", "k-1"));
  for (const char* wrong : {"Bearer secret", "Basic secret"}) {
    EXPECT_THAT((*keys)->TenantOf(wrong).status().ToString(), Not(HasSubstr("secret")));
  }
  EXPECT_THAT(Create("one secret\n").status().ToString(), Not(HasSubstr("secret")));
}

TEST_F(ApiKeysTest, WithoutAFileEverybodyIsTheNamelessTenant) {
  const auto keys = ApiKeys::Create("", clock_);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_FALSE((*keys)->on());
  for (const char* any : {"", "Bearer k-1", "nonsense"}) EXPECT_EQ(TenantOf(**keys, any), "");
}

TEST_F(ApiKeysTest, ABadFileIsToldWithItsLine) {
  const std::string good = Line("one", "k-1");
  const std::string hex = base::ToHex(base::Sha256Of("x"));
  for (const auto& [content, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "no key"},
           {"# nothing\n", "no key"},
           {good + "two\n", "line 2: write TENANT"},
           {good + "two sha256:" + hex + " more\n", "line 2: write TENANT"},
           {"\n\n" + std::string(65, 'a') + " sha256:" + hex, "line 3: a tenant"},
           {"a/b sha256:" + hex, "line 1: a tenant"},
           {"one " + hex, "line 1: the second field"},
           {"one sha256:abc", "line 1: a SHA-256"},
           {"one sha256:" + std::string(64, 'g'), "line 1: a digest"},
           {good + good, "line 2: the key of an earlier line"},
           {good + "#\n" + Line("two", "k-1"), "line 3: the key of an earlier line"}}) {
    const absl::Status status = Create(content).status();
    EXPECT_EQ(base::ReasonOf(status), "BAD_OPTION") << content;
    EXPECT_EQ(base::FieldOf(status), "api_keys_file");
    EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << content;
    EXPECT_THAT(std::string(status.message()), HasSubstr(File()));
  }
  EXPECT_TRUE(Create(std::string(64, 'a') + " sha256:" + hex).ok());
  std::filesystem::remove(File());
  EXPECT_EQ(base::ReasonOf(ApiKeys::Create(File(), clock_).status()), "BAD_OPTION");
}

TEST_F(ApiKeysTest, ANewFileIsInUseWithinASecond) {
  const auto keys = Create(Line("one", "k-1"));
  EXPECT_EQ(TenantOf(**keys, "Bearer k-1"), "one");
  WriteOver(Line("two", "k-2"), File());
  EXPECT_EQ(TenantOf(**keys, "Bearer k-1"), "one");  // looked at just now
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(TenantOf(**keys, "Bearer k-1"), "KEY_UNKNOWN");
  EXPECT_EQ(TenantOf(**keys, "Bearer k-2"), "two");
}

TEST_F(ApiKeysTest, ABrokenFileKeepsTheOldKeysAndIsLoggedOnce) {
  const auto keys = Create(Line("one", "k-1"));
  WriteOver(Line("two", "k-2") + "half a li", File());
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(absl::Seconds(1));
    EXPECT_EQ(TenantOf(**keys, "Bearer k-1"), "one");
    EXPECT_EQ(TenantOf(**keys, "Bearer k-2"), "KEY_UNKNOWN");
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, HasSubstr("line 2"));
  std::filesystem::remove(File());
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(TenantOf(**keys, "Bearer k-1"), "one");
  WriteOver(Line("two", "k-2"), File());
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(TenantOf(**keys, "Bearer k-2"), "two");
}

TEST_F(ApiKeysTest, AKeyIsRevokedOnceItsFileCanBeOpenedAgain) {
  const auto keys = Create(Line("one", "k-1") + Line("two", "k-2"));
  WriteOver(Line("two", "k-2"), File());
  {
    const FileLimit none(0);
    EXPECT_EQ(TenantOf(**keys, "Bearer k-1"), "one");
  }
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(TenantOf(**keys, "Bearer k-1"), "KEY_UNKNOWN");
  EXPECT_EQ(TenantOf(**keys, "Bearer k-2"), "two");
}

TEST_F(ApiKeysTest, AnyThreadAsksWhileTheFileChanges) {
  const auto keys = Create(Line("one", "k-1"));
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) wrong += (*keys)->TenantOf("Bearer k-1").value_or("none") != "one";
    });
  }
  for (int i = 0; i < 50; ++i) {
    WriteOver(Line("one", "k-1") + Line("two", absl::StrCat("k-2-", i)), File());
    clock_.Advance(absl::Seconds(2));
    while (TenantOf(**keys, absl::StrCat("Bearer k-2-", i)) != "two") {
      clock_.Advance(absl::Seconds(1));
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tessera::rpc
