#pragma once

#include <string>

#include "common/base/json.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::tools {

// A small table: stages, tokens, pictures.
std::string ReceiptTable(const v1::GenerateResponse& response);

// {"text", "finish_reason", "usage", "receipt"} with the names of CONVENTIONS.
base::Json AnswerJson(const std::string& text, const v1::GenerateResponse& response);

using LogprobList = google::protobuf::RepeatedPtrField<v1::TokenLogprob>;
// One object per token: {"id", "token", "bytes", "logprob", "top": [{...}, ...]}. "token" is the
// token's text, null where its bytes are no whole characters; "bytes" are numbers.
base::Json LogprobsJson(const LogprobList& logprobs);

}  // namespace tessera::tools
