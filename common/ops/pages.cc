#include "common/ops/pages.h"

#include "absl/strings/str_cat.h"
#include "common/metrics/metrics.h"

namespace tessera::ops {
namespace {

constexpr int kUnavailable = 503;

std::string Line(const Check& check, const absl::Status& status) {
  const std::string message(status.message());
  return absl::StrCat(check.name, ": ",
                      status.ok()       ? "ok"
                      : message.empty() ? absl::StatusCodeToString(status.code())
                                        : message,
                      "\n");
}

Page Health(const Handlers& handlers) {
  Page page;
  for (const Check& check : handlers.liveness) {
    const absl::Status status = check.ask();
    if (status.ok()) continue;
    page.status = kUnavailable;
    page.body += Line(check, status);
  }
  if (page.status != kUnavailable) page.body = "ok\n";
  return page;
}

Page Readiness(const Handlers& handlers) {
  Page page;
  for (const Check& check : handlers.readiness) {
    const absl::Status status = check.ask();
    if (!status.ok()) page.status = kUnavailable;
    page.body += Line(check, status);
  }
  return page;
}

Page State(const Handlers& handlers) {
  base::Json state = base::Json::object();
  for (const StateProvider& provider : handlers.state) state[provider.name] = provider.tell();
  constexpr int kIndent = 2;
  return {200, "application/json",
          state.dump(kIndent, ' ', false, base::Json::error_handler_t::replace) + "\n"};
}

}  // namespace

Page PageAt(absl::string_view target, const Handlers& handlers) {
  const absl::string_view path = target.substr(0, target.find('?'));
  if (path == "/metrics") return {200, metrics::kContentType, handlers.metrics()};
  if (path == "/healthz") return Health(handlers);
  if (path == "/readyz") return Readiness(handlers);
  if (path == "/debug/state") return State(handlers);
  Page page;
  page.status = 404;
  page.body = "no such page; there are /metrics /healthz /readyz /debug/state\n";
  return page;
}

}  // namespace tessera::ops
