#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tools/ask.h"
#include "tools/bench_kernel.h"
#include "tools/flags.h"
#include "tools/inspect.h"
#include "tools/serve.h"

namespace tessera::tools {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// A bad flag is wrong usage, whoever noticed it; all else has failed, output that got lost too.
int Report(const absl::Status& status) {
  if (status.ok()) {
    if (std::cout.flush()) return 0;
    std::cerr << "tessera: the output could not be written\n";
    return kFailed;
  }
  const std::string reason = base::ReasonOf(status);
  std::cerr << "tessera: " << absl::StatusCodeToString(status.code())
            << (reason.empty() ? "" : " (" + reason + ")") << ": " << status.message() << "\n";
  return reason == "BAD_OPTION" ? kWrongUsage : kFailed;
}

std::vector<std::string> ChangedFlags(const CLI::App& app) {
  std::vector<std::string> changed;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_name() == "--help") continue;
    changed.push_back(option->get_name() + "=" + CLI::detail::join(option->results(), ","));
  }
  return changed;
}

void AddServe(CLI::App& app, ServeOptions& options) {
  options.server.grpc_address = "127.0.0.1:9000";
  AddFlag(app, "model", options.server.model_dir, "model directory")->required();
  AddFlag(app, "grpc_address", options.server.grpc_address, "host:port, port 0 takes a free one");
  AddFlag(app, "reflection", options.server.reflection, "gRPC reflection");
  AddDurationFlag(app, "drain_timeout", options.drain_timeout, "for running requests at the end");
  AddServiceFlags(app, options);
}

void AddAsk(CLI::App& app, AskOptions& options) {
  CLI::Option* address = AddFlag(app, "address", options.address, "server to ask");
  AddFlag(app, "model", options.serve.server.model_dir, "answer in this process instead")
      ->excludes(address);
  app.add_option("--image", options.images, "picture; may be repeated")
      ->allow_extra_args(false)
      ->trigger_on_parse();
  app.add_option("question", options.question, "the question; - reads standard input")->required();
  app.add_flag("--json", options.json, "print one object");
  app.add_flag("--receipt", options.receipt, "print what the answer cost");
  app.add_option("--session", options.session, "routing hint");
  app.add_option("--max_tokens", options.max_tokens, "tokens of the answer at most");
  app.add_option("--temperature", options.temperature, "0 is greedy");
  app.add_option("--seed", options.seed, "draws with one seed repeat");
  app.add_option("--stop", options.stop, "text that ends the answer; may be repeated")
      ->allow_extra_args(false);
  AddDurationFlag(app, "timeout", options.timeout, "for the whole answer");
  AddServiceFlags(app, options.serve);
}

int Main(int argc, char** argv) {
  CLI::App app("Tessera answers questions about pictures.", "tessera");
  app.require_subcommand(1);
  app.set_version_flag("--version", "tessera 0.1.0");
  ServeOptions serve;
  AskOptions ask;
  InspectOptions inspect;
  KernelBenchOptions kernel;
  CLI::App* serve_app =
      app.add_subcommand("serve", "run gateway, vision and decode in one process");
  AddServe(*serve_app, serve);
  CLI::App* ask_app = app.add_subcommand("ask", "ask a question about pictures");
  AddAsk(*ask_app, ask);
  CLI::App* inspect_app = app.add_subcommand("inspect", "show a model directory or a picture");
  inspect_app->add_option("path", inspect.path, "model directory or picture")->required();
  AddFlag(*inspect_app, "model", inspect.model, "for a picture: count this model's rows");
  CLI::App* bench_app = app.add_subcommand("bench", "measure");
  bench_app->require_subcommand(1);
  CLI::App* kernel_app =
      bench_app->add_subcommand("kernel", "kernels beside the machine's measured rates");
  AddFlag(*kernel_app, "device", kernel.device, "cpu or reference");
  AddFlag(*kernel_app, "threads", kernel.threads, "0: what the machine grants");
  serve.program = argv[0];
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  if (serve_app->parsed()) return Report(Serve(serve, ChangedFlags(*serve_app), std::cout));
  if (ask_app->parsed()) {
    ask.local = !ask.serve.server.model_dir.empty();
    ask.has_seed = ask_app->get_option("--seed")->count() > 0;
    return Report(Ask(ask, std::cin, std::cout));
  }
  if (inspect_app->parsed()) return Report(Inspect(inspect, std::cout));
  return Report(RunKernelBench(kernel, std::cout));
}

}  // namespace
}  // namespace tessera::tools

int main(int argc, char** argv) {
  // What gRPC would log comes back as a status; its own lines would only repeat it.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error of that write, no more
  return tessera::tools::Main(argc, argv);
}
