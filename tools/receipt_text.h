#pragma once

#include <string>

#include "common/base/json.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::tools {

// A small table: stages, tokens, pictures.
std::string ReceiptTable(const v1::GenerateResponse& response);

// {"text", "finish_reason", "usage", "receipt"} with the names of CONVENTIONS.
base::Json AnswerJson(const std::string& text, const v1::GenerateResponse& response);

}  // namespace tessera::tools
