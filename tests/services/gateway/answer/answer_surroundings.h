#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "services/gateway/answer/answer_life.h"

namespace tessera::gateway {

// How often an event came in a state.
using Coverage = std::array<std::array<uint64_t, kAnswerStates>, kAnswerEvents>;

// What is around one AnswerLife, in an order that `seed` chooses: admission, pictures of its own
// and of uploads, decode and its replicas, a client that may read slowly and leave. What the life
// says is done some time later, as by a thread that was interrupted. Checks each promise as it
// goes.
class Surroundings {
 public:
  Surroundings(uint32_t seed, Coverage& coverage);
  // Until nothing can happen any more. What was broken first; empty: nothing.
  std::string Run();

 private:
  // What a thread is about to do, or to tell.
  enum class Work {
    kParse,
    kAsk,
    kTellAsked,
    kTellTurn,
    kRelease,
    kResolveNext,
    kAskDecode,
    kTellCallMade,
    kStartDecode,
    kCancelDecode,
    kResumeDecode,
  };
  struct Chore {
    Work work;
    size_t call = 0;  // of decode
  };
  struct PictureCall {
    bool upload = false, exists = false;  // waits for an upload; its record exists
    bool planned = false, proceeds = false, cancelled = false, ended = false;
  };
  struct RowsCall {
    uint32_t attempt = 0;
    bool cancelled = false, ended = false;
  };
  struct DecodeCall {
    bool started = false, cancelled = false, done = false;
    bool paused = false;
  };

  bool Chance(uint32_t percent) { return random_() % 100 < percent; }
  size_t Below(size_t count) { return random_() % count; }
  absl::Status Failure();
  void Require(bool held, const char* promise) {
    if (!held && broken_.empty()) broken_ = promise;
  }

  // One thing happens; false: nothing can.
  bool Step();
  void Do(Chore chore);
  void Resolve();
  bool HappenToPicture(size_t index);
  bool HappenToRows(RowsCall& rows);
  bool HappenToDecode();
  bool HappenToClient();

  AnswerActions Feed(const AnswerEvent& event);
  void Foresee(const AnswerEvent& event);
  void Obey(AnswerActions actions);
  bool decode_has_it() const { return !decode_.empty() && kept_ && !decode_.back().done; }

  std::mt19937 random_;
  Coverage& coverage_;
  std::string broken_;
  AnswerLife life_;
  std::vector<Chore> chores_ = {{Work::kParse}};

  enum class Ticket { kUnknown, kWaits, kHeld, kGone };
  Ticket ticket_ = Ticket::kUnknown;
  const bool ask_is_slow_;
  const size_t picture_count_;
  size_t resolved_ = 0;  // or begun
  std::vector<PictureCall> pictures_;
  std::vector<RowsCall> rows_;
  std::vector<DecodeCall> decode_;
  bool kept_ = false;  // the last of decode's calls, by the answer
  uint32_t attempt_ = 0;
  int pauses_ = 0;  // the client has yet to say that it reads on, or be given up
  int client_events_ = 0;

  // What is to be expected, kept apart from what AnswerLife knows.
  absl::Status cause_;  // ours, of the end
  absl::Status last_word_;
  bool client_left_ = false, renewing_ = false, told_ = false;
  int ends_ = 0, rows_held_ = 0;
};

}  // namespace tessera::gateway
