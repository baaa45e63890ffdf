#pragma once

#include <string>

#include "absl/status/status.h"

namespace tessera::gateway::http {

// An error as OpenAI's clients read it.
struct HttpError {
  int status = 500;
  std::string type;     // error.type
  std::string message;  // names fields as the body does
  std::string param;    // empty: null
  std::string code;     // the reason in lower case; empty: null
  int retry_after = 0;  // seconds, for the header of that name; 0: none
};

// By the table of errors: INVALID_ARGUMENT 400 (413 where bytes are over a limit), UNAUTHENTICATED
// 401, NOT_FOUND 404, RESOURCE_EXHAUSTED 429, CANCELLED 499, UNAVAILABLE 503, DEADLINE_EXCEEDED
// 504, else 500, whose message says nothing of what is inside. REQUIRES: !status.ok().
HttpError ToHttpError(const absl::Status& status);

// {"error": {"message", "type", "param", "code"}}, always all four, in one line.
std::string ErrorJson(const HttpError& error);

}  // namespace tessera::gateway::http
