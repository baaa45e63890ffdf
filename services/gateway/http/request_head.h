#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/rpc/trace/trace_context.h"
#include "services/gateway/http/http_deps.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/http/pages.h"
#include "services/gateway/http/request_reader.h"

// What is taken from a request's head, and what is answered because of it. Pure but for the
// functions that it is given.
namespace tessera::gateway::http {

// What is known of the request that a connection serves.
struct Request {
  std::string id;  // empty: its head has not been looked at
  rpc::TraceContext trace;
  absl::Time arrival;
  Route route = Route::kUnknown;
  std::string target;
  std::string tenant;
  bool head_only = false;
  bool http10 = false;
  bool keep_alive = false;
  bool stream = false;
  bool entered = false;  // the gateway below tells how it ends
};

// Id, trace and arrival, once; of a head that may be incomplete. `traced`: spans are written.
void Introduce(const RequestReader::Head& head, bool traced, absl::Time now, Request& request);
// Target, route, method and version.
void TakeStartLine(const RequestReader::Head& head, Request& request);

// What every request must be; nullopt: it is. Beyond doubt about where the request ends, keep_alive
// is taken from it.
std::optional<Response> AnswerAtHead(const RequestReader::Head& head, Request& request);
// The key, whose tenant becomes the request's, then what needs no body; nullopt: the body is worth
// to be read. `tenant_of` may be empty.
std::optional<Response> AnswerBeforeBody(const RequestReader::Head& head, bool has_body,
                                         const TenantResolver& tenant_of, const PageFacts& pages,
                                         Request& request);
// The client waits for "100 Continue" before it sends the body.
bool ExpectsContinue(const RequestReader::Head& head, const Request& request);

// A refusal in OpenAI's form.
Response RefusalOf(int status, const char* code, std::string message);

}  // namespace tessera::gateway::http
