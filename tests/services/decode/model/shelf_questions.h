#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/services/decode/model/script.h"

namespace tessera::testing {

// A question of models/shelf-vqa/eval: the prompt with the rows of its picture (f32, from the real
// decoder, preprocessing, tower, template and tokenizer), then the answer of the f32 reference and
// the end token, both forced. Token ids [prompt, size) are the answer.
struct ShelfQuestion {
  std::string picture, question, reference;
  Script script;
};

// `count` of them, at most 900, of as many pictures as can be: the first 100 each have their own,
// and all nine kinds of questions come in turn. Aborts when a file cannot be read.
std::vector<ShelfQuestion> ShelfQuestions(size_t count);

}  // namespace tessera::testing
