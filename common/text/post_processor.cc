#include "common/text/post_processor.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"

namespace tessera::text {
namespace {

absl::Status AddIds(const Fields& specials, const std::string& name, std::vector<int32_t>* out) {
  const base::Json* entry = specials.Find(name);
  if (entry == nullptr) return BadTokenizer(specials.PathOf(name), "is missing");
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*entry, specials.PathOf(name)));
  ASSIGN_OR_RETURN(const base::Json* ids, fields.Array("ids"));
  for (size_t i = 0; i < ids->size(); ++i) {
    ASSIGN_OR_RETURN(const int32_t id,
                     ReadId((*ids)[i], absl::StrCat(fields.PathOf("ids"), "[", i, "]")));
    out->push_back(id);
  }
  return absl::OkStatus();
}

absl::StatusOr<PostProcessor> ParseTemplate(const Fields& fields) {
  ASSIGN_OR_RETURN(const base::Json* pieces, fields.Array("single"));
  const base::Json none = base::Json::object();
  const base::Json* table = fields.Find("special_tokens");
  ASSIGN_OR_RETURN(const Fields specials,
                   Fields::Of(table == nullptr ? none : *table, fields.PathOf("special_tokens")));
  PostProcessor out;
  int sequences = 0;
  for (size_t i = 0; i < pieces->size(); ++i) {
    const std::string path = absl::StrCat(fields.PathOf("single"), "[", i, "]");
    ASSIGN_OR_RETURN(const Fields piece, Fields::Of((*pieces)[i], path));
    if (const base::Json* special = piece.Find("SpecialToken")) {
      ASSIGN_OR_RETURN(const Fields token, Fields::Of(*special, piece.PathOf("SpecialToken")));
      ASSIGN_OR_RETURN(const std::string name, token.String("id"));
      RETURN_IF_ERROR(AddIds(specials, name, sequences == 0 ? &out.before : &out.behind));
    } else if (piece.Find("Sequence") != nullptr) {
      ++sequences;
    } else {
      return BadTokenizer(path, "is neither SpecialToken nor Sequence");
    }
  }
  if (sequences != 1) {
    return BadTokenizer(fields.PathOf("single"),
                        absl::StrCat("holds the sequence ", sequences, " times, not once"));
  }
  return out;
}

// ["<s>", 0]
absl::Status AddPair(const Fields& fields, absl::string_view key, std::vector<int32_t>* out) {
  ASSIGN_OR_RETURN(const base::Json* pair, fields.Array(key));
  if (pair->size() != 2) return BadTokenizer(fields.PathOf(key), "must be [token, id]");
  ASSIGN_OR_RETURN(const int32_t id, ReadId((*pair)[1], fields.PathOf(key)));
  out->push_back(id);
  return absl::OkStatus();
}

absl::StatusOr<PostProcessor> ParseStep(const base::Json& json, const std::string& path);

absl::StatusOr<PostProcessor> ParseSequence(const Fields& fields) {
  ASSIGN_OR_RETURN(const base::Json* list, fields.Array("processors"));
  PostProcessor out;
  for (size_t i = 0; i < list->size(); ++i) {
    ASSIGN_OR_RETURN(const PostProcessor step,
                     ParseStep((*list)[i], absl::StrCat(fields.PathOf("processors"), "[", i, "]")));
    out.before.insert(out.before.begin(), step.before.begin(), step.before.end());
    out.behind.insert(out.behind.end(), step.behind.begin(), step.behind.end());
  }
  return out;
}

absl::StatusOr<PostProcessor> ParseStep(const base::Json& json, const std::string& path) {
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(json, path));
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (type == "ByteLevel") return PostProcessor();
  if (type == "TemplateProcessing") return ParseTemplate(fields);
  if (type == "Sequence") return ParseSequence(fields);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    PostProcessor out;
    RETURN_IF_ERROR(AddPair(fields, "cls", &out.before));
    RETURN_IF_ERROR(AddPair(fields, "sep", &out.behind));
    return out;
  }
  return UnsupportedTokenizer(
      path, absl::StrCat("post_processor type \"", type, "\""),
      "TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing, Sequence");
}

}  // namespace

absl::StatusOr<PostProcessor> ParsePostProcessor(const base::Json* json) {
  if (json == nullptr || json->is_null()) return PostProcessor();
  return ParseStep(*json, "post_processor");
}

}  // namespace tessera::text
