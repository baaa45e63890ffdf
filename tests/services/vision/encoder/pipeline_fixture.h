#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/vision/encoder/encode_pipeline.h"
#include "tests/services/vision/encoder/fakes.h"

namespace tessera::vision {

using Answer = std::future<absl::StatusOr<Encoded>>;

// The "picture" is text: its first character becomes the pixels, its length the height.
class EncodePipelineTest : public ::testing::Test {
 protected:
  EncodePipelineTest() {
    steps_.decode = [](absl::string_view bytes, const StillWanted&) -> absl::StatusOr<RgbImage> {
      if (bytes == "broken") {
        return base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_CORRUPT", "cut");
      }
      return RgbImage{1, static_cast<int>(bytes.size()), {static_cast<uint8_t>(bytes[0])}};
    };
    steps_.preprocess = [](const RgbImage& image) -> absl::StatusOr<Prepared> {
      Prepared prepared;
      prepared.height = image.height;
      prepared.width = 1;
      prepared.pixel_values.assign(static_cast<size_t>(3 * image.height), image.rgb[0]);
      prepared.scores = {{"sharpness", 7}};
      return prepared;
    };
    options_.prepare_threads = 1;
  }

  void Start() {
    pipeline_ = std::make_unique<EncodePipeline>(options_, steps_,
                                                 PipelineDeps{tower_, store_, clock_, metrics_});
  }

  // The future of its answer; the status of Reserve and Submit through `admitted`.
  Answer Submit(const std::string& bytes, WaiterId* id = nullptr,
                absl::Status* admitted = nullptr) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<Encoded>>>();
    Answer answer = promise->get_future();
    EncodeTask task = TaskOf(bytes);
    task.done = [promise](absl::StatusOr<Encoded> encoded) { promise->set_value(encoded); };
    const WaiterId waiter = pipeline_->NewWaiter();
    if (id != nullptr) *id = waiter;
    absl::Status status = ReserveAndSubmit(waiter, std::move(task));
    if (admitted != nullptr) {
      *admitted = status;
    } else {
      EXPECT_TRUE(status.ok()) << status;
    }
    return answer;
  }

  static EncodeTask TaskOf(const std::string& bytes) {
    EncodeTask task;
    task.key = store::EmbeddingKey(base::Sha256Of(bytes));
    task.bytes = bytes;
    task.decode_bytes = 10;
    task.grid_height = task.grid_width = 1;
    return task;
  }

  absl::Status ReserveAndSubmit(WaiterId waiter, EncodeTask task) {
    ASSIGN_OR_RETURN(task.room, pipeline_->Reserve(task.bytes.size()));
    return pipeline_->Submit(waiter, std::move(task));
  }

  testing::FakeClock clock_;
  metrics::Metrics all_metrics_{"m"};
  EncoderMetrics metrics_{all_metrics_};
  FakeTower tower_;
  FakeStore store_;
  PrepareSteps steps_;
  PipelineOptions options_;
  std::unique_ptr<EncodePipeline> pipeline_;
};

}  // namespace tessera::vision
