#include "common/ops/connection.h"

#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <string>

#include "absl/strings/string_view.h"
#include "common/ops/pages.h"

namespace tessera::ops {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

// Bytes that a refused client may still send before it is cut off.
constexpr size_t kMaxDiscarded = 1 << 20;

// What a request that cannot be read is told; 0: nothing, the client is gone or too slow.
int StatusOf(const error_code& error) {
  if (error == http::error::end_of_stream || error == http::error::partial_message) return 0;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  return error.category() == make_error_code(http::error::bad_target).category() ? 400 : 0;
}

}  // namespace

Connection::Connection(boost::asio::ip::tcp::socket socket, const OpsOptions& options,
                       const Handlers& handlers, Open& open)
    : stream_(std::move(socket)),
      options_(options),
      handlers_(handlers),
      open_(open),
      place_(open.insert(open.end(), this)),
      buffer_(2 * options.max_header_bytes) {}

Connection::~Connection() {
  if (place_) open_.erase(*place_);
}

void Connection::Close() {
  if (place_) open_.erase(*std::exchange(place_, std::nullopt));
  stream_.close();
}

void Connection::Read() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(options_.max_header_bytes));
  stream_.expires_after(absl::ToChronoMilliseconds(options_.timeout));
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](error_code error, size_t) { self->OnHeader(error); });
}

void Connection::OnHeader(error_code error) {
  if (place_) open_.splice(open_.end(), open_, *place_);
  if (!error) return OnRequest();
  const int status = StatusOf(error);
  if (status == 0) return Close();
  Refuse(status, error.message() + "\n");
}

void Connection::OnRequest() {
  const auto& request = parser_->get();
  const bool get = request.method() == http::verb::get;
  if (!get && request.method() != http::verb::head) {
    return Refuse(405, "only GET and HEAD are answered here\n");
  }
  if (!parser_->is_done()) return Refuse(400, "a request here has no body\n");
  const absl::string_view target(request.target().data(), request.target().size());
  Page page = PageAt(target, handlers_);
  response_ = {static_cast<http::status>(page.status), request.version()};
  response_.set(http::field::content_type, page.content_type);
  response_.set(http::field::cache_control, "no-store");
  response_.keep_alive(request.keep_alive());
  response_.body() = std::move(page.body);
  response_.prepare_payload();
  if (get) return Write(response_);
  // The same head: the length is that of the body which is not sent.
  head_.base() = response_.base();
  Write(head_);
}

void Connection::Refuse(int status, std::string text) {
  response_ = {static_cast<http::status>(status), 11};
  response_.set(http::field::content_type, "text/plain; charset=utf-8");
  if (status == 405) response_.set(http::field::allow, "GET, HEAD");
  response_.keep_alive(false);  // where the next request begins is not known
  response_.body() = std::move(text);
  response_.prepare_payload();
  Write(response_);
}

template <typename Response>
void Connection::Write(Response& response) {
  stream_.expires_after(absl::ToChronoMilliseconds(options_.timeout));
  http::async_write(stream_, response, [self = shared_from_this()](error_code error, size_t) {
    self->OnWritten(error);
  });
}

void Connection::OnWritten(error_code error) {
  if (error) return Close();
  if (response_.keep_alive()) return Read();
  stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, error);
  Discard();
}

// To the client's end: a socket that is closed before all was read takes the answer back.
void Connection::Discard() {
  buffer_.consume(buffer_.size());
  stream_.async_read_some(buffer_.prepare(buffer_.max_size()),
                          [self = shared_from_this()](error_code error, size_t bytes) {
                            self->discarded_ += bytes;
                            if (error || self->discarded_ > kMaxDiscarded) return self->Close();
                            self->Discard();
                          });
}

}  // namespace tessera::ops
