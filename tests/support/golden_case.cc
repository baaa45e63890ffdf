#include "tests/support/golden_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <limits>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using base::Json;

constexpr char kBundledModel[] = "models/shelf-vqa";

// Served today, and what later work brings: the second list only shrinks.
constexpr absl::string_view kServedTypes[] = {"llava"};
constexpr absl::string_view kLaterTypes[] = {"llava_next",   "qwen2_vl", "qwen2_5_vl", "internvl",
                                             "instructblip", "blip-2",   "clip"};

// Folders that a set of goldens may hold. A set without `models` is one of another kind.
constexpr absl::string_view kKnownFolders[] = {"models",     "tokenizers", "chat_templates",
                                               "images_bad", "images_odd", "json_bad",
                                               "preprocess", "quant",      "weights_bad"};

template <size_t N>
bool Contains(const absl::string_view (&list)[N], absl::string_view value) {
  return std::find(std::begin(list), std::end(list), value) != std::end(list);
}

absl::Status Bad(absl::string_view message) { return absl::FailedPreconditionError(message); }

GoldenCase ReadCase(const Json& entry) {
  GoldenCase golden;
  golden.json = entry;
  golden.id = entry.at("id").get<std::string>();
  golden.images = entry.value("images", std::vector<std::string>());
  golden.prompt = entry.value("prompt", "");
  golden.input_ids = entry.at("input_ids").get<std::vector<int32_t>>();
  golden.image_rows = entry.value("image_rows", std::vector<int64_t>());
  golden.greedy_ids = entry.at("greedy_ids").get<std::vector<int32_t>>();
  golden.greedy_text = entry.value("greedy_text", "");
  golden.finish_reason = entry.value("finish_reason", "");
  golden.top2_gaps = entry.at("top2_gap").get<std::vector<float>>();
  return golden;
}

absl::StatusOr<GoldenModel> ReadModel(const std::string& dir, const std::string& model_type) {
  GoldenModel model;
  model.name = fs::path(dir).filename().string();
  model.dir = dir;
  model.model_type = model_type;
  ASSIGN_OR_RETURN(const Json cases, base::ReadJsonFile(dir + "/expected/cases.json"));
  try {
    model.image_token_id = cases.value("image_token_id", -1);
    model.eos_ids = cases.value("eos_token_ids", std::vector<int32_t>());
    for (const Json& entry : cases.at("cases")) model.cases.push_back(ReadCase(entry));
  } catch (const nlohmann::json::exception& error) {
    return Bad(absl::StrCat(dir, "/expected/cases.json: ", error.what()));
  }
  if (model.cases.empty()) return Bad(absl::StrCat(dir, ": no cases"));
  ASSIGN_OR_RETURN(model.tensors,
                   weights::Weights::OpenFile(dir + "/expected/tensors.safetensors"));
  return model;
}

absl::StatusOr<std::string> ModelType(const std::string& dir) {
  ASSIGN_OR_RETURN(const Json config, base::ReadJsonFile(dir + "/config.json"));
  auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return Bad(absl::StrCat(dir, ": no model_type"));
  return type->get<std::string>();
}

// Adds the model in `dir` when it is served.
absl::Status AddModel(const std::string& dir, std::vector<GoldenModel>& models) {
  ASSIGN_OR_RETURN(const std::string type, ModelType(dir));
  if (Contains(kLaterTypes, type)) {
    std::cout << dir << ": model_type " << type << " comes later\n";
    return absl::OkStatus();
  }
  if (!Contains(kServedTypes, type)) {
    return Bad(absl::StrCat(dir, ": model_type ", type, " is not known"));
  }
  ASSIGN_OR_RETURN(GoldenModel model, ReadModel(dir, type));
  models.push_back(std::move(model));
  return absl::OkStatus();
}

std::vector<std::string> SortedFolders(const fs::path& dir) {
  std::vector<std::string> folders;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    if (entry.is_directory()) folders.push_back(entry.path().string());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

bool HasKnownFolder(const fs::path& dir) {
  return std::any_of(std::begin(kKnownFolders), std::end(kKnownFolders),
                     [&](absl::string_view name) { return fs::exists(dir / std::string(name)); });
}

}  // namespace

const TensorView* GoldenModel::Find(const GoldenCase& golden, absl::string_view what) const {
  return tensors->Find(absl::StrCat(golden.id, ".", what));
}

std::string GoldensDir() {
  const char* dir = std::getenv("TESSERA_GOLDENS");
  return dir != nullptr && *dir != '\0' ? dir : "tests/goldens";
}

absl::StatusOr<std::vector<GoldenModel>> FindGoldenModels() {
  const fs::path root(GoldensDir());
  if (!HasKnownFolder(root)) return Bad(absl::StrCat(root.string(), ": no folder of goldens"));
  std::vector<GoldenModel> models;
  for (const std::string& dir : SortedFolders(root / "models")) {
    RETURN_IF_ERROR(AddModel(dir, models));
  }
  if (models.empty() && fs::exists(root / "models")) {
    return Bad(absl::StrCat((root / "models").string(), ": no model that can be run"));
  }
  RETURN_IF_ERROR(AddModel(kBundledModel, models));
  return models;
}

std::string DifferenceF16(absl::Span<const int32_t> ids, absl::Span<const int32_t> solo_ids,
                          absl::Span<const float> solo_top2_gaps) {
  const size_t common = std::min(ids.size(), solo_ids.size());
  size_t step = 0;
  while (step < common && ids[step] == solo_ids[step]) ++step;
  if (step == ids.size() && step == solo_ids.size()) return "";
  if (step < solo_top2_gaps.size() && solo_top2_gaps[step] < kF16TopTwoGap) return "";
  return absl::StrCat(
      "step ", step, ": ", step < ids.size() ? absl::StrCat(ids[step]) : "the end", " instead of ",
      step < solo_ids.size() ? absl::StrCat(solo_ids[step]) : "the end",
      ", where the top-2 gap is ",
      step < solo_top2_gaps.size() ? absl::StrCat(solo_top2_gaps[step]) : "unknown");
}

double StandardDeviation(absl::Span<const float> values) {
  double sum = 0, squares = 0;
  for (float value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (float value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

double LargestDifference(absl::Span<const float> a, absl::Span<const float> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace tessera::testing
