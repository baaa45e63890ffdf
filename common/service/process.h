#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/mutex.h"
#include "common/flags/command.h"
#include "common/metrics/metrics.h"
#include "common/ops/ops_server.h"
#include "common/ops/server_state.h"
#include "common/rpc/trace/span_exporter.h"
#include "common/service/options.h"

namespace tessera::service {

struct Progress {
  bool has_work = false;
  int64_t steps = 0;  // done
};

// A thread that takes its work step by step. Where it has work and finishes no step for 30 s it is
// stuck, and /healthz fails. So it does where what it works with, such as a device, was not healthy
// for 30 s: then only a new process helps.
struct Worker {
  std::string name;
  std::function<Progress()> progress;
  std::function<absl::Status()> health = nullptr;
};

// What the operations port tells of a service. Asked only once the service is loaded, by the port's
// thread; `readiness` by any. Must not wait.
struct Pages {
  std::string name;                   // of its part in /debug/state
  std::function<void()> update;       // brings its series up to date
  std::function<base::Json()> state;  // counts only
  std::vector<Worker> workers;
  std::vector<ops::Check> readiness;  // beside those of the process itself
};

// What every service's process has beside its service: series, state and spans. Made first, so that
// it outlives the service. One thread, but for MetricsText and Health.
class Process {
 public:
  // `clock` outlives it. INVALID_ARGUMENT, BAD_OPTION: where spans go.
  static absl::StatusOr<std::unique_ptr<Process>> Create(const ProcessOptions& options,
                                                         base::Clock& clock = base::RealClock());

  // The operations port, which uses this object and what `pages` uses. INVALID_ARGUMENT,
  // BAD_OPTION: its address cannot be had.
  absl::StatusOr<std::unique_ptr<ops::OpsServer>> Listen(Pages pages);
  // In the place of Listen, for a process without that port: Health asks `pages`.
  void KnowWithoutPort(Pages pages) { MakeHandlers(std::move(pages)); }
  // As /readyz has it: OK, or the first of its checks that does not hold. Any thread, once the
  // pages are known.
  absl::Status Health() const;
  // All series in Prometheus' text form; `update` as in Pages. Any thread.
  std::string MetricsText(const std::function<void()>& update);

  // Sets tessera_model_info. `digest`: hex, of which 16 digits are shown.
  void TellModel(const std::string& model_dir, absl::string_view digest);

  metrics::Metrics& metrics() { return metrics_; }
  ops::ServerState& state() { return state_; }
  rpc::SpanExporter* spans() const { return spans_.get(); }  // null: none are exported

 private:
  Process(const ProcessOptions& options, base::Clock& clock);
  ops::Handlers MakeHandlers(Pages pages);

  const ProcessOptions options_;
  base::Clock& clock_;
  base::Mutex metrics_mutex_;  // of who updates what metrics_ holds
  metrics::Metrics metrics_;
  ops::ServerState state_;
  std::vector<ops::Check> readiness_;  // of the service
  std::unique_ptr<rpc::SpanExporter> spans_;
};

// The commit of a model directory as the Hugging Face cache lays it out ("snapshots/COMMIT"), else
// "unknown".
std::string ModelRevision(const std::string& model_dir);

// "host:port" with the port that an address with port 0 became.
std::string WithPort(absl::string_view address, int port);

// The body of a service's main: reads the command line, then runs. The exit code: 2 where the
// command line is wrong, 1 where `run` fails, which stderr is told.
int RunMain(int argc, char** argv, flags::Command& command, const std::string& name,
            const std::function<absl::Status()>& run);

}  // namespace tessera::service
