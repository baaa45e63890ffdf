#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "services/vision/image/image.h"
#include "services/vision/vision_service.h"
#include "tests/services/vision/encoder/fakes.h"

namespace tessera::vision {

using testing::FakeClock;

// A BMP of one row of `width` pixels, all of one colour.
inline std::string Bmp(int width, char colour) {
  const auto le = [](uint32_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
    return out;
  };
  const int row = (3 * width + 3) / 4 * 4;
  return absl::StrCat("BM", le(static_cast<uint32_t>(54 + row), 4), le(0, 4), le(54, 4), le(40, 4),
                      le(static_cast<uint32_t>(width), 4), le(1, 4), le(1, 2), le(24, 2), le(0, 4),
                      le(static_cast<uint32_t>(row), 4), le(2835, 4), le(2835, 4), le(0, 4),
                      le(0, 4), std::string(static_cast<size_t>(row), colour));
}

// What one Encode call answered.
struct Call {
  bool need_bytes = false;
  std::optional<v1::EncodePlan> plan;
  std::optional<v1::EncodeReady> ready;
  absl::Status status;
};

class VisionServiceTest : public ::testing::Test {
 protected:
  VisionServiceTest() {
    steps_.decode = [](absl::string_view bytes, const StillWanted& wanted) {
      return DecodeImage(bytes, {});
    };
    steps_.preprocess = [this](const RgbImage& image) -> absl::StatusOr<Prepared> {
      const QualityScores scores = Scores(image);
      if (absl::Status status = gate_.Check(scores); !status.ok()) return status;
      Prepared prepared;
      prepared.height = prepared.width = 1;
      prepared.pixel_values.assign(3, image.rgb[0]);
      prepared.scores = ScoreMap(scores);
      return prepared;
    };
    identity_.preprocessing = std::string("p");
  }
  ~VisionServiceTest() override { Stop(); }

  // Brightness is all that counts here.
  static QualityScores Scores(const RgbImage& image) {
    QualityScores scores;
    scores.sharpness = scores.detail = 1000;
    scores.exposure = image.rgb[0] / 255.0;
    scores.width = scores.height = 100;
    return scores;
  }

  void Start() {
    pipeline_ = std::make_unique<EncodePipeline>(
        options_, steps_, PipelineDeps{tower_, store_, clock_, metrics_.encoder()});
    held_ = std::make_unique<HeldRecords>(max_held_bytes_);
    lookups_ = std::make_unique<base::WorkerPool>(1, 16);
    records_ = std::make_unique<base::WorkerPool>(1, 64);
    v1::VisionServiceGetInfoResponse info;
    info.set_rows_per_image(1);
    info.set_width(2);
    info.set_device("fake");
    service_ = std::make_unique<VisionService>(
        VisionServiceDeps{*pipeline_, *lookups_, *records_, store_, store_, *held_, refused_,
                          clock_, metrics_, identity_, gate_, limits_,
                          [](const ImageHeader&) -> absl::StatusOr<ImagePlan> {
                            return ImagePlan{1, 1, 1, 1, 1};
                          },
                          info, store::RecordCodec(), "10.0.0.7:9100", 7, nullptr, tiered_});
    server_ = *rpc::Server::Start({}, {service_.get()}, {});
    stub_ = v1::VisionService::NewStub(server_->InProcessChannel());
  }

  // Ends the threads: what they read may be changed, or die.
  void Stop() {
    if (server_) server_->Shutdown(absl::ZeroDuration());
    lookups_ = nullptr;
    records_ = nullptr;
    pipeline_ = nullptr;
  }

  using Stream = grpc::ClientReaderWriter<v1::EncodeRequest, v1::EncodeResponse>;

  static v1::EncodeRequest Offer(const std::string& bytes, const std::string& tenant = "") {
    v1::EncodeRequest request;
    v1::EncodeOffer& offer = *request.mutable_offer();
    offer.set_tenant(tenant);
    const base::Sha256Digest digest = base::Sha256Of(bytes);
    offer.set_digest(std::string(digest.begin(), digest.end()));
    offer.set_size_bytes(bytes.size());
    return request;
  }

  // The whole call with these messages; chunks go once they are asked for.
  Call Run(const v1::EncodeRequest& offer, const std::vector<std::string>& chunks) {
    grpc::ClientContext context;
    const auto stream = stub_->Encode(&context);
    stream->Write(offer);
    Call call;
    v1::EncodeResponse response;
    while (stream->Read(&response)) {
      if (response.has_need_bytes()) {
        call.need_bytes = true;
        for (const std::string& chunk : chunks) {
          v1::EncodeRequest request;
          request.set_chunk(chunk);
          stream->Write(request);
        }
        stream->WritesDone();
      }
      if (response.has_plan()) call.plan = response.plan();
      if (response.has_ready()) {
        call.ready = response.ready();
        if (!call.need_bytes) stream->WritesDone();
      }
    }
    call.status = rpc::FromGrpc(stream->Finish());
    return call;
  }
  Call Run(const std::string& bytes, const std::string& tenant = "") {
    return Run(Offer(bytes, tenant), {bytes.substr(0, 10), bytes.substr(10)});
  }

  FakeClock clock_;
  metrics::Metrics all_metrics_{"m"};
  VisionMetrics metrics_{all_metrics_};
  FakeTower tower_;
  FakeStore store_;
  PrepareSteps steps_;
  PipelineOptions options_;
  RowIdentity identity_;
  QualityGate gate_;
  ImageLimits limits_;
  store::TieredStore* tiered_ = nullptr;  // over store_
  std::unique_ptr<EncodePipeline> pipeline_;
  size_t max_held_bytes_ = 1 << 20;
  std::unique_ptr<HeldRecords> held_;
  RefusedPictures refused_{16, 8};
  std::unique_ptr<base::WorkerPool> lookups_, records_;
  std::unique_ptr<VisionService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::VisionService::Stub> stub_;
};

}  // namespace tessera::vision
