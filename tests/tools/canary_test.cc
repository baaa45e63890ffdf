#include "tools/canary.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/weights/canary_file.h"
#include "common/weights/safetensors_writer.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/common/ops/raw_client.h"
#include "tests/support/edit_weights.h"
#include "tests/support/tiny_models.h"
#include "tools/local_server.h"

namespace tessera::tools {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kModel[] = "models/shelf-vqa";

// The bundled model's canary, made once.
const std::string& CanaryOfTheModel() {
  static const std::string* bytes = [] {
    testing::TempDir dir;
    std::ostringstream out;
    const std::string path = dir.path() + "/canary";
    const absl::Status status = WriteCanary({.model_dir = kModel, .out = path}, out);
    EXPECT_TRUE(status.ok()) << status << "\n" << out.str();
    EXPECT_THAT(out.str(), AllOf(HasSubstr("[256, 256]"), HasSubstr(path)));
    return new std::string(base::ReadFile(path).value_or(""));
  }();
  return *bytes;
}

// A copy of the bundled model that may be harmed, with its canary.
class CanaryTest : public ::testing::Test {
 protected:
  CanaryTest() {
    for (const auto& entry : std::filesystem::directory_iterator(kModel)) {
      if (entry.is_regular_file()) std::filesystem::copy(entry.path(), dir());
    }
    SetCanary(CanaryOfTheModel());
  }
  const std::string& dir() const { return dir_.path(); }
  std::string file() const { return absl::StrCat(dir(), "/", weights::kCanaryFileName); }
  void SetCanary(const std::string& bytes) {
    ASSERT_TRUE(weights::ReplaceFile(file(), bytes).ok());
  }
  LocalServerOptions Options() const {
    LocalServerOptions options;
    options.model_dir = dir();
    options.model_name = "shelf";
    options.ops_address = "127.0.0.1:0";
    options.decode.kv_cache_bytes.bytes = 8 << 20;
    return options;
  }
  // The page /readyz of a server of the model.
  std::string Ready() const { return ReadyWith(Options()); }
  std::string ReadyWith(const LocalServerOptions& options) const {
    const auto server = LocalServer::Start(options);
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? ops::Get((*server)->ops_port(), "/readyz") : "";
  }
  void Edit(const std::string& name, void (*edit)(Tensor&)) {
    int edited = 0;
    testing::EditWeights(dir(), [&](absl::string_view other, Tensor& tensor) {
      if (!absl::EndsWith(other, name)) return;
      edit(tensor);
      ++edited;
    });
    ASSERT_EQ(edited, 1) << name;
  }

 private:
  testing::TempDir dir_;
};

TEST_F(CanaryTest, TheBundledModelIsReadyWithEveryCacheAndRecord) {
  for (const auto& [kv, record] :
       {std::pair(DType::kF32, DType::kF32), std::pair(DType::kF16, DType::kF16),
        std::pair(DType::kI8, DType::kI8)}) {
    LocalServerOptions options = Options();
    options.decode.kv_cache_dtype = kv;
    options.vision.embedding_dtype = record;
    EXPECT_THAT(ReadyWith(options), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("canary: ok\n")))
        << Name(kv);
  }
}

TEST_F(CanaryTest, TheReferenceSaysItselfWhatItSaid) {
  LocalServerOptions options = Options();
  options.vision.device = options.decode.device = "reference";
  EXPECT_THAT(ReadyWith(options), StartsWith("HTTP/1.1 200"));
}

TEST_F(CanaryTest, WithoutTheFileTheServerIsReadyAndAMetricSaysSo) {
  std::filesystem::remove(file());
  const auto server = LocalServer::Start(Options()).value();
  EXPECT_THAT(ops::Get(server->ops_port(), "/readyz"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(server->ReadyLine(), "ready");
  EXPECT_THAT(server->MetricsText(), HasSubstr("tessera_canary_present{model_name=\"shelf\"} 0\n"));
}

TEST_F(CanaryTest, ABlindModelIsUpButNeverReady) {
  Edit("multi_modal_projector.linear_2.weight", testing::Zero);
  LocalServerOptions options = Options();
  options.http.address = "127.0.0.1:0";
  const auto server = LocalServer::Start(options).value();
  for (const auto& [port, page] :
       {std::pair(server->ops_port(), "/readyz"), std::pair(server->http_port(), "/health")}) {
    EXPECT_THAT(ops::Get(port, page),
                AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("canary: the model is blind")));
  }
  EXPECT_THAT(ops::Get(server->ops_port(), "/healthz"), EndsWith("ok\n"));
  EXPECT_THAT(server->ReadyLine(), StartsWith("never ready: canary: the model is blind"));
  EXPECT_THAT(server->MetricsText(), HasSubstr("tessera_canary_present{model_name=\"shelf\"} 1\n"));
  grpc::ClientContext context;
  v1::GetModelInfoResponse response;
  EXPECT_TRUE(
      v1::GatewayService::NewStub(server->Channel())->GetModelInfo(&context, {}, &response).ok());
}

TEST_F(CanaryTest, AFlippedMatrixOfTheDecoderIsNoticed) {
  Edit("layers.2.mlp.down_proj.weight", testing::Flip);
  EXPECT_THAT(Ready(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("on the reference")));
}

TEST_F(CanaryTest, AFlippedMatrixOfTheTowerIsNoticed) {
  Edit("encoder.layers.1.mlp.fc1.weight", testing::Flip);
  EXPECT_THAT(Ready(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("rows of the picture")));
}

TEST_F(CanaryTest, ACanaryOfAnotherModelSaysSo) {
  const std::string config = base::ReadFile(dir() + "/config.json").value();
  ASSERT_TRUE(weights::ReplaceFile(dir() + "/config.json", config + "\n\n").ok());
  EXPECT_THAT(Ready(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("another model")));
}

TEST_F(CanaryTest, ADamagedFileIsNamed) {
  SetCanary(CanaryOfTheModel().substr(0, 1000));
  EXPECT_THAT(Ready(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr(weights::kCanaryFileName)));
}

TEST_F(CanaryTest, ABlindModelGetsNoCanary) {
  Edit("multi_modal_projector.linear_2.weight", testing::Zero);
  std::filesystem::remove(file());
  std::ostringstream out;
  const absl::Status status = WriteCanary({.model_dir = dir(), .device = "cpu"}, out);
  EXPECT_EQ(base::ReasonOf(status), "CANARY_BLIND") << status << out.str();
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST(WriteCanaryTest, WhatIsNoModelIsNamed) {
  std::ostringstream out;
  const absl::Status status = WriteCanary({.model_dir = "models/nowhere"}, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("models/nowhere"));
}

}  // namespace
}  // namespace tessera::tools
