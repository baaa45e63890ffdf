#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "services/decode/schedule/scheduler.h"

namespace tessera::decode {

// Tokens of a block.
inline constexpr int32_t kModelBlock = 4;

// Pictures are known by the first byte of their key; a row of one, by its only number.
inline int PictureOf(const store::EmbeddingKey& key) {
  return static_cast<uint8_t>(key.bytes()[0]);
}
inline float RowNumber(int picture, int row) { return 1000.0f * (picture + 1) + row; }

// Drives a Scheduler with its pool and cache at random, beside a slow and obvious model of what the
// device holds: for each slot a mark of the token that was written there and of all in front of it.
// Reports what is wrong as GoogleTest failures. Small pools, several tenants, beginnings that are
// often the same, pictures, cancels, pauses, ahead-work, failed steps, several tokens at a time.
class SchedulerModel {
 public:
  explicit SchedulerModel(uint32_t seed);

  // One random operation, then every check.
  void Operate();
  // Lets everything run to its end without further disturbance, within a bounded number of steps.
  void Finish();

  // What happened, to see that the random walk goes where it should.
  struct Seen {
    int64_t preempted = 0, hits = 0, evicted = 0, row_losses = 0, ahead_dropped = 0, ahead_used = 0,
            paused_out = 0, copies = 0, finished = 0;
  };
  Seen seen() const;

 private:
  struct Known {
    Sequence sequence;
    std::vector<uint64_t> marks;  // per token of the sequence: of it and all in front of it
    int64_t enqueued = 0;         // time of the last Enqueue
    bool entered_once = false;
  };

  int Below(int n) { return static_cast<int>(random_() % n); }
  bool OneIn(int n) { return Below(n) == 0; }

  // --- operations ---
  void Arrive();
  void Cancel();
  void Pause();
  void Resume();
  void GiveRows();
  void Step();

  void WritePrompt(Sequence& sequence);
  void AppendPicture(Sequence& sequence);
  void Name(Known& known);
  void AppendMark(Known& known, int32_t place);
  void Bring(Known& known);
  void Remember(const Sequence& sequence);
  void Remove(Known& known);
  Known* Of(const Sequence* sequence);
  Known* Pick(bool (*wanted)(const Sequence&));

  // --- one step ---
  void CheckDecoding(const std::vector<Known*>& decoding);
  void CheckOrder(const std::vector<Known*>& waited);
  void CheckSequence(size_t s);
  void CheckRows(size_t s, const Known& known);
  void Write();
  void Copy();
  void CheckContext(size_t s);
  void CommitStep();
  void AbandonStep();
  void HandleExpelled();
  void CheckCounts();

  std::mt19937 random_;
  SchedulerOptions options_;
  BlockPool pool_;
  PrefixCache cache_;
  Scheduler scheduler_;
  BlockHasher hasher_;
  std::vector<std::unique_ptr<Known>> known_;
  std::vector<uint64_t> slots_;      // [pool slots]
  std::vector<Sequence> past_;       // answered, to be asked further
  std::vector<Sequence*> expelled_;  // by the last Next
  SequenceId last_id_ = 0;
  int64_t now_ = 0;
  bool calm_ = false;
  Seen seen_;
};

}  // namespace tessera::decode
