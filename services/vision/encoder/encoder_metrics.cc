#include "services/vision/encoder/encoder_metrics.h"

#include "absl/strings/string_view.h"
#include "common/metrics/names.h"

namespace tessera::vision {
namespace {

metrics::Histogram StageOf(metrics::Metrics& metrics, absl::string_view stage) {
  return metrics.GetHistogram(metrics::kVisionStageDuration, {stage});
}

}  // namespace

EncoderMetrics::EncoderMetrics(metrics::Metrics& metrics)
    : batches_(metrics.GetCounter(metrics::kVisionBatches)),
      rows_produced_(metrics.GetCounter(metrics::kVisionRows, {"produced"})),
      rows_kept_(metrics.GetCounter(metrics::kVisionRows, {"kept"})),
      batch_images_(metrics.GetHistogram(metrics::kVisionBatchImages)),
      queue_(StageOf(metrics, "queue")),
      decode_(StageOf(metrics, "decode")),
      quality_(StageOf(metrics, "quality")),
      preprocess_(StageOf(metrics, "preprocess")),
      encode_(StageOf(metrics, "encode")),
      store_(StageOf(metrics, "store")) {}

void EncoderMetrics::OnBatch(size_t images) const {
  batches_.Increment();
  batch_images_.Observe(static_cast<double>(images));
}

void EncoderMetrics::OnRows(int64_t rows, const StageTimes& times, absl::Duration quality) const {
  rows_produced_.Increment(static_cast<double>(rows));
  rows_kept_.Increment(static_cast<double>(rows));  // no row is dropped today
  queue_.Observe(absl::ToDoubleSeconds(times[Stage::kQueue]));
  decode_.Observe(absl::ToDoubleSeconds(times[Stage::kImageDecode]));
  quality_.Observe(absl::ToDoubleSeconds(quality));
  preprocess_.Observe(absl::ToDoubleSeconds(times[Stage::kPreprocess] - quality));
  encode_.Observe(absl::ToDoubleSeconds(times[Stage::kEncode]));
  store_.Observe(absl::ToDoubleSeconds(times[Stage::kStore]));
}

}  // namespace tessera::vision
