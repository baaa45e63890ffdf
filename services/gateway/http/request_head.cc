#include "services/gateway/http/request_head.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "services/gateway/http/http_error.h"

namespace tessera::gateway::http {
namespace {

namespace beast_http = boost::beast::http;
using beast_http::field;
using Head = RequestReader::Head;

constexpr size_t kMaxHeaderText = 128;  // of an id or a trace

absl::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// A header that is passed on: of printable characters, not too long; else empty.
std::string Printable(boost::beast::string_view text) {
  const bool good =
      text.size() <= kMaxHeaderText && std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isgraph(static_cast<unsigned char>(c));
      });
  return good ? std::string(text.data(), text.size()) : std::string();
}

// JSON, or what says that it is JSON underneath.
bool IsJson(absl::string_view content_type) {
  const absl::string_view type =
      absl::StripAsciiWhitespace(content_type.substr(0, content_type.find(';')));
  return absl::EqualsIgnoreCase(type, "application/json") ||
         (absl::StartsWithIgnoreCase(type, "application/") &&
          absl::EndsWithIgnoreCase(type, "+json"));
}

// A page of another origin may send other types, or none, without a preflight.
bool IsOfAPage(const Head& head) {
  return std::any_of(head.begin(), head.end(), [](const auto& header) {
    return header.name() == field::origin ||
           absl::StartsWithIgnoreCase(View(header.name_string()), "sec-fetch-");
  });
}

// What to say of a head that leaves doubt about where the request ends: what one server takes for a
// body is the next request to another.
std::optional<std::string> DoubtOf(const Head& head, bool http10) {
  const auto codings = head.count(field::transfer_encoding);
  if (codings > 1 ||
      (codings == 1 &&
       (http10 || !absl::EqualsIgnoreCase(View(head[field::transfer_encoding]), "chunked")))) {
    return "the only Transfer-Encoding that is taken is chunked";
  }
  if (head.count(field::host) > 1 || (!http10 && head.count(field::host) == 0)) {
    return "a request has one Host header";
  }
  return std::nullopt;
}

Response WrongMethod(const Head& head, Route route) {
  Response response;
  response.status = 204;
  if (head.method() != beast_http::verb::options) {
    response = ErrorResponse({.status = 405,
                              .type = "invalid_request_error",
                              .message = absl::StrCat("this path takes ", AllowOf(route)),
                              .param = "",
                              .code = "method_not_allowed"});
  }
  response.headers.emplace_back("allow", AllowOf(route));
  return response;
}

absl::StatusOr<std::string> TenantOf(const Head& head, const TenantResolver& tenant_of) {
  // Of several keys nobody knows which one is meant: who stands in front may know another.
  if (head.count(field::authorization) > 1) {
    return base::Error(absl::StatusCode::kUnauthenticated, "KEY_MISSING",
                       "there is more than one authorization: send \"authorization: Bearer KEY\"");
  }
  return tenant_of(View(head[field::authorization]));
}

}  // namespace

void Introduce(const Head& head, bool traced, absl::Time now, Request& request) {
  if (!request.id.empty()) return;
  request.id = Printable(head["x-request-id"]);
  if (request.id.empty()) request.id = rpc::NewRequestId();
  // Of several headers nobody knows which one is meant.
  const bool one = head.count("traceparent") == 1;
  request.trace = rpc::BeginSpan(one ? Printable(head["traceparent"]) : std::string(), traced);
  request.arrival = now;
}

void TakeStartLine(const Head& head, Request& request) {
  request.target = std::string(head.target());
  request.route = RouteOf(request.target);
  request.head_only = head.method() == beast_http::verb::head;
  request.http10 = head.version() < 11;
}

std::optional<Response> AnswerAtHead(const Head& head, Request& request) {
  if (std::optional<std::string> doubt = DoubtOf(head, request.http10)) {
    request.keep_alive = false;  // the next request may begin elsewhere than it seems here
    return RefusalOf(400, "http_invalid", *std::move(doubt));
  }
  if (request.route == Route::kUnknown) {
    return RefusalOf(
        404, "not_found",
        "no such path; there are POST /v1/chat/completions, GET /v1/models, /health and /version");
  }
  const bool post = head.method() == beast_http::verb::post;
  const bool get = head.method() == beast_http::verb::get || request.head_only;
  if (request.route == Route::kChat ? post : get) return std::nullopt;
  return WrongMethod(head, request.route);
}

std::optional<Response> AnswerBeforeBody(const Head& head, bool has_body,
                                         const TenantResolver& tenant_of, const PageFacts& pages,
                                         Request& request) {
  if (NeedsKey(request.route) && tenant_of) {
    absl::StatusOr<std::string> tenant = TenantOf(head, tenant_of);
    if (!tenant.ok()) return ErrorResponse(ToHttpError(tenant.status()));
    request.tenant = *std::move(tenant);
  }
  if (request.route != Route::kChat) {
    if (has_body) return RefusalOf(400, "http_invalid", "a request of this path has no body");
    return PageAt(request.route, request.target, pages);
  }
  const absl::string_view expect = View(head[field::expect]);
  if (!expect.empty() && !absl::EqualsIgnoreCase(expect, "100-continue")) {
    return RefusalOf(417, "expectation_failed", "the only Expect that is met is 100-continue");
  }
  const absl::string_view type = View(head[field::content_type]);
  if (IsJson(type) || (type.empty() && !IsOfAPage(head))) return std::nullopt;
  return RefusalOf(415, "unsupported_media_type", "the Content-Type must be application/json");
}

bool ExpectsContinue(const Head& head, const Request& request) {
  return absl::EqualsIgnoreCase(View(head[field::expect]), "100-continue") && !request.http10;
}

Response RefusalOf(int status, const char* code, std::string message) {
  HttpError error;
  error.status = status;
  error.type = status == 404 ? "not_found_error" : "invalid_request_error";
  error.message = std::move(message);
  error.code = code;
  return ErrorResponse(error);
}

}  // namespace tessera::gateway::http
