#include "common/base/json.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::base {
namespace {

// Begins the sign of a long string. It is no UTF-8, so no string of a document begins so.
constexpr absl::string_view kSign = "\xff";

// Bytes that come from the document, safe to print and of bounded length.
std::string Printable(absl::string_view text) {
  constexpr size_t kMaxBytes = 120;
  return absl::CHexEscape(text.substr(0, kMaxBytes));
}

// What the builder learns of the reading, since nlohmann's events carry no position.
struct Reading {
  const char* read_to;
  // Long strings in the order of the text, each without its quotes, which the parser is not shown:
  // it reads "".
  std::vector<absl::string_view> hidden = {};
  size_t passed = 0;  // of `hidden`
};

struct ReadingIterator {
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  reference operator*() const { return *at; }
  ReadingIterator& operator++() {
    ++at;
    if (reading->passed < reading->hidden.size() && at == reading->hidden[reading->passed].data()) {
      at += reading->hidden[reading->passed++].size();
    }
    reading->read_to = at;
    return *this;
  }
  bool operator==(const ReadingIterator& other) const { return at == other.at; }
  bool operator!=(const ReadingIterator& other) const { return at != other.at; }

  const char* at;
  Reading* reading;
};

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// What lies between two quotes from `begin` on; sets `plain` to whether it is ASCII without escapes
// and control characters. nullopt: the second quote is missing.
std::optional<absl::string_view> StringFrom(absl::string_view text, size_t begin, bool& plain) {
  plain = true;
  for (size_t at = begin; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c == '"') return text.substr(begin, at - begin);
    if (c < 0x20 || c >= 0x80 || c == '\\') plain = false;
    if (c == '\\') ++at;
  }
  return std::nullopt;
}

// The plain values of at least `least_bytes` between quotes. Exact where `text` is JSON: outside a
// string a quote begins one, and what a colon follows is a key.
std::vector<absl::string_view> LongValues(absl::string_view text, size_t least_bytes) {
  std::vector<absl::string_view> found;
  if (text.size() < least_bytes) return found;
  for (size_t quote = text.find('"'); quote != text.npos; quote = text.find('"', quote)) {
    bool plain = false;
    const std::optional<absl::string_view> string = StringFrom(text, quote + 1, plain);
    if (!string) break;
    quote += string->size() + 2;
    size_t behind = quote;
    while (behind < text.size() && IsSpace(text[behind])) ++behind;
    const bool is_key = behind < text.size() && text[behind] == ':';
    if (plain && !is_key && string->size() >= least_bytes && !string->empty()) {
      found.push_back(*string);
    }
  }
  return found;
}

// Builds the tree while counting depth and refusing repeated keys: nlohmann's own parser keeps the
// last of two equal keys and has no limit.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  // `long_strings` may be null; all outlive the builder.
  Builder(absl::string_view text, const JsonLimits& limits, const Reading& reading,
          LongStrings* long_strings)
      : begin_(text.data()), limits_(limits), reading_(reading), long_strings_(long_strings) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override {
    if (reading_.passed == taken_) return Add(std::move(value));
    return Add(TakeHidden(reading_.hidden[taken_++]));
  }
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

  const std::string& error() const { return error_; }
  Json& root() { return root_; }

 private:
  // `key_` is the place's where it lies in an object.
  std::string TakeHidden(absl::string_view in_text) {
    const std::vector<std::string>& keys = long_strings_->keys();
    const bool stays = !stack_.empty() && stack_.back()->is_object() &&
                       std::find(keys.begin(), keys.end(), key_) != keys.end();
    return stays ? long_strings_->Add(in_text) : std::string(in_text);
  }
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
    const size_t offset = reading_.read_to == begin_ ? 0 : reading_.read_to - begin_ - 1;
    if (error_.empty()) error_ = absl::StrCat("at byte ", offset, ": ", why);
    return false;
  }

  const char* const begin_;
  const JsonLimits& limits_;
  const Reading& reading_;
  LongStrings* const long_strings_;
  size_t taken_ = 0;  // of what the reading has hidden
  size_t values_ = 0;
  Json root_;
  std::vector<Json*> stack_;  // pointers stay valid: only the innermost container grows
  std::vector<std::unordered_set<std::string>> keys_;
  std::string key_;
  std::string error_;
};

absl::Status CheckText(absl::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error(absl::StatusCode::kInvalidArgument, "JSON_TOO_LARGE",
                 absl::StrCat("JSON of ", text.size(), " bytes; the limit is ", limits.max_bytes));
  }
  // nlohmann takes a NUL for the end of the text and would let anything follow it.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    return Error(absl::StatusCode::kInvalidArgument, "JSON_INVALID",
                 absl::StrCat("not valid JSON: at byte ", nul, ": a NUL byte"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> Parse(absl::string_view text, const JsonLimits& limits, Reading& reading,
                           LongStrings* long_strings) {
  Builder builder(text, limits, reading, long_strings);
  const ReadingIterator begin{text.data(), &reading};
  const ReadingIterator end{text.data() + text.size(), &reading};
  if (!Json::sax_parse(begin, end, &builder)) {
    return Error(absl::StatusCode::kInvalidArgument, "JSON_INVALID",
                 absl::StrCat("not valid JSON: ", builder.error()));
  }
  return std::move(builder.root());
}

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  RETURN_IF_ERROR(CheckText(text, limits));
  Reading reading{text.data()};
  return Parse(text, limits, reading, nullptr);
}

absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits,
                               LongStrings& long_strings) {
  RETURN_IF_ERROR(CheckText(text, limits));
  Reading reading{text.data(), LongValues(text, long_strings.least_bytes())};
  absl::StatusOr<Json> json = Parse(text, limits, reading, &long_strings);
  if (json.ok()) return json;
  // What is no JSON is told in the words of who saw all of it.
  return ParseJson(text, limits);
}

std::string LongStrings::Add(absl::string_view in_text) {
  in_text_.push_back(in_text);
  return absl::StrCat(kSign, in_text_.size() - 1);
}

absl::string_view LongStrings::Of(const std::string& value) const {
  absl::string_view index = value;
  size_t i = 0;
  if (!absl::ConsumePrefix(&index, kSign) || !absl::SimpleAtoi(index, &i)) return value;
  CHECK_LT(i, in_text_.size());
  return in_text_[i];
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
