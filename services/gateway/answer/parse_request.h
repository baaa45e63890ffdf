#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/answer/answer_options.h"
#include "services/gateway/fleet/vision_client.h"
#include "tessera/v1/decode.pb.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::gateway {

// A request that is well formed: what decode will get, without the refs, and the pictures.
struct ParsedRequest {
  v1::DecodeStart start;                    // `images` still empty
  std::vector<Picture> pictures;            // in the order of the parts
  std::vector<int> picture_turns;           // index of the message that holds picture i
  std::vector<std::string> picture_fields;  // where it stands: "messages[1].parts[0].image"
  std::string affinity;                     // AffinityOf its session, else of its first picture
  bool text_only_without_encoder = false;   // rather than failing
};

// What requests share that are best answered by one decode replica: a tenant's session. Empty for
// no session.
std::string AffinityOf(absl::string_view tenant, absl::string_view session);

// INVALID_ARGUMENT beyond 256 bytes.
absl::Status CheckSession(absl::string_view session);

// INVALID_ARGUMENT names the field; NOT_FOUND for another model or a handle without a picture.
// Inline bytes are moved out of `request`, and it is gone when this returns.
absl::StatusOr<ParsedRequest> ParseRequest(v1::GenerateRequest request, absl::string_view tenant,
                                           const AnswerOptions& options, absl::Time now);

}  // namespace tessera::gateway
