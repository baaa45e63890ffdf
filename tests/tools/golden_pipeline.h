#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/compute_pool.h"
#include "common/text/tokenizer.h"
#include "kernels/backend.h"
#include "services/decode/prompt/prompt_builder.h"
#include "services/decode/template/chat_template.h"
#include "services/vision/encoder/row_plan.h"
#include "services/vision/tower/clip_tower.h"
#include "tests/services/decode/model/paged_runner.h"
#include "tests/support/golden_case.h"

namespace tessera::testing {

// The messages of a golden case, in the domain's types.
std::vector<decode::Message> MessagesOf(const GoldenCase& golden);

// Everything between a golden case and the decoder, as the services do it: files to pixels to rows
// to a sealed record and back, messages to prompt to ids. Aborts when the model cannot be loaded.
class GoldenPipeline {
 public:
  GoldenPipeline(const GoldenModel& model, const std::string& device, DType record_dtype);

  // The decoder's input for a case: our ids and the rows of our records, then the golden greedy
  // ids. Adds gtest failures where pixels, ids or row counts differ from the golden.
  Script ScriptFor(const GoldenCase& golden);

 private:
  Tensor RowsThroughRecord(const std::vector<float>& pixels);

  const GoldenModel& model_;
  const DType dtype_;
  base::ComputePool pool_{2};
  std::unique_ptr<kernels::Backend> backend_;
  vision::VisionConfig config_;
  std::unique_ptr<vision::ClipTower> tower_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<decode::ChatTemplate> template_;
  std::unique_ptr<decode::PromptBuilder> builder_;
};

}  // namespace tessera::testing
