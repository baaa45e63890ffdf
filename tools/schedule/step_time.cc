#include "tools/schedule/step_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace tessera::tools {
namespace {

absl::Status Refuse(const std::string& path, const std::string& key, const std::string& why) {
  return base::BadField(key, "BAD_PROFILE", absl::StrCat(path, ": ", key, " ", why));
}

}  // namespace

absl::StatusOr<StepTime> StepTime::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const base::Json json, base::ReadJsonFile(path));
  if (!json.is_object()) return Refuse(path, "the file", "must hold one object");
  StepTime time;
  const std::array<std::pair<const char*, double*>, 6> numbers = {{
      {"seconds_per_token", &time.seconds_per_token},
      {"weight_bytes", &time.weight_bytes},
      {"kv_bytes_per_token", &time.kv_bytes_per_token},
      {"bytes_per_second", &time.bytes_per_second},
      {"overhead_seconds", &time.overhead_seconds},
      {"encode_seconds", &time.encode_seconds},
  }};
  for (const auto& [key, value] : json.items()) {
    const bool known =
        key == "name" || key == "source" ||
        std::any_of(numbers.begin(), numbers.end(),
                    [&key = key](const auto& number) { return key == number.first; });
    if (!known) return Refuse(path, key, "is not known");
  }
  for (const auto& [key, target] : numbers) {
    if (!json.contains(key) || !json[key].is_number()) return Refuse(path, key, "must be a number");
    *target = json[key].get<double>();
    if (!(*target >= 0 && std::isfinite(*target))) return Refuse(path, key, "must not be negative");
  }
  if (time.bytes_per_second == 0) return Refuse(path, "bytes_per_second", "must be above 0");
  if (!json.contains("name") || !json["name"].is_string()) {
    return Refuse(path, "name", "must be a string");
  }
  time.name = json["name"].get<std::string>();
  return time;
}

double StepTime::Of(const decode::BatchPlan& plan) const {
  const std::vector<int32_t>& context = plan.groups[0].context;
  return Of(plan.tokens(), std::accumulate(context.begin(), context.end(), int64_t{0}));
}

double StepTime::Of(int64_t tokens, int64_t context_tokens) const {
  const double arithmetic = static_cast<double>(tokens) * seconds_per_token;
  const double kv_bytes = static_cast<double>(context_tokens) * kv_bytes_per_token;
  return std::max(arithmetic, weight_bytes / bytes_per_second) + kv_bytes / bytes_per_second +
         overhead_seconds;
}

}  // namespace tessera::tools
