#include "common/weights/safetensors_writer.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/json.h"

namespace tessera::weights {
namespace {

using base::Json;

constexpr size_t kAlignment = 8;

std::string HeaderOf(absl::Span<const NamedTensor> tensors,
                     const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names = {"__metadata__"};
  uint64_t at = 0;
  for (const NamedTensor& tensor : tensors) {
    CHECK(names.insert(tensor.name).second);
    const TensorView& view = tensor.view;
    const absl::string_view dtype = Name(view.dtype);
    header[tensor.name] = {{"dtype", std::string(dtype)},
                           {"shape", std::vector<int64_t>(view.shape.begin(), view.shape.end())},
                           {"data_offsets", {at, at + view.bytes()}}};
    at += view.bytes();
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  while (text.size() % kAlignment != 0) text.push_back(' ');
  return text;
}

absl::Status Failed(const std::string& path, const char* what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

}  // namespace

std::string SafetensorsBytes(absl::Span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata) {
  const std::string header = HeaderOf(tensors, metadata);
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(uint64_t{header.size()} >> (8 * i)));
  }
  bytes += header;
  for (const NamedTensor& tensor : tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.view.data), tensor.view.bytes());
  }
  return bytes;
}

absl::Status ReplaceFile(const std::string& path, absl::string_view bytes) {
  const std::string fresh = path + ".new";
  std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
  if (!file) return Failed(fresh, "cannot be made");
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) {
    const absl::Status failed = Failed(fresh, "cannot be written");
    std::remove(fresh.c_str());
    return failed;
  }
  if (std::rename(fresh.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const absl::Status failed = Failed(path, "cannot be replaced");
  std::remove(fresh.c_str());
  return failed;
}

}  // namespace tessera::weights
