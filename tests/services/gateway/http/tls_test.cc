// TLS on the port, and pictures over https.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <utility>

// Asio 1.74 uses std::exchange without including it: <utility> stands before it.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "services/gateway/http/image_fetcher.h"
#include "services/gateway/http/tls_context.h"
#include "tests/services/gateway/http/http_fixture.h"
#include "tests/support/certificates.h"
#include "tests/support/child_process.h"
#include "tests/support/file_limit.h"
#include "tests/support/temp_dir.h"

namespace tessera::gateway::http {
namespace {

namespace asio = boost::asio;
using testing::Await;
using testing::ChildProcess;
using ::testing::HasSubstr;
using testing::HttpGateway;
using testing::TempDir;

// Certificates that sign themselves, by name: "<name>.pem" and "<name>.key".
class Certificates {
 public:
  void Make(const std::string& name, const std::string& host) const {
    EXPECT_EQ(ChildProcess({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                            "/CN=" + name, "-addext", "subjectAltName=" + host, "-keyout",
                            File(name + ".key"), "-out", File(name + ".pem")},
                           File("log"))
                  .Wait(),
              0);
  }
  std::string File(const std::string& name) const { return dir_.path() + "/" + name; }

 private:
  const TempDir dir_;
};

// What comes for `request`, up to the end; empty where there is no TLS that `authority` vouches
// for, or where the server takes none of ours: `own` + ".pem" and ".key".
std::string Talk(int port, const std::string& authority, const std::string& request,
                 const std::string& own = "") {
  asio::io_context io;
  asio::ssl::context context(asio::ssl::context::tls_client);
  context.load_verify_file(authority);
  context.set_verify_mode(asio::ssl::verify_peer);
  if (!own.empty()) {
    context.use_certificate_chain_file(own + ".pem");
    context.use_private_key_file(own + ".key", asio::ssl::context::pem);
  }
  asio::ssl::stream<asio::ip::tcp::socket> stream(io, context);
  stream.set_verify_callback(asio::ssl::host_name_verification("localhost"));
  boost::system::error_code error;
  stream.next_layer().connect({asio::ip::address_v4::loopback(), static_cast<uint16_t>(port)},
                              error);
  stream.handshake(asio::ssl::stream_base::client, error);
  if (error) return "";
  asio::write(stream, asio::buffer(request), error);
  std::string all;
  asio::read(stream, asio::dynamic_buffer(all), error);
  return all;
}

constexpr char kLastVersion[] = "GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

TEST(TlsTest, AnswersAreEncryptedAndNewCertificatesTaken) {
  Certificates files;
  files.Make("old", "DNS:localhost");
  files.Make("new", "DNS:localhost");
  HttpGateway gateway;
  gateway.http.tls_certificate = files.File("server.pem");
  gateway.http.tls_key = files.File("server.key");
  const auto install = [&files](const std::string& name) {
    for (const char* suffix : {".key", ".pem"}) {  // as a whole, as who renews them does
      std::filesystem::copy_file(files.File(name + suffix), files.File("next"));
      std::filesystem::rename(files.File("next"), files.File("server") + suffix);
    }
  };
  install("old");
  gateway.decode.at_once = [](testing::StubDecode::Stream& stream) {
    stream.Piece("Hello");
    stream.End();
  };
  gateway.Start();
  const std::string old = files.File("old.pem"), fresh = files.File("new.pem");
  EXPECT_THAT(Talk(gateway.port(), old, kLastVersion), HasSubstr("1.2.3"));
  EXPECT_THAT(Talk(gateway.port(), old,
                   testing::ChatPost(testing::Question("What?", R"(,"stream":true)"),
                                     "Connection: close\r\n")),
              HasSubstr("[DONE]"));
  EXPECT_EQ(Talk(gateway.port(), fresh, kLastVersion), "");
  std::ofstream(files.File("server.pem")) << "broken";
  EXPECT_THAT(Talk(gateway.port(), old, kLastVersion), HasSubstr("1.2.3"));
  install("new");
  Await([&] { return absl::StrContains(Talk(gateway.port(), fresh, kLastVersion), "1.2.3"); });
  // Who speaks no TLS is told nothing.
  EXPECT_EQ(gateway.Send(kLastVersion).status, 0);
}

TEST(TlsTest, WithAnAuthorityOfClientsOnlyTheyAreAnswered) {
  Certificates files;
  files.Make("server", "DNS:localhost");
  files.Make("client", "DNS:client.example");
  files.Make("stranger", "DNS:client.example");
  HttpGateway gateway;
  gateway.http.tls_client_ca = files.File("client.pem");
  EXPECT_EQ(base::FieldOf(gateway.TryStart()), "tls_cert_file");
  gateway.http.tls_certificate = files.File("server.pem");
  gateway.http.tls_key = files.File("server.key");
  gateway.Start();
  const std::string server = files.File("server.pem");
  EXPECT_THAT(Talk(gateway.port(), server, kLastVersion, files.File("client")), HasSubstr("1.2.3"));
  EXPECT_EQ(Talk(gateway.port(), server, kLastVersion, files.File("stranger")), "");
  EXPECT_EQ(Talk(gateway.port(), server, kLastVersion), "");

  HttpGateway other;
  other.http = gateway.http;
  other.http.address = "127.0.0.1:0";
  other.http.tls_client_ca = "no-such.pem";
  EXPECT_EQ(base::FieldOf(other.TryStart()), "tls_client_ca_file");
}

TEST(TlsTest, CertificatesThatCouldNotBeOpenedForAMomentAreTaken) {
  Certificates files;
  files.Make("server", "DNS:localhost");
  const TlsContextFiles served = {files.File("server.pem"), files.File("server.key")};
  const auto tls = TlsContext::Create(served);
  ASSERT_TRUE(tls.ok()) << tls.status();
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const auto old = (*tls)->Get(now);
  testing::CopyOver(served.certificate, served.certificate);
  {
    const testing::FileLimit none(0);
    EXPECT_EQ((*tls)->Get(now + absl::Seconds(1)), old);
  }
  const auto fresh = (*tls)->Get(now + absl::Seconds(2));
  EXPECT_NE(fresh, old);
  EXPECT_EQ((*tls)->Get(now + absl::Seconds(3)), fresh);
}

TEST(TlsTest, AKeyOfAnotherCertificateIsRefused) {
  Certificates files;
  files.Make("a", "DNS:localhost");
  files.Make("b", "DNS:localhost");
  HttpGateway gateway;
  gateway.http.tls_certificate = files.File("a.pem");
  gateway.http.tls_key = files.File("b.key");
  EXPECT_EQ(base::FieldOf(gateway.TryStart()), "tls_key_file");
}

TEST(TlsTest, PicturesComeOnlyFromHostsWithTheirCertificate) {
  Certificates files;
  files.Make("good", "DNS:localhost");
  files.Make("other", "DNS:elsewhere.example");
  for (const char* name : {"good", "other"}) {
    HttpGateway host;  // its /version is the picture
    host.http.tls_certificate = files.File(absl::StrCat(name, ".pem"));
    host.http.tls_key = files.File(absl::StrCat(name, ".key"));
    host.Start();
    for (const std::string& trusted : {files.File(absl::StrCat(name, ".pem")), std::string()}) {
      FetchOptions options;
      options.hosts = {absl::StrCat("localhost:", host.port())};
      options.loopback_port = host.port();
      options.timeout = absl::Minutes(5);
      options.ca_file = trusted;
      auto fetcher = *ImageFetcher::Create(options);
      std::promise<absl::StatusOr<std::string>> result;
      fetcher->Fetch(
          absl::StrCat("https://localhost:", host.port(), "/version"), "",
          [&result](absl::StatusOr<std::string> got) { result.set_value(std::move(got)); });
      const absl::StatusOr<std::string> got = result.get_future().get();
      if (absl::string_view(name) == "good" && !trusted.empty()) {
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_EQ(*got, R"({"version":"1.2.3"})");
      } else {
        EXPECT_EQ(base::ReasonOf(got.status()), "IMAGE_URL_UNREACHABLE") << name << trusted;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::gateway::http
