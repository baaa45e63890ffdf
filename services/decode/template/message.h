#pragma once

#include <string>
#include <vector>

namespace tessera::decode {

// A piece of a message: text, or the place of a picture.
struct Part {
  enum Kind { kText, kImage };
  Kind kind = kText;
  std::string text;  // UTF-8; empty for an image
};

// One turn of a conversation.
struct Message {
  std::string role;  // system, user or assistant
  std::vector<Part> parts;
};

}  // namespace tessera::decode
