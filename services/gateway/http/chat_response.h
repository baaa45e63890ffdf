#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/base/json.h"
#include "services/gateway/api/pieces.h"
#include "tessera/v1/decode.pb.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::gateway::http {

// What all parts of one answer share.
struct ChatHeading {
  std::string id;       // "chatcmpl-..."
  int64_t created = 0;  // seconds since 1970
  std::string model;
  bool logprobs = false;       // were asked for
  bool include_usage = false;  // of a stream
  bool receipt = false;        // were asked for
};

// One answer as OpenAI's chat completions: whole, or as events of a stream, each "data: ...\n\n".
// The order of a stream: Begin, Piece as often as need be, End; or Failure at any time, which says
// what went wrong and is the last. Pure.
class ChatResponse {
 public:
  explicit ChatResponse(ChatHeading heading) : heading_(std::move(heading)) {}

  // The body of an answer that is not streamed. `text`: all pieces in one.
  std::string Whole(const v1::TextPiece& text, const v1::GenerateResponse& end) const;

  std::string Begin() const;  // the delta with the role
  std::string Piece(const v1::TextPiece& piece) const;
  // The finish reason, usage where it was asked for, and [DONE]. The receipt is in the last of them
  // that is JSON.
  std::string End(const v1::GenerateResponse& end) const;
  static std::string Failure(const absl::Status& status);

 private:
  base::Json Head(const char* object) const;
  base::Json Chunk(base::Json delta, base::Json logprobs, base::Json finish_reason) const;
  void AddReceipt(const v1::GenerateResponse& end, base::Json& to) const;

  const ChatHeading heading_;
};

}  // namespace tessera::gateway::http
