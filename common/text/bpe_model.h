#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/text/added_tokens.h"
#include "common/text/json_fields.h"
#include "common/text/marked_text.h"

// Byte pair encoding as the "BPE" model of tokenizer.json has it: characters, then merges by rank.
namespace tessera::text {

class BpeModel {
 public:
  // `json` is the file's "model". `added` may name the unknown token. Fails with BAD_TOKENIZER or
  // UNSUPPORTED_TOKENIZER.
  static absl::StatusOr<std::unique_ptr<BpeModel>> Parse(const base::Json& json,
                                                         const std::vector<AddedToken>& added);

  // Buffers that a caller keeps from word to word.
  struct Symbol {
    int32_t id;
    bool untrusted;  // covers a byte that a user wrote
    bool live;
    int32_t previous, next;  // -1: none
  };
  struct Candidate {
    int32_t rank, position, merged;
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the ids of one word; n log n in its bytes. No control id stands for untrusted bytes,
  // except the unknown token for characters that the vocabulary lacks. Any thread, each with its
  // own scratch. REQUIRES: fewer than 2^31 bytes.
  void Encode(const MarkedView& word, const MatchRules& rules, Scratch* scratch,
              std::vector<int32_t>* ids) const;

  std::optional<int32_t> IdOf(absl::string_view token) const;
  const absl::flat_hash_map<std::string, int32_t>& vocab() const { return vocab_; }

 private:
  struct Merge {
    int32_t rank, merged;
  };
  using Pair = std::pair<int32_t, int32_t>;

  BpeModel() = default;
  absl::Status ReadOptions(const Fields& model, const std::vector<AddedToken>& added);
  absl::Status ReadVocab(const Fields& model);
  absl::Status ReadMerges(const Fields& model);

  bool EncodeWhole(const MarkedView& word, const MatchRules& rules,
                   std::vector<int32_t>* ids) const;
  void MakeSymbols(const MarkedView& word, const MatchRules& rules, Scratch* scratch) const;
  bool AddBytes(const MarkedView& character, const MatchRules& rules,
                std::vector<Symbol>* symbols) const;
  const Merge* FindMerge(const Symbol& left, const Symbol& right, const MatchRules& rules) const;
  void MergeAll(const MatchRules& rules, Scratch* scratch) const;

  absl::flat_hash_map<std::string, int32_t> vocab_;
  absl::flat_hash_map<Pair, Merge> merges_;
  std::array<int32_t, 256> byte_ids_;  // "<0x0A>"; -1 where the vocabulary lacks it
  std::optional<int32_t> unknown_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

}  // namespace tessera::text
