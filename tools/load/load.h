#pragma once

#include <grpcpp/channel.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tessera/v1/gateway.pb.h"
#include "tools/load/question_set.h"

namespace tessera::tools {

// What clients do. A session is one conversation about one picture: a question, its answer, the
// next question with all that was said before.
struct LoadOptions {
  int32_t sessions = 100;
  int32_t turns = 1;        // questions of a session
  int32_t concurrency = 1;  // sessions at a time; with a rate: at most
  double rate = 0;          // sessions begun a second (Poisson); 0: the next when one has ended
  bool by_handle = false;   // pictures are uploaded ahead, then named by their handle
  uint32_t max_tokens = 32;
  absl::Duration timeout = absl::Seconds(120);  // of a request
  uint64_t seed = 1;
  std::string api_key = {};  // empty: none
};

// One request, in seconds by the client's clock.
struct LoadResult {
  bool ok = false;
  std::string error;
  int32_t turn = 0;
  size_t picture_bytes = 0;
  double begin = 0;  // since the load's start
  double ttft = 0;
  double e2e = 0;
  std::vector<double> gaps;  // between pieces of text
  v1::GenerateResponse end;
};

// Runs the sessions over one channel, each on a thread of its own, and returns every request.
// `done` is called after each session, from its thread.
std::vector<LoadResult> RunLoad(const std::shared_ptr<grpc::Channel>& channel,
                                const std::vector<PictureQuestions>& pictures,
                                const LoadOptions& options, const std::function<void()>& done);

}  // namespace tessera::tools
