#include "tests/services/gateway/answer/answer_surroundings.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::gateway {

using Action = AnswerAction;
using Event = AnswerEventKind;
using State = AnswerState;

Surroundings::Surroundings(uint32_t seed, Coverage& coverage)
    : random_(seed), coverage_(coverage), ask_is_slow_(Chance(20)), picture_count_(Below(4)) {}

// Each is another object, so that it can be told which one an end has.
absl::Status Surroundings::Failure() {
  return absl::FailedPreconditionError(absl::StrCat(random_()));
}

std::string Surroundings::Run() {
  while (broken_.empty() && Step()) {
  }
  Require(life_.state == State::kEnded && ends_ == 1, "it ends once");
  Require(ticket_ == Ticket::kUnknown || ticket_ == Ticket::kGone, "the ticket is given back");
  Require(rows_held_ == 0, "the rows are let go");
  for (const DecodeCall& call : decode_) {
    Require(!call.started || call.done, "decode has said its last word");
  }
  for (const PictureCall& call : pictures_) Require(call.ended, "no picture is worked on");
  return broken_;
}

bool Surroundings::Step() {
  const size_t moves = chores_.size() + pictures_.size() + rows_.size() + 3;
  const size_t first = Below(moves);
  for (size_t i = 0; i < moves; ++i) {
    size_t move = (first + i) % moves;
    if (move < chores_.size()) {
      const Chore chore = chores_[move];
      if (chore.work == Work::kTellAsked && ask_is_slow_ && Chance(95)) return true;
      chores_.erase(chores_.begin() + static_cast<std::ptrdiff_t>(move));
      Do(chore);
      return true;
    }
    move -= chores_.size();
    if (move < pictures_.size()) {
      if (HappenToPicture(move)) return true;
      continue;
    }
    move -= pictures_.size();
    if (move < rows_.size()) {
      if (HappenToRows(rows_[move])) return true;
      continue;
    }
    move -= rows_.size();
    if (move == 0 ? HappenToClient() : HappenToDecode()) return true;
  }
  return false;
}

void Surroundings::Do(Chore chore) {
  switch (chore.work) {
    case Work::kParse:
      Feed({.kind = Event::kParsed,
            .status = Chance(3) ? Failure() : absl::OkStatus(),
            .pictures = picture_count_});
      return;
    case Work::kAsk:
      chores_.push_back({Work::kTellAsked});
      if (Chance(5)) {
        Feed({.kind = Event::kTurn, .status = Failure()});
      } else {
        ticket_ = Ticket::kWaits;
        chores_.push_back({Work::kTellTurn});
      }
      return;
    case Work::kTellAsked:
      Feed({.kind = Event::kAsked});
      return;
    case Work::kTellTurn:
      if (ticket_ != Ticket::kWaits) return;  // it was given back before its turn
      ticket_ = Ticket::kHeld;
      Feed({.kind = Event::kTurn});
      return;
    case Work::kRelease:
      if (ticket_ == Ticket::kUnknown || ticket_ == Ticket::kGone) return;
      // Where its turn was about to be told it is told nevertheless.
      if (ticket_ == Ticket::kWaits && Chance(50)) {
        Feed({.kind = Event::kTurn, .status = Chance(50) ? Failure() : absl::OkStatus()});
      }
      ticket_ = Ticket::kGone;
      return;
    case Work::kResolveNext:
      Resolve();
      return;
    case Work::kAskDecode:
      if (life_.state != State::kAsking) return;
      if (Chance(5)) {
        Feed({.kind = Event::kCallMade, .status = Failure()});
        return;
      }
      decode_.emplace_back();
      kept_ = false;
      chores_.push_back({Work::kTellCallMade});
      return;
    case Work::kTellCallMade:
      kept_ = Feed({.kind = Event::kCallMade}).Has(Action::kStartDecode);
      if (kept_) chores_.push_back({Work::kStartDecode, decode_.size() - 1});
      return;
    case Work::kStartDecode:
      decode_[chore.call].started = true;
      return;
    case Work::kCancelDecode:
      Require(!decode_[chore.call].cancelled, "decode is cancelled once");
      decode_[chore.call].cancelled = true;
      decode_[chore.call].paused = false;
      return;
    case Work::kResumeDecode:
      decode_[chore.call].paused = false;
      return;
  }
}

void Surroundings::Resolve() {
  const auto picture = static_cast<uint32_t>(resolved_++);
  if (resolved_ < picture_count_) chores_.push_back({Work::kResolveNext});
  if (!life_.wants_pictures()) {
    pictures_.push_back({.ended = true});  // it is not begun
    return;
  }
  pictures_.push_back({.upload = Chance(30), .exists = Chance(30)});
  if (!Chance(30)) return;
  pictures_.back().ended = true;  // known
  if (Feed({.kind = Event::kResolved, .picture = picture}).Has(Action::kKeep)) ++rows_held_;
}

bool Surroundings::HappenToPicture(size_t index) {
  const auto picture = static_cast<uint32_t>(index);
  PictureCall& call = pictures_[index];
  if (call.ended) return false;
  if (call.upload && Chance(40)) {  // it fails: vision is asked
    call.upload = false;
    return true;
  }
  if (!call.upload && !call.planned && !call.exists && Chance(60)) {
    call.planned = true;
    Feed({.kind = Event::kPlanned, .picture = picture});
    return true;
  }
  const bool made = call.upload || call.exists || call.proceeds;
  if (!made && !call.cancelled && !Chance(3)) return !call.planned;
  AnswerEvent event{.kind = Event::kResolved, .picture = picture};
  if ((call.cancelled && !call.upload) || !made || Chance(3)) event.status = Failure();
  call.ended = true;
  if (Feed(event).Has(Action::kKeep)) ++rows_held_;
  return true;
}

bool Surroundings::HappenToRows(RowsCall& rows) {
  if (rows.ended) return false;
  rows.ended = true;
  AnswerEvent event{.kind = Event::kRowsMade, .attempt = rows.attempt};
  if (rows.cancelled || Chance(40)) {
    event.status = Failure();
    event.spare = Chance(60);
  }
  const bool counts = event.status.ok() && event.attempt == attempt_ && decode_has_it() &&
                      cause_.ok() && !client_left_ && !renewing_;
  const bool said = Feed(event).Has(Action::kSayRows);
  Require(said == counts, "decode is told of the rows that it waits for");
  if (said) ++rows_held_;
  return true;
}

bool Surroundings::HappenToDecode() {
  if (decode_.empty() || !decode_.back().started || decode_.back().done) return false;
  DecodeCall& call = decode_.back();
  if (call.paused) return false;
  const size_t what = Below(100);
  if (what < 15) {
    ++attempt_;
    Feed({.kind = Event::kRouted});
  } else if (what < 40) {
    if (rows_.size() < 8 && Feed({.kind = Event::kRowsNeeded}).Has(Action::kMakeRows)) {
      if (life_.wants_pictures()) rows_.push_back({.attempt = attempt_});
    }
  } else if (what < 75) {
    const AnswerActions actions = Feed({.kind = Event::kPiece});
    if (actions.Has(Action::kTell) && Chance(30)) {
      call.paused = !call.cancelled;
      ++pauses_;
    }
  } else {
    AnswerEvent done{.kind = Event::kDone};
    if (call.cancelled ? Chance(90) : Chance(20)) done.status = Failure();
    call.done = true;
    ++attempt_;
    Feed(done);
  }
  return true;
}

bool Surroundings::HappenToClient() {
  if (pauses_ > 0) {
    --pauses_;
    if (Chance(70)) {
      Feed({.kind = Event::kResumed});
    } else {
      Feed({.kind = Event::kSlow, .status = Failure()});
    }
    return true;
  }
  // A few times after the end, too.
  if (client_events_ >= 3 || !Chance(10)) return false;
  ++client_events_;
  Feed({.kind = Chance(50) ? Event::kCancel : Event::kAbort, .status = Failure()});
  return true;
}

void Surroundings::Foresee(const AnswerEvent& event) {
  if (ends_ > 0) return;
  const bool stopped = !cause_.ok() || client_left_;
  switch (event.kind) {
    case Event::kParsed:
    case Event::kTurn:
    case Event::kResolved:
    case Event::kCallMade:
      if (cause_.ok()) cause_ = event.status;
      return;
    case Event::kRowsMade:
      if (event.status.ok() || event.attempt != attempt_ || stopped || renewing_) return;
      renewing_ = event.spare && !told_;
      if (!renewing_) cause_ = event.status;
      return;
    case Event::kCancel:
      if (decode_has_it() && !renewing_) {
        client_left_ = true;
      } else if (cause_.ok()) {
        cause_ = event.status;
      }
      return;
    case Event::kSlow:
    case Event::kAbort:
      if (cause_.ok()) cause_ = event.status;
      return;
    case Event::kDone:
      last_word_ = event.status;
      return;
    default:
      return;
  }
}

AnswerActions Surroundings::Feed(const AnswerEvent& event) {
  const State before = life_.state;
  ++coverage_[static_cast<size_t>(event.kind)][static_cast<size_t>(before)];
  const bool had_it = decode_has_it() || event.kind == Event::kDone;
  Foresee(event);
  AnswerStep step = Transition(std::move(life_), event);
  life_ = std::move(step.life);
  const AnswerActions actions = step.actions;
  if (before == State::kEnded) {
    Require(life_.state == State::kEnded, "an end lasts");
    Require(!actions.Has(Action::kTell) && !actions.Has(Action::kEnd), "nothing is told after it");
  }
  Require(actions.Has(Action::kEnd) == (life_.state == State::kEnded && before != State::kEnded),
          "the end is told with the last state");
  if (actions.Has(Action::kEnd)) {
    ++ends_;
    const bool word_is_due = had_it && event.kind != Event::kDone;
    Require(!word_is_due, "it does not end before decode's last word");
    const bool whole = event.kind == Event::kDone && last_word_.ok() && !renewing_;
    Require(life_.cause == (whole || cause_.ok() ? last_word_ : cause_),
            "a whole answer is told, else the first cause");
    rows_held_ = 0;
  }
  if (event.kind == Event::kCancel || event.kind == Event::kAbort) {
    Require(ends_ > 0 || (life_.state == State::kEnding && had_it),
            "whoever is stopped waits for decode alone");
    Require(actions.Has(Action::kCancelPictures) || before >= State::kEnding,
            "nobody works on pictures of whoever is stopped");
  }
  if (event.kind == Event::kDone) {
    const bool anew = renewing_ && cause_.ok() && !client_left_;
    Require(anew ? actions.Has(Action::kAskDecode) : ends_ == 1, "the last word ends it");
    renewing_ = false;
    kept_ = false;
  }
  if (actions.Has(Action::kTell)) {
    Require(actions.Has(Action::kBegin) == !told_, "it begins once");
    Require(!renewing_, "what is asked anew is told once");
    told_ = true;
    rows_held_ = 0;
  }
  Obey(actions);
  return actions;
}

void Surroundings::Obey(AnswerActions actions) {
  if (actions.Has(Action::kAskTurn)) chores_.push_back({Work::kAsk});
  if (actions.Has(Action::kRelease)) chores_.push_back({Work::kRelease});
  if (actions.Has(Action::kResolve)) chores_.push_back({Work::kResolveNext});
  if (actions.Has(Action::kAskDecode)) {
    Require(!told_, "none is asked anew once something is told");
    Require(decode_.empty() || decode_.back().done || !decode_.back().started,
            "decode has one call at a time");
    chores_.push_back({Work::kAskDecode});
  }
  if (actions.Has(Action::kProceed)) {
    for (size_t i = 0; i < picture_count_; ++i) {
      Require(life_.pictures[i] != PictureState::kUnknown, "the rows of all are known");
    }
    for (PictureCall& call : pictures_) call.proceeds = true;
  }
  if (actions.Has(Action::kCancelPictures)) {
    for (PictureCall& call : pictures_) call.cancelled = true;
    for (RowsCall& call : rows_) call.cancelled = true;
  }
  if (actions.Has(Action::kCancelDecode) || actions.Has(Action::kResumeDecode)) {
    Require(decode_has_it(), "there is a call to speak to");
    const bool cancel = actions.Has(Action::kCancelDecode);
    chores_.push_back({cancel ? Work::kCancelDecode : Work::kResumeDecode, decode_.size() - 1});
  }
}

}  // namespace tessera::gateway
