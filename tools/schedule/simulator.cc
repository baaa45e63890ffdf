#include "tools/schedule/simulator.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <queue>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"
#include "common/base/digest.h"

namespace tessera::tools {
namespace {

using decode::BlockPool;
using decode::PrefixCache;
using decode::Scheduler;
using decode::Sequence;
using decode::TokenRun;

// Rows are never looked at: one place stands for all.
constexpr std::byte kSomeRow{};

struct Arrival {
  double time = 0;
  int32_t session = 0;
  bool operator>(const Arrival& other) const {
    return time != other.time ? time > other.time : session > other.session;
  }
};

// A session as far as it has come.
struct Conversation {
  std::vector<int32_t> history;  // ids, -1 for rows
  int32_t next_turn = 0;
  int32_t next_id = 0;  // every token of a session is its own
};

// A turn under way.
struct Active {
  Sequence sequence;
  SimulatedTurn turn;
  int64_t first_step = 0;
  double last_token = 0;
};

class Simulation {
 public:
  Simulation(const SimulatorOptions& options, const StepTime& time,
             const std::vector<TraceSession>& trace)
      : time_(time),
        trace_(trace),
        pool_(options.blocks, options.block_size),
        cache_(options.prefix_cache_blocks, pool_),
        scheduler_(options.scheduler, pool_, cache_),
        hasher_(options.block_size),
        conversations_(trace.size()) {}

  Simulated Run() {
    for (size_t i = 0; i < trace_.size(); ++i) Arrive(trace_[i].arrival_seconds, i);
    while (true) {
      while (!ready_.empty() && ready_.top().time <= now_) {
        const int32_t session = ready_.top().session;
        ready_.pop();
        Begin(session);
      }
      if (Step()) continue;
      if (ready_.empty()) break;
      now_ = std::max(now_, ready_.top().time);
    }
    CHECK(active_.empty());
    result_.seconds = now_;
    result_.counts = scheduler_.counts();
    return std::move(result_);
  }

 private:
  // A turn is asked at `time`; decoding can begin once its picture is encoded.
  void Arrive(double time, size_t session) {
    arrivals_[session] = time;
    double ready = time;
    const std::string& picture = trace_[session].picture;
    if (!picture.empty() && !encoded_.contains(picture)) {
      encoder_free_ = std::max(encoder_free_, time) + time_.encode_seconds;
      encoded_[picture] = encoder_free_;
    }
    if (!picture.empty()) ready = std::max(ready, encoded_[picture]);
    ready_.push({ready, static_cast<int32_t>(session)});
  }

  void Begin(int32_t session) {
    auto active = std::make_unique<Active>();
    active->turn.session = session;
    active->turn.turn = conversations_[session].next_turn;
    active->turn.arrival = arrivals_[session];
    active->first_step = result_.steps;
    Sequence& sequence = active->sequence;
    Describe(session, sequence);
    active->turn.prompt_tokens = sequence.prompt_tokens();
    if (!scheduler_.CheckFits(sequence.prompt_tokens(), 0, sequence.max_tokens).ok()) {
      active->turn.refused = true;
      result_.turns.push_back(std::move(active->turn));
      return;
    }
    scheduler_.Open(sequence);
    GiveRows(sequence);
    const absl::Status queued = scheduler_.Enqueue(sequence);
    if (!queued.ok()) {
      scheduler_.Remove(sequence);
      active->turn.refused = true;
      result_.turns.push_back(std::move(active->turn));
      return;
    }
    active_[sequence.id] = std::move(active);
  }

  // The session's next turn, with all that was said before.
  void Describe(int32_t session, Sequence& sequence) {
    const TraceSession& told = trace_[session];
    Conversation& conversation = conversations_[session];
    const TraceTurn& turn = told.turns[conversation.next_turn++];
    if (conversation.history.empty()) {
      for (int32_t i = 0; i < told.prefix_tokens; ++i) conversation.history.push_back(i);
      conversation.history.insert(conversation.history.end(), told.rows, -1);
      conversation.next_id = told.prefix_tokens + session;
    }
    for (int32_t i = 0; i < turn.question_tokens; ++i)
      conversation.history.push_back(NextId(session));
    sequence.id = ++last_id_;
    sequence.tenant = told.tenant;
    sequence.prompt = conversation.history;
    sequence.max_tokens = turn.answer_tokens;
    if (!told.picture.empty()) {
      sequence.pictures.push_back(
          {store::EmbeddingKey(base::Sha256Of(told.picture)), told.prefix_tokens, told.rows});
    }
    sequence.rows.resize(sequence.pictures.size());
    decode::ChainRoot root;
    root.tenant = sequence.tenant;
    sequence.root = hasher_.Root(root);
    sequence.chain = hasher_.Chain(sequence.root, sequence.prompt, sequence.pictures);
  }

  int32_t NextId(int32_t session) {
    return conversations_[session].next_id += static_cast<int32_t>(trace_.size());
  }

  void GiveRows(Sequence& sequence) {
    for (size_t i = 0; i < sequence.rows.size(); ++i) {
      sequence.rows[i].rows = {DType::kF16, {sequence.pictures[i].rows, 0}, &kSomeRow};
    }
  }

  // False when there is nothing to compute.
  bool Step() {
    const auto begin = std::chrono::steady_clock::now();
    const decode::BatchPlan& plan = scheduler_.Next();
    const auto planned = std::chrono::steady_clock::now();
    for (Sequence* sequence : scheduler_.expelled()) {  // their rows are had at once
      GiveRows(*sequence);
      CHECK(scheduler_.Enqueue(*sequence).ok());
    }
    if (plan.sequences() == 0) return !scheduler_.expelled().empty();
    now_ += time_.Of(plan);
    result_.steps += 1;
    result_.computed_tokens += plan.tokens();
    ids_.clear();
    for (const int32_t s : scheduler_.sampled_sequences()) {
      ids_.push_back(NextId(active_.at(scheduler_.planned()[s]->id)->turn.session));
    }
    runs_.assign(plan.sequences(), TokenRun());
    size_t at = 0;
    for (const int32_t s : scheduler_.sampled_sequences()) runs_[s] = TokenRun(&ids_[at++], 1);
    const auto committing = std::chrono::steady_clock::now();
    const absl::Span<const decode::Progress> progress = scheduler_.Commit(runs_);
    const auto end = std::chrono::steady_clock::now();
    result_.bookkeeping_seconds.push_back(
        std::chrono::duration<double>((planned - begin) + (end - committing)).count());
    for (const decode::Progress& p : progress) Note(p);
    return true;
  }

  void Note(const decode::Progress& progress) {
    if (progress.new_tokens == 0) return;
    Active& active = *active_.at(progress.sequence->id);
    result_.answer_tokens += progress.new_tokens;
    if (progress.sequence->generated.size() == 1) {
      active.turn.first_token = now_;
      active.turn.steps_to_first_token = static_cast<int32_t>(result_.steps - active.first_step);
    } else {
      active.turn.gaps.push_back(now_ - active.last_token);
    }
    active.last_token = now_;
    if (progress.sequence->finish != decode::FinishReason::kNone) End(active);
  }

  void End(Active& active) {
    Sequence& sequence = active.sequence;
    const int32_t session = active.turn.session;
    active.turn.end = now_;
    active.turn.cached_tokens = sequence.cached_tokens;
    active.turn.preemptions = sequence.preemptions;
    Conversation& conversation = conversations_[session];
    conversation.history.insert(conversation.history.end(), sequence.generated.begin(),
                                sequence.generated.end());
    scheduler_.Remove(sequence);
    result_.turns.push_back(std::move(active.turn));
    active_.erase(sequence.id);
    const std::vector<TraceTurn>& turns = trace_[session].turns;
    if (conversation.next_turn == static_cast<int32_t>(turns.size())) return;
    Arrive(now_ + turns[conversation.next_turn].think_seconds, session);
  }

  const StepTime& time_;
  const std::vector<TraceSession>& trace_;
  BlockPool pool_;
  PrefixCache cache_;
  Scheduler scheduler_;
  decode::BlockHasher hasher_;
  std::vector<Conversation> conversations_;
  absl::flat_hash_map<size_t, double> arrivals_;      // of each session's turn under way
  absl::flat_hash_map<std::string, double> encoded_;  // when
  double encoder_free_ = 0;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> ready_;
  absl::flat_hash_map<decode::SequenceId, std::unique_ptr<Active>> active_;
  decode::SequenceId last_id_ = 0;
  double now_ = 0;
  std::vector<int32_t> ids_;
  std::vector<TokenRun> runs_;
  Simulated result_;
};

}  // namespace

Simulated Simulate(const SimulatorOptions& options, const StepTime& time,
                   const std::vector<TraceSession>& trace) {
  return Simulation(options, time, trace).Run();
}

}  // namespace tessera::tools
