// The whole of a safetensors file, also as a canary. What is taken is covered by the tensors to the
// byte, and the writer gives it back.
#include "common/weights/safetensors.h"

#include <set>
#include <string>

#include "common/base/check.h"
#include "common/weights/canary_file.h"
#include "common/weights/safetensors_writer.h"
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

// Empty tensors may stand anywhere among those of their place, so only the others are compared.
std::string Written(const std::vector<weights::NamedTensor>& tensors, absl::string_view file) {
  std::vector<weights::NamedTensor> full;
  for (const weights::NamedTensor& tensor : tensors) {
    if (tensor.view.bytes() > 0) full.push_back(tensor);
  }
  const auto metadata = weights::ParseMetadata(file);
  CHECK(metadata.ok());
  return weights::SafetensorsBytes(full, *metadata);
}

void CheckWriter(const std::vector<weights::NamedTensor>& tensors, absl::string_view file) {
  const std::string once = Written(tensors, file);
  const auto read = weights::ParseSafetensors(once);
  CHECK(read.ok());
  CHECK(Written(*read, once) == once);
}

void CheckCanary(absl::string_view file) {
  const absl::StatusOr<weights::Canary> canary = weights::ParseCanary(file);
  if (!canary.ok()) return CheckRefusal(canary.status(), {"CANARY_BAD"});
  const std::string bytes = weights::CanaryBytes(*canary);
  CHECK(weights::CanaryBytes(*weights::ParseCanary(bytes)) == bytes);
}

void Run(absl::string_view file) {
  const absl::StatusOr<std::vector<weights::NamedTensor>> tensors = weights::ParseSafetensors(file);
  if (!tensors.ok()) return CheckRefusal(tensors.status(), {"WEIGHTS_INVALID"});
  CheckTensors(file, *tensors);
  CheckWriter(*tensors, file);
  CheckCanary(file);
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::Run(tessera::fuzz::Bytes(data, size));
  return 0;
}
