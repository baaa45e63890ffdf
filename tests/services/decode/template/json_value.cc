#include "tests/services/decode/template/json_value.h"

#include "absl/status/status.h"
#include "common/base/json.h"

namespace tessera::decode::jinja {
namespace {

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(bool untrusted) : untrusted_(untrusted) {}

  bool null() override { return Put(Value::None()); }
  bool boolean(bool value) override { return Put(Value::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Put(Value::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= INT64_MAX) return Put(Value::Int(static_cast<int64_t>(value)));
    return Put(Value::BigInt(std::to_string(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    const bool integer = text.find_first_of(".eE") == std::string::npos;
    return Put(integer ? Value::BigInt(text) : Value::Float(value));
  }
  bool string(string_t& text) override { return Put(Value::String(text, untrusted_)); }
  bool binary(binary_t& value) override { return false; }
  bool start_object(size_t size) override { return Open(true); }
  bool start_array(size_t size) override { return Open(false); }
  bool key(string_t& text) override {
    open_.back().key = text;
    return true;
  }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t at, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    return false;
  }

  Value result;

 private:
  struct Level {
    bool dict;
    std::string key;
    Items items;
    Entries entries;
  };

  bool Open(bool dict) {
    open_.push_back({dict, "", {}, {}});
    return true;
  }

  bool Close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return Put(level.dict ? Value::Dict(std::move(level.entries))
                          : Value::List(std::move(level.items)));
  }

  bool Put(Value value) {
    if (open_.empty()) {
      result = std::move(value);
    } else if (open_.back().dict) {
      open_.back().entries.emplace_back(Value::String(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  const bool untrusted_;
  std::vector<Level> open_;
};

}  // namespace

absl::StatusOr<Value> ValueFromJson(absl::string_view json, bool untrusted) {
  Builder builder(untrusted);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &builder)) {
    return absl::InvalidArgumentError("the test's JSON does not parse");
  }
  return builder.result;
}

}  // namespace tessera::decode::jinja
