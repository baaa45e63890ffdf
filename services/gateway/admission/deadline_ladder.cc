#include "services/gateway/admission/deadline_ladder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tessera::gateway {
namespace {

constexpr std::pair<const char*, LadderStep> kNames[] = {{"rows", LadderStep::kRows},
                                                         {"output", LadderStep::kOutput},
                                                         {"redirect", LadderStep::kRedirect},
                                                         {"refuse", LadderStep::kRefuse}};

// The longest answer that ends in time after `wait`, at most max_tokens; 0 when not even the first
// token would come.
uint32_t TokensInTime(const LadderInput& input, absl::Duration wait) {
  const absl::Duration spare = input.left - wait - input.first_token;
  if (spare < absl::ZeroDuration()) return 0;
  const double more = absl::FDivDuration(spare, input.per_token);  // behind the first
  return more >= input.max_tokens ? input.max_tokens
                                  : std::min(input.max_tokens, static_cast<uint32_t>(more) + 1);
}

}  // namespace

absl::StatusOr<std::vector<LadderStep>> ParseLadder(absl::string_view text) {
  std::vector<LadderStep> steps;
  for (const absl::string_view name : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const auto known = std::find_if(std::begin(kNames), std::end(kNames),
                                    [&](const auto& entry) { return entry.first == name; });
    if (known == std::end(kNames) ||
        std::find(steps.begin(), steps.end(), known->second) != steps.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", name, "\"", known == std::end(kNames) ? "" : " twice",
          "; supported: rows, output, redirect, refuse, each at most once, in any order"));
    }
    steps.push_back(known->second);
  }
  return steps;
}

std::string LadderText(const std::vector<LadderStep>& steps) {
  return absl::StrJoin(steps, ",", [](std::string* out, LadderStep step) {
    absl::StrAppend(out, kNames[static_cast<size_t>(step)].first);
  });
}

LadderPlan Climb(const std::vector<LadderStep>& steps, const LadderInput& input) {
  LadderPlan plan;
  absl::Duration wait = input.wait_first;
  const uint32_t least = std::min(std::max(1u, input.min_tokens), input.max_tokens);
  bool shorten = false;
  const auto fits = [&] {
    return TokensInTime(input, wait) >= (shorten ? least : input.max_tokens);
  };
  for (const LadderStep step : steps) {
    if (fits()) break;
    switch (step) {
      case LadderStep::kRows:
        break;
      case LadderStep::kOutput:
        shorten = true;
        break;
      case LadderStep::kRedirect:
        plan.redirect = input.wait_least < wait;
        wait = std::min(wait, input.wait_least);
        break;
      case LadderStep::kRefuse:
        plan.refuse = input.left < wait + input.soonest;
        break;
    }
  }
  plan.max_tokens = shorten ? std::max(least, TokensInTime(input, wait)) : input.max_tokens;
  return plan;
}

}  // namespace tessera::gateway
