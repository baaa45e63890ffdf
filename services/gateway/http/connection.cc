#include "services/gateway/http/connection.h"

#include <boost/beast/http/error.hpp>

#include "common/base/clock.h"

namespace tessera::gateway::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kAheadBytes = 64 << 10;  // of requests that come early
constexpr double kBodyBytesPerSecond = 64 << 10;

}  // namespace

void ConnectionCount::Add(int more) {
  base::MutexLock lock(mutex_);
  if (value_.fetch_add(more) + more == 0) none_.SignalAll();
}

void ConnectionCount::AwaitNone(absl::Duration timeout) {
  base::Clock& clock = base::RealClock();
  const absl::Time end = clock.Now() + timeout;
  base::MutexLock lock(mutex_);
  while (value_.load() > 0 && clock.Now() < end) clock.WaitUntil(none_, mutex_, end);
}

Connection::Connection(std::unique_ptr<Transport> transport, asio::io_context& io,
                       const ConnectionDeps& deps, Open& open)
    : deps_(deps),
      io_(io),
      transport_(std::move(transport)),
      open_(open),
      place_(open.insert(open.end(), this)),
      in_(deps.options.max_header_bytes + kAheadBytes),
      timer_(io) {
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
  body_.Reset();
  arriving_.Reset();
  timer_.cancel();
  transport_->Close();
  if (place_) open_.erase(*std::exchange(place_, std::nullopt));
}

void Connection::Drain() {
  if (state_ == State::kHandshake || (state_ == State::kHead && !begun_)) Close();
}

void Connection::Read() {
  if (reading_ || state_ == State::kClosed) return;
  if (IsFull()) {  // more than may be sent ahead of an answer
    in_.clear();
    request_.keep_alive = false;
  }
  reading_ = true;
  transport_->Read(
      asio::buffer(chunk_),
      [self = shared_from_this()](error_code error, size_t bytes) { self->OnRead(error, bytes); });
}

void Connection::OnRead(const error_code& error, size_t bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (error) return OnEndOfInput();
  if (state_ == State::kLinger) {
    lingered_ += bytes;
    if (lingered_ > 2 * deps_.chat.limits.max_bytes) return Close();
    return Read();
  }
  in_.commit(asio::buffer_copy(in_.prepare(bytes), asio::buffer(chunk_, bytes)));
  if (state_ == State::kAnswer) return Read();
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
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(deps_.options.max_header_bytes));
  parser_->body_limit(deps_.chat.limits.max_bytes);
  begun_ = false;
  request_ = {};
  open_.splice(open_.end(), open_, *place_);
  if (in_.size() == 0) in_.shrink_to_fit();
  const bool first = std::exchange(state_, State::kHead) == State::kHandshake;
  if (!first) ExpireAfter(deps_.options.idle_timeout);
  Advance();
}

void Connection::Advance() {
  while (Parse()) {
  }
}

bool Connection::Parse() {
  if (state_ != State::kHead && state_ != State::kBody) return false;
  const auto next = [this] { return static_cast<const char*>(in_.data().data())[0]; };
  // An empty line ahead of a request is to be forgiven (RFC 7230, section 3.5).
  while (!begun_ && in_.size() > 0 && (next() == '\r' || next() == '\n')) in_.consume(1);
  if (in_.size() == 0) {
    Read();
    return false;
  }
  if (!std::exchange(begun_, true)) ExpireAfter(deps_.options.header_timeout);
  error_code error;
  in_.consume(parser_->put(in_.data(), error));
  const bool more = error == beast_http::error::need_more;
  if (error && !more) {
    RefuseUnreadable(error);
    return false;
  }
  if (state_ == State::kBody) return ParseBody(error);
  if (parser_->is_header_done()) {
    OnHead();
    return true;
  }
  Read();
  return false;
}

bool Connection::ParseBody(const error_code& error) {
  if (!AccountBody()) return false;
  if (parser_->is_done()) {
    StartChat();
    return false;
  }
  if (!error) return true;
  if (IsFull()) {  // a chunk's extensions
    Refuse(400, "http_invalid", "the chunked coding of the body holds too much beside the body");
  } else {
    Read();
  }
  return false;
}

// The body is within the budget of all bodies; its time grows with it.
bool Connection::AccountBody() {
  const size_t before = body_.bytes(), size = parser_->get().body().size();
  if (const absl::Status status = body_.Grow(size); !status.ok()) {
    Refuse(status);
    return false;
  }
  if (deadline_ != SteadyTime::max()) {
    deadline_ += std::chrono::microseconds(static_cast<int64_t>(
        static_cast<double>(size - std::min(before, size)) / kBodyBytesPerSecond * 1e6));
  }
  return true;
}

void Connection::ExpireAfter(absl::Duration timeout) {
  deadline_ = std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(timeout);
  if (!timing_ || deadline_ < timer_.expiry()) ArmTimer();
}

// One wait at a time, often for an earlier deadline than today's: most never come to pass.
void Connection::ArmTimer() {
  timing_ = true;
  timer_.expires_at(deadline_);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->OnTimer();
  });
}

void Connection::OnTimer() {
  timing_ = false;
  if (state_ == State::kClosed || deadline_ == SteadyTime::max()) return;
  if (std::chrono::steady_clock::now() < deadline_) return ArmTimer();
  const bool reading = (state_ == State::kHead && begun_) || state_ == State::kBody;
  if (!reading) return Close();
  Refuse(408, "request_timeout", "the request did not come in time");
}

}  // namespace tessera::gateway::http
