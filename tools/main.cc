#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "common/base/version.h"
#include "common/flags/command.h"
#include "common/flags/environment.h"
#include "common/flags/flags.h"
#include "common/flags/trace_flags.h"
#include "common/flags/usage.h"
#include "services/gateway/gateway_flags.h"
#include "services/gateway/http/http_flags.h"
#include "tools/ask.h"
#include "tools/bench_kernel.h"
#include "tools/bench_schedule.h"
#include "tools/bench_serve.h"
#include "tools/canary.h"
#include "tools/inspect.h"
#include "tools/inspect_record.h"
#include "tools/serve.h"

namespace tessera::tools {
namespace {

using flags::AddFlag;
using flags::AddFlags;
using flags::Bytes;
using flags::OneOf;
using flags::OnOff;
using flags::Value;
using flags::ValueOrEmpty;
using flags::Within;

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

struct Options {
  ServeOptions serve;
  AskOptions ask;
  CanaryOptions canary;
  InspectOptions inspect;
  InspectRecordOptions record;
  KernelBenchOptions kernel;
  ScheduleBenchOptions schedule;
  ServeBenchOptions load;
};

// A bad flag is wrong usage, whoever noticed it; all else has failed, output that got lost too.
int Report(const absl::Status& status) {
  if (status.ok()) {
    if (std::cout.flush()) return 0;
    std::cerr << "tessera: the output could not be written\n";
    return kFailed;
  }
  return flags::ExitCode("tessera", status);
}

void AddServe(CLI::App& app, ServeOptions& options) {
  options.server.grpc_address = "127.0.0.1:9000";
  options.server.http.address = "127.0.0.1:8000";
  options.server.ops_address = "127.0.0.1:9464";
  AddFlag(app, {"model", Value(options.server.model_dir), "model directory"})->required();
  AddFlags(
      app,
      {{"grpc_address", Value(options.server.grpc_address), "host:port, port 0 takes a free one"},
       {"ops_address", ValueOrEmpty(options.server.ops_address),
        "host:port of /metrics, /healthz and /readyz; port 0 takes a free one, empty: none"},
       {"reflection",
        OneOf<std::optional<bool>>(
            options.server.reflection,
            {{"auto", std::nullopt}, {"true", true}, {"false", false}, {"1", true}, {"0", false}}),
        "of gRPC, which asks for no key; auto: where there are no keys"},
       {"drain_delay", Value(options.drain_delay),
        "after SIGTERM: not ready any more, new requests are still taken"},
       {"drain_timeout", Value(options.drain_timeout), "then, for running requests"}});
  AddFlags(app, gateway::http::HttpFlags(options.server.http));
  AddFlags(app, gateway::AccessFlags(options.server.access));
  rpc::TraceOptions& traces = options.server.traces;
  AddFlags(app, flags::TraceFlags(traces.endpoint, traces.tls, traces.ca_file));
  AddServiceFlags(app, options);
}

// Who asks a server, and whom it believes.
void AddDial(CLI::App& app, DialOptions& options) {
  AddFlags(app, {{"tls_ca_file", ValueOrEmpty(options.tls_ca_file),
                  "PEM; TLS to a server with a certificate of it [no TLS]"},
                 {"tls_server_name", ValueOrEmpty(options.tls_server_name),
                  "that its certificate has [the address's]"},
                 {"tls_cert_file", ValueOrEmpty(options.tls_cert_file),
                  "PEM, of ours, for a server that asks for one [none]"},
                 {"tls_key_file", ValueOrEmpty(options.tls_key_file), "its key, PEM"},
                 {"api_key", ValueOrEmpty(options.api_key),
                  "for a server that asks for one; others on this machine cannot see it in the "
                  "variable"}});
}

void AddAsk(CLI::App& app, AskOptions& options) {
  CLI::Option* address = AddFlag(app, {"address", Value(options.dial.address), "server to ask"});
  AddFlag(app, {"model", Value(options.serve.server.model_dir), "answer in this process instead"})
      ->excludes(address);
  app.add_option("--image", options.images, "picture; may be repeated")->allow_extra_args(false);
  app.add_option("question", options.question, "the question; - reads standard input")->required();
  app.add_flag("--json", options.json, "print one object");
  app.add_flag("--receipt", options.receipt, "print what the answer cost");
  app.add_option("--stop", options.stop, "text that ends the answer; may be repeated")
      ->allow_extra_args(false);
  AddFlags(app, {{"session", ValueOrEmpty(options.session), "routing hint"},
                 {"max_tokens", Value(options.max_tokens), "tokens of the answer at most"},
                 {"temperature", Value(options.temperature), "0 is greedy"},
                 {"seed", Value(options.seed), "draws with one seed repeat"},
                 {"top_logprobs", Within(options.top_logprobs, 0u, 5u),
                  "likeliest tokens that --json tells beside each one of the answer"},
                 {"timeout", Value(options.timeout), "for the whole answer"}});
  AddDial(app, options.dial);
  AddServiceFlags(app, options.serve);
}

void AddSchedule(CLI::App& app, ScheduleBenchOptions& options) {
  AddFlag(app, {"profile", Value(options.profile), "file with the device's step times"})
      ->required();
  app.add_flag("--json", options.json, "print one object");
  TraceOptions& make = options.make;
  AddFlags(
      app,
      {{"trace", ValueOrEmpty(options.trace), "file of sessions, one JSON object a line"},
       {"arrivals",
        OneOf(make.arrivals, {{"together", Arrivals::kTogether},
                              {"poisson", Arrivals::kPoisson},
                              {"bursts", Arrivals::kBursts}}),
        "of sessions, without a trace"},
       {"sessions", Value(make.sessions), "of the made trace"},
       {"rate", Value(make.rate), "sessions a second"},
       {"burst", Value(make.burst), "sessions that arrive together"},
       {"pictures", Value(make.pictures), "different ones; 0: one for each session"},
       {"tenants", Value(make.tenants), "that share the device"},
       {"rows", Value(make.rows), "of a picture; 0: text only"},
       {"turns", Value(make.turns), "of a session"},
       {"question_tokens", Value(make.question_tokens), "of a turn"},
       {"answer_tokens", Value(make.answer_tokens), "of a turn"},
       {"think_seconds", Value(make.think_seconds), "between an answer and the next question"},
       {"seed", Value(make.seed), "equal seeds make equal traces"},
       {"max_batch_tokens", Value(options.max_batch_tokens), "of one step"},
       {"max_sequences", Value(options.max_sequences), "in one step"},
       {"block_size", Value(options.block_size), "tokens of a KV block"},
       {"context_tokens", Value(options.context_tokens), "of prompt and answer"},
       {"kv_cache_bytes", Bytes(options.kv_cache_bytes), "of the device's memory"},
       {"prefix_cache", OnOff(options.prefix_cache), "keep blocks for prompts that begin alike"}});
}

void AddLoad(CLI::App& app, ServeBenchOptions& options) {
  AddFlag(app, {"questions", Value(options.questions),
                "file, one JSON object a line: {\"image\": FILE, \"question\": TEXT}"})
      ->required();
  app.add_flag("--json", options.json, "print one object");
  app.add_flag("--upload", options.load.by_handle, "upload pictures ahead, then name their handle");
  LoadOptions& load = options.load;
  AddFlags(app, {{"address", Value(options.dial.address), "of the server"},
                 {"sessions", Value(load.sessions), "conversations, each about one picture"},
                 {"turns", Value(load.turns), "questions of a session"},
                 {"concurrency", Value(load.concurrency), "sessions at a time, at most"},
                 {"rate", Value(load.rate), "sessions begun a second; 0: when one has ended"},
                 {"max_tokens", Value(load.max_tokens), "of an answer at most"},
                 {"timeout", Value(load.timeout), "of a request"},
                 {"seed", Value(load.seed), "of arrivals and session names"},
                 {"warmup", Value(options.warmup), "sessions before, not counted"},
                 {"server_process", Value(options.server_process),
                  "whose peak memory is told; 0: found by its port on this machine"}});
  AddDial(app, options.dial);
}

void AddInspect(CLI::App& app, InspectOptions& options, InspectRecordOptions& record) {
  app.add_option("path", options.path, "model directory or picture");
  AddFlag(app, {"model", Value(options.model),
                "for a picture: count this model's rows, and judge it as this model sees it"});
  CLI::App& show = *app.add_subcommand("record", "show an embedding record");
  show.add_option("file", record.path, "that holds one record");
  AddFlags(show, {{"redis", Value(record.redis), "URL of the Redis that has it"},
                  {"key", Value(record.key), "under which it lies there, in hex"},
                  {"embedding_store_key_file", Value(record.key_file), "32 bytes, for a GMAC"}});
}

void AddCanary(CLI::App& app, CanaryOptions& options) {
  app.add_option("model", options.model_dir, "model directory")->required();
  AddFlag(app, {"out", ValueOrEmpty(options.out), "file to write [the model's own]"});
}

// CLI11 would read the variables of commands that were not called, and refuse bad ones of theirs;
// it does not where a command has such a callback.
void ReadOwnVariablesOnly(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({})) {
    command->parse_complete_callback([] {});
    ReadOwnVariablesOnly(*command);
  }
}

// The commands and their flags.
void AddCommands(CLI::App& app, Options& options) {
  AddServe(*app.add_subcommand("serve", "run gateway, vision and decode in one process"),
           options.serve);
  AddAsk(*app.add_subcommand("ask", "ask a question about pictures"), options.ask);
  AddCanary(*app.add_subcommand("canary", "write down what a model must say at start"),
            options.canary);
  AddInspect(*app.add_subcommand("inspect", "show a model directory, a picture or a record"),
             options.inspect, options.record);
  CLI::App* bench = app.add_subcommand("bench", "measure");
  bench->require_subcommand(1);
  AddFlags(*bench->add_subcommand("kernel", "kernels beside the machine's measured rates"),
           {{"device", Value(options.kernel.device), "cpu or reference"},
            {"threads", Value(options.kernel.threads), "0: what the machine grants"}});
  AddLoad(*bench->add_subcommand("serve", "questions about pictures to a running server"),
          options.load);
  CLI::App& schedule = *bench->add_subcommand(
      "schedule", "the decode scheduler over a made-up device and a trace, in milliseconds");
  AddSchedule(schedule, options.schedule);
  ReadOwnVariablesOnly(app);
}

int Run(CLI::App& app, Options& options) {
  const CLI::App& command = *app.get_subcommands().front();
  if (command.get_name() == "serve") {
    return Report(Serve(options.serve, flags::ChangedFlags(command), std::cout));
  }
  if (command.get_name() == "ask") {
    options.ask.local = !options.ask.serve.server.model_dir.empty();
    options.ask.has_seed = command.get_option("--seed")->count() > 0;
    options.ask.has_top_logprobs = command.get_option("--top_logprobs")->count() > 0;
    return Report(Ask(options.ask, std::cin, std::cout));
  }
  if (command.get_name() == "canary") return Report(WriteCanary(options.canary, std::cout));
  if (command.get_name() == "inspect") {
    const bool record = !command.get_subcommands().empty();
    return Report(record ? InspectRecord(options.record, std::cout)
                         : Inspect(options.inspect, std::cout));
  }
  const std::string bench = command.get_subcommands().front()->get_name();
  if (bench == "serve") return Report(RunServeBench(options.load, std::cout, std::cerr));
  if (bench == "schedule") {
    return Report(RunScheduleBench(options.schedule, std::cout));
  }
  return Report(RunKernelBench(options.kernel, std::cout));
}

int Main(int argc, char** argv) {
  CLI::App app("Tessera answers questions about pictures.", "tessera");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("tessera ") + base::kVersion);
  Options options;
  options.serve.program = argv[0];
  AddCommands(app, options);
  const flags::Environment environment = flags::OurVariables(environ);
  for (const std::string& line : flags::UnknownVariables(app, environment)) {
    std::cerr << "tessera: warning: " << line << "\n";
  }
  const std::vector<std::string> args(argv + 1, argv + argc);
  app.failure_message([&](const CLI::App*, const CLI::Error& error) {
    return flags::UsageMessage(app, error, args, environment);
  });
  try {
    app.parse(argc, argv);
    flags::ApplyEmptyVariables(app, environment);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) == 0) return 0;
    for (const std::string& name : flags::EmptyVariables(app, environment)) {
      std::cerr << "tessera: the variable " << name << " is set, but empty\n";
    }
    return kWrongUsage;
  }
  return Run(app, options);
}

}  // namespace
}  // namespace tessera::tools

int main(int argc, char** argv) {
  // What gRPC would log comes back as a status; its own lines would only repeat it.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error of that write, no more
  return tessera::tools::Main(argc, argv);
}
