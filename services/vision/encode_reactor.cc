#include "services/vision/encode_reactor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/bad_message.h"
#include "common/rpc/status.h"
#include "common/rpc/trace/request_end.h"
#include "common/store/rows.h"

namespace tessera::vision {
namespace {

v1::QualityVerdict ToProto(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return v1::QUALITY_VERDICT_PASS;
    case Verdict::kWarn:
      return v1::QUALITY_VERDICT_WARN;
    case Verdict::kRefuse:
      return v1::QUALITY_VERDICT_REFUSE;
  }
  return v1::QUALITY_VERDICT_UNSPECIFIED;
}

// Of rows that are there, for the log.
absl::string_view NameOf(v1::CacheTier tier) {
  switch (tier) {
    case v1::CACHE_TIER_LOCAL:
      return "local";
    case v1::CACHE_TIER_STORE:
      return "store";
    default:
      return "computed";
  }
}

v1::StageSeconds ToProto(const StageTimes& times) {
  v1::StageSeconds seconds;
  seconds.set_queue_seconds(absl::ToDoubleSeconds(times[Stage::kQueue]));
  seconds.set_fetch_seconds(absl::ToDoubleSeconds(times[Stage::kFetch]));
  seconds.set_image_decode_seconds(absl::ToDoubleSeconds(times[Stage::kImageDecode]));
  seconds.set_preprocess_seconds(absl::ToDoubleSeconds(times[Stage::kPreprocess]));
  seconds.set_encode_seconds(absl::ToDoubleSeconds(times[Stage::kEncode]));
  seconds.set_store_seconds(absl::ToDoubleSeconds(times[Stage::kStore]));
  return seconds;
}

}  // namespace

EncodeReactor::EncodeReactor(const VisionServiceDeps& deps, const std::string& fingerprint,
                             grpc::CallbackServerContext& context)
    : token_(*deps.calls),
      deps_(deps),
      fingerprint_(fingerprint),
      wire_(context),
      waiter_(deps.pipeline.NewWaiter()),
      arrival_(deps.clock.Now()),
      context_(
          rpc::AcceptRequest(context, arrival_, absl::InfiniteDuration(), deps.spans != nullptr)) {
  Read();
}

void EncodeReactor::Read() {
  request_.Clear();
  StartRead(&request_);
}

void EncodeReactor::OnReadDone(bool ok) {
  if (!ok) return OnReadEnd();
  const absl::Status status = awaited_ == Awaited::kOffer ? TakeOffer() : TakeChunk();
  if (!status.ok()) Fail(status);
}

void EncodeReactor::OnReadEnd() {
  if (request_.bad()) {
    Count(absl::InvalidArgumentError(""));
    return End(rpc::BadMessage());
  }
  if (awaited_ == Awaited::kEnd) return End(grpc::Status::OK);
  if (unheard() || wire_.IsCancelled()) return Fail(CallerGone());  // OnCancel may come later
  Fail(awaited_ == Awaited::kOffer
           ? OfferError("digest", "OFFER_INVALID", "the call ended before its offer")
           : OfferError("size_bytes", "SIZE_MISMATCH",
                        absl::StrCat("the call ended after ", picture_->size(), " of ",
                                     offered_.bytes, " bytes")));
}

absl::Status EncodeReactor::TakeOffer() {
  RETURN_IF_ERROR(KeepOffer());
  const v1::VisionServiceGetInfoResponse& info = deps_.info;
  ASSIGN_OR_RETURN(hold_,
                   deps_.held.Admit(key_, store::RowBytes(deps_.identity.record_dtype,
                                                          info.rows_per_image(), info.width())));
  if (const size_t first = request_.picture_bytes(); first > 0) {
    // It is looked at once the record is known not to be there. Others may come before the caller
    // hears that none is needed.
    room_ = deps_.pipeline.Reserve(first, tenant_);  // of what is here
    if (!room_.ok()) request_.Clear();
    superfluous_bytes_ = offered_.bytes - first;
  }
  if (deps_.lookups.TryPush([this, asked = deps_.clock.Now()] { Lookup(asked); })) {
    return absl::OkStatus();
  }
  return base::WithRetry(base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                                     "too many pictures are looked up already; try again"),
                         absl::Seconds(1));
}

absl::Status EncodeReactor::KeepOffer() {
  if (!request_.message().has_offer()) {
    return OfferError("digest", "OFFER_INVALID", "the first message must be an offer");
  }
  const v1::EncodeOffer& offer = request_.message().offer();
  if (offer.digest().size() != offered_.digest.size()) {
    return OfferError("digest", "OFFER_INVALID",
                      absl::StrCat("a digest of ", offer.digest().size(), " bytes; SHA-256 has ",
                                   offered_.digest.size()));
  }
  if (offer.size_bytes() == 0) {
    return OfferError("size_bytes", "IMAGE_EMPTY", "the picture has no bytes");
  }
  if (offer.size_bytes() > deps_.limits.max_bytes) {
    return OfferError("size_bytes", "IMAGE_TOO_LARGE",
                      absl::StrCat("a picture of ", offer.size_bytes(), " bytes; at most ",
                                   deps_.limits.max_bytes, " are taken"));
  }
  const size_t first = request_.picture_bytes();
  if (first > offer.size_bytes()) {
    return OfferError("size_bytes", "SIZE_MISMATCH",
                      absl::StrCat("more bytes than the ", offer.size_bytes(), " offered"));
  }
  if (offer.held_bytes() > offer.size_bytes() - first) {
    return OfferError("held_bytes", "OFFER_INVALID",
                      absl::StrCat(offer.held_bytes(), " bytes are held of ",
                                   offer.size_bytes() - first, " that are yet to come"));
  }
  std::copy(offer.digest().begin(), offer.digest().end(), offered_.digest.begin());
  offered_.bytes = offer.size_bytes();
  offered_.held_bytes = offer.held_bytes();
  tenant_ = offer.tenant();
  key_ = KeyOf(deps_.identity, tenant_, offered_.digest);
  return absl::OkStatus();
}

void EncodeReactor::Lookup(absl::Time asked) {
  Mark(Stage::kQueue, asked);
  if (wire_.IsCancelled()) return Fail(CallerGone());  // OnCancel may come later
  const absl::Time start = deps_.clock.Now();
  const store::FoundRecord found = Find();
  Mark(Stage::kFetch, start);
  absl::Status status;
  if (found.record != nullptr) {
    room_ = nullptr;
    const bool local = found.tier == store::StoreTier::kLocal;
    status = SendReady(found.record, local ? v1::CACHE_TIER_LOCAL : v1::CACHE_TIER_STORE);
  } else {
    status = BeginPicture();
  }
  if (!status.ok()) Fail(status);
}

// Nobody has the record.
absl::Status EncodeReactor::BeginPicture() {
  if (const std::optional<absl::Status> refused = deps_.refused.Find(key_)) return *refused;
  RETURN_IF_ERROR(room_.status());
  picture_.emplace(offered_, deps_.limits, deps_.plan);
  awaited_ = Awaited::kBytes;
  superfluous_bytes_ = 0;
  const bool first_is_here = *room_ != nullptr;
  room_ = nullptr;
  ASSIGN_OR_RETURN(room_, deps_.pipeline.Reserve(offered_.bytes, tenant_));
  if (first_is_here) return TakeBytes();
  SendNeedBytes();
  return GoOn();
}

store::FoundRecord EncodeReactor::Find() {
  if (deps_.tiered != nullptr) return deps_.tiered->GetFrom(key_, deps_.info.rows_per_image());
  const auto record = deps_.store.Get(key_, deps_.info.rows_per_image());
  if (record.ok()) return {record->value_or(nullptr)};
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("embedding store: taken as a miss: ", record.status().message()));
  return {};
}

absl::Status EncodeReactor::TakeChunk() {
  if (awaited_ == Awaited::kEnd) return PassOver();
  if (request_.message().has_chunk()) return TakeBytes();
  return OfferError("size_bytes", "SIZE_MISMATCH",
                    absl::StrCat("a message without a chunk after ", picture_->size(), " of ",
                                 offered_.bytes, " bytes"));
}

// Of a picture whose rows exist.
absl::Status EncodeReactor::PassOver() {
  const size_t bytes = request_.picture_bytes();
  if (!request_.message().has_chunk() || bytes == 0 || bytes > superfluous_bytes_) {
    return OfferError("size_bytes", "SIZE_MISMATCH", "a message after the whole picture");
  }
  superfluous_bytes_ -= bytes;
  Read();
  return absl::OkStatus();
}

absl::Status EncodeReactor::TakeBytes() {
  const absl::Time start = deps_.clock.Now();
  RETURN_IF_ERROR(picture_->Append(request_.picture()));
  request_.Clear();
  Mark(Stage::kImageDecode, start);
  return GoOn();
}

// With the picture, as far as it has come.
absl::Status EncodeReactor::GoOn() {
  if (picture_->plan() && !std::exchange(planned_, true)) SendPlan(*picture_->plan());
  if (picture_->complete()) return Submit();
  if (picture_->needs_held_bytes() && !std::exchange(held_asked_, true)) SendNeedBytes();
  Read();
  return absl::OkStatus();
}

void EncodeReactor::SendPlan(const ImagePlan& plan) {
  v1::EncodeResponse response;
  v1::ImageRef& ref = *response.mutable_plan()->mutable_ref();
  ref = Ref();
  ref.set_rows(static_cast<uint32_t>(plan.rows));
  ref.set_width(deps_.info.width());
  ref.set_grid_height(static_cast<uint32_t>(plan.grid_height));
  ref.set_grid_width(static_cast<uint32_t>(plan.grid_width));
  Send(std::move(response));
}

void EncodeReactor::SendNeedBytes() {
  v1::EncodeResponse response;
  response.mutable_need_bytes();
  Send(std::move(response));
}

void EncodeReactor::Send(v1::EncodeResponse response) {
  base::MutexLock lock(mutex_);
  outbox_.push_back(std::move(response));
  if (outbox_.size() == 1) StartWrite(&outbox_.front());
}

void EncodeReactor::OnWriteDone(bool ok) {
  std::optional<grpc::Status> end;
  {
    base::MutexLock lock(mutex_);
    unheard_ = unheard_ || !ok;
    outbox_.pop_front();
    if (outbox_.empty()) {
      end = end_;
    } else {
      StartWrite(&outbox_.front());
    }
  }
  if (end) Finish(*end);
}

void EncodeReactor::End(const grpc::Status& status) {
  {
    base::MutexLock lock(mutex_);
    end_ = status;
    if (!outbox_.empty()) return;  // OnWriteDone finishes
  }
  Finish(status);
}

bool EncodeReactor::unheard() const {
  base::MutexLock lock(mutex_);
  return unheard_;
}

absl::Status EncodeReactor::Submit() {
  EncodeTask task;
  task.key = key_;
  task.bytes = picture_->TakeBytes();
  task.room = *std::move(room_);
  task.decode_bytes = picture_->header().decode_bytes;
  task.grid_height = picture_->plan()->grid_height;
  task.grid_width = picture_->plan()->grid_width;
  task.done = [this](absl::StatusOr<Encoded> encoded) {
    if (absl::IsInvalidArgument(encoded.status())) {
      deps_.refused.Add(tenant_, key_, encoded.status());
    }
    if (!encoded.ok()) return Fail(encoded.status());
    stages_ += encoded->stages;
    spans_.insert(spans_.end(), encoded->spans.begin(), encoded->spans.end());
    const absl::Status status = SendReady(
        encoded->record, encoded->existed ? v1::CACHE_TIER_LOCAL : v1::CACHE_TIER_COMPUTED);
    if (!status.ok()) Fail(status);
  };
  // Once submitted, the call may end, and this object with it.
  EncodePipeline& pipeline = deps_.pipeline;
  const WaiterId waiter = waiter_;
  const std::shared_ptr<const std::atomic<bool>> cancelled = cancelled_;
  RETURN_IF_ERROR(pipeline.Submit(waiter, std::move(task)));
  // OnCancel may have come before there was anything to cancel.
  if (*cancelled) pipeline.Cancel(waiter);
  return absl::OkStatus();
}

void EncodeReactor::OnCancel() {
  *cancelled_ = true;
  deps_.pipeline.Cancel(waiter_);
}

// Judges the picture by today's thresholds.
absl::Status EncodeReactor::SendReady(const store::RecordPtr& held, v1::CacheTier tier) {
  const store::EmbeddingRecord& record = *held;
  const QualityScores scores = ScoresFromMap(record.quality);
  const std::optional<QualityVerdict> verdict = deps_.gate.Judge(scores);
  if (verdict) deps_.metrics.OnVerdict(*verdict);
  RETURN_IF_ERROR(deps_.gate.Check(scores));
  Count(absl::OkStatus(), tier, record.rows);
  hold_->Keep(held);
  v1::EncodeResponse response;
  v1::EncodeReady& ready = *response.mutable_ready();
  v1::ImageRef& ref = *ready.mutable_ref();
  ref = Ref();
  ref.set_rows(static_cast<uint32_t>(record.rows));
  ref.set_width(static_cast<uint32_t>(record.width));
  ref.set_grid_height(static_cast<uint32_t>(record.grid_height));
  ref.set_grid_width(static_cast<uint32_t>(record.grid_width));
  v1::Quality& quality = *ref.mutable_quality();
  for (const auto& [name, score] : record.quality) (*quality.mutable_scores())[name] = score;
  if (verdict) {
    quality.set_verdict(ToProto(verdict->verdict));
    for (const std::string& reason : verdict->reasons) quality.add_reasons(reason);
  }
  ready.set_cache(tier);
  *ready.mutable_stages() = ToProto(stages_);
  awaited_ = Awaited::kEnd;
  Send(std::move(response));
  Read();
  return absl::OkStatus();
}

void EncodeReactor::Fail(const absl::Status& status) {
  Count(status);
  End(rpc::ToGrpc(status));
}

// What happens behind the answer is not counted.
void EncodeReactor::Count(const absl::Status& status, v1::CacheTier tier, int64_t rows) {
  if (std::exchange(counted_, true)) return;
  deps_.metrics.OnAnswer(status, status.ok() && tier != v1::CACHE_TIER_COMPUTED);
  Tell(status, tier, rows);
}

void EncodeReactor::Mark(Stage stage, absl::Time begin) {
  const absl::Time now = deps_.clock.Now();
  stages_[stage] += now - begin;
  if (begin < now) spans_.push_back({stage, begin, now});
}

void EncodeReactor::Tell(const absl::Status& status, v1::CacheTier tier, int64_t rows) const {
  rpc::RequestEnd end = {.service = "vision",
                         .method = "Encode",
                         .protocol = "grpc",
                         .request = context_,
                         .start = arrival_,
                         .end = deps_.clock.Now(),
                         .status = status,
                         .facts = {{"image_bytes", offered_.bytes}}};
  if (status.ok()) {
    end.facts.emplace_back("cache", NameOf(tier));
    end.facts.emplace_back("rows", rows);
  }
  if (deps_.spans != nullptr && context_.trace.sampled) {
    for (const StageSpan& span : spans_) {
      end.stages.push_back({Name(span.stage), span.begin, span.end});
    }
  }
  rpc::TellEnd(std::move(end), deps_.spans);
}

v1::ImageRef EncodeReactor::Ref() const {
  v1::ImageRef ref;
  ref.set_key(std::string(key_.bytes()));
  ref.set_vision_fingerprint(fingerprint_);
  ref.set_origin(deps_.origin);
  return ref;
}

}  // namespace tessera::vision
