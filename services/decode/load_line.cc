#include "services/decode/load_line.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::decode {

std::optional<std::string> LoadLine(const EngineStats& now, const EngineStats& before,
                                    absl::Duration span) {
  const int64_t prompt = now.prompt_tokens - before.prompt_tokens;
  const int64_t generated = now.generation_tokens - before.generation_tokens;
  if (prompt + generated == 0 && now.running + now.waiting == 0) return std::nullopt;
  const double seconds = absl::ToDoubleSeconds(span);
  const int64_t looked_up = now.prefix_queries - before.prefix_queries;
  const int64_t found = now.prefix_hits - before.prefix_hits;
  std::string line = absl::StrFormat(
      "prompt %.1f tokens/s, generation %.1f tokens/s, running %d, waiting %d, KV %.1f %%, prefix "
      "hit %.1f %%",
      static_cast<double>(prompt) / seconds, static_cast<double>(generated) / seconds, now.running,
      now.waiting, now.blocks_total > 0 ? 100.0 * now.blocks_used / now.blocks_total : 0.0,
      looked_up > 0 ? 100.0 * found / looked_up : 0.0);
  if (now.preemptions > before.preemptions) {
    absl::StrAppend(&line, ", preempted ", now.preemptions - before.preemptions);
  }
  return line;
}

}  // namespace tessera::decode
