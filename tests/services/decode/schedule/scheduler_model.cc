#include "tests/services/decode/schedule/scheduler_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/services/decode/engine/fake_engine.h"

namespace tessera::decode {
namespace {

constexpr int32_t kStop = 0;
constexpr int kPictures = 3;
constexpr int kMostRows = 11;
constexpr uint64_t kGarbage = ~uint64_t{0};

uint64_t Mix(uint64_t state, uint64_t value) {
  state ^= value + 0x9E3779B97F4A7C15ull + (state << 6) + (state >> 2);
  state *= 0xBF58476D1CE4E5B9ull;
  return state ^ (state >> 31);
}

const std::vector<float>& RowsOf(int picture) {
  static const std::vector<std::vector<float>> rows = [] {
    std::vector<std::vector<float>> all(kPictures);
    for (int picture = 0; picture < kPictures; ++picture) {
      for (int row = 0; row < kMostRows; ++row) all[picture].push_back(RowNumber(picture, row));
    }
    return all;
  }();
  return rows[picture];
}

int RowCount(int picture) { return 3 + 4 * picture; }  // 3, 7, 11

SchedulerOptions RandomOptions(std::mt19937& random) {
  const auto below = [&random](int n) { return static_cast<int>(random() % n); };
  SchedulerOptions options;
  options.max_batch_tokens = 3 + below(20);
  options.max_sequences = 1 + below(std::min(options.max_batch_tokens, 6));
  options.max_waiting = 1 + below(8);
  options.context_tokens = 24 + below(60);
  options.stop_ids = {kStop};
  options.tenant_quantum = 1 + below(40);
  options.ahead_beside_tokens = below(8);
  return options;
}

}  // namespace

SchedulerModel::SchedulerModel(uint32_t seed)
    : random_(seed),
      options_(RandomOptions(random_)),
      pool_(7 + Below(34), kModelBlock),
      cache_(OneIn(3) ? Below(pool_.total()) : pool_.total(), pool_),
      scheduler_(options_, pool_, cache_),
      hasher_(kModelBlock),
      slots_(static_cast<size_t>(pool_.total() * kModelBlock), kGarbage) {}

SchedulerModel::Seen SchedulerModel::seen() const {
  Seen seen = seen_;
  seen.preempted = scheduler_.counts().preemptions;
  seen.hits = scheduler_.counts().hit_tokens;
  seen.evicted = cache_.evicted_tokens();
  seen.ahead_used = cache_.ahead_used_tokens();
  return seen;
}

void SchedulerModel::Operate() {
  ++now_;
  switch (Below(20)) {
    case 0:
    case 1:
    case 2:
      Arrive();
      break;
    case 3:
      if (OneIn(3)) Cancel();
      break;
    case 4:
      Pause();
      break;
    case 5:
    case 6:
      Resume();
      break;
    case 7:
    case 8:
      GiveRows();
      break;
    default:
      Step();
  }
  CheckCounts();
}

void SchedulerModel::Finish() {
  calm_ = true;
  int64_t tokens = 0;
  for (const auto& known : known_) {
    tokens += known->sequence.prompt_tokens() + known->sequence.max_tokens;
  }
  // Each step computes a token of the oldest, or changes who stands where; much is computed again.
  for (int64_t steps = 0; !known_.empty(); ++steps) {
    ASSERT_LT(steps, 40 * (tokens + 10)) << known_.size() << " sequences never end";
    ++now_;
    for (size_t i = 0; i < known_.size(); ++i) Resume();
    for (size_t i = 0; i < known_.size(); ++i) GiveRows();
    Step();
    ASSERT_NO_FATAL_FAILURE(CheckCounts());
    if (::testing::Test::HasFailure()) return;
  }
  ASSERT_TRUE(scheduler_.idle());
  ASSERT_EQ(pool_.used(), pool_.idle());
  ASSERT_EQ(pool_.used(), cache_.blocks());
}

// ------------------------------------------------------------------ operations

void SchedulerModel::AppendPicture(Sequence& sequence) {
  const int picture = Below(kPictures);
  sequence.pictures.push_back({testing::FakeKey(static_cast<uint8_t>(picture)),
                               sequence.prompt_tokens(), RowCount(picture)});
  sequence.prompt.insert(sequence.prompt.end(), RowCount(picture), -1);
}

// Few ids and few beginnings, so that much is shared.
void SchedulerModel::WritePrompt(Sequence& sequence) {
  if (!past_.empty() && OneIn(3)) {  // one more turn
    const Sequence& past = past_[Below(static_cast<int>(past_.size()))];
    sequence.tenant = OneIn(4) ? sequence.tenant : past.tenant;
    sequence.prompt = past.prompt;
    sequence.pictures = past.pictures;
  } else if (!OneIn(4)) {  // what nearly all begin with
    sequence.prompt.assign(5, 1);
    if (OneIn(2)) AppendPicture(sequence);
  }
  const int pieces = 1 + Below(3);
  for (int piece = 0; piece < pieces; ++piece) {
    if (OneIn(3)) AppendPicture(sequence);
    for (int i = Below(9); i >= 0; --i) sequence.prompt.push_back(OneIn(8) ? 2 : 1);
  }
}

void SchedulerModel::Name(Known& known) {
  Sequence& sequence = known.sequence;
  ChainRoot root;
  root.tenant = sequence.tenant;
  sequence.root = hasher_.Root(root);
  sequence.chain = hasher_.Chain(sequence.root, sequence.prompt, sequence.pictures);
  for (int32_t place = 0; place < sequence.prompt_tokens(); ++place) AppendMark(known, place);
}

void SchedulerModel::AppendMark(Known& known, int32_t place) {
  const Sequence& sequence = known.sequence;
  uint64_t token = static_cast<uint64_t>(sequence.TokenAt(place));
  for (const PromptPicture& picture : sequence.pictures) {
    if (place < picture.first_token || place >= picture.end_token()) continue;
    token = static_cast<uint64_t>(RowNumber(PictureOf(picture.key), place - picture.first_token));
  }
  known.marks.push_back(Mix(place == 0 ? sequence.tenant[0] : known.marks.back(), token));
}

void SchedulerModel::Arrive() {
  auto known = std::make_unique<Known>();
  Sequence& sequence = known->sequence;
  sequence.id = ++last_id_;
  sequence.tenant = std::string(1, static_cast<char>('a' + Below(3)));
  WritePrompt(sequence);
  if (OneIn(5)) sequence.priority = Priority::kAhead;
  sequence.max_tokens = sequence.ahead() ? 0 : 1 + Below(30);
  sequence.rows.resize(sequence.pictures.size());
  const int total = sequence.prompt_tokens() + sequence.max_tokens;
  const bool fits = total <= options_.context_tokens && total <= pool_.total() * kModelBlock + 1;
  ASSERT_EQ(scheduler_.CheckFits(sequence.prompt_tokens(), 0, sequence.max_tokens).ok(), fits);
  if (!fits) return;
  Name(*known);
  scheduler_.Open(sequence);
  known_.push_back(std::move(known));
  if (!sequence.LacksRows() || OneIn(2)) Bring(*known_.back());
}

// What the engine does with a sequence outside: rows, then into the queue.
void SchedulerModel::Bring(Known& known) {
  Sequence& sequence = known.sequence;
  ASSERT_EQ(sequence.state, Sequence::State::kOutside);
  if (sequence.finish != FinishReason::kNone) return Remove(known);
  for (size_t i = 0; i < sequence.pictures.size(); ++i) {
    if (!sequence.LacksRows(i)) continue;
    sequence.rows[i].rows.dtype = DType::kF32;
    sequence.rows[i].rows.shape = {sequence.pictures[i].rows, 1};
    sequence.rows[i].rows.data =
        reinterpret_cast<const std::byte*>(RowsOf(PictureOf(sequence.pictures[i].key)).data());
  }
  const bool full = scheduler_.waiting() >= options_.max_waiting && !sequence.entered;
  ASSERT_EQ(scheduler_.Enqueue(sequence).ok(), !full);
  known.enqueued = ++now_;
  if (full) Remove(known);
}

SchedulerModel::Known* SchedulerModel::Of(const Sequence* sequence) {
  for (const auto& known : known_) {
    if (&known->sequence == sequence) return known.get();
  }
  return nullptr;
}

SchedulerModel::Known* SchedulerModel::Pick(bool (*wanted)(const Sequence&)) {
  std::vector<Known*> all;
  for (const auto& known : known_) {
    if (wanted(known->sequence)) all.push_back(known.get());
  }
  return all.empty() ? nullptr : all[random_() % all.size()];
}

void SchedulerModel::Remove(Known& known) {
  ASSERT_TRUE(scheduler_.Remove(known.sequence));
  ASSERT_FALSE(scheduler_.Remove(known.sequence));
  ASSERT_TRUE(known.sequence.blocks.empty());
  ASSERT_TRUE(known.sequence.branch.block.empty());
  std::erase_if(known_, [&known](const auto& other) { return other.get() == &known; });
}

void SchedulerModel::Remember(const Sequence& sequence) {
  Sequence past;
  past.tenant = sequence.tenant;
  past.prompt = sequence.prompt;
  past.prompt.insert(past.prompt.end(), sequence.generated.begin(), sequence.generated.end());
  past.pictures = sequence.pictures;
  if (past_.size() < 6) {
    past_.push_back(std::move(past));
  } else {
    past_[random_() % past_.size()] = std::move(past);
  }
}

void SchedulerModel::Cancel() {
  if (Known* known = Pick([](const Sequence&) { return true; })) Remove(*known);
}

void SchedulerModel::Pause() {
  Known* known = Pick([](const Sequence& sequence) {
    return sequence.state == Sequence::State::kRunning && !sequence.ahead() &&
           !sequence.generated.empty();
  });
  if (known != nullptr) scheduler_.Pause(known->sequence);
}

void SchedulerModel::Resume() {
  Known* known = Pick([](const Sequence& sequence) { return sequence.paused; });
  if (known == nullptr) return;
  scheduler_.Resume(known->sequence);
  if (known->sequence.state == Sequence::State::kOutside) Bring(*known);
}

void SchedulerModel::GiveRows() {
  Known* known = Pick([](const Sequence& sequence) {
    return sequence.state == Sequence::State::kOutside && !sequence.paused;
  });
  if (known != nullptr) Bring(*known);
}

// ------------------------------------------------------------------ one step

void SchedulerModel::Step() {
  std::vector<Known*> decoding;
  std::vector<Known*> waited;
  bool work = false;
  for (const auto& known : known_) {
    const Sequence& sequence = known->sequence;
    const bool running = sequence.state == Sequence::State::kRunning && !sequence.paused;
    const bool waiting = sequence.state == Sequence::State::kWaiting;
    if (running && !sequence.ahead() && sequence.pending() == 1) decoding.push_back(known.get());
    if (waiting && !sequence.ahead()) waited.push_back(known.get());
    work |= (running || waiting) && !sequence.ahead();
  }
  const BatchPlan& plan = scheduler_.Next();
  expelled_.assign(scheduler_.expelled().begin(), scheduler_.expelled().end());
  ASSERT_LE(plan.tokens(), options_.max_batch_tokens);
  ASSERT_LE(plan.sequences(), options_.max_sequences);
  ASSERT_LE(scheduler_.running(), options_.max_sequences);
  if (work) {
    ASSERT_TRUE(plan.sequences() > 0 || !expelled_.empty()) << "it stands still";
  }
  ASSERT_NO_FATAL_FAILURE(CheckDecoding(decoding));
  ASSERT_NO_FATAL_FAILURE(CheckOrder(waited));
  for (int64_t s = 0; s < plan.sequences(); ++s) ASSERT_NO_FATAL_FAILURE(CheckSequence(s));
  ASSERT_NO_FATAL_FAILURE(CheckCounts());
  if (plan.sequences() > 0) {
    ASSERT_NO_FATAL_FAILURE(Write());
    if (!calm_ && OneIn(25)) {
      ASSERT_NO_FATAL_FAILURE(AbandonStep());
    } else {
      ASSERT_NO_FATAL_FAILURE(CommitStep());
    }
  }
  HandleExpelled();
}

void SchedulerModel::CommitStep() {
  std::vector<std::vector<int32_t>> sampled(scheduler_.planned().size());
  for (const int32_t s : scheduler_.sampled_sequences()) {
    for (int i = OneIn(10) ? Below(4) : 1; i > 0; --i) {
      sampled[s].push_back(OneIn(40) ? kStop : 1 + OneIn(8));
    }
  }
  const std::vector<TokenRun> runs(sampled.begin(), sampled.end());
  std::vector<Known*> ended;
  for (const Progress& progress : scheduler_.Commit(runs)) {
    Known& known = *Of(progress.sequence);
    const Sequence& sequence = known.sequence;
    while (known.marks.size() < static_cast<size_t>(sequence.length())) {
      AppendMark(known, static_cast<int32_t>(known.marks.size()));
    }
    ASSERT_LE(sequence.named_blocks * kModelBlock, sequence.computed);
    ASSERT_LE(sequence.generated.size(), static_cast<size_t>(sequence.max_tokens));
    if (sequence.finish != FinishReason::kNone) ended.push_back(&known);
  }
  for (Known* known : ended) {
    ++seen_.finished;
    if (!known->sequence.ahead()) Remember(known->sequence);
    Remove(*known);
  }
}

// The device failed in the midst of it: what it wrote is anything.
void SchedulerModel::AbandonStep() {
  for (const int32_t slot : scheduler_.plan().groups[0].slots) slots_[slot] = kGarbage;
  const std::vector<Sequence*> planned(scheduler_.planned().begin(), scheduler_.planned().end());
  scheduler_.Abandon();
  if (OneIn(2)) return;
  for (const Sequence* sequence : planned) Remove(*Of(sequence));
}

void SchedulerModel::HandleExpelled() {
  for (const Sequence* sequence : std::exchange(expelled_, {})) {
    Known* known = Of(sequence);
    ASSERT_NE(known, nullptr);
    ASSERT_EQ(sequence->state, Sequence::State::kOutside);
    if (sequence->finish != FinishReason::kNone) {
      ASSERT_TRUE(sequence->ahead());
      seen_.ahead_dropped += sequence->finish == FinishReason::kDropped;
      Remove(*known);
    } else if (sequence->paused) {
      ++seen_.paused_out;
    } else {
      ASSERT_TRUE(sequence->LacksRows());
      ++seen_.row_losses;
      if (OneIn(2)) Bring(*known);
    }
  }
}

}  // namespace tessera::decode
