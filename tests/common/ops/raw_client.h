#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tessera::ops {

// A TCP connection to a port of this machine, byte by byte. One thread.
class RawClient {
 public:
  explicit RawClient(int port);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // False when the other side has gone.
  bool Send(absl::string_view bytes);
  // Nothing more will be sent.
  void EndSending();
  // One answer: head and, by its Content-Length, body; without a body after HEAD. What came so far
  // when the other side has gone.
  std::string ReadAnswer(bool head_only = false);
  // To the other side's end.
  std::string ReadAll();
  // Whether the other side has closed by now, or has answered.
  bool HasEnded();

 private:
  bool Receive();

  int socket_;
  std::string received_;
};

// One request on a connection of its own, to its end.
std::string Ask(int port, absl::string_view request);
// GET `target`.
std::string Get(int port, absl::string_view target);

}  // namespace tessera::ops
