#include "common/store/redis/redis_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check_range.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/metrics/names.h"

namespace tessera::store {
namespace {

// Commands count as taken again when none was refused for so long.
constexpr absl::Duration kCalm = absl::Seconds(10);
constexpr int kSenselessInARow = 3;  // answers that are told of

std::string NameOf(const EmbeddingKey& key) { return absl::StrCat("tessera:emb:v1:", key.hex()); }

absl::Status CheckTime(absl::string_view name, absl::Duration value, absl::Duration least) {
  if (value >= least && value <= absl::Hours(24 * 366)) return absl::OkStatus();
  return base::BadField(name, "BAD_OPTION",
                        absl::StrCat(name, " = ", absl::FormatDuration(value), "; from ",
                                     absl::FormatDuration(least), " to a year"));
}

absl::Status Validate(const RedisOptions& options) {
  constexpr absl::Duration kLeast = absl::Milliseconds(1);
  RETURN_IF_ERROR(CheckTime("embedding_store_connect_timeout", options.connect_timeout, kLeast));
  RETURN_IF_ERROR(CheckTime("embedding_store_timeout", options.operation_timeout, kLeast));
  RETURN_IF_ERROR(CheckTime("embedding_store_min_backoff", options.min_backoff, kLeast));
  RETURN_IF_ERROR(
      CheckTime("embedding_store_max_backoff", options.max_backoff, options.min_backoff));
  RETURN_IF_ERROR(CheckTime("embedding_store_ping_interval", options.ping_interval, kLeast));
  RETURN_IF_ERROR(CheckTime("embedding_ttl", options.ttl, absl::Seconds(1)));
  RETURN_IF_ERROR(base::CheckRange("embedding_store_min_bytes_per_second",
                                   static_cast<int64_t>(options.min_bytes_per_second), 1,
                                   int64_t{1} << 50));
  RETURN_IF_ERROR(base::CheckRange("embedding_store_max_value_bytes",
                                   static_cast<int64_t>(options.max_value_bytes), 1, 512 << 20));
  RETURN_IF_ERROR(base::CheckRange("embedding_store_timeouts_until_lost",
                                   options.timeouts_until_lost, 1, 1000));
  return base::CheckRange("embedding_store_connections", options.max_connections, 1, 256);
}

double SecondsSince(absl::Time begin) {
  return absl::ToDoubleSeconds(base::RealClock().Now() - begin);
}

}  // namespace

RedisStore::Series::Series(metrics::Metrics& metrics)
    : hits(metrics.GetCounter(metrics::kEmbeddingCacheLookups, {"store", "hit"})),
      misses(metrics.GetCounter(metrics::kEmbeddingCacheLookups, {"store", "miss"})),
      errors(metrics.GetCounter(metrics::kEmbeddingCacheLookups, {"store", "error"})),
      rejected(metrics.GetCounter(metrics::kEmbeddingCacheLookups, {"store", "rejected"})),
      get(metrics.GetHistogram(metrics::kEmbeddingCacheOperationDuration, {"store", "get"})),
      put(metrics.GetHistogram(metrics::kEmbeddingCacheOperationDuration, {"store", "put"})),
      del(metrics.GetHistogram(metrics::kEmbeddingCacheOperationDuration, {"store", "delete"})),
      bytes_read(metrics.GetCounter(metrics::kEmbeddingCacheTransferredBytes, {"read"})),
      bytes_written(metrics.GetCounter(metrics::kEmbeddingCacheTransferredBytes, {"write"})),
      writes_refused(metrics.GetCounter(metrics::kEmbeddingCacheFailedWrites, {"refused"})),
      writes_unavailable(metrics.GetCounter(metrics::kEmbeddingCacheFailedWrites, {"unavailable"})),
      writes_too_large(metrics.GetCounter(metrics::kEmbeddingCacheFailedWrites, {"too_large"})) {}

RedisStore::RedisStore(RedisOptions options, std::unique_ptr<RedisTls> tls,
                       metrics::Metrics& metrics)
    : options_(std::move(options)),
      tls_(std::move(tls)),
      series_(metrics),
      pool_(std::make_unique<RedisPool>(options_, tls_.get(),
                                        metrics.GetGauge(metrics::kEmbeddingCacheUp, {"store"}))) {}

absl::StatusOr<std::unique_ptr<RedisStore>> RedisStore::Create(RedisOptions options,
                                                               metrics::Metrics& metrics) {
  RETURN_IF_ERROR(Validate(options));
  std::unique_ptr<RedisTls> tls;
  if (options.address.tls) {
    ASSIGN_OR_RETURN(tls, RedisTls::Create(options));
  }
  return std::unique_ptr<RedisStore>(new RedisStore(std::move(options), std::move(tls), metrics));
}

absl::StatusOr<std::optional<RecordPtr>> RedisStore::Get(const EmbeddingKey& key,
                                                         int64_t most_rows) {
  const int64_t width = row_width_.load();
  size_t most_bytes = options_.max_value_bytes;
  if (most_rows > 0 && width > 0) {
    most_bytes = std::min(most_bytes, RecordCodec::MostBytes(most_rows, width));
  }
  auto found = Read(key, most_bytes);
  Tell(found.status(), /*write=*/false);
  if (!found.ok()) {
    const bool wrong_type = base::ReasonOf(found.status()) == "REDIS_WRONG_TYPE";
    (wrong_type ? series_.rejected : series_.errors).Increment();
    return std::nullopt;
  }
  if (!found->has_value()) {
    series_.misses.Increment();
    return std::nullopt;
  }
  RecordExpectation expected = {.key = key};
  if (width != 0) expected.width = width;
  auto record = options_.codec.Decode(**std::move(found), expected);
  if (record.ok()) {
    series_.hits.Increment();
    return std::optional<RecordPtr>(std::make_shared<EmbeddingRecord>(*std::move(record)));
  }
  series_.rejected.Increment();
  TellRejected(record.status());
  if (ShouldDelete(VerdictOf(record.status()))) Delete(key);
  return std::nullopt;
}

absl::StatusOr<std::optional<RecordPieces>> RedisStore::Read(const EmbeddingKey& key,
                                                             size_t most_bytes) {
  ASSIGN_OR_RETURN(RedisPool::Lease lease,
                   pool_->Take(base::RealClock().Now() + options_.operation_timeout));
  const absl::Time begin = base::RealClock().Now();
  absl::StatusOr<RedisReply> reply = lease->Get(NameOf(key), most_bytes);
  series_.get.Observe(SecondsSince(begin));
  if (!reply.ok()) {
    lease.Broken(reply.status(), /*down=*/false);
    return reply.status();
  }
  switch (reply->kind) {
    case RedisReply::Kind::kNil:
      return std::nullopt;
    case RedisReply::Kind::kValue:
      series_.bytes_read.Increment(static_cast<double>(reply->value_bytes()));
      return std::optional<RecordPieces>(std::move(reply->value));
    default:
      return Refused(lease, *reply);
  }
}

absl::Status RedisStore::Put(RecordPtr record, absl::Duration) {
  // Nothing is sealed and copied for a server that is not there.
  if (!up()) {
    series_.writes_unavailable.Increment();
    return base::Error(absl::StatusCode::kUnavailable, "REDIS_DOWN", "the embedding store is down");
  }
  ASSIGN_OR_RETURN(const std::string bytes, options_.codec.Encode(*record));
  if (bytes.size() > options_.max_value_bytes) {
    series_.writes_too_large.Increment();
    return base::Error(absl::StatusCode::kResourceExhausted, "RECORD_TOO_LARGE",
                       absl::StrCat("an embedding record of ", bytes.size(),
                                    " bytes; the store takes ", options_.max_value_bytes));
  }
  const absl::Status status = Write(record->key, bytes);
  if (base::ReasonOf(status) == "REDIS_REFUSED") {
    series_.writes_refused.Increment();
  } else if (!status.ok()) {
    series_.writes_unavailable.Increment();
  }
  Tell(status, /*write=*/true);
  return status;
}

absl::Status RedisStore::Write(const EmbeddingKey& key, absl::string_view bytes) {
  const std::string name = NameOf(key);
  const std::string seconds = absl::StrCat(absl::ToInt64Seconds(options_.ttl));
  ASSIGN_OR_RETURN(RedisPool::Lease lease,
                   pool_->Take(base::RealClock().Now() + options_.operation_timeout));
  const absl::Time begin = base::RealClock().Now();
  const auto reply = lease->Command({"SET", name, bytes, "EX", seconds});
  series_.put.Observe(SecondsSince(begin));
  if (!reply.ok()) {
    lease.Broken(reply.status(), /*down=*/false);
    return reply.status();
  }
  if (reply->kind == RedisReply::Kind::kStatus) {
    series_.bytes_written.Increment(static_cast<double>(bytes.size()));
    return absl::OkStatus();
  }
  return Refused(lease, *reply);
}

void RedisStore::Delete(const EmbeddingKey& key) {
  auto lease = pool_->Take(base::RealClock().Now() + options_.operation_timeout);
  if (!lease.ok()) return;
  const absl::Time begin = base::RealClock().Now();
  const auto reply = (*lease)->Command({"DEL", NameOf(key)});
  series_.del.Observe(SecondsSince(begin));
  if (!reply.ok()) lease->Broken(reply.status(), /*down=*/false);
}

absl::Status RedisStore::Refused(RedisPool::Lease& lease, const RedisReply& reply) {
  if (reply.kind != RedisReply::Kind::kError) {
    const absl::Status status = base::Error(absl::StatusCode::kDataLoss, "REDIS_PROTOCOL",
                                            "Redis answered something else than was asked");
    lease.Broken(status, /*down=*/false);
    return status;
  }
  if (absl::StartsWith(reply.text, "WRONGTYPE")) {
    return base::Error(absl::StatusCode::kFailedPrecondition, "REDIS_WRONG_TYPE", reply.text);
  }
  if (reply.MeansDown()) {
    const absl::Status status =
        base::Error(absl::StatusCode::kUnavailable, "REDIS_DOWN", reply.text);
    lease.Broken(status, /*down=*/true);
    return status;
  }
  if (reply.MeansMoved()) pool_->LookAgain();
  return base::Error(absl::StatusCode::kResourceExhausted, "REDIS_REFUSED", reply.text);
}

// The first of each kind: a wrong key file would else be a line for each picture.
void RedisStore::TellRejected(const absl::Status& why) {
  const uint32_t bit = uint32_t{1} << static_cast<int>(VerdictOf(why));
  if ((told_verdicts_.fetch_or(bit) & bit) != 0) return;
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("embedding store: a record was rejected (", base::ReasonOf(why),
                         "): ", why.message(), "; further ones are only counted"));
}

void RedisStore::Tell(const absl::Status& status, bool write) {
  const std::string reason = base::ReasonOf(status);
  Trouble trouble = Trouble::kNone;
  if (reason == "REDIS_REFUSED") {
    trouble = Trouble::kRefused;
  } else if (reason == "REDIS_PROTOCOL" || reason == "REDIS_TOO_LARGE" ||
             reason == "REDIS_CLOSED") {
    trouble = Trouble::kSenseless;
  } else if (!status.ok()) {
    return;  // the pool tells
  }
  Trouble before;
  {
    base::MutexLock lock(mutex_);
    Told& told = write ? writes_ : reads_;
    const absl::Time now = base::RealClock().Now();
    told.senseless = trouble == Trouble::kSenseless ? told.senseless + 1 : 0;
    // A server that goes away breaks off answers, too, and the pool tells of it.
    if (trouble == Trouble::kSenseless && told.senseless < kSenselessInARow) return;
    if (trouble != Trouble::kNone) told.last = now;
    if (trouble == told.trouble) return;
    if (trouble == Trouble::kNone && now < told.last + kCalm) return;
    before = std::exchange(told.trouble, trouble);
  }
  const absl::string_view command = write ? "write" : "read";
  std::string line = "embedding store: Redis ";
  if (trouble == Trouble::kRefused) {
    absl::StrAppend(&line, "refuses to ", command, ": ", status.message());
  } else if (trouble == Trouble::kSenseless) {
    absl::StrAppend(&line, "breaks off its answers or makes no sense when asked to ", command,
                    ", each is a miss: ", status.message());
  } else if (before == Trouble::kRefused) {
    absl::StrAppend(&line, "no longer refuses to ", command);
  } else {
    absl::StrAppend(&line, "answers again when asked to ", command);
  }
  base::Log(trouble == Trouble::kNone ? base::LogLevel::kInfo : base::LogLevel::kWarning, line);
}

}  // namespace tessera::store
