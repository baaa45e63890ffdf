#include "tests/services/gateway/answer/shared_pictures.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "services/gateway/answer/answer_life.h"

namespace tessera::gateway {
namespace {

// One picture of one request, as vision and uploads see it.
struct Waiting {
  size_t request = 0;
  uint32_t place = 0;  // in it
  size_t picture = 0;  // of all
  bool upload = false, planned = false, proceeds = false, ended = false;
};

class SharedPictures {
 public:
  explicit SharedPictures(uint32_t seed) : random_(seed) {}

  bool AllComeToDecode() {
    for (size_t request = 0; request < lives_.size(); ++request) {
      Feed(request, {.kind = AnswerEventKind::kParsed, .pictures = kPictures});
      Feed(request, {.kind = AnswerEventKind::kTurn});
      for (uint32_t place = 0; place < kPictures; ++place) {
        waiting_.push_back({.request = request,
                            .place = place,
                            .picture = (request + place) % (kPictures + 1),
                            .upload = random_() % 4 == 0});
      }
    }
    while (Step()) {
    }
    return std::all_of(lives_.begin(), lives_.end(),
                       [](const AnswerLife& life) { return life.state == AnswerState::kAsking; });
  }

 private:
  static constexpr uint32_t kPictures = 2;

  // Whoever asks alike is answered together, once one of them goes on.
  bool IsMade(size_t picture) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [picture](const Waiting& other) {
      return other.picture == picture && (other.proceeds || other.upload || other.ended);
    });
  }

  bool Step() {
    const size_t first = random_() % waiting_.size();
    for (size_t i = 0; i < waiting_.size(); ++i) {
      if (Happen(waiting_[(first + i) % waiting_.size()])) return true;
    }
    return false;
  }

  bool Happen(Waiting& call) {
    if (call.ended) return false;
    if (call.upload && random_() % 3 == 0) {
      call.upload = false;  // it failed
      return true;
    }
    if (!call.upload && !call.planned) {
      call.planned = true;
      Feed(call.request, {.kind = AnswerEventKind::kPlanned, .picture = call.place});
      return true;
    }
    if (!IsMade(call.picture)) return false;
    call.ended = true;
    Feed(call.request, {.kind = AnswerEventKind::kResolved, .picture = call.place});
    return true;
  }

  void Feed(size_t request, const AnswerEvent& event) {
    AnswerStep step = Transition(std::move(lives_[request]), event);
    lives_[request] = std::move(step.life);
    if (!step.actions.Has(AnswerAction::kProceed)) return;
    for (Waiting& call : waiting_) call.proceeds = call.proceeds || call.request == request;
  }

  std::mt19937 random_;
  std::vector<AnswerLife> lives_ = std::vector<AnswerLife>(3);
  std::vector<Waiting> waiting_;
};

}  // namespace

bool AllComeToDecode(uint32_t seed) { return SharedPictures(seed).AllComeToDecode(); }

}  // namespace tessera::gateway
