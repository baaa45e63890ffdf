#include "tests/services/decode/model/script.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/base/check.h"
#include "common/base/half.h"

namespace tessera::testing {
namespace {

// Rows of the pictures of a case: its own, or those of a case with the same pictures.
const TensorView* FindRows(const GoldenModel& model, const GoldenCase& golden) {
  if (const TensorView* rows = model.Find(golden, "image_rows")) return rows;
  for (const GoldenCase& other : model.cases) {
    if (other.images != golden.images) continue;
    if (const TensorView* rows = model.Find(other, "image_rows")) return rows;
  }
  return nullptr;
}

Tensor Converted(const TensorView& view, DType dtype) {
  const std::vector<float> values = ToFloats(view);
  Tensor result(dtype, view.shape);
  if (dtype == DType::kF32) {
    std::copy(values.begin(), values.end(), result.f32().begin());
    return result;
  }
  CHECK(dtype == DType::kF16);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = base::FloatToHalf(values[i]);
    std::memcpy(result.bytes().data() + i * sizeof(bits), &bits, sizeof(bits));
  }
  return result;
}

}  // namespace

void Script::Append(absl::Span<const int32_t> more) {
  for (const int32_t id : more) {
    positions.push_back(positions.empty() ? 0 : positions.back() + 1);
    ids.push_back(id);
  }
}

Steps Alone(const Script& script) {
  Steps steps = {{{0, script.prompt}}};
  for (size_t i = script.prompt; i < script.ids.size(); ++i) steps.push_back({{0, 1}});
  return steps;
}

Steps AtOnce(const Script& script) { return {{{0, script.size()}}}; }

Steps CutAt(const Script& script, int64_t border) {
  CHECK(border > 0 && border < script.size());
  return {{{0, border}}, {{0, script.size() - border}}};
}

Steps InChunks(const Script& script, int64_t size) {
  Steps steps;
  for (int64_t left = script.ids.size(); left > 0; left -= size) {
    steps.push_back({{0, std::min(left, size)}});
  }
  return steps;
}

Steps Mixed(const std::vector<Script>& scripts) {
  std::vector<int64_t> done(scripts.size(), 0);
  Steps steps;
  for (size_t step = 0;; ++step) {
    std::vector<Chunk> chunks;
    for (size_t i = 0; i < std::min(step + 1, scripts.size()); ++i) {
      const int64_t prompt_left = scripts[i].prompt - done[i];
      const int64_t all_left = static_cast<int64_t>(scripts[i].ids.size()) - done[i];
      const int64_t size = static_cast<int64_t>(5 + 3 * i);
      const int64_t count =
          prompt_left > 0 ? std::min(prompt_left, size) : std::min<int64_t>(all_left, 1);
      if (count > 0) chunks.push_back({static_cast<int>(i), count});
      done[i] += count;
    }
    if (chunks.empty()) return steps;
    std::rotate(chunks.begin(), chunks.begin() + step % chunks.size(), chunks.end());
    steps.push_back(chunks);
  }
}

std::optional<Script> ScriptOf(const GoldenModel& model, const GoldenCase& golden, DType dtype) {
  Script script;
  if (!golden.images.empty()) {
    const TensorView* rows = FindRows(model, golden);
    if (rows == nullptr) return std::nullopt;
    script.rows = Converted(*rows, dtype);
  }
  script.prompt = static_cast<int64_t>(golden.input_ids.size());
  for (int32_t id : golden.input_ids) {
    script.ids.push_back(id == model.image_token_id ? -1 : id);
  }
  const int64_t places = std::count(script.ids.begin(), script.ids.end(), -1);
  CHECK_EQ(places, script.rows.shape().empty() ? 0 : script.rows.shape()[0]);
  script.ids.insert(script.ids.end(), golden.greedy_ids.begin(),
                    golden.greedy_ids.end() - (golden.greedy_ids.empty() ? 0 : 1));
  script.positions.resize(script.ids.size());
  std::iota(script.positions.begin(), script.positions.end(), 0);
  return script;
}

int32_t ArgMax(absl::Span<const float> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace tessera::testing
