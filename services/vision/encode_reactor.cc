#include "services/vision/encode_reactor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/bad_message.h"
#include "common/rpc/status.h"
#include "common/rpc/trace/request_end.h"
#include "services/vision/image/image.h"

namespace tessera::vision {
namespace {

absl::Status OfferError(absl::string_view field, absl::string_view reason,
                        absl::string_view message) {
  return base::BadField(absl::StrCat("offer.", field), reason, message);
}

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
  rpc::BeforeRead(request_);
  StartRead(&request_);
}

void EncodeReactor::OnReadDone(bool ok) {
  if (!ok) return OnReadEnd();
  const absl::Status status = step_ == Step::kOffer ? TakeOffer() : TakeChunk();
  if (!status.ok()) Fail(status);
}

void EncodeReactor::OnReadEnd() {
  if (rpc::WasBadMessage(request_)) {
    Count(absl::InvalidArgumentError(""));
    return Finish(rpc::BadMessage());
  }
  if (step_ == Step::kReady) return Finish(grpc::Status::OK);
  if (wire_.IsCancelled()) return Fail(CallerGone());  // OnCancel may come later
  Fail(step_ == Step::kOffer
           ? OfferError("digest", "OFFER_INVALID", "the call ended before its offer")
           : OfferError("size_bytes", "SIZE_MISMATCH",
                        absl::StrCat("the call ended after ", bytes_.size(), " of ", offered_bytes_,
                                     " bytes")));
}

absl::Status EncodeReactor::TakeOffer() {
  if (!request_.has_offer()) {
    return OfferError("digest", "OFFER_INVALID", "the first message must be an offer");
  }
  const v1::EncodeOffer& offer = request_.offer();
  if (offer.digest().size() != offered_digest_.size()) {
    return OfferError("digest", "OFFER_INVALID",
                      absl::StrCat("a digest of ", offer.digest().size(), " bytes; SHA-256 has ",
                                   offered_digest_.size()));
  }
  if (offer.size_bytes() == 0) {
    return OfferError("size_bytes", "IMAGE_EMPTY", "the picture has no bytes");
  }
  if (offer.size_bytes() > deps_.limits.max_bytes) {
    return OfferError("size_bytes", "IMAGE_TOO_LARGE",
                      absl::StrCat("a picture of ", offer.size_bytes(), " bytes; at most ",
                                   deps_.limits.max_bytes, " are taken"));
  }
  std::copy(offer.digest().begin(), offer.digest().end(), offered_digest_.begin());
  offered_bytes_ = offer.size_bytes();
  tenant_ = offer.tenant();
  key_ = KeyOf(deps_.identity, tenant_, offered_digest_);
  RETURN_IF_ERROR(deps_.held.Admit(key_));
  if (deps_.lookups.TryPush([this, asked = deps_.clock.Now()] { Lookup(asked); })) {
    return absl::OkStatus();
  }
  return base::WithRetry(base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                                     "too many pictures are looked up already; try again"),
                         absl::Seconds(1));
}

void EncodeReactor::Lookup(absl::Time asked) {
  Mark(Stage::kQueue, asked);
  if (wire_.IsCancelled()) return Fail(CallerGone());  // OnCancel may come later
  const absl::Time start = deps_.clock.Now();
  const store::FoundRecord found = Find();
  Mark(Stage::kFetch, start);
  if (found.record != nullptr) {
    const bool local = found.tier == store::StoreTier::kLocal;
    const absl::Status status =
        SendReady(found.record, local ? v1::CACHE_TIER_LOCAL : v1::CACHE_TIER_STORE);
    if (!status.ok()) Fail(status);
    return;
  }
  const absl::Status status = AskForBytes();
  if (!status.ok()) Fail(status);
}

absl::Status EncodeReactor::AskForBytes() {
  ASSIGN_OR_RETURN(room_, deps_.pipeline.Reserve(offered_bytes_, tenant_));
  step_ = Step::kNeedBytes;
  response_.mutable_need_bytes();
  StartWrite(&response_);
  return absl::OkStatus();
}

store::FoundRecord EncodeReactor::Find() {
  if (deps_.tiered != nullptr) return deps_.tiered->GetFrom(key_);
  const auto record = deps_.store.Get(key_);
  if (record.ok()) return {record->value_or(nullptr)};
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("embedding store: taken as a miss: ", record.status().message()));
  return {};
}

void EncodeReactor::OnWriteDone(bool ok) {
  if (!ok) return Fail(CallerGone());
  if (step_ == Step::kNeedBytes) {
    step_ = Step::kChunks;
    Read();
  } else if (step_ == Step::kPlan) {
    step_ = Step::kEncode;
    const absl::Status status = Submit();
    if (!status.ok()) Fail(status);
  } else if (step_ == Step::kReady) {
    Read();
  }
}

absl::Status EncodeReactor::TakeChunk() {
  const absl::Time start = deps_.clock.Now();
  if (step_ == Step::kReady) {
    return OfferError("size_bytes", "SIZE_MISMATCH", "a message after the whole picture");
  }
  if (request_.kind_case() != v1::EncodeRequest::kChunk) {
    return OfferError("size_bytes", "SIZE_MISMATCH",
                      absl::StrCat("a message without a chunk after ", bytes_.size(), " of ",
                                   offered_bytes_, " bytes"));
  }
  std::string& chunk = *request_.mutable_chunk();
  if (chunk.size() > offered_bytes_ - bytes_.size()) {
    return OfferError("size_bytes", "SIZE_MISMATCH",
                      absl::StrCat("more bytes than the ", offered_bytes_, " offered"));
  }
  sha_.Update(chunk);
  if (chunk.size() == offered_bytes_) {
    bytes_ = std::move(chunk);
  } else {
    bytes_.reserve(offered_bytes_);  // no more than there is room for
    bytes_ += chunk;
  }
  request_.clear_chunk();
  const bool complete = bytes_.size() == offered_bytes_;
  if (complete) RETURN_IF_ERROR(TakePicture());
  Mark(Stage::kImageDecode, start);
  if (complete) {
    step_ = Step::kPlan;
    *response_.mutable_plan()->mutable_ref() = Ref();
    StartWrite(&response_);
  } else {
    Read();
  }
  return absl::OkStatus();
}

absl::Status EncodeReactor::TakePicture() {
  if (sha_.Finish() != offered_digest_) {
    return OfferError("digest", "DIGEST_MISMATCH",
                      "the bytes are not those whose SHA-256 was offered");
  }
  ASSIGN_OR_RETURN(header_, ReadHeader(bytes_, deps_.limits));
  ASSIGN_OR_RETURN(plan_, deps_.plan(header_));
  return absl::OkStatus();
}

absl::Status EncodeReactor::Submit() {
  EncodeTask task;
  task.key = key_;
  task.bytes = std::move(bytes_);
  task.room = std::move(room_);
  task.decode_bytes = header_.decode_bytes;
  task.grid_height = plan_.grid_height;
  task.grid_width = plan_.grid_width;
  task.done = [this](absl::StatusOr<Encoded> encoded) {
    if (!encoded.ok()) return Fail(encoded.status());
    stages_ += encoded->stages;
    spans_.insert(spans_.end(), encoded->spans.begin(), encoded->spans.end());
    const absl::Status status = SendReady(
        encoded->record, encoded->existed ? v1::CACHE_TIER_LOCAL : v1::CACHE_TIER_COMPUTED);
    if (!status.ok()) Fail(status);
  };
  RETURN_IF_ERROR(deps_.pipeline.Submit(waiter_, std::move(task)));
  // OnCancel may have come before there was anything to cancel. This object lives until the
  // reaction that called us returns.
  if (cancelled_) deps_.pipeline.Cancel(waiter_);
  return absl::OkStatus();
}

void EncodeReactor::OnCancel() {
  cancelled_ = true;
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
  hold_.emplace(deps_.held, held);
  v1::EncodeReady& ready = *response_.mutable_ready();
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
  step_ = Step::kReady;
  StartWrite(&response_);
  return absl::OkStatus();
}

void EncodeReactor::Fail(const absl::Status& status) {
  Count(status);
  Finish(rpc::ToGrpc(status));
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
                         .facts = {{"image_bytes", offered_bytes_}}};
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
  ref.set_rows(static_cast<uint32_t>(plan_.rows));
  ref.set_width(deps_.info.width());
  ref.set_grid_height(static_cast<uint32_t>(plan_.grid_height));
  ref.set_grid_width(static_cast<uint32_t>(plan_.grid_width));
  ref.set_vision_fingerprint(fingerprint_);
  ref.set_origin(deps_.origin);
  return ref;
}

}  // namespace tessera::vision
