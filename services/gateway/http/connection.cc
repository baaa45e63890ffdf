#include "services/gateway/http/connection.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>

#include "absl/strings/str_cat.h"
#include "services/gateway/http/http_error.h"

namespace tessera::gateway::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::system::error_code;

constexpr double kBodyBytesPerSecond = 64 << 10;
constexpr size_t kInlineBodyBytes = 64 << 10;  // larger ones are parsed elsewhere

}  // namespace

Connection::Connection(std::unique_ptr<Transport> transport, asio::io_context& io,
                       const ConnectionDeps& deps, Open& open)
    : deps_(deps),
      io_(io),
      transport_(std::move(transport)),
      open_(open),
      place_(open.insert(open.end(), this)),
      reader_(deps.options.max_header_bytes, deps.chat.limits.max_bytes),
      output_(*transport_, [this](error_code error) { OnWritten(error); }),
      deadline_(io, [this] { OnDeadline(); }) {
  deps_.count.Add(1);
}

Connection::~Connection() {
  Close();
  deps_.count.Add(-1);
}

void Connection::Start() {
  ExpireAfter(deps_.options.header_timeout);
  transport_->Handshake([self = shared_from_this()](error_code error) {
    if (self->state_ != State::kHandshake) return;
    if (error) return self->Close();
    self->NextRequest();
  });
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  if (call_) {
    Tell(499);
    std::exchange(call_, nullptr)->Gone();
  }
  body_hold_.Reset();
  arriving_hold_.Reset();
  deadline_.Cancel();
  transport_->Close();
  if (place_) open_.erase(*std::exchange(place_, std::nullopt));
}

void Connection::Drain() {
  if (state_ == State::kHandshake || (state_ == State::kHead && !reader_.begun())) Close();
}

void Connection::Read() {
  if (reading_ || state_ == State::kClosed) return;
  if (reader_.IsFull()) {  // more than may be sent ahead of an answer
    reader_.DropInput();
    request_.keep_alive = false;
  }
  reading_ = true;
  const absl::Span<char> room = reader_.Room();
  transport_->Read(
      asio::buffer(room.data(), room.size()),
      [self = shared_from_this()](error_code error, size_t bytes) { self->OnRead(error, bytes); });
}

void Connection::OnRead(const error_code& error, size_t bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (error) return OnEndOfInput();
  reader_.Commit(bytes);
  if (state_ == State::kLinger) {
    reader_.DropInput();
    lingered_ += bytes;
    if (lingered_ > 2 * deps_.chat.limits.max_bytes) return Close();
  }
  if (state_ == State::kAnswer || state_ == State::kLinger) return Read();
  Advance();
}

void Connection::OnEndOfInput() {
  // An answer whose last word is on its way is still read by a client that only says no more.
  if (state_ == State::kAnswer && !call_) {
    request_.keep_alive = false;
    return;
  }
  Close();
}

void Connection::NextRequest() {
  reader_.Next();
  request_ = {};
  open_.splice(open_.end(), open_, *place_);
  const bool first = std::exchange(state_, State::kHead) == State::kHandshake;
  if (!first) ExpireAfter(deps_.options.idle_timeout);
  Advance();
}

void Connection::Advance() {
  while (state_ == State::kHead || state_ == State::kBody) {
    const bool begun = reader_.begun();
    const RequestReader::Step step = reader_.Advance();
    if (!begun && reader_.begun()) ExpireAfter(deps_.options.header_timeout);
    if (step == RequestReader::Step::kBroken) return Send(UnreadableResponse());
    if (step == RequestReader::Step::kHead) {
      OnHead();
      continue;
    }
    if (state_ == State::kBody && !AccountBody()) return;
    if (step == RequestReader::Step::kMore) return Read();
    if (step == RequestReader::Step::kDone) return StartChat();
    return Send(RefusalOf(400, "http_invalid",
                          "the chunked coding of the body holds too much beside the body"));
  }
}

void Connection::OnHead() {
  const RequestReader::Head& head = reader_.head();
  IntroduceRequest();
  TakeStartLine(head, request_);
  request_.keep_alive = reader_.keep_alive();
  std::optional<Response> answer = AnswerAtHead(head, request_);
  if (!answer) {
    answer = AnswerBeforeBody(head, !reader_.complete(), deps_.tenant, deps_.pages, request_);
  }
  if (answer) return Send(*answer);
  if (reader_.complete()) return StartChat();
  arriving_hold_ = deps_.arriving.For(request_.tenant);
  if (const absl::Status status = arriving_hold_.Grow(1); !status.ok()) {
    return Send(ErrorResponse(ToHttpError(status)));
  }
  if (ExpectsContinue(head, request_) && !reader_.HasMore()) {
    Write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  state_ = State::kBody;
  body_hold_ = deps_.bodies.For(request_.tenant);
  reader_.ReadBody();
  ExpireAfter(deps_.options.body_timeout);
}

// The body is within the budget of all bodies; its time grows with it.
bool Connection::AccountBody() {
  const size_t before = body_hold_.bytes(), size = reader_.body_bytes();
  if (const absl::Status status = body_hold_.Grow(size); !status.ok()) {
    Send(ErrorResponse(ToHttpError(status)));
    return false;
  }
  deadline_.Extend(
      absl::Seconds(static_cast<double>(size - std::min(before, size)) / kBodyBytesPerSecond));
  return true;
}

void Connection::StartChat() {
  state_ = State::kAnswer;
  deadline_.Clear();
  const ChatDeps& chat = deps_.chat;
  arriving_hold_.Reset();
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
  if (!call.ok()) return Send(ErrorResponse(ToHttpError(call.status())));
  call_ = *std::move(call);
  std::string body = reader_.TakeBody();
  if (body.size() <= kInlineBodyBytes) {
    call_->Start(std::move(body), std::move(body_hold_));
  } else {
    asio::post(deps_.parsers,
               [call = call_, body = std::move(body), held = std::move(body_hold_)]() mutable {
                 call->Start(std::move(body), std::move(held));
               });
  }
  Read();
}

void Connection::OnWake() {
  if (state_ != State::kAnswer || !call_) return;
  if (!output_.writing()) return SendNext();
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

void Connection::IntroduceRequest() {
  Introduce(reader_.head(), deps_.chat.options.spans != nullptr, deps_.chat.answer.clock.Now(),
            request_);
}

Response Connection::UnreadableResponse() {
  const error_code& error = reader_.error();
  if (error == beast_http::error::body_limit) {
    if (state_ == State::kHead) {  // a length that was announced
      IntroduceRequest();
      TakeStartLine(reader_.head(), request_);
    }
    return RefusalOf(413, "body_too_large",
                     absl::StrCat("the body has more than ", deps_.chat.limits.max_bytes,
                                  " bytes (--max_message_bytes)"));
  }
  if (error == beast_http::error::header_limit || error == beast_http::error::buffer_overflow) {
    return RefusalOf(
        431, "headers_too_large",
        absl::StrCat("the headers have more than ", deps_.options.max_header_bytes, " bytes"));
  }
  if (error == beast_http::error::bad_version) {
    return RefusalOf(505, "http_version", "HTTP/1.1 and HTTP/1.0 are spoken here");
  }
  return RefusalOf(400, "http_invalid",
                   absl::StrCat("not a request of HTTP/1.1: ", error.message()));
}

Framing Connection::FramingOf(bool stream) {
  // Behind a body that was not read to its end, nobody knows where the next request begins.
  if (!reader_.complete() || deps_.ending.load()) request_.keep_alive = false;
  Framing framing;
  framing.keep_alive = request_.keep_alive;
  framing.idle_timeout = deps_.options.idle_timeout;
  framing.head_only = request_.head_only;
  framing.stream = stream;
  framing.chunked = !request_.http10;
  framing.request_id = request_.id;
  framing.now = deps_.chat.answer.clock.WallTime();
  return framing;
}

void Connection::Send(const Response& response) {
  IntroduceRequest();  // if it was not read far enough to have an id and an arrival
  state_ = State::kAnswer;
  answered_ = true;
  body_hold_.Reset();
  arriving_hold_.Reset();
  reader_.AbandonBody();
  Tell(response.status);
  ExpireAfter(deps_.options.write_timeout);
  Write(Serialize(response, FramingOf(false)));
  Read();
}

void Connection::OnWritten(const error_code& error) {
  if (state_ == State::kClosed) return;
  if (error) return Close();
  if (state_ != State::kAnswer) return;  // "100 Continue"
  if (!answered_) {
    if (call_) SendNext();
    return;
  }
  answered_ = false;
  if (request_.keep_alive) return NextRequest();
  Linger();
}

// To the client's end: a socket that is closed before all was read takes the answer back.
void Connection::Linger() {
  state_ = State::kLinger;
  reader_.DropInput();
  ExpireAfter(deps_.options.linger_timeout);
  transport_->EndWrites();
  Read();
}

void Connection::OnDeadline() {
  if (state_ == State::kClosed) return;
  const bool reading = (state_ == State::kHead && reader_.begun()) || state_ == State::kBody;
  if (!reading) return Close();
  Send(RefusalOf(408, "request_timeout", "the request did not come in time"));
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
