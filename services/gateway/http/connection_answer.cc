// What a connection says: which requests it takes, and how their answers go out.
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "services/gateway/http/connection.h"

namespace tessera::gateway::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using beast_http::field;
using boost::system::error_code;

constexpr size_t kInlineBodyBytes = 64 << 10;  // larger ones are parsed elsewhere
constexpr size_t kMaxHeaderText = 128;         // of an id or a trace

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
bool IsOfAPage(const beast_http::fields& head) {
  return std::any_of(head.begin(), head.end(), [](const auto& header) {
    return header.name() == field::origin ||
           absl::StartsWithIgnoreCase(View(header.name_string()), "sec-fetch-");
  });
}

absl::string_view NameOf(Route route) {
  switch (route) {
    case Route::kChat:
      return "chat";
    case Route::kModels:
    case Route::kModel:
      return "models";
    case Route::kHealth:
      return "health";
    case Route::kVersion:
      return "version";
    case Route::kUnknown:
      return "unknown";
  }
  return "unknown";
}

}  // namespace

void Connection::TakeStartLine() {
  const auto& head = parser_->get();
  Introduce();
  request_.target = std::string(head.target());
  request_.route = RouteOf(request_.target);
  request_.head_only = head.method() == beast_http::verb::head;
  request_.http10 = head.version() < 11;
}

void Connection::OnHead() {
  const auto& head = parser_->get();
  TakeStartLine();
  request_.keep_alive = head.keep_alive();
  if (AnswerAtHead() || AnswerBeforeBody()) return;
  if (parser_->is_done()) return StartChat();
  arriving_ = deps_.arriving.For(request_.tenant);
  if (const absl::Status status = arriving_.Grow(1); !status.ok()) return Refuse(status);
  if (absl::EqualsIgnoreCase(View(head[field::expect]), "100-continue") && !request_.http10 &&
      in_.size() == 0) {
    Write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  state_ = State::kBody;
  body_ = deps_.bodies.For(request_.tenant);
  parser_->eager(true);
  ExpireAfter(deps_.options.body_timeout);
}

// What every request must be, and all that is told without a body.
bool Connection::AnswerAtHead() {
  const auto& head = parser_->get();
  const auto refuse = [this](int status, const char* code, std::string message) {
    Refuse(status, code, std::move(message));
    return true;
  };
  const auto refuse_framing = [this](std::string message) {
    request_.keep_alive = false;  // the next request may begin elsewhere than it seems here
    Refuse(400, "http_invalid", std::move(message));
    return true;
  };
  // Where a body ends must be beyond doubt: what one server takes for a body is the next request to
  // another.
  const auto codings = head.count(field::transfer_encoding);
  if (codings > 1 ||
      (codings == 1 && (request_.http10 || !absl::EqualsIgnoreCase(
                                               View(head[field::transfer_encoding]), "chunked")))) {
    return refuse_framing("the only Transfer-Encoding that is taken is chunked");
  }
  if (head.count(field::host) > 1 || (!request_.http10 && head.count(field::host) == 0)) {
    return refuse_framing("a request has one Host header");
  }
  if (request_.route == Route::kUnknown) {
    return refuse(
        404, "not_found",
        "no such path; there are POST /v1/chat/completions, GET /v1/models, /health and /version");
  }
  const bool post = head.method() == beast_http::verb::post;
  const bool get = head.method() == beast_http::verb::get || request_.head_only;
  if (request_.route == Route::kChat ? post : get) return false;
  Response response;
  response.status = 204;
  if (head.method() != beast_http::verb::options) {
    response = ErrorResponse({.status = 405,
                              .type = "invalid_request_error",
                              .message = absl::StrCat("this path takes ", AllowOf(request_.route)),
                              .param = "",
                              .code = "method_not_allowed"});
  }
  response.headers.emplace_back("allow", AllowOf(request_.route));
  Send(response);
  return true;
}

// The key, then what needs no body, or whether the body is worth to be read.
bool Connection::AnswerBeforeBody() {
  const auto& head = parser_->get();
  if (NeedsKey(request_.route) && deps_.tenant) {
    // Of several keys nobody knows which one is meant: who stands in front may know another.
    if (head.count(field::authorization) > 1) {
      Refuse(base::Error(absl::StatusCode::kUnauthenticated, "KEY_MISSING",
                         "there is more than one authorization: send \"authorization: Bearer "
                         "KEY\""));
      return true;
    }
    absl::StatusOr<std::string> tenant = deps_.tenant(View(head[field::authorization]));
    if (!tenant.ok()) {
      Refuse(tenant.status());
      return true;
    }
    request_.tenant = *std::move(tenant);
  }
  if (request_.route != Route::kChat) {
    if (parser_->is_done()) {
      Send(PageAt(request_.route, request_.target, deps_.pages));
    } else {
      Refuse(400, "http_invalid", "a request of this path has no body");
    }
    return true;
  }
  const absl::string_view expect = View(head[field::expect]);
  if (!expect.empty() && !absl::EqualsIgnoreCase(expect, "100-continue")) {
    Refuse(417, "expectation_failed", "the only Expect that is met is 100-continue");
    return true;
  }
  const absl::string_view type = View(head[field::content_type]);
  if (IsJson(type) || (type.empty() && !IsOfAPage(head))) return false;
  Refuse(415, "unsupported_media_type", "the Content-Type must be application/json");
  return true;
}

void Connection::StartChat() {
  state_ = State::kAnswer;
  deadline_ = SteadyTime::max();
  const ChatDeps& chat = deps_.chat;
  arriving_.Reset();
  rpc::RequestContext context;
  context.request_id = request_.id;
  context.trace = request_.trace;
  context.deadline = request_.arrival + chat.options.deadline_cap;
  request_.entered = true;
  absl::StatusOr<std::shared_ptr<ChatCall>> call =
      ChatCall::Enter(chat, std::move(context), request_.arrival, request_.tenant,
                      [weak = weak_from_this(), &io = io_] {
                        asio::post(io, [weak] {
                          if (const auto self = weak.lock()) self->OnWake();
                        });
                      });
  if (!call.ok()) return Refuse(call.status());
  call_ = *std::move(call);
  std::string body = std::move(parser_->get().body());
  if (body.size() <= kInlineBodyBytes) {
    call_->Start(std::move(body), std::move(body_));
  } else {
    asio::post(deps_.parsers,
               [call = call_, body = std::move(body), held = std::move(body_)]() mutable {
                 call->Start(std::move(body), std::move(held));
               });
  }
  Read();
}

void Connection::OnWake() {
  if (state_ != State::kAnswer || !call_) return;
  if (!writing_) return SendNext();
  switch (call_->GetState()) {
    case ChatCall::State::kRunning:
      return;
    case ChatCall::State::kEnded:
      return ExpireAfter(deps_.options.write_timeout);
    case ChatCall::State::kAbandoned:
      return Close();
  }
}

void Connection::SendNext() {
  ChatCall::Output output = call_->Take();
  if (output.whole) {
    call_.reset();
    return Send(*output.whole);
  }
  std::string bytes;
  if (output.begins) {
    request_.stream = true;
    if (request_.http10) request_.keep_alive = false;
    Response response;
    response.content_type = "text/event-stream; charset=utf-8";
    bytes = Serialize(response, FramingOf(true));
  }
  if (!output.bytes.empty()) {
    absl::StrAppend(&bytes, request_.http10 ? output.bytes : ChunkOf(output.bytes));
  }
  if (output.ends) {
    if (!request_.http10) absl::StrAppend(&bytes, kLastChunk);
    call_.reset();
    answered_ = true;
    Tell(200);
    ExpireAfter(deps_.options.write_timeout);
  }
  if (!bytes.empty()) Write(std::move(bytes));
}

void Connection::Introduce() {
  if (!request_.id.empty()) return;
  const auto& head = parser_->get();
  request_.id = Printable(head["x-request-id"]);
  if (request_.id.empty()) request_.id = rpc::NewRequestId();
  // Of several headers nobody knows which one is meant.
  const bool one = head.count("traceparent") == 1;
  request_.trace = rpc::BeginSpan(one ? Printable(head["traceparent"]) : std::string(),
                                  deps_.chat.options.spans != nullptr);
  request_.arrival = deps_.chat.answer.clock.Now();
}

void Connection::RefuseUnreadable(const error_code& error) {
  if (error == beast_http::error::body_limit) {
    if (state_ == State::kHead) TakeStartLine();  // a length that was announced
    return Refuse(413, "body_too_large",
                  absl::StrCat("the body has more than ", deps_.chat.limits.max_bytes,
                               " bytes (--max_message_bytes)"));
  }
  if (error == beast_http::error::header_limit || error == beast_http::error::buffer_overflow) {
    return Refuse(
        431, "headers_too_large",
        absl::StrCat("the headers have more than ", deps_.options.max_header_bytes, " bytes"));
  }
  if (error == beast_http::error::bad_version) {
    return Refuse(505, "http_version", "HTTP/1.1 and HTTP/1.0 are spoken here");
  }
  Refuse(400, "http_invalid", absl::StrCat("not a request of HTTP/1.1: ", error.message()));
}

void Connection::Refuse(int status, const char* code, std::string message) {
  HttpError error;
  error.status = status;
  error.type = status == 404 ? "not_found_error" : "invalid_request_error";
  error.message = std::move(message);
  error.code = code;
  Send(ErrorResponse(error));
}

Framing Connection::FramingOf(bool stream) {
  // Behind a body that was not read to its end, nobody knows where the next request begins.
  if (!parser_->is_done() || deps_.draining.load()) request_.keep_alive = false;
  Framing framing;
  framing.keep_alive = request_.keep_alive;
  framing.head_only = request_.head_only;
  framing.stream = stream;
  framing.chunked = !request_.http10;
  framing.request_id = request_.id;
  framing.now = deps_.chat.answer.clock.WallTime();
  return framing;
}

void Connection::Send(const Response& response) {
  Introduce();
  state_ = State::kAnswer;
  answered_ = true;
  body_.Reset();
  arriving_.Reset();
  Tell(response.status);
  ExpireAfter(deps_.options.write_timeout);
  Write(Serialize(response, FramingOf(false)));
  Read();
}

void Connection::Write(std::string bytes) {
  queued_ = queued_.empty() ? std::move(bytes) : absl::StrCat(queued_, bytes);
  if (!writing_) Flush();
}

void Connection::Flush() {
  writing_ = true;
  out_ = std::exchange(queued_, std::string());
  transport_->Write(asio::buffer(out_), [self = shared_from_this()](error_code error, size_t) {
    self->OnWritten(error);
  });
}

void Connection::OnWritten(const error_code& error) {
  writing_ = false;
  if (state_ == State::kClosed) return;
  if (error) return Close();
  if (!queued_.empty()) return Flush();
  if (state_ != State::kAnswer) return;  // "100 Continue"
  if (!answered_) {
    if (call_) SendNext();
    return;
  }
  answered_ = false;
  if (request_.keep_alive && !deps_.draining.load()) return NextRequest();
  Linger();
}

// To the client's end: a socket that is closed before all was read takes the answer back.
void Connection::Linger() {
  state_ = State::kLinger;
  in_.clear();
  ExpireAfter(deps_.options.linger_timeout);
  transport_->EndWrites();
  Read();
}

void Connection::Tell(int status) {
  if (!deps_.done) return;
  HttpDone done;
  done.request_id = request_.id;
  done.trace = request_.trace;
  done.route = NameOf(request_.route);
  done.status = status;
  done.stream = request_.stream || (call_ && call_->stream());
  done.entered = request_.entered;
  done.arrival = request_.arrival;
  done.end = deps_.chat.answer.clock.Now();
  deps_.done(done);
}

}  // namespace tessera::gateway::http
