#include "common/rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/open_files.h"
#include "tests/support/file_limit.h"

namespace tessera::rpc {
namespace {

using testing::FileLimit;

bool ConnectsTo(const Descriptor& client, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  return connect(client.fd(), generic, sizeof(address)) == 0;
}

// A connection to the port; its descriptor is below 0 where nobody listens.
Descriptor DescriptorTo(int port) {
  Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ConnectsTo(client, port) ? std::move(client) : Descriptor(-1);
}

// Whether the other side has closed. Waits until it has, or has written.
bool IsClosedByPeer(const Descriptor& client) {
  char byte = 0;
  return recv(client.fd(), &byte, 1, 0) <= 0;
}

// Writes a byte to every connection and keeps it.
class Greeter {
 public:
  void Take(int fd) {
    taken_.emplace_back(fd);
    EXPECT_EQ(send(fd, "!", 1, MSG_NOSIGNAL), 1);
  }
  std::vector<Descriptor>& taken() { return taken_; }

 private:
  std::vector<Descriptor> taken_;
};

class ListenerTest : public ::testing::Test {
 protected:
  void Start(const std::string& address) {
    auto listener = Listener::Listen(address);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    listener_->Start([this](int fd) { greeter_.Take(fd); });
  }

  Greeter greeter_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerTest, ConnectionsAreHandedOnWithoutBlocking) {
  Start("127.0.0.1:0");
  const Descriptor one = DescriptorTo(listener_->port()), other = DescriptorTo(listener_->port());
  EXPECT_FALSE(IsClosedByPeer(one));
  EXPECT_FALSE(IsClosedByPeer(other));
  listener_->Stop();
  ASSERT_EQ(greeter_.taken().size(), 2u);
  EXPECT_TRUE(fcntl(greeter_.taken()[0].fd(), F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(fcntl(greeter_.taken()[0].fd(), F_GETFD) & FD_CLOEXEC);
}

TEST_F(ListenerTest, AfterStopThePortIsFree) {
  Start("localhost:0");
  const int port = listener_->port();
  listener_->Stop();
  EXPECT_LT(DescriptorTo(port).fd(), 0);
  EXPECT_TRUE(Listener::Listen("localhost:" + std::to_string(port)).ok());
}

TEST_F(ListenerTest, WhatCannotBeHadSaysWhy) {
  Start("127.0.0.1:0");
  for (const std::string& address :
       {"127.0.0.1:" + std::to_string(listener_->port()), std::string("192.0.2.1:0"),
        std::string("no-such-host.invalid:0")}) {
    const absl::Status status = Listener::Listen(address).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_EQ(base::ReasonOf(status), "ADDRESS_UNAVAILABLE") << address;
    EXPECT_NE(status.message().find(address), absl::string_view::npos) << status;
  }
  EXPECT_EQ(base::ReasonOf(Listener::Listen("127.0.0.1").status()), "BAD_OPTION");
}

TEST_F(ListenerTest, TheLastFilesAreLeftToOthersAndWhatIsGivenBackIsUsed) {
  Start("127.0.0.1:0");
  const FileLimit limit(256);
  EXPECT_EQ(base::FilesForConnections(base::kGrpcFiles), 192);
  std::vector<Descriptor> others;
  do {
    others.emplace_back(fcntl(0, F_DUPFD_CLOEXEC, 0));
  } while (others.back().fd() < 192);
  EXPECT_TRUE(IsClosedByPeer(DescriptorTo(listener_->port())));
  others.clear();
  EXPECT_FALSE(IsClosedByPeer(DescriptorTo(listener_->port())));
}

TEST_F(ListenerTest, WithoutAnyFileItWaitsAndGoesOn) {
  Start("127.0.0.1:0");
  const Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::vector<Descriptor> others;
  const FileLimit limit(256);
  for (int fd = 0; (fd = fcntl(0, F_DUPFD_CLOEXEC, 0)) >= 0;) others.emplace_back(fd);
  ASSERT_TRUE(ConnectsTo(client, listener_->port()));  // the system has taken it
  others.clear();
  EXPECT_FALSE(IsClosedByPeer(client));
}

}  // namespace
}  // namespace tessera::rpc
