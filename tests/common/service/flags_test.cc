#include "common/service/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/flags/command.h"
#include "common/service/process.h"

namespace tessera::service {
namespace {

// As a main does: the exit code, and what the flags said.
struct Outcome {
  int code = -1;
  int runs = 0;
  InnerOptions inner = {.process = {.grpc_address = "127.0.0.1:9100"}};
  PeerOptions peers;
};

Outcome RunWith(std::vector<std::string> args, absl::Status result = absl::OkStatus()) {
  Outcome outcome;
  flags::Command command("tessera-test", "a test");
  command.Add(InnerFlags(outcome.inner));
  command.Add(PeerFlags(outcome.peers));
  args.insert(args.begin(), "tessera-test");
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  outcome.code = RunMain(static_cast<int>(argv.size()), argv.data(), command, "tessera-test", [&] {
    ++outcome.runs;
    return result;
  });
  return outcome;
}

TEST(ServiceFlagsTest, SetWhatAProcessIsTold) {
  const Outcome outcome =
      RunWith({"--grpc_address=127.0.0.1:1", "--ops_address=127.0.0.1:2", "--model_name=shelf",
               "--drain_timeout=3s", "--drain_delay=2s", "--threads=4", "--trusted_network=on",
               "--otlp_endpoint=c:4317"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.runs, 1);
  const ProcessOptions& process = outcome.inner.process;
  EXPECT_EQ(process.grpc_address, "127.0.0.1:1");
  EXPECT_EQ(process.ops_address, "127.0.0.1:2");
  EXPECT_EQ(process.model_name, "shelf");
  EXPECT_EQ(process.drain_timeout, absl::Seconds(3));
  EXPECT_EQ(process.drain_delay, absl::Seconds(2));
  EXPECT_EQ(process.traces.endpoint, "c:4317");
  EXPECT_EQ(outcome.inner.threads, 4);
  EXPECT_TRUE(outcome.inner.access.trusted_network);
}

TEST(ServiceFlagsTest, AWrongCommandLineRunsNothing) {
  const Outcome outcome = RunWith({"--threads=many"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.runs, 0);
  EXPECT_EQ(RunWith({"--version"}).code, 0);
}

TEST(ServiceFlagsTest, WhatFailsIsToldApartFromAFlagThatCannotBe) {
  EXPECT_EQ(RunWith({}, absl::UnavailableError("no device")).code, 1);
  EXPECT_EQ(RunWith({}, base::BadField("threads", "BAD_OPTION", "too many")).code, 2);
}

TEST(PeerOptionsTest, FilesOfTlsAreReadOnlyWhereItIsOn) {
  Outcome plain = RunWith({"--peer_tls_ca_file=absent.pem"});
  const auto without = plain.peers.Channel();
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->tls, nullptr);
  const Outcome secure = RunWith({"--peer_tls=on", "--peer_tls_ca_file=absent.pem"});
  const auto with = secure.peers.Channel();
  ASSERT_FALSE(with.ok());
  EXPECT_EQ(base::ReasonOf(with.status()), "BAD_OPTION");
  EXPECT_THAT(std::string(with.status().message()), ::testing::HasSubstr("peer_tls_ca_file"));
}

}  // namespace
}  // namespace tessera::service
