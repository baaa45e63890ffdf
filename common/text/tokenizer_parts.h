#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/text/added_tokens.h"
#include "common/text/bpe_model.h"
#include "common/text/decoder.h"
#include "common/text/normalizer.h"
#include "common/text/post_processor.h"
#include "common/text/pre_tokenizer.h"

namespace tessera::text {

// What a tokenizer consists of, as its file describes it; filled by tokenizer_load.cc.
struct TokenizerParts {
  explicit TokenizerParts(Decoder parsed) : decoder(std::move(parsed)) {}

  std::unique_ptr<Normalizer> normalizer;       // may be nullptr
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be nullptr
  std::unique_ptr<BpeModel> model;
  PostProcessor post_processor;
  Decoder decoder;

  std::vector<AddedToken> added;                          // in file order
  std::unique_ptr<AddedTokenMatcher> raw_matcher;         // tokens found before normalizing
  std::unique_ptr<AddedTokenMatcher> normalized_matcher;  // and after it

  absl::flat_hash_map<std::string, int32_t> added_ids;
  std::vector<std::string> tokens;  // by id; empty: no token
  std::vector<bool> special;        // by id
};

}  // namespace tessera::text
