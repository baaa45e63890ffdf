#include "services/decode/record_tiers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/metrics/names.h"

namespace tessera::decode {
namespace {

// How looks at the origin ended.
struct OriginSeries {
  explicit OriginSeries(metrics::Metrics& metrics)
      : hits(metrics.GetCounter(metrics::kEmbeddingCacheLookups, {"origin", "hit"})),
        misses(metrics.GetCounter(metrics::kEmbeddingCacheLookups, {"origin", "miss"})),
        errors(metrics.GetCounter(metrics::kEmbeddingCacheLookups, {"origin", "error"})),
        rejected(metrics.GetCounter(metrics::kEmbeddingCacheLookups, {"origin", "rejected"})) {}
  metrics::Counter hits, misses, errors, rejected;
};

// A key covers what decides the shape: whoever wrote another one is not one of ours.
bool Fits(const store::EmbeddingRecord& record, const WantedRecord& wanted) {
  return (wanted.rows == 0 || record.rows == wanted.rows) &&
         (wanted.width == 0 || record.width == wanted.width);
}

void TellShape(const store::EmbeddingRecord& record, const WantedRecord& wanted,
               absl::string_view of) {
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("a record of ", of, " has ", record.rows, " rows of ", record.width,
                         " instead of ", wanted.rows, " of ", wanted.width, ": taken as a miss"));
}

store::RecordPtr FromOrigin(OriginClient& client, const OriginSeries& series,
                            const WantedRecord& wanted, const ReadContext& asker) {
  if (wanted.origin.empty()) return nullptr;
  if (!client.Knows(wanted.origin)) {
    client.TellUnknown(wanted.origin);
    return nullptr;
  }
  absl::StatusOr<store::RecordPtr> record = client.Get(wanted.origin, wanted.key, asker);
  if (record.ok() && !Fits(**record, wanted)) {
    series.rejected.Increment();
    TellShape(**record, wanted, wanted.origin);
    return nullptr;
  }
  if (record.ok()) {
    series.hits.Increment();
    return *std::move(record);
  }
  if (asker.ended.stop_requested()) return nullptr;  // we broke it off
  if (absl::IsNotFound(record.status())) {
    series.misses.Increment();
  } else if (absl::IsInvalidArgument(record.status())) {
    series.rejected.Increment();
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("a record of ", wanted.origin, ": ", record.status().ToString()));
  } else {
    series.errors.Increment();
  }
  return nullptr;
}

ReadRecord FromStores(const RecordTiers& tiers, const metrics::Counter& rejected,
                      const WantedRecord& wanted) {
  if (tiers.shared == nullptr) return RecordReader(tiers.local)(wanted);
  store::FoundRecord found = tiers.shared->GetFrom(wanted.key, wanted.rows);
  if (found.record == nullptr) return {};
  if (!Fits(*found.record, wanted)) {
    rejected.Increment();
    TellShape(*found.record, wanted, "the embedding store");
    return {};
  }
  return {std::move(found.record),
          found.tier == store::StoreTier::kLocal ? RowTier::kLocal : RowTier::kStore};
}

}  // namespace

RecordReader MakeRecordReader(const RecordTiers& tiers) {
  return RecordReader(
      [tiers, series = OriginSeries(tiers.metrics),
       rejected = tiers.metrics.GetCounter(metrics::kEmbeddingCacheLookups, {"store", "rejected"})](
          const WantedRecord& wanted, const ReadContext& asker) -> ReadRecord {
        ReadRecord read = FromStores(tiers, rejected, wanted);
        if (read.record != nullptr || tiers.origin == nullptr) return read;
        store::RecordPtr made = FromOrigin(*tiers.origin, series, wanted, asker);
        if (made == nullptr) return {};
        store::EmbeddingStore* keep = &tiers.local;
        if (tiers.shared != nullptr) keep = tiers.shared;
        // What it took to make the rows is not known here; that they had to travel is.
        keep->Put(made, absl::Milliseconds(100)).IgnoreError();
        return {std::move(made), RowTier::kOrigin};
      });
}

}  // namespace tessera::decode
