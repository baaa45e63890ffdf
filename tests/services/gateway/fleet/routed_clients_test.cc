#include "services/gateway/fleet/routed_clients.h"

#include "tests/services/gateway/fleet/replica_set_fixture.h"

namespace tessera::gateway {
namespace {

// Calls over a set whose replicas come and go.
class RoutedClientsTest : public ReplicaSetTest {
 protected:
  std::shared_ptr<EncodeCall> Encode(const Picture& picture, absl::StatusOr<EncodedImage>& got) {
    const auto on_done = [&got](absl::StatusOr<EncodedImage> image) { got = std::move(image); };
    std::shared_ptr<EncodeCall> call = vision_->Encode(picture, true, {}, {nullptr, on_done});
    call->Start();
    return call;
  }
};

TEST_F(RoutedClientsTest, WhatIsLostBeforeItsFirstTokenIsTriedOnceElsewhere) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  const auto [holder, other] = Holder();
  Stream(holder).End(absl::UnavailableError("connection reset"));
  EXPECT_EQ(events->ends, 0);
  Stream(other).Piece("text");
  Stream(other).End(absl::OkStatus());
  EXPECT_EQ(events->text, "text");
  EXPECT_EQ(events->ends, 1);
  EXPECT_TRUE(events->status.ok()) << events->status;
  EXPECT_EQ(events->routes,
            (std::vector<std::string>{holder + ": affinity",
                                      other + ": first choice " + holder + " is lost"}));
}

TEST_F(RoutedClientsTest, NothingIsToldTwice) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  auto events = std::make_shared<Events>();
  Ask(events);
  const auto [holder, other] = Holder();
  Stream(holder).Piece("half of ");
  Stream(holder).End(absl::UnavailableError("connection reset"));
  EXPECT_EQ(events->ends, 1);
  EXPECT_EQ(base::ReasonOf(events->status), "DECODE_LOST");
  EXPECT_TRUE(peers_[other].decode->calls.empty());
}

TEST_F(RoutedClientsTest, TheSecondLossIsTheEndAsIsAnErrorOfAnotherKind) {
  Start({"r0:1", "r1:1", "r2:1"});
  for (const char* name : {"r0:1", "r1:1", "r2:1"}) Tell(name);
  auto events = std::make_shared<Events>();
  Ask(events);
  int losses = 0;
  for (int round = 0; round < 3; ++round) {
    for (const char* name : {"r0:1", "r1:1", "r2:1"}) {
      for (const auto& call : peers_[name].decode->calls) {
        if (!call->events) continue;
        ++losses;
        call->End(absl::UnavailableError("gone"));
      }
    }
  }
  EXPECT_EQ(losses, 2);
  EXPECT_EQ(events->ends, 1);
  auto refused = std::make_shared<Events>();
  Ask(refused, "b");
  for (const char* name : {"r0:1", "r1:1", "r2:1"}) {
    for (const auto& call : peers_[name].decode->calls) {
      call->End(base::BadField("options.top_p", "BAD_PARAMETER", "no"));
    }
  }
  EXPECT_EQ(refused->ends, 1);
  EXPECT_EQ(base::ReasonOf(refused->status), "BAD_PARAMETER");
}

TEST_F(RoutedClientsTest, RowsAreAnnouncedToTheTryThatAskedForThem) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  auto events = std::make_shared<Events>();
  const std::shared_ptr<DecodeCall> call = Ask(events);
  const auto [holder, other] = Holder();
  Stream(holder).NeedRows(0);
  Stream(holder).NeedRows(1);
  call->RowsReady({0});
  EXPECT_EQ(Stream(holder).rows_ready, std::vector<uint32_t>{0});
  Stream(holder).End(absl::UnavailableError("gone"));
  call->RowsReady({1});  // the second try has not asked
  EXPECT_TRUE(Stream(other).rows_ready.empty());
  Stream(other).NeedRows(1);
  call->RowsReady({1});
  EXPECT_EQ(Stream(other).rows_ready, std::vector<uint32_t>{1});
}

TEST_F(RoutedClientsTest, ACancelledAnswerIsNotTriedAgain) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  auto events = std::make_shared<Events>();
  const std::shared_ptr<DecodeCall> call = Ask(events);
  call->Cancel();
  EXPECT_EQ(events->ends, 1);
  EXPECT_TRUE(absl::IsCancelled(events->status));
  EXPECT_EQ(peers_["r0:1"].decode->calls.size() + peers_["r1:1"].decode->calls.size(), 1u);
}

TEST_F(RoutedClientsTest, APictureIsEncodedElsewhereWhenItsReplicaIsLost) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  absl::StatusOr<EncodedImage> got = absl::UnknownError("");
  Picture picture;
  picture.digest = base::Sha256Of("p");
  Encode(picture, got);
  const bool first = !peers_["r0:1"].vision->calls.empty();
  const std::string holder = first ? "r0:1" : "r1:1", other = first ? "r1:1" : "r0:1";
  peers_[holder].vision->calls.at(0)->Fail(absl::UnavailableError("reset"));
  peers_[other].vision->calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->replica, other);
  EXPECT_EQ(got->replica_reason, "first choice " + holder + " is lost");
}

TEST_F(RoutedClientsTest, ThatTheRowsAreWantedIsSaidToWhoeverEncodesAndThePlanIsToldOnce) {
  Start({"r0:1", "r1:1"});
  Tell("r0:1");
  Tell("r1:1");
  int plans = 0;
  absl::StatusOr<EncodedImage> got = absl::UnknownError("");
  const auto call =
      vision_->Encode({}, true, {},
                      {[&](const v1::ImageRef&) { ++plans; },
                       [&](absl::StatusOr<EncodedImage> image) { got = std::move(image); }});
  EXPECT_TRUE(peers_["r0:1"].vision->calls.empty() && peers_["r1:1"].vision->calls.empty())
      << "nobody is asked before it begins";
  call->Start();
  const bool first = !peers_["r0:1"].vision->calls.empty();
  const auto lost = peers_[first ? "r0:1" : "r1:1"].vision->calls.at(0);
  lost->Plan();
  EXPECT_EQ(plans, 1);
  EXPECT_FALSE(lost->proceeded);
  EXPECT_TRUE(lost->likely_new);
  call->Proceed();
  EXPECT_TRUE(lost->proceeded);
  lost->Fail(absl::UnavailableError("reset"));
  const auto other = peers_[first ? "r1:1" : "r0:1"].vision->calls.at(0);
  EXPECT_TRUE(other->proceeded);
  other->Plan();
  EXPECT_EQ(plans, 1);
  other->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_TRUE(got.ok()) << got.status();
}

TEST_F(RoutedClientsTest, WhatIsCancelledBeforeItBeginsEndsWhenItDoes) {
  Start({"r0:1"});
  Tell("r0:1");
  absl::StatusOr<EncodedImage> got = absl::UnknownError("");
  const auto picture = vision_->Encode(
      {}, true, {}, {nullptr, [&](absl::StatusOr<EncodedImage> image) { got = std::move(image); }});
  picture->Cancel();
  picture->Start();
  EXPECT_TRUE(absl::IsCancelled(got.status()));
  auto events = std::make_shared<Events>();
  const auto answer = decode_->Generate(std::make_shared<v1::DecodeStart>(), {}, {}, events);
  answer->Cancel();
  EXPECT_EQ(events->ends, 0);
  answer->Start();
  EXPECT_EQ(events->ends, 1);
  EXPECT_TRUE(absl::IsCancelled(events->status));
  absl::Status read;
  const auto ahead = decode_->Prefill({}, {}, "", [&](const auto& end) { read = end.status(); });
  ahead->Cancel();
  ahead->Start();
  EXPECT_TRUE(absl::IsCancelled(read));
}

// Names are resolved by the thread that lets go of replicas: it would wait for the rows.
TEST_F(RoutedClientsTest, AReplicaThatIsNoneAnyMoreStaysForItsRows) {
  const auto become = [&](const std::string& name) {
    SetNames("vision:1", std::vector<std::string>{name});
    Await([&] { return Watches(name) > 0; });
    Tell(name);
  };
  SetNames("vision:1", std::vector<std::string>{"r0:1"});
  Start({"vision:1"});
  Tell("r0:1");
  absl::StatusOr<EncodedImage> got = absl::UnknownError("");
  Encode({}, got);
  const auto call = peers_["r0:1"].vision->calls.at(0);
  call->Ready(v1::CACHE_TIER_COMPUTED);
  ASSERT_TRUE(got.ok()) << got.status();
  become("r1:1");
  become("r2:1");  // the unused were swept in between
  EXPECT_TRUE(Lives("r0:1"));
  EXPECT_FALSE(call->rows.expired());
  got->rows = nullptr;
  EXPECT_TRUE(call->rows.expired());
  Await([&] { return !Lives("r0:1"); });
}

}  // namespace
}  // namespace tessera::gateway
