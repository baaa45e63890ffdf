#include "services/decode/engine/record_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tessera::decode {

RecordReader::RecordReader(store::EmbeddingStore& store)
    : read_([&store](const WantedRecord& wanted, const ReadContext&) -> ReadRecord {
        absl::StatusOr<std::optional<store::RecordPtr>> record = store.Get(wanted.key, wanted.rows);
        if (!record.ok()) {
          base::Log(base::LogLevel::kWarning,
                    absl::StrCat("reading an embedding record: ", record.status().ToString()));
          return {};
        }
        if (!record->has_value()) return {};
        return {**std::move(record), RowTier::kLocal};
      }) {}

}  // namespace tessera::decode
