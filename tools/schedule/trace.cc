#include "tools/schedule/trace.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace tessera::tools {
namespace {

constexpr double kLongest = 1e7;  // seconds, tokens

// Reads numbers of one object of a trace.
class Fields {
 public:
  Fields(const base::Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  absl::Status Number(const char* key, double least, double& target) {
    if (!json_.contains(key)) return absl::OkStatus();
    const base::Json& value = json_[key];
    if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= kLongest)) {
      return Refuse(key, absl::StrCat("must be a number from ", least, " to ", kLongest));
    }
    target = value.get<double>();
    return absl::OkStatus();
  }
  absl::Status Count(const char* key, int32_t least, int32_t& target) {
    double number = target;
    RETURN_IF_ERROR(Number(key, least, number));
    if (number != std::floor(number)) return Refuse(key, "must be a whole number");
    target = static_cast<int32_t>(number);
    return absl::OkStatus();
  }
  absl::Status Text(const char* key, std::string& target) {
    if (!json_.contains(key)) return absl::OkStatus();
    if (!json_[key].is_string()) return Refuse(key, "must be a string");
    target = json_[key].get<std::string>();
    return absl::OkStatus();
  }
  absl::Status Refuse(const char* key, const std::string& why) const {
    return base::BadField(key, "BAD_TRACE", absl::StrCat(where_, ": ", key, " ", why));
  }

 private:
  const base::Json& json_;
  const std::string where_;
};

absl::StatusOr<base::Json> ParseLine(const std::string& line, const std::string& where) {
  absl::StatusOr<base::Json> json = base::ParseJson(line);
  if (!json.ok()) return base::Annotate(json.status(), where);
  return json;
}

absl::StatusOr<TraceSession> ParseSession(const std::string& line, const std::string& where) {
  ASSIGN_OR_RETURN(const base::Json json, ParseLine(line, where));
  if (!json.is_object()) return base::BadField("line", "BAD_TRACE", where + ": not an object");
  TraceSession session;
  Fields fields(json, where);
  RETURN_IF_ERROR(fields.Number("arrival_seconds", 0, session.arrival_seconds));
  RETURN_IF_ERROR(fields.Text("tenant", session.tenant));
  RETURN_IF_ERROR(fields.Text("picture", session.picture));
  RETURN_IF_ERROR(fields.Count("rows", 0, session.rows));
  RETURN_IF_ERROR(fields.Count("prefix_tokens", 0, session.prefix_tokens));
  if (session.picture.empty() != (session.rows == 0)) {
    return fields.Refuse("rows", "and a picture's name come together");
  }
  if (!json.contains("turns") || !json["turns"].is_array() || json["turns"].empty()) {
    return fields.Refuse("turns", "must be a list of at least one");
  }
  for (const base::Json& item : json["turns"]) {
    if (!item.is_object()) return fields.Refuse("turns", "must hold objects");
    Fields turn(item, where);
    TraceTurn& out = session.turns.emplace_back();
    RETURN_IF_ERROR(turn.Count("question_tokens", 1, out.question_tokens));
    RETURN_IF_ERROR(turn.Count("answer_tokens", 1, out.answer_tokens));
    RETURN_IF_ERROR(turn.Number("think_seconds", 0, out.think_seconds));
  }
  return session;
}

// SplitMix64 (Steele et al., OOPSLA 2014): the same numbers everywhere, unlike std distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  double Uniform() {  // (0, 1]
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return static_cast<double>(((z ^ (z >> 31)) >> 11) + 1) / 9007199254740992.0;
  }
  double Exponential(double rate) { return -std::log(Uniform()) / rate; }

 private:
  uint64_t state_;
};

}  // namespace

absl::StatusOr<std::vector<TraceSession>> ReadTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": no such file, or not readable"));
  std::vector<TraceSession> sessions;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    ASSIGN_OR_RETURN(TraceSession session,
                     ParseSession(line, absl::StrCat(path, ", line ", number)));
    sessions.push_back(std::move(session));
  }
  if (sessions.empty()) {
    return base::BadField("trace", "BAD_TRACE", absl::StrCat(path, " holds no session"));
  }
  return sessions;
}

std::vector<TraceSession> MakeTrace(const TraceOptions& options) {
  Random random(options.seed);
  std::vector<TraceSession> sessions;
  double now = 0;
  for (int32_t i = 0; i < options.sessions; ++i) {
    if (options.arrivals == Arrivals::kPoisson) now += random.Exponential(options.rate);
    if (options.arrivals == Arrivals::kBursts && i % options.burst == 0) {
      now += random.Exponential(options.rate / options.burst);
    }
    TraceSession& session = sessions.emplace_back();
    session.arrival_seconds = now;
    if (options.tenants > 1) session.tenant = absl::StrCat("tenant ", i % options.tenants);
    session.rows = options.rows;
    const int32_t picture = options.pictures == 0 ? i : i % options.pictures;
    if (options.rows > 0) session.picture = absl::StrCat("picture ", picture);
    session.turns.assign(options.turns, {.question_tokens = options.question_tokens,
                                         .answer_tokens = options.answer_tokens,
                                         .think_seconds = options.think_seconds});
  }
  return sessions;
}

}  // namespace tessera::tools
