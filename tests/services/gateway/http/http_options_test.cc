#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "services/gateway/http/http_server.h"
#include "tests/services/gateway/http/http_fixture.h"

namespace tessera::gateway::http {
namespace {

using testing::HttpGateway;

TEST(HttpOptionsTest, OptionsThatCannotBeAreRefused) {
  HttpGateway gateway;
  gateway.Start();
  HttpOptions options;
  options.address = absl::StrCat("127.0.0.1:", gateway.port());
  HttpGateway other;
  const auto start = [&other](HttpOptions changed) {
    other.http = std::move(changed);
    return other.TryStart();
  };
  EXPECT_EQ(base::ReasonOf(start(options)), "ADDRESS_UNAVAILABLE");
  for (const char* address : {"", "8000", "127.0.0.1:65536", ":1"}) {
    options.address = address;
    EXPECT_EQ(base::FieldOf(start(options)), "http_address") << address;
  }
  options.address = "127.0.0.1:0";
  options.tls_key = "key.pem";
  EXPECT_EQ(base::FieldOf(start(options)), "tls_cert_file");
  options.tls_certificate = "no-such.pem";
  EXPECT_EQ(base::FieldOf(start(options)), "tls_cert_file");
  options.tls_key = options.tls_certificate = "";
  options.image_url_hosts = {"http://a"};
  EXPECT_EQ(base::FieldOf(start(options)), "image_url_hosts");
}

}  // namespace
}  // namespace tessera::gateway::http
