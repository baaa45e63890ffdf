#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "services/decode/engine/engine_loop.h"
#include "tests/services/decode/engine/fake_engine.h"
#include "tests/support/fake_clock.h"

namespace tessera::decode {

// The engine's thread by hand.
class EngineLoopTest : public ::testing::Test {
 protected:
  ~EngineLoopTest() override {
    if (loop_ != nullptr) loop_->EndAll(absl::CancelledError("the test is over"));
  }

  void Start(const EngineOptions& options, testing::FakeDeviceOptions fake = {}) {
    // The device plants 3 s in each step.
    fake.on_forward = [this, on_forward = fake.on_forward](const BatchPlan& plan) {
      clock_.Advance(absl::Seconds(3));
      return on_forward == nullptr ? absl::OkStatus() : on_forward(plan);
    };
    loop_ = std::make_unique<EngineLoop>(
        options, testing::MakeFakeDevice(options, pool_, std::move(fake)), clock_,
        EngineLoop::Hooks{[this](FetchJob job) { jobs_.push_back(std::move(job)); },
                          [this](Priority) { ++ended_; }});
  }

  std::shared_ptr<testing::CollectingSink> Submit(Request request) {
    auto sink = std::make_shared<testing::CollectingSink>();
    SubmitTo(sink, std::move(request));
    return sink;
  }
  void SubmitTo(std::shared_ptr<testing::CollectingSink> sink, Request request) {
    request.sink = std::move(sink);
    if (request.arrival == absl::InfinitePast()) request.arrival = clock_.Now();
    testing::NameBlocks(request, 4);
    const auto max_tokens = static_cast<int32_t>(request.max_tokens);
    loop_->Handle(
        NewRequest{std::make_unique<ActiveRequest>(++last_id_, std::move(request), max_tokens)});
  }

  void Answer(const FetchJob& job, std::vector<store::RecordPtr> records) {
    FetchResult result{job.id, job.pictures};
    ASSERT_EQ(records.size(), result.pictures.size());
    for (size_t i = 0; i < records.size(); ++i) {
      if (records[i] == nullptr) continue;
      result.pictures[i].rows = store::ToFloatRows(records[i]);
      result.pictures[i].found = {std::move(records[i]), RowTier::kLocal};
    }
    loop_->Handle(std::move(result));
  }

  // The store of these records answers each job that came; nothing else is found.
  void AnswerJobs(const std::vector<store::RecordPtr>& records) {
    for (const FetchJob& job : std::exchange(jobs_, {})) {
      std::vector<store::RecordPtr> found;
      for (const WantedRows& wanted : job.pictures) {
        const auto it = std::find_if(
            records.begin(), records.end(),
            [&](const store::RecordPtr& record) { return record->key == wanted.record.key; });
        found.push_back(it == records.end() ? nullptr : *it);
      }
      Answer(job, std::move(found));
    }
  }
  // Until there is nothing to do.
  void RunAll(const std::vector<store::RecordPtr>& records = {}) {
    do {
      AnswerJobs(records);
      while (loop_->Step()) {
      }
    } while (!jobs_.empty());
  }
  // Asks and waits for the answer.
  std::shared_ptr<testing::CollectingSink> Ask(Request request,
                                               const std::vector<store::RecordPtr>& records = {}) {
    auto sink = Submit(std::move(request));
    RunAll(records);
    EXPECT_TRUE(sink->ended());
    EXPECT_TRUE(sink->status().ok()) << sink->status();
    return sink;
  }

  base::ComputePool pool_{1};
  testing::FakeClock clock_;
  std::unique_ptr<EngineLoop> loop_;
  std::vector<FetchJob> jobs_;
  int ended_ = 0;
  SequenceId last_id_ = 0;
};

}  // namespace tessera::decode
