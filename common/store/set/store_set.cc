#include "common/store/set/store_set.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/store/record_trailer.h"
#include "common/store/redis/redis_address.h"

namespace tessera::store {
namespace {

absl::StatusOr<RecordCodec> CodecOf(const std::string& key_file) {
  if (key_file.empty()) return RecordCodec();
  absl::StatusOr<std::string> key = base::ReadFile(key_file, 4096);
  if (!key.ok()) return base::Annotate(key.status(), "--embedding_store_key_file");
  if (key->size() != kMacKeyBytes) {
    return base::BadField("embedding_store_key_file", "BAD_OPTION",
                          absl::StrCat("--embedding_store_key_file has ", key->size(),
                                       " bytes; it needs ", kMacKeyBytes, " raw ones"));
  }
  return RecordCodec::WithKey(*key);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreSet>> StoreSet::Create(StoreSetOptions options,
                                                           metrics::Metrics& metrics) {
  auto set = absl::WrapUnique(new StoreSet());
  ASSIGN_OR_RETURN(set->codec_, CodecOf(options.key_file));
  set->memory_ = std::make_unique<MemoryStore>(options.memory_bytes, metrics);
  if (options.store == "memory") return set;
  if (!IsRedisUrl(options.store)) {
    return base::BadField("embedding_store", "BAD_OPTION",
                          "--embedding_store is memory, redis://HOST:PORT/DB or rediss://...");
  }
  ASSIGN_OR_RETURN(options.redis.address, ParseRedisUrl(options.store));
  options.redis.codec = set->codec_;
  ASSIGN_OR_RETURN(set->redis_, RedisStore::Create(std::move(options.redis), metrics));
  set->tiered_ =
      std::make_unique<TieredStore>(*set->memory_, *set->redis_, TieredOptions(), metrics);
  return set;
}

}  // namespace tessera::store
