#include "tools/load/load_report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"

namespace tessera::tools {
namespace {

using Results = std::vector<const LoadResult*>;

LoadLatencies Latencies(std::string name, const Results& results) {
  std::vector<double> ttft, tpot, itl, e2e;
  for (const LoadResult* result : results) {
    ttft.push_back(1e3 * result->ttft);
    e2e.push_back(1e3 * result->e2e);
    for (const double gap : result->gaps) itl.push_back(1e3 * gap);
    const double tokens = result->end.usage().output_tokens();
    if (tokens > 1) tpot.push_back(1e3 * (result->e2e - result->ttft) / (tokens - 1));
  }
  return {std::move(name), Describe(ttft), Describe(tpot), Describe(itl), Describe(e2e)};
}

// Where the first picture's rows came from, in lower case.
std::string TierOf(const LoadResult& result) {
  if (result.end.receipt().images().empty()) return "text";
  absl::string_view name = v1::CacheTier_Name(result.end.receipt().images(0).cache());
  absl::ConsumePrefix(&name, "CACHE_TIER_");
  return absl::AsciiStrToLower(name);
}

// Encoded bits per pixel of the first picture; 0 when that is not known.
double ComplexityOf(const LoadResult& result) {
  if (result.end.receipt().images().empty()) return 0;
  const auto& scores = result.end.receipt().images(0).quality().scores();
  const auto width = scores.find("width");
  const auto height = scores.find("height");
  if (width == scores.end() || height == scores.end()) return 0;
  return 8 * static_cast<double>(result.picture_bytes) / (width->second * height->second);
}

std::vector<LoadLatencies> ByTier(const Results& results) {
  std::map<std::string, Results> tiers;
  for (const LoadResult* result : results) tiers[TierOf(*result)].push_back(result);
  std::vector<LoadLatencies> all;
  for (const auto& [tier, members] : tiers) all.push_back(Latencies(tier, members));
  return all;
}

std::vector<LoadLatencies> ByComplexity(const Results& results) {
  std::vector<std::pair<double, const LoadResult*>> sorted;
  for (const LoadResult* result : results) {
    const double complexity = ComplexityOf(*result);
    if (complexity > 0) sorted.emplace_back(complexity, result);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<LoadLatencies> groups;
  const char* names[3] = {"low", "middle", "high"};
  for (size_t group = 0; group < 3 && !sorted.empty(); ++group) {
    Results members;
    for (size_t i = group * sorted.size() / 3; i < (group + 1) * sorted.size() / 3; ++i) {
      members.push_back(sorted[i].second);
    }
    if (members.empty()) continue;
    const double most = ComplexityOf(*members.back());
    groups.push_back(Latencies(absl::StrFormat("%s, to %.2f", names[group], most), members));
  }
  return groups;
}

std::vector<std::pair<std::string, double>> Stages(const Results& results) {
  using Getter = double (v1::StageSeconds::*)() const;
  const std::pair<const char*, Getter> stages[] = {
      {"image_decode", &v1::StageSeconds::image_decode_seconds},
      {"preprocess", &v1::StageSeconds::preprocess_seconds},
      {"encode", &v1::StageSeconds::encode_seconds},
      {"store", &v1::StageSeconds::store_seconds},
      {"fetch", &v1::StageSeconds::fetch_seconds},
      {"queue", &v1::StageSeconds::queue_seconds},
      {"prefill", &v1::StageSeconds::prefill_seconds},
      {"generation", &v1::StageSeconds::generation_seconds},
  };
  std::vector<std::pair<std::string, double>> means;
  for (const auto& [name, getter] : stages) {
    double sum = 0;
    for (const LoadResult* result : results) sum += (result->end.receipt().stages().*getter)();
    means.emplace_back(name, results.empty() ? 0 : 1e3 * sum / static_cast<double>(results.size()));
  }
  return means;
}

void Line(std::ostream& out, const char* name, double value, int digits = 2) {
  out << absl::StrFormat("%-40s %-10.*f\n", name, digits, value);
}
void Line(std::ostream& out, const char* name, int64_t value) {
  out << absl::StrFormat("%-40s %-10d\n", name, value);
}

void Block(std::ostream& out, const std::string& title, const char* name, const Distribution& d) {
  const size_t dashes = title.size() < 50 ? 50 - title.size() : 0;
  out << std::string(dashes / 2, '-') << title << std::string(dashes - dashes / 2, '-') << "\n";
  Line(out, absl::StrFormat("Mean %s (ms):", name).c_str(), d.mean);
  Line(out, absl::StrFormat("Median %s (ms):", name).c_str(), d.median);
  Line(out, absl::StrFormat("P90 %s (ms):", name).c_str(), d.p90);
  Line(out, absl::StrFormat("P99 %s (ms):", name).c_str(), d.p99);
}

void Table(std::ostream& out, const char* title, const std::vector<LoadLatencies>& groups) {
  if (groups.empty()) return;
  out << absl::StrFormat("%-22s %9s %9s %9s %9s %9s %9s %9s\n", title, "requests", "TTFT p50",
                         "TTFT p99", "ITL p50", "ITL p99", "E2E p50", "E2E p99");
  for (const LoadLatencies& group : groups) {
    out << absl::StrFormat("%-22s %9d %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f\n", group.name,
                           group.ttft.count, group.ttft.median, group.ttft.p99, group.itl.median,
                           group.itl.p99, group.e2e.median, group.e2e.p99);
  }
}

base::Json JsonOf(const Distribution& d) {
  return {{"mean", d.mean}, {"median", d.median}, {"p90", d.p90}, {"p99", d.p99}};
}

base::Json JsonOf(const LoadLatencies& l) {
  return {{"name", l.name},
          {"requests", l.ttft.count},
          {"ttft_ms", JsonOf(l.ttft)},
          {"tpot_ms", JsonOf(l.tpot)},
          {"itl_ms", JsonOf(l.itl)},
          {"e2e_ms", JsonOf(l.e2e)},
          {"itl_jitter", l.jitter()}};
}

double Rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

}  // namespace

LoadReport MakeLoadReport(const std::vector<LoadResult>& results) {
  LoadReport report;
  Results good;
  double begin = 1e300, end = 0;
  for (const LoadResult& result : results) {
    begin = std::min(begin, result.begin);
    end = std::max(end, result.begin + result.e2e);
    if (!result.ok) {
      if (report.failed++ == 0) report.first_error = result.error;
      continue;
    }
    good.push_back(&result);
    report.prompt_tokens += result.end.usage().prompt_tokens();
    report.image_tokens += result.end.usage().image_tokens();
    report.cached_tokens += result.end.usage().cached_tokens();
    report.ahead_tokens += result.end.receipt().ahead_tokens();
    report.output_tokens += result.end.usage().output_tokens();
  }
  report.succeeded = static_cast<int>(good.size());
  report.seconds = results.empty() ? 0 : end - begin;
  report.all = Latencies("all", good);
  report.by_tier = ByTier(good);
  report.by_complexity = ByComplexity(good);
  report.stages = Stages(good);
  return report;
}

void PrintLoadReport(const LoadReport& report, const LoadOptions& load, std::ostream& out) {
  out << "============ Serving Benchmark Result ============\n";
  Line(out, "Successful requests:", int64_t{report.succeeded});
  Line(out, "Failed requests:", int64_t{report.failed});
  Line(out, "Maximum request concurrency:", int64_t{load.concurrency});
  if (load.rate > 0) Line(out, "Session rate configured (1/s):", load.rate);
  Line(out, "Benchmark duration (s):", report.seconds);
  Line(out, "Total input tokens:", report.prompt_tokens);
  Line(out, "  of pictures:", report.image_tokens);
  Line(out, "  from the prefix cache:", report.cached_tokens);
  Line(out, "  of these, computed ahead:", report.ahead_tokens);
  Line(out, "Total generated tokens:", report.output_tokens);
  Line(out, "Request throughput (req/s):", Rate(report.succeeded, report.seconds));
  const double output = static_cast<double>(report.output_tokens);
  Line(out, "Output token throughput (tok/s):", Rate(output, report.seconds));
  Line(out, "Total token throughput (tok/s):",
       Rate(output + static_cast<double>(report.prompt_tokens), report.seconds));
  Block(out, "Time to First Token", "TTFT", report.all.ttft);
  Block(out, "Time per Output Token (excl. 1st token)", "TPOT", report.all.tpot);
  Block(out, "Inter-token Latency", "ITL", report.all.itl);
  Line(out, "Jitter (P99 / median):", report.all.jitter());
  Block(out, "End-to-end Latency", "E2E", report.all.e2e);
  out << "==================================================\n";
  Table(out, "picture from", report.by_tier);
  Table(out, "bits per pixel", report.by_complexity);
  out << "stages, mean ms:";
  for (const auto& [name, milliseconds] : report.stages) {
    out << absl::StrFormat(" %s %.2f", name, milliseconds);
  }
  out << "\n";
  if (report.server_peak_bytes.has_value()) {
    Line(out,
         "Peak memory of the server (MB):", static_cast<double>(*report.server_peak_bytes) / 1e6,
         1);
  } else {
    out << "Peak memory of the server: not known (another machine; see --server_process)\n";
  }
  if (report.failed > 0) out << "first error: " << report.first_error << "\n";
}

std::string LoadReportJson(const LoadReport& report, const LoadOptions& load) {
  base::Json json = {{"completed", report.succeeded},
                     {"failed", report.failed},
                     {"first_error", report.first_error},
                     {"max_concurrency", load.concurrency},
                     {"session_rate", load.rate},
                     {"duration_seconds", report.seconds},
                     {"total_input_tokens", report.prompt_tokens},
                     {"image_tokens", report.image_tokens},
                     {"cached_tokens", report.cached_tokens},
                     {"ahead_tokens", report.ahead_tokens},
                     {"total_output_tokens", report.output_tokens},
                     {"all", JsonOf(report.all)},
                     {"by_tier", base::Json::array()},
                     {"by_complexity", base::Json::array()},
                     {"stages_mean_ms", base::Json::object()},
                     {"server_peak_bytes", nullptr}};
  for (const LoadLatencies& group : report.by_tier) json["by_tier"].push_back(JsonOf(group));
  for (const LoadLatencies& group : report.by_complexity) {
    json["by_complexity"].push_back(JsonOf(group));
  }
  for (const auto& [name, mean] : report.stages) json["stages_mean_ms"][name] = mean;
  if (report.server_peak_bytes) json["server_peak_bytes"] = *report.server_peak_bytes;
  return json.dump(2);
}

}  // namespace tessera::tools
