#include "common/flags/store_flags.h"

namespace tessera::flags {

std::vector<Flag> StoreFlags(store::StoreSetOptions& options) {
  store::RedisOptions& redis = options.redis;
  return {
      {"embedding_store", Value(options.store), "memory, redis://... or rediss://..."},
      {"embedding_store_bytes", Bytes(options.memory_bytes), "rows kept in memory"},
      {"embedding_store_key_file", ValueOrEmpty(options.key_file),
       "32 bytes that seal the records, read at the start alone: what is sealed otherwise is a "
       "miss"},
      {"embedding_ttl", Value(redis.ttl), "life of a record in Redis"},
      {"embedding_store_timeout", Value(redis.operation_timeout), "of a read or write of Redis"},
      {"embedding_store_connect_timeout", Value(redis.connect_timeout), "to reach Redis"},
      {"embedding_store_min_bytes_per_second", Bytes(redis.min_bytes_per_second),
       "of Redis: a large value has so much longer"},
      {"embedding_store_connections", Value(redis.max_connections), "to Redis, at most"},
      {"embedding_store_tls_ca_file", ValueOrEmpty(redis.tls_ca_file),
       "whom rediss:// trusts [the system's list]"},
      {"embedding_store_tls_cert_file", ValueOrEmpty(redis.tls_cert_file), "ours, PEM"},
      {"embedding_store_tls_key_file", ValueOrEmpty(redis.tls_key_file), "ours, PEM"},
  };
}

}  // namespace tessera::flags
