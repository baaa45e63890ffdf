#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/v1/gateway.pb.h"

namespace tessera::gateway::http {

// What a request's body may be.
struct ChatLimits {
  size_t max_bytes = size_t{32} << 20;
  size_t max_image_bytes = size_t{32} << 20;  // of one picture
  // From here on the URL of a picture is read from where it stands in the body, without a copy.
  size_t long_url_bytes = 4 << 10;
  uint32_t context_tokens =
      0;                    // of the model; max_tokens beyond it is refused; 0: not checked here
  bool image_urls = false;  // http(s) URLs of pictures are fetched
};

// A picture that is to be fetched: its part has an image without a source.
struct RemoteImage {
  int message = 0;
  int part = 0;
  std::string url;
};

// The body of POST /v1/chat/completions.
struct ChatRequest {
  v1::GenerateRequest request;
  bool stream = false;
  bool include_usage = false;  // of the stream
  bool receipt = false;
  std::vector<RemoteImage> remote;
};

}  // namespace tessera::gateway::http
