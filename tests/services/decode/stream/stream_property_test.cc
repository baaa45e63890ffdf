#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"
#include "services/decode/stream/text_stream.h"

// Random texts, chunkings and stops against an obvious reading of the whole text so far.
namespace tessera::decode {
namespace {

constexpr int kRounds = 100'000;

using Stops = std::vector<std::string>;

// What may be known of a text so far.
struct Known {
  std::string safe;  // given out
  std::string stop;  // that ended the text; empty: none
};

// At each place, from the front: does a stop stand here (the shortest ends the text), or could one
// that begins here still be completed? What lies before the first such place is safe; nothing else.
Known Oracle(const std::string& text, const Stops& stops, bool complete) {
  for (size_t at = 0; at < text.size(); ++at) {
    const absl::string_view rest = absl::string_view(text).substr(at);
    const std::string* stop = nullptr;
    bool open = false;
    for (const std::string& candidate : stops) {
      const bool shorter = stop == nullptr || candidate.size() < stop->size();
      if (shorter && absl::StartsWith(rest, candidate)) stop = &candidate;
      open |= absl::StartsWith(candidate, rest);
    }
    if (stop != nullptr) return {text.substr(0, at), *stop};
    if (open && !complete) return {text.substr(0, at), ""};
  }
  return {text, ""};
}

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  size_t Below(size_t n) { return random_() % n; }
  template <typename T>
  const T& Of(const std::vector<T>& all) {
    return all[Below(all.size())];
  }

 private:
  std::mt19937 random_;
};

// Characters of one to four bytes, of which some begin with the same bytes; few, so that stops are
// met, begun in vain, overlap and repeat themselves.
const std::vector<std::vector<std::string>>& Alphabets() {
  static const auto* all = new std::vector<std::vector<std::string>>{
      {"a", "b"},
      {"a", "b", "c", " "},
      {"a", "\xC3\xA9", "\xC3\xA8"},
      {"\xE2\x82\xAC", "\xE2\x82\xAD", "a"},
      {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x81", "\xF0\x9F\x99\x80", "b"}};
  return *all;
}

std::string Word(const std::vector<std::string>& alphabet, size_t characters, Dice& dice) {
  std::string word;
  for (size_t i = 0; i < characters; ++i) word += dice.Of(alphabet);
  return word;
}

// Characters [begin, begin + count) of a text.
std::string Characters(const std::string& text, size_t begin, size_t count) {
  std::string out;
  for (size_t at = 0, index = 0; at < text.size(); ++index) {
    const size_t size = text::Utf8Length(text[at]);
    if (index >= begin && index < begin + count) out += text.substr(at, size);
    at += size;
  }
  return out;
}

// Up to four stops: of the alphabet, out of the text itself, a beginning, an end or twice of
// another, one letter more than what stands in the text.
Stops RandomStops(const std::string& text, const std::vector<std::string>& alphabet, Dice& dice) {
  Stops stops;
  for (size_t i = dice.Below(5); i > 0; --i) {
    const std::string other = stops.empty() ? "" : dice.Of(stops);
    const std::string own = Characters(text, dice.Below(20), 1 + dice.Below(9));
    std::string stop;
    switch (dice.Below(6)) {
      case 0:
        stop = Word(alphabet, 1 + dice.Below(6), dice);
        break;
      case 1:
        stop = own;
        break;
      case 2:
        stop = own + Word(alphabet, 1, dice);
        break;
      case 3:
        stop = Characters(other, 0, 1 + dice.Below(3));
        break;
      case 4:
        stop = Characters(other, 1, 8);
        break;
      case 5:
        stop = other + other;
        break;
    }
    if (!stop.empty() && stop.size() <= kMaxStopBytes) stops.push_back(stop);
  }
  return stops;
}

// How often the cases are what they should be.
struct Tally {
  int stopped = 0, held = 0, across = 0, empty = 0;
};

TEST(StreamPropertyTest, ExactlyWhatIsSafeIsGivenOutAfterEveryPiece) {
  Dice dice(7);
  Tally tally;
  for (int round = 0; round < kRounds; ++round) {
    const auto& alphabet = dice.Of(Alphabets());
    const std::string text = Word(alphabet, dice.Below(40), dice);
    const Stops stops = RandomStops(text, alphabet, dice);
    const size_t largest = 1 + dice.Below(9);
    const std::string what = text + " " + ::testing::PrintToString(stops);
    StopMatcher matcher(stops);
    std::string out, so_far;
    bool stopped = false;
    size_t pieces = 0;
    while (so_far.size() < text.size() && !stopped) {
      const std::string piece = text.substr(so_far.size(), dice.Below(largest + 1));
      so_far += piece;
      tally.empty += piece.empty();
      ++pieces;
      stopped = matcher.Push(piece, out);
      const Known known = Oracle(so_far, stops, /*complete=*/false);
      ASSERT_EQ(out, known.safe) << what << " after " << so_far;
      ASSERT_EQ(stopped, !known.stop.empty()) << what << " after " << so_far;
      tally.held += !stopped && out.size() < so_far.size();
      tally.across += stopped && piece.size() < known.stop.size();
    }
    const Known known = Oracle(text, stops, /*complete=*/true);
    ASSERT_EQ(matcher.Finish(out), !known.stop.empty()) << what;
    ASSERT_EQ(out, known.safe) << what;
    ASSERT_EQ(matcher.stop(), known.stop) << what;
    tally.stopped += !known.stop.empty();
  }
  for (const int count : {tally.stopped, tally.held, tally.across, tally.empty}) {
    EXPECT_GT(count, kRounds / 20);
  }
}

// The same through tokens: whole texts, and tokens in any order, which tear characters apart.
class TokenStreamPropertyTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto tokenizer = text::Tokenizer::Load(GetParam());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    for (const auto& alphabet : Alphabets()) {
      std::vector<int32_t> ids;
      for (const std::string& c : alphabet) {
        const std::vector<int32_t> own = tokenizer_->Encode(c + alphabet[0], {}).value();
        ids.insert(ids.end(), own.begin(), own.end());
      }
      if (!tokenizer_->special_ids().empty()) ids.push_back(tokenizer_->special_ids()[0]);
      ids_.push_back(ids);
    }
  }

  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::vector<std::vector<int32_t>> ids_;  // per alphabet: tokens that occur in its texts
};

TEST_P(TokenStreamPropertyTest, WholeCharactersBeforeTheFirstStopAsSoonAsTheyAreSafe) {
  Dice dice(11);
  int stopped_rounds = 0;
  for (int round = 0; round < kRounds; ++round) {
    const size_t which = dice.Below(Alphabets().size());
    const auto& alphabet = Alphabets()[which];
    std::vector<int32_t> ids;
    for (size_t i = dice.Below(30); i > 0; --i) ids.push_back(dice.Of(ids_[which]));
    text::StreamDecoder all(*tokenizer_);
    std::string text;
    for (const int32_t id : ids) text += all.Add(id);
    text += all.Flush();
    const Stops stops = RandomStops(text, alphabet, dice);
    const std::string what = text + " " + ::testing::PrintToString(stops);
    TextStream stream(*tokenizer_, stops);
    text::StreamDecoder decoder(*tokenizer_);
    std::string out, so_far;
    bool stopped = false;
    for (size_t at = 0; at < ids.size() && !stopped;) {
      const auto chunk = absl::MakeConstSpan(ids).subspan(at, dice.Below(4));
      at += chunk.size();
      std::string piece;
      stopped = stream.Push(chunk, piece);
      for (const int32_t id : chunk) so_far += decoder.Add(id);
      ASSERT_TRUE(text::ValidateUtf8(piece).ok()) << what;
      out += piece;
      const Known known = Oracle(so_far, stops, /*complete=*/false);
      ASSERT_EQ(out, known.safe) << what << " after " << so_far;
      ASSERT_EQ(stopped, !known.stop.empty()) << what << " after " << so_far;
    }
    const Known known = Oracle(text, stops, /*complete=*/true);
    std::string tail;
    ASSERT_EQ(stream.Finish(tail), !known.stop.empty()) << what;
    ASSERT_TRUE(text::ValidateUtf8(tail).ok()) << what;
    ASSERT_EQ(out + tail, known.safe) << what;
    ASSERT_EQ(stream.stop(), known.stop) << what;
    stopped_rounds += !known.stop.empty();
  }
  EXPECT_GT(stopped_rounds, kRounds / 10);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, TokenStreamPropertyTest,
                         ::testing::Values("models/shelf-vqa",
                                           "tests/goldens/tokenizers/llama_metaspace"),
                         [](const auto& info) {
                           return info.index == 0 ? "ByteLevel" : "ByteFallback";
                         });

}  // namespace
}  // namespace tessera::decode
