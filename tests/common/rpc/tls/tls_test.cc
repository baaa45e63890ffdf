#include "common/rpc/tls/tls.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/support/certificates.h"

namespace tessera::rpc {
namespace {

using testing::Certificates;
using testing::CopyOver;

// Tells whether its caller is known.
class PeerService final : public v1::GatewayService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const v1::GetModelInfoRequest*,
                                         v1::GetModelInfoResponse* response) override {
    const bool known = context->auth_context()->IsPeerAuthenticated();
    response->set_model(known ? "known" : "unknown");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// What the server said, or the status that there is instead. `patient`: connects until it has.
std::string Ask(const std::shared_ptr<grpc::Channel>& channel, bool patient = false) {
  grpc::ClientContext context;
  context.set_wait_for_ready(patient);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
  v1::GetModelInfoResponse response;
  const grpc::Status status =
      v1::GatewayService::NewStub(channel)->GetModelInfo(&context, {}, &response);
  if (status.ok()) return response.model();
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code()));
}

// Of one that is to answer.
std::string Patiently(const std::shared_ptr<grpc::Channel>& channel) { return Ask(channel, true); }

class TlsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ours_ = new Certificates;
    ours_->Sign("server");
    ours_->Sign("client", "DNS:client.test");
    ours_->Sign("other_name", "DNS:vision.test");
    ours_->Sign("expired", "IP:127.0.0.1", -1);
    theirs_ = new Certificates;
    theirs_->Sign("server");
    theirs_->Sign("client", "DNS:client.test");
  }
  static void TearDownTestSuite() {
    delete ours_;
    delete theirs_;
  }

  static TlsFiles Of(const Certificates& certificates, const std::string& name) {
    return {.cert = certificates.cert(name), .key = certificates.key(name)};
  }
  static TlsFiles Believing(const Certificates& certificates) { return {.ca = certificates.ca()}; }

  std::unique_ptr<Server> Serve(const TlsFiles& files) {
    auto server = Server::Start({.address = "127.0.0.1:0", .tls = files}, {&service_}, {});
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  static std::shared_ptr<grpc::Channel> Client(const Server& server, const TlsFiles& files) {
    const auto tls = ChannelTls::Create(files);
    EXPECT_TRUE(tls.ok()) << tls.status();
    return Connect(absl::StrCat("127.0.0.1:", server.port()), {.tls = *tls});
  }

  static Certificates* ours_;
  static Certificates* theirs_;
  PeerService service_;
};

Certificates* TlsTest::ours_ = nullptr;
Certificates* TlsTest::theirs_ = nullptr;

TEST_F(TlsTest, AClientOfTheAuthorityIsAnswered) {
  const auto server = Serve(Of(*ours_, "server"));
  EXPECT_EQ(Patiently(Client(*server, Believing(*ours_))), "unknown");
  EXPECT_EQ(Patiently(server->InProcessChannel()), "unknown");
}

TEST_F(TlsTest, AServerThatIsNotBelievedIsNotAsked) {
  const auto server = Serve(Of(*ours_, "server"));
  EXPECT_EQ(Ask(Client(*server, Believing(*theirs_))), "UNAVAILABLE");
  EXPECT_EQ(Ask(Connect(absl::StrCat("127.0.0.1:", server->port()))), "UNAVAILABLE");
  const auto expired = Serve(Of(*ours_, "expired"));
  EXPECT_EQ(Ask(Client(*expired, Believing(*ours_))), "UNAVAILABLE");
}

TEST_F(TlsTest, TheNameOfTheServerIsChecked) {
  const auto server = Serve(Of(*ours_, "other_name"));
  TlsFiles files = Believing(*ours_);
  EXPECT_EQ(Ask(Client(*server, files)), "UNAVAILABLE");
  files.server_name = "vision.test";
  EXPECT_EQ(Patiently(Client(*server, files)), "unknown");
  files.server_name = "decode.test";
  EXPECT_EQ(Ask(Client(*server, files)), "UNAVAILABLE");
}

TEST_F(TlsTest, WithAnAuthorityForClientsOnlyTheirsAreAnswered) {
  TlsFiles files = Of(*ours_, "server");
  files.ca = ours_->ca();
  const auto server = Serve(files);
  const auto with = [](TlsFiles files) {
    files.ca = ours_->ca();
    return files;
  };
  EXPECT_EQ(Patiently(Client(*server, with(Of(*ours_, "client")))), "known");
  EXPECT_EQ(Ask(Client(*server, Believing(*ours_))), "UNAVAILABLE");
  EXPECT_EQ(Ask(Client(*server, with(Of(*theirs_, "client")))), "UNAVAILABLE");
  EXPECT_EQ(Ask(Client(*server, with(Of(*ours_, "expired")))), "UNAVAILABLE");
}

TEST_F(TlsTest, BadFilesAreAnErrorAtTheStart) {
  for (TlsFiles files :
       {TlsFiles{.cert = ours_->ca(), .key = ours_->key("server")}, TlsFiles{.ca = ours_->ca()},
        TlsFiles{.cert = "absent.pem", .key = ours_->key("server")}}) {
    files.cert_flag = "a_cert";
    files.key_flag = "a_key";
    const absl::Status status =
        Server::Start({.address = "127.0.0.1:0", .tls = files}, {&service_}, {}).status();
    EXPECT_EQ(base::ReasonOf(status), "BAD_OPTION");
    EXPECT_THAT(base::FieldOf(status), ::testing::StartsWith("a_")) << status;
  }
  EXPECT_EQ(base::ReasonOf(ChannelTls::Create({.ca = "absent.pem"}).status()), "BAD_OPTION");
}

// The server's files become those of another authority: new clients meet the new certificate, the
// connection of before goes on, and no call of it fails. Halfway the key is of no use to anyone.
TEST_F(TlsTest, NewFilesServeNewConnectionsWhileOldOnesGoOn) {
  Certificates files;
  TlsFiles served = {
      .cert = files.File("cert"), .key = files.File("key"), .refresh = absl::Seconds(1)};
  CopyOver(ours_->cert("server"), served.cert);
  CopyOver(ours_->key("server"), served.key);
  const auto server = Serve(served);
  const auto old = Client(*server, Believing(*ours_));
  ASSERT_EQ(Patiently(old), "unknown");
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0};
  std::thread caller([&] {
    while (!stop) failed += Ask(old) != "unknown";
  });
  CopyOver(theirs_->cert("server"), served.cert);
  EXPECT_EQ(Patiently(Client(*server, Believing(*ours_))), "unknown");
  CopyOver(theirs_->key("server"), served.key);
  const absl::Time deadline = absl::Now() + absl::Seconds(240);
  std::string answer;
  while (answer != "unknown" && absl::Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    answer = Ask(Client(*server, Believing(*theirs_)));
  }
  stop = true;
  caller.join();
  EXPECT_EQ(answer, "unknown");
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(Ask(Client(*server, Believing(*ours_))), "UNAVAILABLE");
  EXPECT_EQ(Ask(old), "unknown");
}

// One channel, made once: it shows the certificate that is there when it connects.
TEST_F(TlsTest, AClientShowsItsNewCertificate) {
  TlsFiles asked = Of(*ours_, "server");
  asked.ca = theirs_->ca();
  const auto server = Serve(asked);
  Certificates files;
  TlsFiles shown = {.ca = ours_->ca(),
                    .cert = files.File("cert"),
                    .key = files.File("key"),
                    .refresh = absl::Seconds(1)};
  CopyOver(ours_->cert("client"), shown.cert);
  CopyOver(ours_->key("client"), shown.key);
  const auto channel = Client(*server, shown);
  EXPECT_EQ(Ask(channel), "UNAVAILABLE");
  CopyOver(theirs_->cert("client"), shown.cert);
  CopyOver(theirs_->key("client"), shown.key);
  const absl::Time deadline = absl::Now() + absl::Seconds(240);
  std::string answer;
  while (answer != "known" && absl::Now() < deadline) {
    channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(1));
    answer = Ask(channel);
  }
  EXPECT_EQ(answer, "known");
}

}  // namespace
}  // namespace tessera::rpc
