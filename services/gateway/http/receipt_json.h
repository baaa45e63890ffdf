#pragma once

#include "common/base/json.h"
#include "tessera/v1/types.pb.h"

namespace tessera::gateway::http {

// With the names of v1::Receipt; the times of its stages stand beside total_seconds, tiers and
// verdicts are words such as "PREFIX_KV" and "pass".
base::Json ReceiptJson(const v1::Receipt& receipt);

}  // namespace tessera::gateway::http
