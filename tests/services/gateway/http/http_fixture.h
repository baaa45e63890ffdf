#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "services/gateway/http/http_server.h"
#include "tests/services/gateway/http/stub_services.h"
#include "tests/support/fake_clock.h"
#include "tests/support/loopback.h"

namespace tessera::testing {

// What came for one request.
struct HttpReply {
  int status = 0;
  std::string head;  // lines without their end, in lower case but for values
  std::string body;  // out of its chunks
  bool chunked = false;
  std::string Header(absl::string_view name) const;  // "" when absent
};

// A client that says exactly what a test says. One thread.
class RawClient {
 public:
  // `receive_bytes`: of the socket's buffer; 0: the system's choice.
  explicit RawClient(int port, int receive_bytes = 0);
  void Send(absl::string_view bytes);
  // The next response; waits for it. status 0: the connection ended first, or it is no HTTP.
  HttpReply Read();
  // Everything up to the end of the connection.
  std::string ReadAll();
  // What there is now, at most once through the socket; false at the end of the connection.
  bool ReadSome();
  const std::string& unread() const { return in_; }
  void Close() { fd_.Reset(); }
  int fd() const { return fd_.get(); }

 private:
  bool AwaitMore();
  Fd fd_;
  std::string in_;
};

// POST /v1/chat/completions with this body.
std::string ChatPost(absl::string_view body, absl::string_view headers = "");
// A question to the model "m". `more`: further fields, such as R"(,"stream":true)".
std::string Question(absl::string_view text = "What?", absl::string_view more = "");
// POST of such a question.
inline std::string Ask(absl::string_view more = "") { return ChatPost(Question("What?", more)); }

// Waits until `condition` holds.
void Await(const std::function<bool()>& condition);

// A gateway of stubs behind a port. Change what is public, then Start.
class HttpGateway {
 public:
  HttpGateway();
  ~HttpGateway();
  void Start();
  absl::Status TryStart();
  int port() const { return server->port(); }
  // One request on a connection of its own.
  HttpReply Send(absl::string_view bytes);

  gateway::ApiOptions options;
  gateway::http::HttpOptions http;
  gateway::http::TenantResolver tenant;
  std::function<absl::Status()> health;
  std::function<void(const gateway::http::HttpDone&)> done;
  gateway::AdmissionLimits limits{.max_requests = 1000};

  gateway::RunningRequests running;
  FakeClock clock;
  StubVision vision;
  StubDecode decode;
  std::unique_ptr<gateway::Admission> admission;
  std::unique_ptr<gateway::http::HttpServer> server;

 private:
  metrics::Metrics all_metrics_{"m"};
  gateway::RequestMetrics metrics_{all_metrics_};
  gateway::Pace pace_;
  gateway::KnownImages known_{16};
  gateway::ImageResolver resolver_{vision, known_, clock, "f"};
};

}  // namespace tessera::testing
