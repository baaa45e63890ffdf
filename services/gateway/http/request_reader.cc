#include "services/gateway/http/request_reader.h"

#include <algorithm>
#include <boost/beast/http/error.hpp>
#include <cstring>

#include "absl/strings/string_view.h"
#include "common/base/check.h"

namespace tessera::gateway::http {
namespace {

namespace beast_http = boost::beast::http;

constexpr size_t kAheadBytes = 64 << 10;  // of requests that come early
constexpr size_t kMostAhead = 256 << 10;  // that a body grows beyond what has come

}  // namespace

RequestReader::RequestReader(size_t max_header_bytes, size_t max_body_bytes)
    : max_header_bytes_(max_header_bytes),
      max_body_bytes_(max_body_bytes),
      input_(max_header_bytes + kAheadBytes) {
  Next();
}

void RequestReader::Next() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(max_header_bytes_));
  parser_->body_limit(max_body_bytes_);
  begun_ = head_done_ = complete_ = false;
  announced_.reset();
  std::string().swap(body_);
  received_ = 0;
}

bool RequestReader::BodyTakesNext() const {
  return announced_ && received_ < *announced_ && input_.bytes().empty();
}

absl::Span<char> RequestReader::Room() {
  reading_body_ = BodyTakesNext();
  if (!reading_body_) return input_.Room();
  if (received_ == body_.size()) {
    // No further ahead than as much again as has come: that is what the budget of bodies counts.
    const size_t ahead = std::clamp(received_, InputBuffer::kReadBytes, kMostAhead);
    body_.resize(std::min(*announced_, received_ + ahead));
  }
  return absl::MakeSpan(body_).subspan(received_);
}

void RequestReader::Commit(size_t bytes) {
  if (reading_body_) {
    received_ += bytes;
  } else {
    input_.Commit(bytes);
  }
}

RequestReader::Step RequestReader::Advance() {
  CHECK(!complete_);
  if (!head_done_) return AdvanceHead();
  return announced_ ? AdvancePlainBody() : AdvanceChunkedBody();
}

// Gives what is held to the parser, whose error is kept unless it only wants more.
void RequestReader::Put() {
  const absl::string_view held = input_.bytes();
  error_ = {};
  input_.Consume(parser_->put(boost::asio::const_buffer(held.data(), held.size()), error_));
}

RequestReader::Step RequestReader::AdvanceHead() {
  // An empty line ahead of a request is to be forgiven (RFC 7230, section 3.5).
  while (!begun_ && HasMore() && (input_.bytes()[0] == '\r' || input_.bytes()[0] == '\n')) {
    input_.Consume(1);
  }
  if (!HasMore()) return Step::kMore;
  begun_ = true;
  Put();
  if (error_ && error_ != beast_http::error::need_more) return Step::kBroken;
  if (!parser_->is_header_done()) return Step::kMore;
  head_done_ = true;
  complete_ = parser_->is_done();
  return Step::kHead;
}

void RequestReader::ReadBody() {
  if (parser_->chunked()) {
    parser_->eager(true);
    return;
  }
  announced_ = static_cast<size_t>(*parser_->content_length());
  body_.reserve(*announced_);
}

size_t RequestReader::body_bytes() const {
  return announced_ ? received_ : parser_->get().body().size();
}

RequestReader::Step RequestReader::AdvancePlainBody() {
  const size_t here = std::min(input_.bytes().size(), *announced_ - received_);
  if (here > 0) {
    if (body_.size() < received_ + here) body_.resize(received_ + here);
    std::memcpy(body_.data() + received_, input_.bytes().data(), here);
    input_.Consume(here);
    received_ += here;
  }
  complete_ = received_ == *announced_;
  return complete_ ? Step::kDone : Step::kMore;
}

RequestReader::Step RequestReader::AdvanceChunkedBody() {
  while (HasMore()) {
    Put();
    if (error_ && error_ != beast_http::error::need_more) return Step::kBroken;
    if (parser_->is_done()) {
      complete_ = true;
      return Step::kDone;
    }
    if (error_) break;
  }
  return input_.IsFull() ? Step::kTooMuch : Step::kMore;
}

std::string RequestReader::TakeBody() {
  CHECK(complete_);
  return std::move(announced_ ? body_ : parser_->get().body());
}

}  // namespace tessera::gateway::http
