#pragma once

#include "services/gateway/answer/answer.h"
#include "services/gateway/api/api_options.h"

namespace tessera::gateway {

// What every face of the gateway makes its answers with; all of it outlives the face.
struct ApiDeps {
  const ApiOptions& options;
  AnswerDeps answer;
};

}  // namespace tessera::gateway
