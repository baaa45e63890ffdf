#include "common/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"
#include "common/text/utf8.h"

namespace tessera::text {
namespace {

// Per match: calls of the matcher, and KiB of heap for its backtracking points.
constexpr uint32_t kMatchLimit = 20'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;

std::string Pcre2Message(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof(buffer));
  return std::string(reinterpret_cast<char*>(buffer));
}

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* value) const {
    kFree(value);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<&pcre2_match_data_free>>;

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, Deleter<&pcre2_code_free>> code;
  std::unique_ptr<pcre2_match_context, Deleter<&pcre2_match_context_free>> limits;

  // Negative: PCRE2_ERROR_NOMATCH or another error. One pair of offsets is enough, so 0 ("more
  // groups than pairs") is a match too.
  int Match(absl::string_view text, size_t from, pcre2_match_data* data) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK;  // checked once by Encode
    int rc = pcre2_match(code.get(), subject, text.size(), from, kOptions, data, limits.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its frames on the heap
      rc = pcre2_match(code.get(), subject, text.size(), from, kOptions | PCRE2_NO_JIT, data,
                       limits.get());
    }
    return rc;
  }
};

Regex::Regex(std::unique_ptr<Code> code, std::string pattern)
    : code_(std::move(code)), pattern_(std::move(pattern)) {}
Regex::~Regex() = default;

absl::StatusOr<std::unique_ptr<Regex>> Regex::Compile(absl::string_view pattern,
                                                      absl::string_view path) {
  ASSIGN_OR_RETURN(const std::string translated, TranslatePattern(pattern, path));
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::string source = absl::StrCat("(*LF)", translated);
  auto code = std::make_unique<Code>();
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                 &error, &offset, nullptr));
  if (code->code == nullptr) {
    return BadTokenizer(
        path, absl::StrCat("regex \"", pattern, "\" does not compile: ", Pcre2Message(error),
                           " (at ", offset, " of \"", source, "\")"));
  }
  pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);  // without it, the interpreter runs
  code->limits.reset(pcre2_match_context_create(nullptr));
  CHECK(code->limits != nullptr);
  pcre2_set_match_limit(code->limits.get(), kMatchLimit);
  pcre2_set_heap_limit(code->limits.get(), kHeapLimitKib);
  return std::unique_ptr<Regex>(new Regex(std::move(code), std::string(pattern)));
}

absl::Status Regex::ForEachMatch(absl::string_view text,
                                 absl::FunctionRef<void(size_t, size_t)> visit) const {
  const MatchData data(pcre2_match_data_create(1, nullptr));
  CHECK(data != nullptr);
  size_t from = 0;
  size_t last_end = absl::string_view::npos;  // an empty match right behind a match does not count
  while (from <= text.size()) {
    const int rc = code_->Match(text, from, data.get());
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return base::Error(
          absl::StatusCode::kResourceExhausted, "REGEX_LIMIT",
          absl::StrCat("the tokenizer's regex \"", pattern_, "\" gave up at byte ", from, " of ",
                       text.size(), ": ", Pcre2Message(rc), "; send a shorter or simpler text"));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    const size_t begin = bounds[0], end = bounds[1];
    if (begin != end || begin != last_end) visit(begin, end);
    last_end = end;
    from = end;
    if (begin == end) {
      if (end == text.size()) break;
      from += Utf8Length(text[end]);
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::text
