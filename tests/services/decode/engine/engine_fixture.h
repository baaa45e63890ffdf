#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "services/decode/engine/engine.h"
#include "tests/services/decode/engine/fake_engine.h"

namespace tessera::decode {

using SinkPtr = std::shared_ptr<testing::CollectingSink>;

class EngineTest : public ::testing::Test {
 protected:
  void Start(const EngineOptions& options,
             std::function<absl::Status(const BatchPlan&)> on_forward = {}) {
    testing::FakeDeviceOptions fake;
    fake.on_forward = std::move(on_forward);
    engine_ =
        std::make_unique<Engine>(options, testing::MakeFakeDevice(options, pool_, std::move(fake)),
                                 store_, base::RealClock());
  }

  SinkPtr Submit(Request request) {
    auto sink = std::make_shared<testing::CollectingSink>();
    EXPECT_TRUE(SubmitTo(sink, std::move(request)).ok());
    return sink;
  }
  absl::StatusOr<AcceptedRequest> SubmitTo(SinkPtr sink, Request request) {
    request.sink = std::move(sink);
    return engine_->Submit(std::move(request));
  }

  // Holds the engine's thread inside a step until Open.
  std::function<absl::Status(const BatchPlan&)> Gate() {
    return [this](const BatchPlan&) {
      base::MutexLock lock(mutex_);
      if (++steps_ == close_at_) closed_ = true;
      changed_.SignalAll();
      while (closed_) changed_.Wait(mutex_);
      return absl::OkStatus();
    };
  }
  void Close() {
    base::MutexLock lock(mutex_);
    closed_ = true;
  }
  void Open() {
    base::MutexLock lock(mutex_);
    closed_ = false;
    changed_.SignalAll();
  }
  void AwaitStep(int count) {
    base::MutexLock lock(mutex_);
    while (steps_ < count) changed_.Wait(mutex_);
  }

  base::ComputePool pool_{1};
  testing::FakeStore store_;
  base::Mutex mutex_;
  base::CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int steps_ ABSL_GUARDED_BY(mutex_) = 0;
  int close_at_ = 0;  // the step that closes the gate; set before Start
  std::unique_ptr<Engine> engine_;
};

}  // namespace tessera::decode
