#include "tools/inspect_record.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/bytes.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/metrics/metrics.h"
#include "common/store/redis/redis_store.h"
#include "tessera/v1/record.pb.h"

namespace tessera::tools {
namespace {

using store::RecordCodec;
using store::RecordPieces;

constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr size_t kMaxRecordBytes = size_t{512} << 20;

absl::StatusOr<RecordPieces> FromFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(path, kMaxRecordBytes));
  RecordPieces pieces;
  pieces.head = bytes.substr(0, RecordCodec::HeadBytes(bytes, bytes.size()));
  const auto* body = reinterpret_cast<const std::byte*>(bytes.data()) + pieces.head.size();
  pieces.body.assign(body, body + bytes.size() - pieces.head.size());
  return pieces;
}

absl::StatusOr<store::EmbeddingKey> KeyFrom(absl::string_view text) {
  absl::ConsumePrefix(&text, "tessera:emb:v1:");
  const auto digest = base::DigestFromHex(text);
  if (digest.ok()) return store::EmbeddingKey(*digest);
  return base::BadField("key", "BAD_OPTION", "--key is not 64 hex digits");
}

absl::StatusOr<RecordPieces> FromRedis(const InspectRecordOptions& options) {
  store::RedisOptions redis;
  ASSIGN_OR_RETURN(redis.address, store::ParseRedisUrl(options.redis));
  redis.connect_timeout = redis.operation_timeout = kPatience;
  redis.max_value_bytes = kMaxRecordBytes;
  ASSIGN_OR_RETURN(const store::EmbeddingKey key, KeyFrom(options.key));
  metrics::Metrics metrics("inspect");
  ASSIGN_OR_RETURN(const auto records, store::RedisStore::Create(redis, metrics));
  RETURN_IF_ERROR(records->FirstState(2 * kPatience));
  ASSIGN_OR_RETURN(auto found, records->Read(key));
  if (found.has_value()) return *std::move(found);
  return base::Error(absl::StatusCode::kNotFound, "RECORD_NOT_FOUND",
                     absl::StrCat("Redis has no record of ", key.hex()));
}

std::string QualityText(const v1::EmbeddingRecordHeader& header) {
  std::map<std::string, double> scores(header.quality().begin(), header.quality().end());
  return absl::StrJoin(scores, ", ", [](std::string* text, const auto& score) {
    absl::StrAppendFormat(text, "%s %.4g", score.first, score.second);
  });
}

// Whatever its seal: it may be what is wrong.
void PrintHeader(const v1::EmbeddingRecordHeader& header, std::ostream& out) {
  const auto created = absl::FromUnixMicros(header.created_unix_micros());
  out << absl::StreamFormat("%-22s %s\n", "key", base::ToHex(header.key()));
  out << absl::StreamFormat("%-22s %d of %d, %s%s\n", "rows", header.rows(), header.width(),
                            v1::RecordDtype_Name(header.dtype()),
                            header.scales_present() ? ", with scales" : "");
  out << absl::StreamFormat("%-22s %d x %d\n", "grid", header.grid_height(), header.grid_width());
  out << absl::StreamFormat("%-22s %s\n", "model revision", header.model_revision());
  out << absl::StreamFormat("%-22s %s\n", "preprocessing", header.preprocessing());
  out << absl::StreamFormat("%-22s %s\n", "created",
                            absl::FormatTime(absl::RFC3339_sec, created, absl::UTCTimeZone()));
  out << absl::StreamFormat("%-22s %s\n", "quality", QualityText(header));
}

absl::Status Show(RecordPieces pieces, const RecordCodec& codec, std::ostream& out) {
  out << absl::StreamFormat("%-22s %d bytes: head %d, rows and trailer %d (%s)\n", "size",
                            pieces.head.size() + pieces.body.size(), pieces.head.size(),
                            pieces.body.size(),
                            base::BytesText(pieces.head.size() + pieces.body.size()));
  v1::EmbeddingRecordHeader header;
  const absl::string_view head = pieces.head;
  const bool readable =
      !head.empty() &&
      header.ParseFromArray(head.data() + RecordCodec::kPrefixBytes,
                            static_cast<int>(head.size() - RecordCodec::kPrefixBytes));
  store::RecordExpectation expected;
  if (readable) {
    PrintHeader(header, out);
    // A key of another length is told by the codec.
    const auto key = store::EmbeddingKey::FromBytes(header.key());
    if (key.ok()) expected.key = *key;
  }
  const absl::Status status = codec.Decode(std::move(pieces), expected).status();
  const store::RecordVerdict verdict = store::VerdictOf(status);
  out << absl::StreamFormat("%-22s %s%s\n", "verdict", std::string(store::Name(verdict)),
                            store::ShouldDelete(verdict) ? ", deleted when read" : "");
  return status;
}

}  // namespace

absl::Status InspectRecord(const InspectRecordOptions& options, std::ostream& out) {
  if (options.path.empty() == options.redis.empty()) {
    return base::BadField("redis", "BAD_OPTION",
                          "a record is in a file or in Redis: give FILE, or --redis URL --key HEX");
  }
  RecordCodec codec;
  if (!options.key_file.empty()) {
    ASSIGN_OR_RETURN(const std::string key, base::ReadFile(options.key_file, 4096));
    ASSIGN_OR_RETURN(codec, RecordCodec::WithKey(key));
  }
  ASSIGN_OR_RETURN(RecordPieces pieces,
                   options.redis.empty() ? FromFile(options.path) : FromRedis(options));
  return Show(std::move(pieces), codec, out);
}

}  // namespace tessera::tools
