#include "common/store/redis/redis_tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "common/base/error.h"
#include "tests/common/store/redis/redis_fixture.h"
#include "tests/support/certificates.h"
#include "tests/support/redis_server.h"

namespace tessera::store {
namespace {

using testing::Certificates;
using testing::CopyOver;
using ::testing::HasSubstr;
using testing::RedisServer;

std::vector<std::string> ServerArguments(const Certificates& of, const std::string& auth_clients) {
  return {"--tls-ca-cert-file", of.ca(),          "--tls-cert-file",    of.cert("server"),
          "--tls-key-file",     of.key("server"), "--tls-auth-clients", auth_clients};
}

// Whose certificate our side of a connection shows.
std::string Shown(const RedisTls& tls, absl::Time now) {
  const SslPtr ssl = tls.Over(-1, now);
  X509* const certificate = SSL_get_certificate(ssl.get());
  if (certificate == nullptr) return "nobody";
  char name[100];
  return X509_NAME_oneline(X509_get_subject_name(certificate), name, sizeof(name));
}

class RedisTlsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    certificates_ = new Certificates;
    certificates_->Sign("server", "IP:127.0.0.1,DNS:cache.test");
    certificates_->Sign("client");
  }
  static void TearDownTestSuite() { delete certificates_; }

  RedisOptions Options(const RedisServer& server) const {
    RedisOptions options = PatientOptions(server.Url());
    options.tls_ca_file = certificates_->ca();
    return options;
  }
  // Whether a record goes there and back; why it cannot be connected is kept.
  bool Works(const RedisOptions& options) {
    metrics::Metrics metrics("m");
    auto store = RedisStore::Create(options, metrics);
    EXPECT_TRUE(store.ok()) << store.status();
    const absl::Status state = (*store)->FirstState(kLong);
    why_ = std::string(state.message());
    return state.ok() && (*store)->Put(NumberedRecord(1, 256, 1024), absl::ZeroDuration()).ok() &&
           Same(Find(**store, 1), NumberedRecord(1, 256, 1024));
  }

  static Certificates* certificates_;
  std::string why_;
};

Certificates* RedisTlsTest::certificates_ = nullptr;

TEST_F(RedisTlsTest, RecordsPassOverTls) {
  const RedisServer server(ServerArguments(*certificates_, "no"), /*tls=*/true);
  EXPECT_TRUE(Works(Options(server))) << why_;
}

TEST_F(RedisTlsTest, AServerThatNobodyKnownSignedIsRefused) {
  Certificates others;
  others.Sign("server");
  const RedisServer server(ServerArguments(others, "no"), /*tls=*/true);
  EXPECT_FALSE(Works(Options(server)));
  EXPECT_THAT(why_, HasSubstr("certificate verify failed"));
}

TEST_F(RedisTlsTest, TheNameIsChecked) {
  const RedisServer server(ServerArguments(*certificates_, "no"), /*tls=*/true);
  RedisOptions options = Options(server);
  options.tls_server_name = "cache.test";
  EXPECT_TRUE(Works(options)) << why_;
  for (const char* name : {"other.test", "127.0.0.2"}) {
    options.tls_server_name = name;
    EXPECT_FALSE(Works(options)) << name;
    EXPECT_THAT(why_, HasSubstr("mismatch"));
  }
}

TEST_F(RedisTlsTest, AServerMayAskForOurCertificate) {
  const RedisServer server(ServerArguments(*certificates_, "yes"), /*tls=*/true);
  RedisOptions options = Options(server);
  EXPECT_FALSE(Works(options));
  options.tls_cert_file = certificates_->cert("client");
  options.tls_key_file = certificates_->key("client");
  EXPECT_TRUE(Works(options)) << why_;
}

TEST_F(RedisTlsTest, ACertificateThatIsReplacedIsShownByNewConnections) {
  RedisOptions options = PatientOptions("rediss://127.0.0.1:1");
  options.tls_cert_file = certificates_->File("ours.pem");
  options.tls_key_file = certificates_->File("ours.key");
  CopyOver(certificates_->cert("client"), options.tls_cert_file);
  CopyOver(certificates_->key("client"), options.tls_key_file);
  const auto tls = RedisTls::Create(options);
  ASSERT_TRUE(tls.ok()) << tls.status();
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_EQ(Shown(**tls, now), "/CN=client");

  CopyOver(certificates_->cert("server"), options.tls_cert_file);  // its key has not come yet
  ::testing::internal::CaptureStderr();
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(Shown(**tls, now + absl::Seconds(i)), "/CN=client");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log, "\n"), 1) << log;
  EXPECT_THAT(log, HasSubstr("embedding_store_tls_key_file"));

  CopyOver(certificates_->key("server"), options.tls_key_file);
  EXPECT_EQ(Shown(**tls, now + absl::Seconds(4)), "/CN=server");
}

TEST_F(RedisTlsTest, AStoreThatTrustedAnotherAuthorityComesUpOnceItsFileIsReplaced) {
  const Certificates others;
  const RedisServer server(ServerArguments(*certificates_, "no"), /*tls=*/true);
  RedisOptions options = Options(server);
  options.tls_ca_file = others.File("trusted.pem");
  CopyOver(others.ca(), options.tls_ca_file);
  metrics::Metrics metrics("m");
  const auto store = RedisStore::Create(options, metrics);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT(std::string((*store)->FirstState(kLong).message()),
              HasSubstr("certificate verify failed"));
  CopyOver(certificates_->ca(), options.tls_ca_file);
  EXPECT_TRUE((*store)->WaitUntilUp(kLong));
}

TEST_F(RedisTlsTest, NeitherSideTakesPlainBytesForTls) {
  const RedisServer plain;
  RedisOptions options = Options(plain);
  options.address.tls = true;
  options.connect_timeout = absl::Milliseconds(500);
  EXPECT_FALSE(Works(options));
  const RedisServer tls(ServerArguments(*certificates_, "no"), /*tls=*/true);
  options = Options(tls);
  options.address.tls = false;
  options.connect_timeout = absl::Milliseconds(500);
  EXPECT_FALSE(Works(options));
}

TEST_F(RedisTlsTest, FilesThatCannotBeUsedAreBadOptionsByName) {
  metrics::Metrics metrics("m");
  const auto field = [&](void (*change)(RedisOptions&, const Certificates&)) {
    RedisOptions options = PatientOptions("rediss://127.0.0.1:1");
    change(options, *certificates_);
    const absl::Status status = RedisStore::Create(options, metrics).status();
    EXPECT_EQ(base::ReasonOf(status), "BAD_OPTION");
    return base::FieldOf(status);
  };
  EXPECT_EQ(field([](auto& o, auto&) { o.tls_ca_file = "nowhere/ca.pem"; }),
            "embedding_store_tls_ca_file");
  EXPECT_EQ(field([](auto& o, auto& c) { o.tls_ca_file = c.File("names"); }),
            "embedding_store_tls_ca_file");
  EXPECT_EQ(field([](auto& o, auto& c) { o.tls_cert_file = c.cert("client"); }),
            "embedding_store_tls_cert_file");
  EXPECT_EQ(field([](auto& o, auto& c) {
              o.tls_cert_file = c.cert("client");
              o.tls_key_file = c.key("server");
            }),
            "embedding_store_tls_key_file");
}

}  // namespace
}  // namespace tessera::store
