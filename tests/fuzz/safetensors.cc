// The whole of a safetensors file. What is taken is covered by the tensors to the byte.
#include "common/weights/safetensors.h"

#include <set>
#include <string>

#include "common/base/check.h"
#include "tests/fuzz/check_refusal.h"

namespace tessera::fuzz {
namespace {

void CheckTensors(absl::string_view file, const std::vector<weights::NamedTensor>& tensors) {
  const auto* begin = reinterpret_cast<const std::byte*>(file.data());
  const std::byte* end = begin + file.size();
  const std::byte* at = nullptr;
  std::set<std::string> names;
  for (const weights::NamedTensor& tensor : tensors) {
    CHECK(names.insert(tensor.name).second);
    if (at == nullptr) at = tensor.view.data;
    CHECK(tensor.view.data == at);
    CHECK(at >= begin + 8 && at <= end);
    CHECK_LE(tensor.view.bytes(), static_cast<size_t>(end - at));
    at += tensor.view.bytes();
  }
  if (at != nullptr) CHECK(at == end);
}

void Run(absl::string_view file) {
  const absl::StatusOr<std::vector<weights::NamedTensor>> tensors = weights::ParseSafetensors(file);
  if (!tensors.ok()) return CheckRefusal(tensors.status(), {"WEIGHTS_INVALID"});
  CheckTensors(file, *tensors);
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::Run(tessera::fuzz::Bytes(data, size));
  return 0;
}
