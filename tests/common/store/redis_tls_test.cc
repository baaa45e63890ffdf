#include "common/store/redis_tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/base/error.h"
#include "tests/common/store/redis_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/redis_server.h"
#include "tests/support/temp_dir.h"

namespace tessera::store {
namespace {

using testing::ChildProcess;
using ::testing::HasSubstr;
using testing::RedisServer;
using testing::TempDir;

// An authority and what it signed: a server's certificate for 127.0.0.1 and "cache.test", and a
// client's.
class Certificates {
 public:
  Certificates() {
    OpenSsl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-days", "2", "-subj", "/CN=authority", "-keyout", File("ca.key"), "-out",
             File("ca.pem")});
    std::ofstream(File("names")) << "subjectAltName=IP:127.0.0.1,DNS:cache.test\n";
    Sign("server");
    Sign("client");
  }

  std::string File(const std::string& name) const { return dir_.path() + "/" + name; }
  std::vector<std::string> ServerArguments(const std::string& auth_clients) const {
    return {"--tls-ca-cert-file", File("ca.pem"),     "--tls-cert-file",    File("server.pem"),
            "--tls-key-file",     File("server.key"), "--tls-auth-clients", auth_clients};
  }

 private:
  void OpenSsl(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "openssl");
    EXPECT_EQ(ChildProcess(arguments, File("log")).Wait(), 0) << arguments[1];
  }
  void Sign(const std::string& name) const {
    OpenSsl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
             "/CN=" + name, "-keyout", File(name + ".key"), "-out", File(name + ".csr")});
    OpenSsl({"x509", "-req", "-in", File(name + ".csr"), "-CA", File("ca.pem"), "-CAkey",
             File("ca.key"), "-CAcreateserial", "-days", "2", "-extfile", File("names"), "-out",
             File(name + ".pem")});
  }

  const TempDir dir_;
};

class RedisTlsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { certificates_ = new Certificates; }
  static void TearDownTestSuite() { delete certificates_; }

  RedisOptions Options(const RedisServer& server) const {
    RedisOptions options = PatientOptions(server.Url());
    options.tls_ca_file = certificates_->File("ca.pem");
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
  const RedisServer server(certificates_->ServerArguments("no"), /*tls=*/true);
  EXPECT_TRUE(Works(Options(server))) << why_;
}

TEST_F(RedisTlsTest, AServerThatNobodyKnownSignedIsRefused) {
  const Certificates others;
  const RedisServer server(others.ServerArguments("no"), /*tls=*/true);
  EXPECT_FALSE(Works(Options(server)));
  EXPECT_THAT(why_, HasSubstr("certificate verify failed"));
}

TEST_F(RedisTlsTest, TheNameIsChecked) {
  const RedisServer server(certificates_->ServerArguments("no"), /*tls=*/true);
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
  const RedisServer server(certificates_->ServerArguments("yes"), /*tls=*/true);
  RedisOptions options = Options(server);
  EXPECT_FALSE(Works(options));
  options.tls_cert_file = certificates_->File("client.pem");
  options.tls_key_file = certificates_->File("client.key");
  EXPECT_TRUE(Works(options)) << why_;
}

TEST_F(RedisTlsTest, NeitherSideTakesPlainBytesForTls) {
  const RedisServer plain;
  RedisOptions options = Options(plain);
  options.address.tls = true;
  options.connect_timeout = absl::Milliseconds(500);
  EXPECT_FALSE(Works(options));
  const RedisServer tls(certificates_->ServerArguments("no"), /*tls=*/true);
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
  EXPECT_EQ(field([](auto& o, auto& c) { o.tls_cert_file = c.File("client.pem"); }),
            "embedding_store_tls_cert_file");
  EXPECT_EQ(field([](auto& o, auto& c) {
              o.tls_cert_file = c.File("client.pem");
              o.tls_key_file = c.File("server.key");
            }),
            "embedding_store_tls_key_file");
}

}  // namespace
}  // namespace tessera::store
