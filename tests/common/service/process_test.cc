#include "common/service/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/version.h"
#include "tests/common/ops/raw_client.h"
#include "tests/support/fake_clock.h"

namespace tessera::service {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ProcessTest : public ::testing::Test {
 protected:
  ProcessTest() {
    process_ = *Process::Create({.grpc_address = "", .ops_address = "127.0.0.1:0"}, clock_);
    Pages pages = {.name = "shelf",
                   .update = [this] { ++asked_; },
                   .state = [this]() -> base::Json {
                     return {{"asked", ++asked_}};
                   },
                   .workers = {{"painter",
                                [this] {
                                  ++asked_;
                                  return Progress{true, asked_};
                                },
                                [this] { return device_.load() ? absl::OkStatus() : kLost; }}},
                   .readiness = {{"device", [this] {
                                    ++asked_;
                                    return absl::UnavailableError("the device is lost");
                                  }}}};
    ops_ = *process_->Listen(std::move(pages));
  }
  std::string Page(const std::string& path) { return ops::Get(ops_->port(), path); }

  static inline const absl::Status kLost = absl::UnavailableError("the device is lost");
  testing::FakeClock clock_;
  std::atomic<int> asked_{0};
  std::atomic<bool> device_{true};
  std::unique_ptr<Process> process_;
  std::unique_ptr<ops::OpsServer> ops_;
};

TEST_F(ProcessTest, AsksNothingOfAServiceThatIsNotLoaded) {
  EXPECT_THAT(Page("/healthz"), EndsWith("ok\n"));
  EXPECT_THAT(Page("/readyz"), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("model")));
  EXPECT_THAT(Page("/debug/state"), HasSubstr("\"loaded\": false"));
  EXPECT_THAT(Page("/metrics"), HasSubstr(std::string("version=\"") + base::kVersion + "\"} 1"));
  EXPECT_EQ(asked_, 0);
}

TEST_F(ProcessTest, ShowsWhatALoadedServiceTells) {
  process_->state().SetLoaded();
  EXPECT_THAT(Page("/debug/state"),
              AllOf(HasSubstr("\"loaded\": true"), HasSubstr("\"asked\": 1")));
  EXPECT_THAT(Page("/readyz"), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("the device is lost")));
  EXPECT_EQ(asked_, 2);
  EXPECT_THAT(Page("/healthz"), EndsWith("ok\n"));  // a worker that has only begun is not stuck
  EXPECT_EQ(asked_, 3);
  Page("/metrics");
  EXPECT_EQ(asked_, 4);
}

TEST_F(ProcessTest, ItsHealthIsWhatReadyzSays) {
  EXPECT_EQ(process_->Health(), absl::UnavailableError("model: is being loaded"));
  process_->state().SetLoaded();
  EXPECT_EQ(process_->Health(), absl::UnavailableError("device: the device is lost"));
}

TEST_F(ProcessTest, ItsHealthIsTheSameWithoutAPort) {
  const auto process = *Process::Create({});
  Pages pages;
  pages.readiness = {{"device", [] { return kLost; }}};
  process->KnowWithoutPort(std::move(pages));
  process->state().SetLoaded();
  EXPECT_EQ(process->Health(), absl::UnavailableError("device: the device is lost"));
}

// It is not ready at once; a new process is asked for when it does not come back by itself.
TEST_F(ProcessTest, ADeviceThatStaysLostEndsThePatience) {
  process_->state().SetLoaded();
  for (const absl::Duration lost : {absl::Seconds(29), absl::Seconds(31)}) {
    EXPECT_THAT(Page("/healthz"), EndsWith("ok\n"));
    device_ = false;
    EXPECT_THAT(Page("/healthz"), EndsWith("ok\n"));
    clock_.Advance(lost);
    const std::string page = Page("/healthz");
    if (lost < absl::Seconds(30)) {
      EXPECT_THAT(page, EndsWith("ok\n"));
    } else {
      EXPECT_THAT(page, AllOf(StartsWith("HTTP/1.1 503"),
                              HasSubstr("painter's health: the device is lost")));
    }
    device_ = true;
  }
  EXPECT_THAT(Page("/healthz"), EndsWith("ok\n"));
}

TEST_F(ProcessTest, TellsItsSeriesToAnybodyWhileThePortDoes) {
  process_->state().SetLoaded();
  int updates = 0;
  const std::string text = process_->MetricsText([&updates] { ++updates; });
  EXPECT_EQ(updates, 1);
  EXPECT_THAT(text, HasSubstr("tessera_start_timestamp_seconds"));
}

TEST_F(ProcessTest, TellsWhichModelItServes) {
  process_->TellModel("hub/models--a--b/snapshots/0a1b2c/", "fedcba98765432100000");
  EXPECT_THAT(
      Page("/metrics"),
      HasSubstr("digest=\"fedcba9876543210\",quantization=\"none\",revision=\"0a1b2c\"} 1"));
}

TEST(RevisionTest, IsTheNameOfASnapshot) {
  EXPECT_EQ(ModelRevision("hub/models--a--b/snapshots/0a1b2c"), "0a1b2c");
  EXPECT_EQ(ModelRevision("models/shelf-vqa"), "unknown");
  EXPECT_EQ(ModelRevision("snapshots"), "unknown");
  EXPECT_EQ(ModelRevision(""), "unknown");
}

TEST(ProcessOptionsTest, ASpanCollectorThatCannotBeIsTold) {
  ProcessOptions options;
  options.traces.endpoint = "no port";
  const auto process = Process::Create(options);
  ASSERT_FALSE(process.ok());
  EXPECT_EQ(base::ReasonOf(process.status()), "BAD_OPTION");
}

TEST(WithPortTest, KeepsTheHostAsItWasGiven) {
  EXPECT_EQ(WithPort("127.0.0.1:0", 81), "127.0.0.1:81");
  EXPECT_EQ(WithPort("[::1]:0", 81), "[::1]:81");
}

}  // namespace
}  // namespace tessera::service
