#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

// Beast 1.74 uses std::exchange without including it: <utility> stands before it.
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "absl/types/span.h"
#include "services/gateway/http/input_buffer.h"

namespace tessera::gateway::http {

// Requests out of bytes, one after another. A body whose length was announced is read to where it
// stays; a chunked one is copied once. No socket and no clock; one thread.
class RequestReader {
 public:
  using Head = boost::beast::http::request_header<>;

  RequestReader(size_t max_header_bytes, size_t max_body_bytes);

  // Where the next bytes go, until Commit: one read at a time.
  absl::Span<char> Room();
  void Commit(size_t bytes);
  // More than may be sent ahead is held already: Room() may not be asked for.
  bool IsFull() const { return !BodyTakesNext() && input_.IsFull(); }

  // kMore: bytes are missing. kHead: the head is there, once. kDone: so is the body. kBroken:
  // error() says why. kTooMuch: the coding of a body holds more than fits beside the body.
  enum class Step { kMore, kHead, kDone, kBroken, kTooMuch };
  Step Advance();

  // The request's first byte has come.
  bool begun() const { return begun_; }
  // Its head and body are there.
  bool complete() const { return complete_; }
  // Bytes have come that are not of this request, or not looked at.
  bool HasMore() const { return !input_.bytes().empty(); }
  const boost::system::error_code& error() const { return error_; }

  // As far as it was read. What is below REQUIRES kHead.
  const Head& head() const { return parser_->get(); }
  bool keep_alive() const { return parser_->get().keep_alive(); }
  // After the head: the body is to be read. Reserves it.
  void ReadBody();
  // No more of the body goes where it would stay; what comes of it is as any other input.
  void AbandonBody() { announced_.reset(); }
  // Of the body, so far.
  size_t body_bytes() const;
  // REQUIRES: complete().
  std::string TakeBody();

  // The next request begins.
  void Next();
  // What came and was not looked at is dropped.
  void DropInput() { input_.Clear(); }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // The room of the next read is the body's.
  bool BodyTakesNext() const;
  Step AdvanceHead();
  Step AdvancePlainBody();
  Step AdvanceChunkedBody();
  void Put();

  const size_t max_header_bytes_, max_body_bytes_;
  InputBuffer input_;
  std::optional<Parser> parser_;
  bool begun_ = false;
  bool head_done_ = false;
  bool complete_ = false;
  boost::system::error_code error_;

  std::optional<size_t> announced_;  // bytes of a body that is read, by its Content-Length
  std::string body_;                 // of that length in the end; its first `received_` bytes count
  size_t received_ = 0;
  bool reading_body_ = false;  // the read that is under way goes into body_
};

}  // namespace tessera::gateway::http
