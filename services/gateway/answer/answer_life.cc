#include "services/gateway/answer/answer_life.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera::gateway {
namespace {

using Action = AnswerAction;
using Event = AnswerEventKind;
using State = AnswerState;

constexpr size_t kRowLength = kAnswerStates + 1;  // and its end

// Each row an event, each column a state, both in their order. Why '-' is right:
constexpr char kRules[kAnswerEvents][kRowLength] = {
    // Parsing, Queued, Resolving, Asking, Decoding, Renewing, Telling, Ending, Ended
    "+!!!!!!!-",  // kParsed: its client left meanwhile
    "!-------+",  // kAsked: of use only where it ended before admission knew of it
    "!!!+!!!!-",  // kCallMade: it was cancelled meanwhile; a call that is never begun says nothing
    "!+!!!!!!-",  // kTurn: it ended as the turn came
    "!!+!!!!!-",  // kPlanned: another picture, or the client, has ended it
    "!!+!!!!!-",  // kResolved: another picture, or the client, has ended it
    "!!!-+-+--",  // kRowsMade: for a call that is over or cancelled
    "!!!!++++!",  // kRouted
    "!!!!+-+-!",  // kRowsNeeded: that call is cancelled
    "!!!!+-++!",  // kPiece: that call is cancelled, the next one tells all
    "!!!!++++!",  // kDone
    "!!!!!!++-",  // kResumed: there is nothing to go on with
    "!!!!!!++-",  // kSlow: it ended as its time came
    "+++++++--",  // kCancel: decode is cancelled, its word is awaited
    "++++++++-",  // kAbort: it ended first
};

// The end, at once.
AnswerActions End(AnswerLife& life, const absl::Status& status) {
  life.state = State::kEnded;
  life.cause = status;
  const Action pictures = status.ok() ? Action::kDropPictures : Action::kCancelPictures;
  return Action::kEnd | Action::kRelease | pictures;
}

AnswerActions OnParsed(AnswerLife& life, const AnswerEvent& event) {
  if (!event.status.ok()) return End(life, event.status);
  life.state = State::kQueued;
  life.pictures.assign(event.pictures, PictureState::kUnknown);
  return Action::kAskTurn;
}

AnswerActions AskDecode(AnswerLife& life) {
  life.state = State::kAsking;
  return Action::kAskDecode | Action::kDropPictures;
}

AnswerActions OnTurn(AnswerLife& life, const AnswerEvent& event) {
  if (!event.status.ok()) return End(life, event.status);
  life.stage = AnswerStage::kEncode;
  if (life.pictures.empty()) return AskDecode(life);
  life.state = State::kResolving;
  return Action::kResolve;
}

bool All(const AnswerLife& life, PictureState least) {
  return std::all_of(life.pictures.begin(), life.pictures.end(),
                     [least](PictureState picture) { return picture >= least; });
}

// The encodings of all pictures go on together, once the rows of each are known: planned, or there.
// So requests cannot wait for each other: vision plans for whoever offers, whether or not others go
// on; and a picture that waits for an upload, which has no plan before that has ended, waits for
// bytes that go on by themselves. Where the upload fails, the picture is planned then.
AnswerActions OnPicture(AnswerLife& life, uint32_t picture, PictureState state) {
  const bool known = All(life, PictureState::kPlanned);
  life.pictures[picture] = state;
  AnswerActions actions;
  if (!known && All(life, PictureState::kPlanned)) actions = Action::kProceed;
  if (All(life, PictureState::kResolved)) actions = actions | AskDecode(life);
  return actions;
}

AnswerActions OnResolved(AnswerLife& life, const AnswerEvent& event) {
  if (!event.status.ok()) return End(life, event.status);
  return OnPicture(life, event.picture, PictureState::kResolved) | Action::kKeep;
}

AnswerActions OnCallMade(AnswerLife& life, const AnswerEvent& event) {
  if (!event.status.ok()) return End(life, event.status);
  life.state = State::kDecoding;
  life.stage = AnswerStage::kDecode;
  return Action::kStartDecode;
}

// Decode is cancelled; its last word is awaited. `cause` may be OK: then that word is the end.
AnswerActions Stop(AnswerLife& life, const absl::Status& cause) {
  life.state = State::kEnding;
  life.cause = cause;
  life.answers = true;
  return Action::kCancelDecode;
}

AnswerActions OnPiece(AnswerLife& life) {
  if (life.state == State::kEnding && !life.answers) return {};
  if (life.state == State::kDecoding) life.state = State::kTelling;
  if (life.stage == AnswerStage::kGeneration) return Action::kTell;
  life.stage = AnswerStage::kGeneration;
  return Action::kBegin | Action::kDropPictures | Action::kTell;
}

AnswerActions OnDone(AnswerLife& life, const AnswerEvent& event) {
  ++life.attempt;
  if (life.state == State::kRenewing) {
    life.state = State::kAsking;
    return Action::kAskDecode;
  }
  const bool whole = event.status.ok() && life.answers;
  const absl::Status status = whole || life.cause.ok() ? event.status : life.cause;
  return End(life, status);
}

AnswerActions OnRowsMade(AnswerLife& life, const AnswerEvent& event) {
  if (event.attempt != life.attempt) return {};
  if (event.status.ok()) return Action::kKeep | Action::kSayRows;
  if (!event.spare || life.state == State::kTelling) return Stop(life, event.status);
  life.state = State::kRenewing;
  return Action::kKeep | Action::kCancelDecode;
}

AnswerActions OnStopped(AnswerLife& life, const AnswerEvent& event) {
  const bool slow = event.kind == Event::kSlow;
  switch (life.state) {
    case State::kParsing:
    case State::kQueued:
    case State::kResolving:
    case State::kAsking:
      return End(life, event.status);
    case State::kDecoding:
    case State::kTelling: {
      const bool decodes_word = event.kind == Event::kCancel;
      const AnswerActions cancel = Stop(life, decodes_word ? absl::OkStatus() : event.status);
      return slow ? cancel : cancel | Action::kCancelPictures;
    }
    case State::kRenewing:  // it is cancelled already, and its word is not about the answer
      life.state = State::kEnding;
      life.cause = event.status;
      life.answers = false;
      return Action::kCancelPictures;
    case State::kEnding:
      if (life.cause.ok()) life.cause = event.status;
      return {};
    case State::kEnded:
      return {};
  }
  return {};
}

// What counts.
AnswerActions Take(AnswerLife& life, const AnswerEvent& event) {
  switch (event.kind) {
    case Event::kParsed:
      return OnParsed(life, event);
    case Event::kAsked:
      return Action::kRelease;
    case Event::kCallMade:
      return OnCallMade(life, event);
    case Event::kTurn:
      return OnTurn(life, event);
    case Event::kPlanned:
      return OnPicture(life, event.picture, PictureState::kPlanned);
    case Event::kResolved:
      return OnResolved(life, event);
    case Event::kRowsMade:
      return OnRowsMade(life, event);
    case Event::kRouted:
      ++life.attempt;
      return {};
    case Event::kRowsNeeded:
      return Action::kMakeRows;
    case Event::kPiece:
      return OnPiece(life);
    case Event::kDone:
      return OnDone(life, event);
    case Event::kResumed:
      return Action::kResumeDecode;
    case Event::kSlow:
    case Event::kCancel:
    case Event::kAbort:
      return OnStopped(life, event);
  }
  return {};
}

}  // namespace

const char* NameOf(AnswerStage stage) {
  switch (stage) {
    case AnswerStage::kAdmission:
      return "admission";
    case AnswerStage::kEncode:
      return "encode";
    case AnswerStage::kDecode:
      return "decode";
    case AnswerStage::kGeneration:
      return "generation";
  }
  return "";
}

AnswerRule RuleOf(AnswerState state, AnswerEventKind event) {
  return static_cast<AnswerRule>(kRules[static_cast<size_t>(event)][static_cast<size_t>(state)]);
}

AnswerStep Transition(AnswerLife life, const AnswerEvent& event) {
  const AnswerRule rule = RuleOf(life.state, event.kind);
  if (rule == AnswerRule::kNever) {
    base::CheckFailed(__FILE__, __LINE__,
                      absl::StrCat("event ", static_cast<int>(event.kind), " cannot come in state ",
                                   static_cast<int>(life.state)));
  }
  AnswerStep step{std::move(life), {}};
  if (rule == AnswerRule::kCounts) step.actions = Take(step.life, event);
  return step;
}

}  // namespace tessera::gateway
