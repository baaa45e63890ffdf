#pragma once

#include <memory>

#include "common/metrics/metrics.h"
#include "common/store/tiered_store.h"
#include "services/decode/engine/record_reader.h"
#include "services/decode/origin_client.h"

namespace tessera::decode {

// What a decode process may read records from; all outlive the reader.
struct RecordTiers {
  store::EmbeddingStore& local;          // memory
  store::TieredStore* shared = nullptr;  // `local` in front of what all processes share
  OriginClient* origin = nullptr;
  metrics::Metrics& metrics;
};

// Memory, then the shared store, then the replica that made the rows, where that is one of ours;
// what the last one had is in the others afterwards. Whatever fails is a miss: the engine asks for
// the rows to be made again.
RecordReader MakeRecordReader(const RecordTiers& tiers);

}  // namespace tessera::decode
