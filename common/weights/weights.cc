#include "common/weights/weights.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/weights/safetensors.h"

namespace tessera::weights {
namespace {

constexpr char kFileName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = 100'000'000;

absl::Status BadWeights(absl::string_view message) {
  return base::Error(absl::StatusCode::kInvalidArgument, "WEIGHTS_INVALID", message);
}

// A plain file name: it cannot lead out of the model's folder.
bool IsPlainFileName(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

struct Shard {
  std::unique_ptr<MappedFile> file;
  std::vector<NamedTensor> tensors;
};

absl::StatusOr<Shard> OpenShard(const std::string& path) {
  Shard shard;
  ASSIGN_OR_RETURN(shard.file, MappedFile::Open(path));
  auto tensors = ParseSafetensors(shard.file->bytes());
  if (!tensors.ok()) return base::Annotate(tensors.status(), path);
  shard.tensors = *std::move(tensors);
  return shard;
}

// Shard name to the tensors that are to come from it.
using ShardMap = std::map<std::string, std::vector<std::string>>;

absl::StatusOr<ShardMap> ReadIndex(const std::string& index_path) {
  absl::StatusOr<base::Json> index = base::ReadJsonFile(index_path, {.max_bytes = kMaxIndexBytes});
  if (!index.ok()) return index.status();
  if (!index->is_object()) return BadWeights(absl::StrCat(index_path, ": the index is no object"));
  const auto map = index->find("weight_map");
  if (map == index->end() || !map->is_object()) {
    return BadWeights(absl::StrCat(index_path, ": weight_map is missing or no object"));
  }
  ShardMap shards;
  for (const auto& [tensor, shard] : map->items()) {
    const std::string who = absl::StrCat(index_path, ": tensor ", Quoted(tensor));
    if (!shard.is_string()) return BadWeights(absl::StrCat(who, ": its shard is no string"));
    const auto& name = shard.get_ref<const std::string&>();
    if (!IsPlainFileName(name)) {
      return BadWeights(absl::StrCat(who, ": its shard ", Quoted(name), " is no plain file name"));
    }
    shards[name].push_back(tensor);
  }
  return shards;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Weights>> Weights::Open(const std::string& model_dir) {
  const std::filesystem::path dir(model_dir);
  std::error_code ignored;
  if (std::filesystem::exists(dir / kFileName, ignored)) {
    return OpenFile((dir / kFileName).string());
  }
  if (std::filesystem::exists(dir / kIndexName, ignored)) {
    return OpenIndex((dir / kIndexName).string());
  }
  return base::Error(absl::StatusCode::kNotFound, "WEIGHTS_MISSING",
                     absl::StrCat(model_dir, ": holds neither ", kFileName, " nor ", kIndexName));
}

absl::StatusOr<std::unique_ptr<Weights>> Weights::OpenFile(const std::string& path) {
  ASSIGN_OR_RETURN(Shard shard, OpenShard(path));
  std::unique_ptr<Weights> weights(new Weights());
  weights->files_.push_back(std::move(shard.file));
  for (NamedTensor& tensor : shard.tensors) {
    weights->Add(std::move(tensor.name), std::move(tensor.view));
  }
  return weights;
}

absl::StatusOr<std::unique_ptr<Weights>> Weights::OpenIndex(const std::string& index_path) {
  ASSIGN_OR_RETURN(const ShardMap shards, ReadIndex(index_path));
  const std::filesystem::path dir = std::filesystem::path(index_path).parent_path();
  std::unique_ptr<Weights> weights(new Weights());
  for (const auto& [name, wanted] : shards) {
    const std::string path = (dir / name).string();
    absl::StatusOr<Shard> shard = OpenShard(path);
    if (!shard.ok()) {
      return base::Annotate(shard.status(),
                            absl::StrCat(index_path, ": shard of tensor ", Quoted(wanted[0])));
    }
    absl::flat_hash_map<std::string, TensorView> held;
    for (NamedTensor& tensor : shard->tensors) {
      held.emplace(std::move(tensor.name), std::move(tensor.view));
    }
    for (const std::string& tensor : wanted) {
      const auto it = held.find(tensor);
      if (it == held.end()) {
        return BadWeights(absl::StrCat(index_path, ": tensor ", Quoted(tensor), " is not in ", path,
                                       ", where the index says it is"));
      }
      weights->Add(tensor, it->second);
    }
    weights->files_.push_back(std::move(shard->file));
  }
  return weights;
}

void Weights::Add(std::string name, TensorView view) {
  total_bytes_ += view.bytes();
  tensors_.emplace(std::move(name), std::move(view));
}

const TensorView* Weights::Find(absl::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

std::vector<std::string> Weights::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, view] : tensors_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

base::Sha256Digest Weights::Digest(absl::Span<const std::string> names) const {
  base::Sha256 sha;
  for (const std::string& name : names) {
    const TensorView* view = Find(name);
    CHECK(view != nullptr);
    sha.UpdateField(name);
    sha.UpdateField(tessera::Name(view->dtype));
    sha.UpdateField(ShapeText(view->shape));
    sha.UpdateField({reinterpret_cast<const char*>(view->data), view->bytes()});
  }
  return sha.Finish();
}

base::Sha256Digest Weights::Sketch() const {
  constexpr size_t kEnd = 4096;
  base::Sha256 sha;
  for (const std::string& name : names()) {
    const TensorView& view = *Find(name);
    const absl::string_view bytes(reinterpret_cast<const char*>(view.data), view.bytes());
    sha.UpdateField(name);
    sha.UpdateField(tessera::Name(view.dtype));
    sha.UpdateField(ShapeText(view.shape));
    sha.UpdateField(bytes.substr(0, kEnd));
    sha.UpdateField(bytes.substr(bytes.size() - std::min(bytes.size(), kEnd)));
  }
  return sha.Finish();
}

absl::Status Weights::CheckUnchanged() const {
  for (const auto& file : files_) RETURN_IF_ERROR(file->CheckUnchanged());
  return absl::OkStatus();
}

}  // namespace tessera::weights
