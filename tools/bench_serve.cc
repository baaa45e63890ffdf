#include "tools/bench_serve.h"

#include <unistd.h>

#include <functional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check_range.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "tools/load/load_report.h"
#include "tools/load/question_set.h"
#include "tools/load/server_memory.h"

namespace tessera::tools {
namespace {

absl::Status Validate(const ServeBenchOptions& options) {
  RETURN_IF_ERROR(base::CheckRange("sessions", options.load.sessions, 1, 10000000));
  RETURN_IF_ERROR(base::CheckRange("turns", options.load.turns, 1, 1000));
  RETURN_IF_ERROR(base::CheckRange("concurrency", options.load.concurrency, 1, 4096));
  RETURN_IF_ERROR(base::CheckRange("warmup", options.warmup, 0, 100000));
  if (!(options.load.rate >= 0 && options.load.rate <= 1e6)) {
    return base::BadField("rate", "BAD_OPTION",
                          "rate must be from 0 (off) to 1e6 sessions a second");
  }
  return absl::OkStatus();
}

// One line that is written over on a terminal, and a new line every tenth elsewhere.
class Progress {
 public:
  Progress(int32_t total, std::ostream& out) : total_(total), out_(out) {}

  void Step() {
    base::MutexLock lock(mutex_);
    ++done_;
    const int32_t tenth = total_ < 10 ? 1 : total_ / 10;
    if (terminal_) {
      const int32_t filled = 40 * done_ / total_;
      out_ << absl::StrFormat("\r[%s%s] %d/%d sessions", std::string(filled, '#'),
                              std::string(40 - filled, ' '), done_, total_);
      if (done_ == total_) out_ << "\n";
      out_.flush();
    } else if (done_ % tenth == 0 || done_ == total_) {
      out_ << done_ << "/" << total_ << " sessions" << std::endl;
    }
  }

 private:
  const int32_t total_;
  std::ostream& out_;
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  base::Mutex mutex_;
  int32_t done_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::optional<int64_t> ServerPeak(const ServeBenchOptions& options) {
  if (options.server_process > 0) return PeakMemory(options.server_process);
  const size_t colon = options.dial.address.rfind(':');
  const std::string host = options.dial.address.substr(0, colon);
  int port = 0;
  const bool here = host == "127.0.0.1" || host == "localhost" || host == "[::1]";
  if (!here || !absl::SimpleAtoi(options.dial.address.substr(colon + 1), &port))
    return std::nullopt;
  const std::optional<int> process = ProcessAtPort(port);
  return process.has_value() ? PeakMemory(*process) : std::nullopt;
}

}  // namespace

absl::Status RunServeBench(const ServeBenchOptions& options, std::ostream& out,
                           std::ostream& progress) {
  RETURN_IF_ERROR(Validate(options));
  ASSIGN_OR_RETURN(const std::vector<PictureQuestions> pictures, ReadQuestions(options.questions));
  DialOptions dial = options.dial;
  dial.connect_timeout = options.load.timeout;
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, Dial(dial));
  LoadOptions load = options.load;
  load.api_key = options.dial.api_key;
  if (options.warmup > 0) {
    LoadOptions warmup = load;
    warmup.sessions = options.warmup;
    warmup.rate = 0;
    // Pictures from the end of the set: the ones that are measured stay new.
    const std::vector<PictureQuestions> last(pictures.rbegin(), pictures.rend());
    RunLoad(channel, last, warmup, [] {});
  }
  Progress bar(options.load.sessions, progress);
  LoadReport report = MakeLoadReport(RunLoad(channel, pictures, load, [&bar] { bar.Step(); }));
  report.server_peak_bytes = ServerPeak(options);
  const std::string proxy = ProxyNotice();
  if (report.succeeded == 0 && !options.json) {
    return absl::UnavailableError(absl::StrCat(
        "none of ", report.failed, " requests to ", options.dial.address,
        " was answered; the first error: ", report.first_error, proxy.empty() ? "" : "; ", proxy));
  }
  if (options.json) {
    out << LoadReportJson(report, options.load) << "\n";
  } else {
    PrintLoadReport(report, options.load, out);
  }
  if (report.succeeded > 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("no request succeeded; the first error: ",
                                             report.first_error, proxy.empty() ? "" : "; ", proxy));
}

}  // namespace tessera::tools
