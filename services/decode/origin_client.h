#pragma once

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/store/embedding_store.h"
#include "common/store/record_codec.h"
#include "services/decode/engine/record_reader.h"
#include "tessera/v1/vision.grpc.pb.h"

namespace tessera::decode {

struct OriginOptions {
  // "host:port" of the vision replicas that may be asked: a reference that names another is not
  // believed. A host whose port is listed as "*:port" may be any.
  std::vector<std::string> addresses;
  absl::Duration timeout = absl::Seconds(2);  // of one record
  absl::Duration rest = absl::Seconds(1);     // for an origin that did not answer within `timeout`
  size_t max_record_bytes = 256ull << 20;     // larger ones are refused unread
  // Replicas to which there is a channel: with "*:port" they come and go. One more takes the place
  // of the one that was asked longest ago.
  size_t max_origins = 64;
};

// Reads records from the vision replicas that made them. One that lets a time-out pass is left
// alone for a moment, and asked by one call at a time until it answers: a silent replica holds
// few. Any thread; each call blocks its own.
class OriginClient {
 public:
  // `connect` makes the channel of an address. `clock` outlives the client.
  OriginClient(OriginOptions options,
               std::function<std::shared_ptr<grpc::Channel>(const std::string& address)> connect,
               store::RecordCodec codec, base::Clock& clock);

  // Whether `origin` is one of the addresses.
  bool Knows(const std::string& origin) const;
  // A line of the log, once for each origin, and of the first few only: a reference may name any.
  // REQUIRES: !Knows(origin).
  void TellUnknown(const std::string& origin);

  // NOT_FOUND (RECORD_GONE), INVALID_ARGUMENT with a verdict of the codec, UNAVAILABLE
  // (ORIGIN_SILENT) at once for one that is left alone, or what gRPC says. At most
  // options.timeout, and no longer than anybody waits for it: CANCELLED, DEADLINE_EXCEEDED.
  // REQUIRES: Knows(origin).
  absl::StatusOr<store::RecordPtr> Get(const std::string& origin, const store::EmbeddingKey& key,
                                       const ReadContext& asker = {});

 private:
  struct Origin {
    std::shared_ptr<v1::VisionService::Stub> stub;
    absl::Time last_ask;
    bool silent = false;                             // the last that is known of it
    absl::Time next_attempt = absl::InfinitePast();  // where it is silent
  };

  absl::StatusOr<std::shared_ptr<v1::VisionService::Stub>> Approach(const std::string& origin);
  std::shared_ptr<v1::VisionService::Stub> ForgetOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> Read(v1::VisionService::Stub& stub, const store::EmbeddingKey& key,
                                   const ReadContext& asker);
  void Judge(const std::string& origin, const absl::Status& status, const ReadContext& asker,
             absl::Time begun);

  const OriginOptions options_;
  const std::function<std::shared_ptr<grpc::Channel>(const std::string&)> connect_;
  const store::RecordCodec codec_;
  base::Clock& clock_;
  base::Mutex mutex_;
  absl::flat_hash_map<std::string, Origin> origins_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::string> unknown_origins_ ABSL_GUARDED_BY(mutex_);  // logged, names cut
};

}  // namespace tessera::decode
