// FAULTS B073: our two ends in one test, with what lies on the wire between them.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/support/peer.h"

namespace tessera::rpc {
namespace {

using testing::ConnectTo;
using testing::Fd;
using ::testing::HasSubstr;
using testing::Peer;

constexpr absl::Duration kLong = absl::Seconds(120);
// As the true ones are to each other, 60 times as fast: gRPC asks once a second at most.
const absl::Duration kEvery = kKeepalive / 60;
const absl::Duration kTaken = kKeepaliveTaken / 60;
constexpr int kPings = 6;  // a server ends a connection at the third that comes too early

// Reads the frames of one direction (RFC 9113, section 4.1) from the bytes that pass.
class Frames {
 public:
  explicit Frames(size_t preface) : skip_(preface) {}

  // Calls `frame(type, flags, payload)` for each that is whole.
  template <typename Told>
  void Add(absl::string_view bytes, Told frame) {
    pending_.append(bytes.data(), bytes.size());
    while (true) {
      if (pending_.size() < skip_) return;
      pending_.erase(0, std::exchange(skip_, 0));
      if (pending_.size() < kHead) return;
      const auto at = [this](size_t i) { return static_cast<uint8_t>(pending_[i]); };
      const size_t length = size_t{at(0)} << 16 | size_t{at(1)} << 8 | at(2);
      if (pending_.size() < kHead + length) return;
      frame(at(3), at(4), pending_.substr(kHead, length));
      pending_.erase(0, kHead + length);
    }
  }

 private:
  static constexpr size_t kHead = 9;
  size_t skip_;
  std::string pending_;
};

// Passes everything on, and counts. Any thread.
class Tap {
 public:
  explicit Tap(int server_port) : server_port_(server_port), peer_([this](int fd) { Serve(fd); }) {}

  std::string address() const { return absl::StrCat("127.0.0.1:", peer_.port()); }
  int connections() const { return peer_.connections(); }
  int pings() const {
    base::MutexLock lock(mutex_);
    return pings_;
  }
  // What the server said when it sent the client away; empty: it did not.
  std::string goaway() const {
    base::MutexLock lock(mutex_);
    return goaway_;
  }
  // False: it was not in time.
  template <typename Condition>
  bool Await(Condition condition) const {
    const absl::Time end = absl::Now() + kLong;
    base::MutexLock lock(mutex_);
    while (!condition(pings_, goaway_) && absl::Now() < end) {
      changed_.WaitFor(mutex_, absl::Seconds(1));
    }
    return condition(pings_, goaway_);
  }

 private:
  static constexpr int kPing = 6, kGoaway = 7, kAck = 1;

  void Serve(int client) {
    const Fd server = ConnectTo(server_port_);
    Frames up(24), down(0);  // "PRI * HTTP/2.0..." comes first
    while (server.ok()) {
      pollfd ends[] = {{client, POLLIN, 0}, {server.get(), POLLIN, 0}};
      if (poll(ends, 2, -1) < 0) return;
      if (ends[0].revents != 0 && !Pass(client, server.get(), up, true)) return;
      if (ends[1].revents != 0 && !Pass(server.get(), client, down, false)) return;
    }
  }

  bool Pass(int from, int to, Frames& frames, bool client) {
    char bytes[16384];
    const ssize_t got = recv(from, bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    const absl::string_view chunk(bytes, static_cast<size_t>(got));
    frames.Add(chunk, [&](int type, int flags, const std::string& payload) {
      base::MutexLock lock(mutex_);
      if (client && type == kPing && (flags & kAck) == 0) ++pings_;
      if (!client && type == kGoaway) goaway_ = payload.substr(8);  // behind stream and code
      changed_.SignalAll();
    });
    return testing::SendAll(to, chunk);
  }

  const int server_port_;
  mutable base::Mutex mutex_;
  mutable base::CondVar changed_;
  int pings_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string goaway_ ABSL_GUARDED_BY(mutex_);
  Peer peer_;  // last: its threads use what is above
};

// One call that is answered, one that nothing is ever said in.
class SilentService final : public v1::GatewayService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const v1::GetModelInfoRequest*,
                                         v1::GetModelInfoResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerWriteReactor<v1::GenerateStreamResponse>* GenerateStream(
      grpc::CallbackServerContext*, const v1::GenerateStreamRequest*) override {
    class Silent final : public grpc::ServerWriteReactor<v1::GenerateStreamResponse> {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    return new Silent;
  }
};

class KeepaliveTest : public ::testing::Test {
 protected:
  // A server that takes a ping every `taken`, and our client of it behind a tap.
  void Start(absl::Duration taken) {
    server_ = *Server::Start({.address = "127.0.0.1:0", .keepalive_taken = taken}, {&service_}, {});
    tap_ = std::make_unique<Tap>(server_->port());
    stub_ = v1::GatewayService::NewStub(Connect(tap_->address(), {.keepalive = kEvery}));
  }
  grpc::Status Ask() {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kLong));
    v1::GetModelInfoResponse response;
    return stub_->GetModelInfo(&context, {}, &response);
  }

  SilentService service_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Tap> tap_;
  std::unique_ptr<v1::GatewayService::Stub> stub_;
};

TEST_F(KeepaliveTest, ASilentCallIsAskedAfterAgainAndAgainAndNobodyIsSentAway) {
  Start(kTaken);
  ASSERT_TRUE(Ask().ok());
  grpc::ClientContext context;
  const auto call = stub_->GenerateStream(&context, {});
  ASSERT_TRUE(tap_->Await([](int pings, const auto& gone) {
    return pings >= kPings || gone != "";
  })) << tap_->pings()
      << " pings";
  EXPECT_EQ(tap_->goaway(), "");
  EXPECT_TRUE(Ask().ok());
  EXPECT_EQ(tap_->connections(), 1);
  context.TryCancel();
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(KeepaliveTest, WithoutACallNobodyIsAskedAndTheFirstOneAfterwardsIsAnswered) {
  Start(kTaken);
  ASSERT_TRUE(Ask().ok());
  const int before = tap_->pings();  // of a call that was slow
  // Another connection, with a call, tells how long that is.
  const Tap clock(server_->port());
  const auto other = v1::GatewayService::NewStub(Connect(clock.address(), {.keepalive = kEvery}));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  const auto call = other->GenerateStream(&context, {});
  ASSERT_TRUE(clock.Await([](int pings, const auto&) { return pings >= kPings; }));
  EXPECT_EQ(tap_->pings(), before);
  EXPECT_EQ(tap_->goaway(), "");
  EXPECT_TRUE(Ask().ok());
  EXPECT_EQ(tap_->connections(), 1);
  context.TryCancel();
  call->Finish();
}

// What the two above would see, were our ends not made for each other.
TEST_F(KeepaliveTest, AStricterServerSendsTheClientAway) {
  Start(absl::Hours(1));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  const auto call = stub_->GenerateStream(&context, {});
  EXPECT_TRUE(tap_->Await([](int, const auto& gone) { return gone != ""; }));
  EXPECT_EQ(tap_->goaway(), "too_many_pings");
  const grpc::Status status = call->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("Too many pings"));
}

}  // namespace
}  // namespace tessera::rpc
