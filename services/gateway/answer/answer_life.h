#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"

// The life of a request: one state, what may happen, and what is then to be done. Pure: no lock, no
// clock, nobody is called. Answer carries the actions out.
//
//   kParsing ──► kQueued ──► kResolving ──────────► kAsking ──────────► kDecoding ──────► kTelling
//         parsed     │ turn           pictures there ▲  ▲   call made       │     first piece
//                    └───────────────────────────────┘  │                   │ without a picture,
//                          without pictures             └─── kRenewing ◄────┘ that is lost now
//                                                decode's last word
//
//   kParsing, kQueued, kResolving, kAsking ── refused, failed, cancelled ──────────► kEnded
//   kDecoding, kRenewing, kTelling ── cancelled, slow, late, rows lost ──► kEnding
//   kDecoding, kTelling, kEnding ── decode's last word ────────────────────────────► kEnded
//
// While decode has a call of it a request ends with that call's last word and not before; else at
// once. Nothing is told in kEnded, and decode is not asked anew once something is told.
namespace tessera::gateway {

enum class AnswerState : uint8_t {
  kParsing,    // what was asked is looked at
  kQueued,     // waits for its turn
  kResolving,  // its pictures are planned and encoded
  kAsking,     // decode's call is being made
  kDecoding,   // decode was asked, and has told nothing
  kRenewing,   // decode was cancelled, to be asked anew without a picture
  kTelling,    // something was told
  kEnding,     // decode was cancelled
  kEnded,
};
constexpr size_t kAnswerStates = 9;

enum class AnswerEventKind : uint8_t {
  // Of whoever carries an order out, on its thread.
  kParsed,    // the request is well formed, or is not
  kAsked,     // admission knows of it; perhaps long after kTurn
  kCallMade,  // decode's call is kept, or its answer cannot be in time
  // Of admission.
  kTurn,  // it is let in, or is not
  // Of vision, on any of its threads.
  kPlanned,   // the rows of a picture are known
  kResolved,  // a picture is there, left out, or fails the request
  kRowsMade,  // rows that decode missed are there again, or are not
  // Of decode, one at a time.
  kRouted,      // a replica was chosen, or another took over
  kRowsNeeded,  // it misses rows of pictures
  kPiece,
  kDone,  // its last word
  // Of the client, a timer, the end of a drain, on any thread.
  kResumed,  // the client takes pieces again
  kSlow,     // the client did not read for too long
  kCancel,   // the client is gone: what decode says of its end counts
  kAbort,    // the request is to end with `status`
};
constexpr size_t kAnswerEvents = 15;

struct AnswerEvent {
  AnswerEventKind kind;
  // OK, or why not; of kSlow, kCancel and kAbort why it ends.
  absl::Status status = absl::OkStatus();
  size_t pictures = 0;   // of kParsed: how many
  uint32_t picture = 0;  // of kPlanned and kResolved: which
  uint32_t attempt = 0;  // of kRowsMade: for which they were asked
  bool spare = false;    // of kRowsMade that failed: the client would be answered without them
};

enum class AnswerAction : uint16_t {
  kAskTurn = 1 << 0,          // of admission; then tell kAsked
  kResolve = 1 << 1,          // every picture
  kProceed = 1 << 2,          // with the encoding of all pictures: the rows of all are known
  kAskDecode = 1 << 3,        // make the call, tell kCallMade
  kStartDecode = 1 << 4,      // begin the call that was made
  kMakeRows = 1 << 5,         // that decode misses, for the attempt of now
  kKeep = 1 << 6,             // what kResolved or kRowsMade brought: it counts
  kSayRows = 1 << 7,          // to decode: those that kRowsMade brought
  kBegin = 1 << 8,            // the answer begins: before its first piece
  kTell = 1 << 9,             // the piece
  kResumeDecode = 1 << 10,    // it may send pieces again
  kCancelDecode = 1 << 11,    // once for each call, at the most
  kDropPictures = 1 << 12,    // the calls of pictures are needed no more, or are over
  kCancelPictures = 1 << 13,  // they are under way, and wanted no more; then they are dropped
  kEnd = 1 << 14,             // with AnswerLife::cause; rows go
  kRelease = 1 << 15,         // the ticket; of one that admission does not know nothing happens
};

class AnswerActions {
 public:
  constexpr AnswerActions() = default;
  constexpr AnswerActions(AnswerAction action) : bits_(static_cast<uint16_t>(action)) {}
  constexpr AnswerActions operator|(AnswerActions other) const {
    AnswerActions both;
    both.bits_ = static_cast<uint16_t>(bits_ | other.bits_);
    return both;
  }
  constexpr bool Has(AnswerAction action) const {
    return (bits_ & static_cast<uint16_t>(action)) != 0;
  }
  constexpr bool empty() const { return bits_ == 0; }

 private:
  uint16_t bits_ = 0;
};
constexpr AnswerActions operator|(AnswerAction a, AnswerAction b) { return AnswerActions(a) | b; }

// What is known of a picture.
enum class PictureState : uint8_t { kUnknown, kPlanned, kResolved };

// How far a request came, whatever ended it.
enum class AnswerStage : uint8_t { kAdmission, kEncode, kDecode, kGeneration };
const char* NameOf(AnswerStage stage);  // "admission"

struct AnswerLife {
  AnswerState state = AnswerState::kParsing;
  AnswerStage stage = AnswerStage::kAdmission;
  // One more with each replica of decode and each last word: what an earlier one missed counts no
  // more.
  uint32_t attempt = 0;
  absl::InlinedVector<PictureState, 16> pictures;
  // In kEnding: what it ends with where decode's word is an error, OK where it is then that error.
  // In kEnded: what it ended with.
  absl::Status cause;
  // In kEnding: decode speaks of this answer, so that a whole one is one, whatever stopped it in
  // the same moment. Not so where it was to be asked anew.
  bool answers = true;

  // Calls about its pictures may still be begun.
  bool wants_pictures() const {
    return state == AnswerState::kResolving || state == AnswerState::kDecoding ||
           state == AnswerState::kTelling;
  }
};

struct AnswerStep {
  AnswerLife life;
  AnswerActions actions;
};

// What an event means in a state: it counts; it comes too late to, which is said with its reason in
// answer_life.cc; it cannot come.
enum class AnswerRule : char { kCounts = '+', kIgnored = '-', kNever = '!' };
AnswerRule RuleOf(AnswerState state, AnswerEventKind event);

// REQUIRES: RuleOf is not kNever. A piece allocates nothing.
AnswerStep Transition(AnswerLife life, const AnswerEvent& event);

}  // namespace tessera::gateway
