#include "tools/load/question_set.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace tessera::tools {
namespace {

constexpr size_t kMaxPictureBytes = size_t{256} << 20;

// The text at `key` of a line.
absl::StatusOr<std::string> TextOf(const base::Json& json, const char* key) {
  if (json.is_object() && json.contains(key) && json[key].is_string()) {
    return json[key].get<std::string>();
  }
  return base::BadField(key, "BAD_QUESTIONS", absl::StrCat(key, " must be a string"));
}

}  // namespace

absl::StatusOr<std::vector<PictureQuestions>> ReadQuestions(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": no such file, or not readable"));
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  std::vector<PictureQuestions> pictures;
  absl::flat_hash_map<std::string, size_t> places;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = absl::StrCat(path, ", line ", number);
    const absl::StatusOr<base::Json> json = base::ParseJson(line);
    if (!json.ok()) return base::Annotate(json.status(), where);
    absl::StatusOr<std::string> image = TextOf(*json, "image");
    absl::StatusOr<std::string> question = TextOf(*json, "question");
    if (!image.ok()) return base::Annotate(image.status(), where);
    if (!question.ok()) return base::Annotate(question.status(), where);
    const auto [place, added] = places.try_emplace(*image, pictures.size());
    if (added) {
      PictureQuestions& picture = pictures.emplace_back();
      picture.name = *image;
      absl::StatusOr<std::string> bytes =
          base::ReadFile((directory / *image).string(), kMaxPictureBytes);
      if (!bytes.ok()) return base::Annotate(bytes.status(), where);
      picture.bytes = *std::move(bytes);
    }
    pictures[place->second].questions.push_back(*std::move(question));
  }
  if (!pictures.empty()) return pictures;
  return base::BadField("questions", "BAD_QUESTIONS", absl::StrCat(path, " holds no question"));
}

}  // namespace tessera::tools
