#pragma once

#include <functional>
#include <string>

#include "common/store/embedding_store.h"
#include "services/decode/engine/token_sink.h"

namespace tessera::decode {

// A record that a sequence needs.
struct WantedRecord {
  store::EmbeddingKey key;
  std::string origin;  // the replica that made it, as the request says; may be empty or a lie
};

// What was found, and by whom; kNone: nobody has it.
struct ReadRecord {
  store::RecordPtr record;
  RowTier tier = RowTier::kNone;
};

// Where rows are read: one store, or several places in turn. A value; its reads may block for a
// bounded time. Any thread.
class RecordReader {
 public:
  using Read = std::function<ReadRecord(const WantedRecord&)>;

  explicit RecordReader(Read read) : read_(std::move(read)) {}
  // What `store` has is LOCAL; its errors are a miss and a line in the log. `store` outlives it.
  RecordReader(store::EmbeddingStore& store);  // NOLINT(google-explicit-constructor)

  ReadRecord operator()(const WantedRecord& wanted) const { return read_(wanted); }

 private:
  Read read_;
};

}  // namespace tessera::decode
