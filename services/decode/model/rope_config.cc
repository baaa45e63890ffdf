#include "services/decode/model/rope_config.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace tessera::decode {
namespace {

constexpr char kKinds[] = "default, linear, dynamic, llama3";
constexpr double kMaxFactor = 1e6;
constexpr int64_t kMaxLength = int64_t{1} << 31;

absl::StatusOr<RopeKind> ReadKind(ConfigReader& scaling) {
  const base::Json* old_name = scaling.Find("type");
  const base::Json* name = scaling.Find("rope_type");
  const absl::string_view key = name != nullptr ? "rope_type" : "type";
  const base::Json* kind = name != nullptr ? name : old_name;
  if (kind == nullptr || *kind == "default") return RopeKind::kDefault;
  if (*kind == "linear") return RopeKind::kLinear;
  if (*kind == "dynamic") return RopeKind::kDynamic;
  if (*kind == "llama3") return RopeKind::kLlama3;
  return UnsupportedKey(scaling.Name(key), *kind, kKinds);
}

absl::Status RequireKeys(ConfigReader& scaling, absl::Span<const absl::string_view> keys) {
  for (absl::string_view key : keys) {
    if (scaling.Find(key) == nullptr) {
      return InvalidKey(scaling.Name(key), "is missing; this kind of rotary scaling needs it");
    }
  }
  return absl::OkStatus();
}

// A rotation of a part of the head only is not Llama's.
absl::Status RefusePartialRotary(ConfigReader& reader) {
  const base::Json* part = reader.Find("partial_rotary_factor");
  if (part == nullptr || (part->is_number() && part->get<double>() == 1.0)) return absl::OkStatus();
  return UnsupportedKey(reader.Name("partial_rotary_factor"), *part, "1");
}

// The object with the scaling, and its name; nullptr when there is none.
absl::StatusOr<const base::Json*> FindScaling(ConfigReader& text, std::string& name) {
  const base::Json* scaling = text.Find("rope_scaling");
  const base::Json* parameters = text.Find("rope_parameters");
  const bool old_form = scaling != nullptr && !(scaling->is_object() && scaling->empty());
  const absl::string_view key = old_form ? "rope_scaling" : "rope_parameters";
  const base::Json* found = old_form ? scaling : parameters;
  name = text.Name(key);
  if (found != nullptr && !found->is_object()) {
    return UnsupportedKey(name, *found, "null or an object");
  }
  return found;
}

absl::Status ReadLlama3(ConfigReader& scaling, std::optional<int64_t> trained, RopeConfig& rope) {
  RETURN_IF_ERROR(RequireKeys(scaling, {"low_freq_factor", "high_freq_factor"}));
  ASSIGN_OR_RETURN(rope.low_freq_factor, scaling.Number("low_freq_factor", 1, 1e-6, kMaxFactor));
  ASSIGN_OR_RETURN(rope.high_freq_factor, scaling.Number("high_freq_factor", 4, 1e-6, kMaxFactor));
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    return InvalidKey(scaling.Name("high_freq_factor"),
                      absl::StrCat("is ", rope.high_freq_factor,
                                   "; it must be above low_freq_factor ", rope.low_freq_factor));
  }
  ASSIGN_OR_RETURN(
      rope.original_max_position_embeddings,
      scaling.Int("original_max_position_embeddings", rope.max_position_embeddings, 1, kMaxLength));
  if (trained.has_value()) rope.original_max_position_embeddings = *trained;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RopeConfig> ReadRopeConfig(ConfigReader& text, int64_t max_position_embeddings,
                                          std::vector<std::string>& warnings) {
  RopeConfig rope;
  rope.max_position_embeddings = max_position_embeddings;
  RETURN_IF_ERROR(RefusePartialRotary(text));
  ASSIGN_OR_RETURN(rope.theta, text.Number("rope_theta", 10000.0, 1.0, 1e12));
  ASSIGN_OR_RETURN(const std::optional<int64_t> trained,
                   text.OptionalInt("original_max_position_embeddings", 1, kMaxLength));
  std::string name;
  ASSIGN_OR_RETURN(const base::Json* object, FindScaling(text, name));
  if (object == nullptr) return rope;

  ConfigReader scaling(*object, absl::StrCat(name, "."));
  RETURN_IF_ERROR(RefusePartialRotary(scaling));
  ASSIGN_OR_RETURN(rope.kind, ReadKind(scaling));
  ASSIGN_OR_RETURN(rope.theta, scaling.Number("rope_theta", rope.theta, 1.0, 1e12));
  if (rope.kind != RopeKind::kDefault) {
    RETURN_IF_ERROR(RequireKeys(scaling, {"factor"}));
    ASSIGN_OR_RETURN(rope.factor, scaling.Number("factor", 1.0, 1.0, kMaxFactor));
  }
  if (rope.kind == RopeKind::kLlama3) RETURN_IF_ERROR(ReadLlama3(scaling, trained, rope));
  for (const std::string& key : scaling.UnreadKeys()) {
    warnings.push_back(absl::StrCat("config.json: ", key, " is not known and was ignored"));
  }
  return rope;
}

}  // namespace tessera::decode
