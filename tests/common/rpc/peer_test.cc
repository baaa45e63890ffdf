#include "common/rpc/peer.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tessera/v1/gateway.grpc.pb.h"

namespace tessera::rpc {
namespace {

class FakeAuth final : public grpc::AuthContext {
 public:
  explicit FakeAuth(bool authenticated) : authenticated_(authenticated) {}
  bool IsPeerAuthenticated() const override { return authenticated_; }
  std::vector<grpc::string_ref> GetPeerIdentity() const override { return {}; }
  std::string GetPeerIdentityPropertyName() const override { return ""; }
  std::vector<grpc::string_ref> FindPropertyValues(const std::string&) const override { return {}; }
  grpc::AuthPropertyIterator begin() const override { return Nothing(); }
  grpc::AuthPropertyIterator end() const override { return Nothing(); }
  void AddProperty(const std::string&, const grpc::string_ref&) override {}
  bool SetPeerIdentityPropertyName(const std::string&) override { return false; }

 private:
  struct Nothing : grpc::AuthPropertyIterator {};
  const bool authenticated_;
};

// Tells what gRPC says of its caller.
class PeerService final : public v1::GatewayService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const v1::GetModelInfoRequest*,
                                         v1::GetModelInfoResponse* response) override {
    const auto auth = context->auth_context();
    response->set_model(context->peer());
    response->set_family(PeerMayNameTenant(context->peer(), auth.get(), false) ? "may" : "may not");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

v1::GetModelInfoResponse Ask(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  v1::GetModelInfoResponse response;
  EXPECT_TRUE(v1::GatewayService::NewStub(channel)->GetModelInfo(&context, {}, &response).ok());
  return response;
}

TEST(PeerTest, AddressesOfThisMachineAlone) {
  for (const char* here : {"127.0.0.1:0", "127.255.0.9:1", "localhost:9000", "[::1]:9000"}) {
    EXPECT_TRUE(IsLoopbackAddress(here)) << here;
  }
  for (const char* other :
       {"0.0.0.0:9000", "10.0.0.1:1", "[::]:1", "127.0.0.1.example.com:1", "127.1:1", "128.0.0.1:1",
        "localhost.example.com:1", "", "localhost", ":9000", "[fe80::1]:1"}) {
    EXPECT_FALSE(IsLoopbackAddress(other)) << other;
  }
}

TEST(PeerTest, AStrangerOnTheNetworkMayNotNameATenant) {
  const FakeAuth known(true), unknown(false);
  for (const char* far : {"ipv4:10.0.0.1:443", "ipv6:%5B2001:db8::1%5D:443", "ipv6:[fe80::1]:1",
                          "ipv4:126.0.0.1:1", "", "unknown", "ipv4:", "127.0.0.1:1"}) {
    EXPECT_FALSE(PeerMayNameTenant(far, nullptr, false)) << far;
    EXPECT_FALSE(PeerMayNameTenant(far, &unknown, false)) << far;
    EXPECT_TRUE(PeerMayNameTenant(far, &known, false)) << far;
    EXPECT_TRUE(PeerMayNameTenant(far, nullptr, true)) << far;
  }
}

TEST(PeerTest, WhoIsOnThisMachineMay) {
  const FakeAuth unknown(false);
  for (const char* here :
       {"ipv4:127.0.0.1:5", "ipv6:%5B::1%5D:5", "ipv6:[::1]:5", "unix:", "fd:7"}) {
    EXPECT_TRUE(PeerMayNameTenant(here, &unknown, false)) << here;
  }
}

TEST(PeerTest, GrpcSaysSoOfItsOwnPeers) {
  PeerService service;
  const auto server = Server::Start({.address = "127.0.0.1:0"}, {&service}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const v1::GetModelInfoResponse far = Ask(Connect(absl::StrCat("127.0.0.1:", (*server)->port())));
  EXPECT_EQ(far.family(), "may") << far.model();
  const v1::GetModelInfoResponse near = Ask((*server)->InProcessChannel());
  EXPECT_EQ(near.family(), "may") << near.model();
}

}  // namespace
}  // namespace tessera::rpc
