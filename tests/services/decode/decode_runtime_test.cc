#include "services/decode/decode_runtime.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/rpc/server.h"
#include "tessera/v1/decode.grpc.pb.h"
#include "tests/services/decode/decode_service_fixture.h"
#include "tests/services/decode/engine/fake_engine.h"
#include "tests/support/tiny_models.h"

namespace tessera::decode {
namespace {

class DecodeRuntimeTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<DecodeRuntime>> Create(const DecodeOptions& options) {
    return DecodeRuntime::Create(options, pool_, store_, base::RealClock(), metrics_);
  }
  static DecodeOptions Shelf() {
    DecodeOptions options;
    options.model_dir = kModel;
    options.device = "reference";
    options.kv_cache_bytes.bytes = 4 << 20;
    return options;
  }

  base::ComputePool pool_{2};
  metrics::Metrics metrics_{"m"};
  testing::FakeStore store_;
};

std::string AskText(v1::DecodeService::Stub& stub, const std::string& question) {
  grpc::ClientContext context;
  auto stream = stub.Generate(&context);
  v1::DecodeServiceGenerateRequest request;
  v1::DecodeMessage& message = *request.mutable_start()->add_messages();
  message.set_role("user");
  message.add_parts()->set_text(question);
  stream->Write(request);
  stream->WritesDone();
  std::string text;
  v1::DecodeServiceGenerateResponse response;
  while (stream->Read(&response)) text += response.piece().text();
  const grpc::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return text;
}

TEST_F(DecodeRuntimeTest, TheBundledModelAnswersATextAsItsReferenceDoes) {
  const auto cases = base::ReadJsonFile(std::string(kModel) + "/expected/cases.json");
  ASSERT_TRUE(cases.ok()) << cases.status();
  std::string expected;
  std::string question;
  for (const auto& one : (*cases)["cases"]) {
    if (!one["images"].empty()) continue;
    expected = one["greedy_text"];
    const auto& content = one["messages"][0]["content"];
    question = content.is_string() ? content : content[0]["text"];
  }
  ASSERT_FALSE(question.empty());

  auto runtime = Create(Shelf());
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  grpc::Service* services[] = {(*runtime)->service()};
  auto server = rpc::Server::Start({}, services, {"tessera.v1.DecodeService"});
  ASSERT_TRUE(server.ok()) << server.status();
  auto stub = v1::DecodeService::NewStub((*server)->InProcessChannel());
  EXPECT_EQ(AskText(*stub, question), expected);
  EXPECT_TRUE((*runtime)->Drain(absl::InfiniteFuture()));
  EXPECT_EQ((*runtime)->stats().blocks_used, 0);
  EXPECT_EQ((*runtime)->stats().finished_stop, 1);
  (*server)->Shutdown(absl::ZeroDuration());
}

TEST_F(DecodeRuntimeTest, InfoSaysWhatTheCacheHolds) {
  auto runtime = Create(Shelf());
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const DecodeInfo& info = (*runtime)->info();
  EXPECT_EQ(info.family, "llava");
  EXPECT_EQ(info.width, 256);
  EXPECT_EQ(info.context_tokens, 2048);
  // 6 layers, 2 heads of 64, keys and values of 2 bytes: 3 KiB a token.
  EXPECT_EQ(info.kv_cache_tokens, (4 << 20) / 3072 / 16 * 16);
  EXPECT_EQ(info.kv_cache_requests, info.kv_cache_tokens / 4096.0);
  EXPECT_GT(info.memory.weights, 0u);
  EXPECT_EQ((*runtime)->stats().blocks_total, info.kv_cache_blocks);
}

TEST_F(DecodeRuntimeTest, WhatCannotBeServedIsRefusedByName) {
  DecodeOptions options = Shelf();
  options.kv_cache_bytes.bytes = 1000;
  EXPECT_EQ(base::FieldOf(Create(options).status()), "kv_cache_bytes");
  options = Shelf();
  options.device = "abacus";
  EXPECT_EQ(Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = Shelf();
  options.model_dir = "models/nowhere";
  EXPECT_EQ(Create(options).status().code(), absl::StatusCode::kNotFound);
  options = Shelf();
  options.max_sequences = 0;
  EXPECT_EQ(base::FieldOf(Create(options).status()), "max_sequences");
}

TEST_F(DecodeRuntimeTest, AModelWithoutTokenizerIsRefused) {
  testing::TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  DecodeOptions options = Shelf();
  options.model_dir = dir.path();
  const absl::Status status = Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

}  // namespace
}  // namespace tessera::decode
