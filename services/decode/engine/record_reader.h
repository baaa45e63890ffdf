#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "absl/time/time.h"
#include "common/store/embedding_store.h"
#include "services/decode/engine/request_name.h"
#include "services/decode/engine/token_sink.h"

namespace tessera::decode {

// A record that a sequence needs.
struct WantedRecord {
  store::EmbeddingKey key;
  std::string origin = {};  // the replica that made it, as the request says; may be empty or a lie
  int64_t rows = 0, width = 0;  // its shape; 0: any. One of another shape is a miss
};

// The request that a record is read for.
struct ReadContext {
  RequestName name = {};
  absl::Time deadline = absl::InfiniteFuture();
  std::stop_token ended = {};  // stopped: nobody waits for its rows any more
};

// What was found, and by whom; kNone: nobody has it.
struct ReadRecord {
  store::RecordPtr record;
  RowTier tier = RowTier::kNone;
};

// Where rows are read: one store, or several places in turn. A value; its reads may block for a
// bounded time, and should end with the request that they are for. Any thread.
class RecordReader {
 public:
  using Read = std::function<ReadRecord(const WantedRecord&, const ReadContext&)>;

  explicit RecordReader(Read read) : read_(std::move(read)) {}
  // What `store` has is LOCAL; its errors are a miss and a line in the log. `store` outlives it.
  RecordReader(store::EmbeddingStore& store);  // NOLINT(google-explicit-constructor)

  ReadRecord operator()(const WantedRecord& wanted, const ReadContext& asker = {}) const {
    return read_(wanted, asker);
  }

 private:
  Read read_;
};

}  // namespace tessera::decode
