// GoldenModels: whole models. First the parts put together by hand, so that every logit is seen;
// then a running server, so that every answer is.
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/tools/golden_pipeline.h"
#include "tools/local_server.h"

namespace tessera::testing {
namespace {

// In standard deviations of the golden logits. f32: what the goldens' README allows, and where an
// exact path is expected. f16 rows and keys: measured (services/decode/model/README.md).
constexpr double kLimitF32 = 1e-3;
constexpr double kSuspiciousF32 = 1e-4;
constexpr double kLimitF16 = 0.02;
constexpr float kSureGapF32 = 0.05f;

struct Setting {
  const char* device;
  DType dtype;
};

// The reference backend runs every case once, in f32, to every logit. Its other runs take the short
// cases and two long ones of each model: it is slow, and its f16 differs only in rows and keys.
// Under sanitizers, which look at accesses and not at values, every run does so, with one long
// case.
constexpr size_t kLongPrompt = 128;
#ifdef TESSERA_SANITIZED
constexpr bool kEveryCase = false;
constexpr int kLongCasesKept = 1;
#else
constexpr bool kEveryCase = true;
constexpr int kLongCasesKept = 2;
#endif
class CasePicker {
 public:
  CasePicker(const Setting& setting, bool all)
      : all_(kEveryCase && (all || std::string(setting.device) != "reference")) {}
  bool Takes(const GoldenCase& golden) {
    return all_ || golden.input_ids.size() <= kLongPrompt || long_cases_++ < kLongCasesKept;
  }

 private:
  const bool all_;
  int long_cases_ = 0;
};

class GoldenModels : public ::testing::TestWithParam<Setting> {};

// The golden rows that end at token `end` of the script, if the case has them.
double Difference(const GoldenModel& model, const GoldenCase& golden, const char* what,
                  absl::Span<const float> logits, int64_t end) {
  const TensorView* expected = model.Find(golden, what);
  if (expected == nullptr) return 0;
  const int64_t rows = expected->shape[0], vocab = expected->shape[1];
  return LargestDifference(
      ToFloats(*expected),
      logits.subspan(static_cast<size_t>((end - rows) * vocab), static_cast<size_t>(rows * vocab)));
}

void CheckCase(const GoldenModel& model, const GoldenCase& golden, const Script& script,
               absl::Span<const float> logits, DType dtype, double& largest) {
  const TensorView* whole = model.Find(golden, "logits");
  if (whole == nullptr) whole = model.Find(golden, "logits_tail");
  ASSERT_NE(whole, nullptr) << golden.id;
  const double spread = StandardDeviation(ToFloats(*whole));
  const int64_t total = static_cast<int64_t>(script.ids.size());
  const double difference =
      std::max({Difference(model, golden, "logits", logits, script.prompt),
                Difference(model, golden, "logits_tail", logits, script.prompt),
                Difference(model, golden, "decode_logits", logits, total)}) /
      spread;
  EXPECT_LE(difference, dtype == DType::kF32 ? kLimitF32 : kLimitF16) << model.dir << golden.id;
  largest = std::max(largest, difference);
  const size_t vocab = logits.size() / script.ids.size();
  const float sure = dtype == DType::kF32 ? kSureGapF32 : kF16TopTwoGap;
  for (size_t step = 0; step < golden.greedy_ids.size(); ++step) {
    const size_t row = static_cast<size_t>(script.prompt) - 1 + step;
    if (golden.top2_gaps[step] < sure) continue;
    EXPECT_EQ(ArgMax(logits.subspan(row * vocab, vocab)), golden.greedy_ids[step])
        << model.dir << " " << golden.id << " step " << step;
  }
}

TEST_P(GoldenModels, FromPictureFilesToLogits) {
  const auto models = FindGoldenModels();
  ASSERT_TRUE(models.ok()) << models.status();
  int ran = 0;
  for (const GoldenModel& model : *models) {
    GoldenPipeline pipeline(model, GetParam().device, GetParam().dtype);
    PagedRunner runner(
        model.dir,
        {.device = GetParam().device, .threads = 2, .kv_dtype = GetParam().dtype, .llama = {}});
    double largest = 0;
    CasePicker picker(GetParam(), GetParam().dtype == DType::kF32);
    for (const GoldenCase& golden : model.cases) {
      if (!picker.Takes(golden)) continue;
      const Script script = pipeline.ScriptFor(golden);
      CheckCase(model, golden, script, runner.Run({script}, Alone(script))[0], GetParam().dtype,
                largest);
      ++ran;
    }
    if (GetParam().dtype == DType::kF32) {
      EXPECT_LE(largest, kSuspiciousF32) << model.dir << ": within the limit, but look into it";
    }
    std::printf("%s on %s, %s: %zu cases, largest difference %.2g of the spread\n",
                model.dir.c_str(), GetParam().device, std::string(Name(GetParam().dtype)).c_str(),
                model.cases.size(), largest);
  }
  std::printf("GoldenModels: %d cases ran\n", ran);
  EXPECT_GT(ran, 0);
}

// A server that changes nothing about the arithmetic of the golden.
std::unique_ptr<tools::LocalServer> Serve(const GoldenModel& model, const Setting& setting) {
  tools::LocalServerOptions options;
  options.model_dir = model.dir;
  options.threads = 2;
  options.reflection = false;
  options.vision.device = options.decode.device = setting.device;
  options.vision.embedding_dtype = options.decode.kv_cache_dtype = setting.dtype;
  options.vision.quality_gate = false;
  return tools::LocalServer::Start(std::move(options)).value();
}

v1::GenerateRequest RequestOf(const GoldenModel& model, const GoldenCase& golden) {
  v1::GenerateRequest request;
  size_t next_image = 0;
  for (const decode::Message& message : MessagesOf(golden)) {
    v1::Message& out = *request.add_messages();
    out.set_role(message.role);
    for (const decode::Part& part : message.parts) {
      if (part.kind == decode::Part::kText) {
        out.add_parts()->set_text(part.text);
        continue;
      }
      const std::string path = absl::StrCat(model.dir, "/inputs/", golden.images[next_image++]);
      out.add_parts()->mutable_image()->mutable_inline_data()->set_data(
          base::ReadFile(path).value());
    }
  }
  request.mutable_options()->set_max_tokens(static_cast<uint32_t>(golden.greedy_ids.size()));
  return request;
}

// A picture whose decoder may differ by a step says nothing about the rest of the way.
bool HasExactPictures(const GoldenModel& model, const GoldenCase& golden) {
  for (const std::string& name : golden.images) {
    const std::string bytes = base::ReadFile(absl::StrCat(model.dir, "/inputs/", name)).value();
    const vision::ImageHeader header = vision::ReadHeader(bytes, {}).value();
    if (header.format == vision::ImageFormat::kJpeg || header.alpha) return false;
  }
  return true;
}

TEST_P(GoldenModels, AServerAnswersAsTheReference) {
  const auto models = FindGoldenModels();
  ASSERT_TRUE(models.ok()) << models.status();
  int ran = 0;
  for (const GoldenModel& model : *models) {
    const auto server = Serve(model, GetParam());
    const auto stub = v1::GatewayService::NewStub(server->Channel());
    CasePicker picker(GetParam(), false);
    for (const GoldenCase& golden : model.cases) {
      if (!HasExactPictures(model, golden) || !picker.Takes(golden)) continue;
      const float smallest_gap =
          *std::min_element(golden.top2_gaps.begin(), golden.top2_gaps.end());
      if (GetParam().dtype == DType::kF16 && smallest_gap < kF16TopTwoGap) continue;
      grpc::ClientContext context;
      v1::GenerateResponse response;
      const grpc::Status status = stub->Generate(&context, RequestOf(model, golden), &response);
      ASSERT_TRUE(status.ok()) << model.dir << " " << golden.id << ": " << status.error_message();
      EXPECT_EQ(response.text(), golden.greedy_text) << model.dir << " " << golden.id;
      EXPECT_EQ(response.usage().prompt_tokens(), golden.input_ids.size());
      ++ran;
    }
  }
  std::printf("GoldenModels: %d answers of a server on %s\n", ran, GetParam().device);
  EXPECT_GT(ran, 0);
}

INSTANTIATE_TEST_SUITE_P(Settings, GoldenModels,
                         ::testing::Values(Setting{"reference", DType::kF32},
                                           Setting{"cpu", DType::kF32}, Setting{"cpu", DType::kF16},
                                           Setting{"reference", DType::kF16}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.device, "_",
                                               info.param.dtype == DType::kF32 ? "f32" : "f16");
                         });

}  // namespace
}  // namespace tessera::testing
