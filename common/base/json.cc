#include "common/base/json.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <unordered_set>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::base {
namespace {

// Bytes that come from the document, safe to print and of bounded length.
std::string Printable(absl::string_view text) {
  constexpr size_t kMaxBytes = 120;
  return absl::CHexEscape(text.substr(0, kMaxBytes));
}

// Tells the builder how far the parser has read: nlohmann's events carry no position.
struct CountingIterator {
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    *read_to = ++at;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
  bool operator!=(const CountingIterator& other) const { return at != other.at; }

  const char* at;
  const char** read_to;
};

// Builds the tree while counting depth and refusing repeated keys: nlohmann's own parser keeps the
// last of two equal keys and has no limit.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(absl::string_view text, const JsonLimits& limits)
      : begin_(text.data()), read_to_(text.data()), limits_(limits) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return Fail("binary values are not JSON"); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second) {
      return Fail(absl::StrCat("the key \"", Printable(value), "\" occurs twice"));
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    absl::string_view what =
        e.what();  // "[json.exception.parse_error.101] parse error at ...: why"
    const size_t colon = what.find(": ");
    return Fail(Printable(colon == what.npos ? what : what.substr(colon + 2)));
  }

  const char** read_to() { return &read_to_; }
  const std::string& error() const { return error_; }
  Json& root() { return root_; }

 private:
  Json* Place(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    // The key is known to be new, so the object's linear search is skipped.
    auto& object = parent.get_ref<Json::object_t&>();
    object.Container::emplace_back(std::move(key_), std::move(value));
    return &object.back().second;
  }
  bool Add(Json value) {
    if (!Count()) return false;
    Place(std::move(value));
    return true;
  }
  bool Count() {
    if (++values_ <= limits_.max_values) return true;
    return Fail(absl::StrCat("more than ", limits_.max_values, " values"));
  }
  bool Open(Json value) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      return Fail(absl::StrCat("nested deeper than ", limits_.max_depth));
    }
    if (!Count()) return false;
    stack_.push_back(Place(std::move(value)));
    keys_.emplace_back();
    return true;
  }
  bool Close() {
    stack_.pop_back();
    keys_.pop_back();
    return true;
  }
  bool Fail(absl::string_view why) {
    const size_t offset = read_to_ == begin_ ? 0 : read_to_ - begin_ - 1;
    if (error_.empty()) error_ = absl::StrCat("at byte ", offset, ": ", why);
    return false;
  }

  const char* const begin_;
  const char* read_to_;
  const JsonLimits& limits_;
  size_t values_ = 0;
  Json root_;
  std::vector<Json*> stack_;  // pointers stay valid: only the innermost container grows
  std::vector<std::unordered_set<std::string>> keys_;
  std::string key_;
  std::string error_;
};

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error(absl::StatusCode::kInvalidArgument, "JSON_TOO_LARGE",
                 absl::StrCat("JSON of ", text.size(), " bytes; the limit is ", limits.max_bytes));
  }
  // nlohmann takes a NUL for the end of the text and would let anything follow it.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    return Error(absl::StatusCode::kInvalidArgument, "JSON_INVALID",
                 absl::StrCat("not valid JSON: at byte ", nul, ": a NUL byte"));
  }
  Builder builder(text, limits);
  const CountingIterator begin{text.data(), builder.read_to()};
  const CountingIterator end{text.data() + text.size(), builder.read_to()};
  if (!Json::sax_parse(begin, end, &builder)) {
    return Error(absl::StatusCode::kInvalidArgument, "JSON_INVALID",
                 absl::StrCat("not valid JSON: ", builder.error()));
  }
  return std::move(builder.root());
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  // A pipe or a device may never end, or never begin.
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) {
    const int error = errno;
    return absl::Status(
        error == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kInvalidArgument,
        absl::StrCat(path, ": ", std::strerror(error)));
  }
  std::string bytes;
  char buffer[1 << 16];
  size_t count;
  while ((count = std::fread(buffer, 1, sizeof(buffer), file.get())) > 0) {
    bytes.append(buffer, count);
    if (bytes.size() > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": larger than the limit of ", max_bytes, " bytes"));
    }
  }
  if (std::ferror(file.get())) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return bytes;
}

absl::StatusOr<Json> ReadJsonFile(const std::string& path, const JsonLimits& limits) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, limits.max_bytes));
  absl::StatusOr<Json> json = ParseJson(text, limits);
  if (!json.ok()) return Annotate(json.status(), path);
  return json;
}

}  // namespace tessera::base
