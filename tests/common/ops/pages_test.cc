#include "common/ops/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::ops {
namespace {

using ::testing::HasSubstr;

Check Good(const std::string& name) {
  return {name, [] { return absl::OkStatus(); }};
}
Check Bad(const std::string& name, const absl::Status& status) {
  return {name, [status] { return status; }};
}

TEST(PagesTest, MetricsAreTheHandlersText) {
  Handlers handlers;
  handlers.metrics = [] { return std::string("a 1\n"); };
  const Page page = PageAt("/metrics", handlers);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(page.body, "a 1\n");
}

TEST(PagesTest, HealthIsOkOrTheReasons) {
  Handlers handlers;
  EXPECT_EQ(PageAt("/healthz", handlers).body, "ok\n");
  handlers.liveness = {Good("engine")};
  EXPECT_EQ(PageAt("/healthz", handlers).status, 200);
  EXPECT_EQ(PageAt("/healthz", handlers).body, "ok\n");
  handlers.liveness.push_back(Bad("encoder", absl::UnavailableError("stuck")));
  handlers.liveness.push_back(Bad("device", absl::InternalError("")));
  const Page page = PageAt("/healthz", handlers);
  EXPECT_EQ(page.status, 503);
  EXPECT_EQ(page.body, "encoder: stuck\ndevice: INTERNAL\n");
}

// Liveness that follows readiness would have a draining process killed.
TEST(PagesTest, ReadinessDoesNotTouchHealth) {
  Handlers handlers;
  handlers.readiness = {Good("model"), Bad("serving", absl::UnavailableError("draining"))};
  const Page page = PageAt("/readyz", handlers);
  EXPECT_EQ(page.status, 503);
  EXPECT_EQ(page.body, "model: ok\nserving: draining\n");
  EXPECT_EQ(PageAt("/healthz", handlers).status, 200);
  handlers.readiness.pop_back();
  EXPECT_EQ(PageAt("/readyz", handlers).status, 200);
}

TEST(PagesTest, StateIsOneObjectOfAllProviders) {
  Handlers handlers;
  int asked = 0;
  handlers.state = {{"engine",
                     [&] {
                       return base::Json{{"running", ++asked}};
                     }},
                    {"name", [] { return base::Json("\xff"); }}};
  const Page page = PageAt("/debug/state", handlers);
  EXPECT_EQ(page.content_type, "application/json");
  const auto json = base::ParseJson(page.body);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["engine"]["running"], 1);
  EXPECT_EQ((*json)["name"], "\xef\xbf\xbd");
}

TEST(PagesTest, AQueryIsIgnoredAndOtherPathsAreUnknown) {
  const Handlers handlers;
  EXPECT_EQ(PageAt("/healthz?verbose=1", handlers).status, 200);
  for (const char* target : {"", "/", "*", "?", "healthz", "/healthz/", "/healthz/x", "/HEALTHZ",
                             "//healthz", "/metrics/..", "http://x/healthz", "/%68ealthz"}) {
    const Page page = PageAt(target, handlers);
    EXPECT_EQ(page.status, 404) << target;
    EXPECT_THAT(page.body, HasSubstr("/metrics"));
  }
}

}  // namespace
}  // namespace tessera::ops
