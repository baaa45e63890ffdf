#include "tests/tools/golden_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/store/embedding_key.h"
#include "common/store/record_codec.h"
#include "common/store/rows.h"
#include "common/weights/weights.h"
#include "kernels/create/create.h"
#include "services/decode/model/decoder_config.h"
#include "tests/support/golden_pixels.h"

namespace tessera::testing {

std::vector<decode::Message> MessagesOf(const GoldenCase& golden) {
  std::vector<decode::Message> messages;
  for (const base::Json& entry : golden.json["messages"]) {
    decode::Message& message = messages.emplace_back();
    message.role = entry["role"].get<std::string>();
    if (entry["content"].is_string()) {
      message.parts.push_back({decode::Part::kText, entry["content"].get<std::string>()});
      continue;
    }
    for (const base::Json& part : entry["content"]) {
      if (part["type"] == "image") {
        message.parts.push_back({decode::Part::kImage, ""});
      } else {
        message.parts.push_back({decode::Part::kText, part["text"].get<std::string>()});
      }
    }
  }
  return messages;
}

GoldenPipeline::GoldenPipeline(const GoldenModel& model, const std::string& device,
                               DType record_dtype)
    : model_(model), dtype_(record_dtype) {
  backend_ = kernels::CreateBackend(device, pool_).value();
  config_ = vision::LoadVisionConfig(model.dir).value();
  const auto weights = weights::Weights::Open(model.dir).value();
  vision::TensorSource tensors(*weights);
  tower_ = vision::ClipTower::Create(config_.tower, tensors, *backend_).value();
  tokenizer_ = text::Tokenizer::Load(model.dir).value();
  template_ = std::make_unique<decode::ChatTemplate>(decode::ChatTemplate::Load(model.dir).value());
  const decode::DecoderConfig decoder = decode::DecoderConfig::Load(model.dir).value();
  decode::PromptOptions options;
  options.image_token_id = decoder.image_token_id;
  builder_ = std::make_unique<decode::PromptBuilder>(
      decode::PromptBuilder::Create(*tokenizer_, template_.get(), options).value());
}

Tensor GoldenPipeline::RowsThroughRecord(const std::vector<float>& pixels) {
  const int64_t side = config_.tower.image_size;
  const TensorView view = {
      DType::kF32, {3, side, side}, reinterpret_cast<const std::byte*>(pixels.data())};
  const Tensor rows = tower_->Encode({view}).value()[0];
  store::EmbeddingRecord record;
  record.dtype = dtype_;
  record.rows = rows.shape()[0];
  record.width = rows.shape()[1];
  record.data = store::RowsFromF32(rows.f32(), record.rows, record.width, dtype_).value();
  const store::RecordCodec codec;
  store::RecordExpectation expected;
  expected.key = record.key;
  expected.dtype = dtype_;
  expected.rows = record.rows;
  expected.width = record.width;
  const store::EmbeddingRecord read = codec.Decode(codec.Encode(record).value(), expected).value();
  Tensor out(dtype_, {read.rows, read.width});
  std::memcpy(out.bytes().data(), read.data.data(), read.data.size());
  return out;
}

Script GoldenPipeline::ScriptFor(const GoldenCase& golden) {
  std::vector<decode::PromptImage> images;
  std::vector<std::byte> bytes;
  int64_t width = 0, rows = 0;
  for (size_t i = 0; i < golden.images.size(); ++i) {
    const Tensor tensor = RowsThroughRecord(PixelsOf(model_, golden, i, config_));
    images.push_back({tensor.shape()[0]});
    rows += tensor.shape()[0];
    width = tensor.shape()[1];
    bytes.insert(bytes.end(), tensor.bytes().begin(), tensor.bytes().end());
  }
  Script script;
  if (rows > 0) {
    script.rows = Tensor(dtype_, {rows, width});
    std::memcpy(script.rows.bytes().data(), bytes.data(), bytes.size());
  }
  const decode::PromptPlan plan = builder_->Build(MessagesOf(golden), images).value();
  script.ids = plan.ids;
  std::vector<int32_t> written = plan.ids;  // a row as the model's own processor writes it
  std::replace(written.begin(), written.end(), -1, model_.image_token_id);
  EXPECT_EQ(written, golden.input_ids) << model_.dir << " " << golden.id;
  script.prompt = static_cast<int64_t>(script.ids.size());
  script.ids.insert(script.ids.end(), golden.greedy_ids.begin(),
                    golden.greedy_ids.end() - (golden.greedy_ids.empty() ? 0 : 1));
  script.positions.resize(script.ids.size());
  std::iota(script.positions.begin(), script.positions.end(), 0);
  return script;
}

}  // namespace tessera::testing
