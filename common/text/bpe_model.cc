#include "common/text/bpe_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/text/utf8.h"

namespace tessera::text {
namespace {

// A pair "a b" of the older form, or ["a", "b"].
absl::StatusOr<std::pair<std::string, std::string>> ReadPair(const base::Json& json,
                                                             absl::string_view path) {
  if (json.is_array()) {
    if (json.size() != 2 || !json[0].is_string() || !json[1].is_string()) {
      return BadTokenizer(path, "must be two strings");
    }
    return std::make_pair(json[0].get<std::string>(), json[1].get<std::string>());
  }
  if (!json.is_string()) {
    return BadTokenizer(path, absl::StrCat("must be a string or a pair, not ", json.type_name()));
  }
  const auto& line = json.get_ref<const std::string&>();
  const size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
    return BadTokenizer(path,
                        absl::StrCat("\"", line, "\" is not two tokens with one space between"));
  }
  return std::make_pair(line.substr(0, space), line.substr(space + 1));
}

// Lowest rank first, then leftmost.
bool Later(const BpeModel::Candidate& a, const BpeModel::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BpeModel>> BpeModel::Parse(const base::Json& json,
                                                          const std::vector<AddedToken>& added) {
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(json, "model"));
  // The first files named no type; only BPE has merges.
  const bool has_merges = fields.Find("merges") != nullptr;
  ASSIGN_OR_RETURN(const std::string type, fields.String("type", has_merges ? "BPE" : ""));
  if (type.empty()) return BadTokenizer("model.type", "is missing");
  if (type != "BPE") {
    return UnsupportedTokenizer("model.type", absl::StrCat("\"", type, "\""), "BPE");
  }
  std::unique_ptr<BpeModel> model(new BpeModel());
  RETURN_IF_ERROR(model->ReadVocab(fields));
  RETURN_IF_ERROR(model->ReadOptions(fields, added));
  RETURN_IF_ERROR(model->ReadMerges(fields));
  return model;
}

absl::Status BpeModel::ReadOptions(const Fields& model, const std::vector<AddedToken>& added) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const std::string value, model.String(key, ""));
    if (!value.empty()) {
      return UnsupportedTokenizer(model.PathOf(key), absl::StrCat("\"", value, "\""),
                                  "none or \"\"");
    }
  }
  if (const base::Json* dropout = model.Find("dropout")) {
    if (!dropout->is_number()) return BadTokenizer("model.dropout", "must be a number");
    if (dropout->get<double>() != 0) {
      return UnsupportedTokenizer("model.dropout", dropout->dump(), "none or 0");
    }
  }
  ASSIGN_OR_RETURN(fuse_unknown_, model.Bool("fuse_unk", false));
  ASSIGN_OR_RETURN(byte_fallback_, model.Bool("byte_fallback", false));
  ASSIGN_OR_RETURN(ignore_merges_, model.Bool("ignore_merges", false));
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = IdOf(absl::StrFormat("<0x%02X>", byte)).value_or(-1);
  }
  if (model.Find("unk_token") == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string unknown, model.String("unk_token"));
  unknown_ = IdOf(unknown);
  for (const AddedToken& token : added) {
    if (token.content == unknown) unknown_ = token.id;
  }
  if (!unknown_) {
    return BadTokenizer("model.unk_token", absl::StrCat("\"", unknown, "\" is in no vocabulary"));
  }
  return absl::OkStatus();
}

absl::Status BpeModel::ReadVocab(const Fields& model) {
  const base::Json* json = model.Find("vocab");
  if (json == nullptr) return BadTokenizer("model.vocab", "is missing");
  if (!json->is_object()) {
    return BadTokenizer("model.vocab", absl::StrCat("must be an object, not ", json->type_name()));
  }
  if (json->empty()) return BadTokenizer("model.vocab", "is empty");
  absl::flat_hash_map<int32_t, absl::string_view> owners;
  vocab_.reserve(json->size());
  owners.reserve(json->size());
  for (const auto& [token, value] : json->items()) {
    ASSIGN_OR_RETURN(const int32_t id, ReadId(value, absl::StrCat("model.vocab[\"", token, "\"]")));
    const auto [it, added] = owners.try_emplace(id, token);
    if (!added) {
      return BadTokenizer("model.vocab", absl::StrCat("id ", id, " belongs to \"", it->second,
                                                      "\" and to \"", token, "\""));
    }
    vocab_.emplace(token, id);
  }
  return absl::OkStatus();
}

absl::Status BpeModel::ReadMerges(const Fields& model) {
  ASSIGN_OR_RETURN(const base::Json* list, model.Array("merges"));
  merges_.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = absl::StrCat("model.merges[", i, "]");
    ASSIGN_OR_RETURN(const auto pair, ReadPair((*list)[i], path));
    const std::optional<int32_t> left = IdOf(pair.first), right = IdOf(pair.second);
    const std::optional<int32_t> merged = IdOf(pair.first + pair.second);
    for (const auto& [token, id] :
         {std::make_pair(pair.first, left), std::make_pair(pair.second, right),
          std::make_pair(pair.first + pair.second, merged)}) {
      if (!id) {
        return BadTokenizer(path,
                            absl::StrCat("names \"", token, "\", which is not in the vocabulary"));
      }
    }
    merges_[{*left, *right}] = {static_cast<int32_t>(i), *merged};
  }
  return absl::OkStatus();
}

std::optional<int32_t> BpeModel::IdOf(absl::string_view token) const {
  const auto it = vocab_.find(token);
  if (it == vocab_.end()) return std::nullopt;
  return it->second;
}

void BpeModel::Encode(const MarkedView& word, const MatchRules& rules, Scratch* scratch,
                      std::vector<int32_t>* ids) const {
  if (word.text.empty() || EncodeWhole(word, rules, ids)) return;
  MakeSymbols(word, rules, scratch);
  MergeAll(rules, scratch);
  for (const Symbol& symbol : scratch->symbols) {
    if (symbol.live) ids->push_back(symbol.id);
  }
}

bool BpeModel::EncodeWhole(const MarkedView& word, const MatchRules& rules,
                           std::vector<int32_t>* ids) const {
  if (!ignore_merges_) return false;
  const std::optional<int32_t> id = IdOf(word.text);
  if (!id || (rules.IsControl(*id) && word.Untrusted(0, word.text.size()))) return false;
  ids->push_back(*id);
  return true;
}

bool BpeModel::AddBytes(const MarkedView& character, const MatchRules& rules,
                        std::vector<Symbol>* symbols) const {
  if (!byte_fallback_) return false;
  const bool untrusted = character.Untrusted(0, character.text.size());
  for (const char c : character.text) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0 || (untrusted && rules.IsControl(id))) return false;
  }
  for (const char c : character.text) {
    symbols->push_back({byte_ids_[static_cast<uint8_t>(c)], untrusted, true, -1, -1});
  }
  return true;
}

// Characters as the library takes them: known ones, else bytes, else the unknown token. An unknown
// one waits for the next known one, which is where a run of them may become a single token.
void BpeModel::MakeSymbols(const MarkedView& word, const MatchRules& rules,
                           Scratch* scratch) const {
  std::vector<Symbol>& symbols = scratch->symbols;
  symbols.clear();
  std::optional<Symbol> waiting;
  for (size_t at = 0; at < word.text.size();) {
    const size_t end = at + Utf8Length(word.text[at]);
    const MarkedView character = word.Sub(at, end);
    const bool untrusted = character.Untrusted(0, character.text.size());
    const std::optional<int32_t> id = IdOf(character.text);
    at = end;
    if (id && !(untrusted && rules.IsControl(*id))) {
      if (waiting) symbols.push_back(*std::exchange(waiting, std::nullopt));
      symbols.push_back({*id, untrusted, true, -1, -1});
    } else if (!AddBytes(character, rules, &symbols) && unknown_) {
      if (waiting && fuse_unknown_) {
        waiting->untrusted |= untrusted;
      } else {
        if (waiting) symbols.push_back(*waiting);
        waiting = Symbol{*unknown_, untrusted, true, -1, -1};
      }
    }
  }
  if (waiting) symbols.push_back(*waiting);
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i) + 1 : -1;
  }
}

const BpeModel::Merge* BpeModel::FindMerge(const Symbol& left, const Symbol& right,
                                           const MatchRules& rules) const {
  const auto it = merges_.find({left.id, right.id});
  if (it == merges_.end()) return nullptr;
  if ((left.untrusted || right.untrusted) && rules.IsControl(it->second.merged)) return nullptr;
  return &it->second;
}

void BpeModel::MergeAll(const MatchRules& rules, Scratch* scratch) const {
  std::vector<Symbol>& symbols = scratch->symbols;
  std::vector<Candidate>& heap = scratch->heap;
  heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    if (const Merge* merge = FindMerge(symbols[i], symbols[i + 1], rules)) {
      heap.push_back({merge->rank, static_cast<int32_t>(i), merge->merged});
    }
  }
  std::make_heap(heap.begin(), heap.end(), Later);
  const auto offer = [&](int32_t position) {
    if (position < 0 || symbols[position].next < 0) return;
    const Merge* merge = FindMerge(symbols[position], symbols[symbols[position].next], rules);
    if (merge == nullptr) return;
    heap.push_back({merge->rank, position, merge->merged});
    std::push_heap(heap.begin(), heap.end(), Later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), Later);
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[top.position];
    if (!left.live || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    // The pair may have changed since; the library compares what it would become.
    const Merge* merge = FindMerge(left, right, rules);
    if (merge == nullptr || merge->merged != top.merged) continue;
    left.id = top.merged;
    left.untrusted |= right.untrusted;
    right.live = false;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.position;
    offer(left.previous);
    offer(top.position);
  }
}

}  // namespace tessera::text
