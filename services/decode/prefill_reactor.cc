#include "services/decode/prefill_reactor.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "services/decode/call_end.h"
#include "services/decode/translate.h"

namespace tessera::decode {
namespace {

// Two questions that have nothing in common, so that what their prompts share is there before any.
constexpr char kOneQuestion[] = "A";
constexpr char kOtherQuestion[] = "7?";

// `request` as the start of an answer about its pictures.
v1::DecodeStart StartOf(const v1::DecodeServicePrefillRequest& request, const char* question) {
  v1::DecodeStart start;
  start.set_tenant(request.tenant());
  *start.mutable_messages() = request.messages();
  *start.mutable_images() = request.images();
  int used = 0;
  for (const v1::DecodeMessage& message : request.messages()) {
    used += static_cast<int>(std::count_if(message.parts().begin(), message.parts().end(),
                                           [](const auto& part) { return part.has_image(); }));
  }
  v1::DecodeMessage& turn = *start.add_messages();
  turn.set_role("user");
  for (int image = used; image < request.images_size(); ++image) {
    turn.add_parts()->set_image(static_cast<uint32_t>(image));
  }
  turn.add_parts()->set_text(question);
  return start;
}

}  // namespace

PrefillReactor* PrefillReactor::Start(const CallDeps& deps, grpc::CallbackServerContext& context,
                                      const v1::DecodeServicePrefillRequest& request,
                                      v1::DecodeServicePrefillResponse& response) {
  const absl::Time now = deps.clock.Now();
  std::shared_ptr<PrefillReactor> call(new PrefillReactor(deps, now, context, request, response));
  call->self_ = call;
  auto task = [call] {
    if (const absl::Status status = call->Submit(); !status.ok()) call->Conclude(status);
  };
  if (!deps.prompt_threads.TryPush(std::move(task))) {
    call->Conclude(base::WithRetry(base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                                               "too many prompts wait to be read"),
                                   absl::Seconds(1)));
  }
  return call.get();
}

absl::StatusOr<Request> PrefillReactor::MakeRequest() const {
  if (request_.images().empty()) {
    return base::BadField("images", "IMAGE_COUNT", "no picture to read ahead of a question");
  }
  ASSIGN_OR_RETURN(AskedFor asked, ParseStart(StartOf(request_, kOneQuestion), deps_.row_width));
  ASSIGN_OR_RETURN(PromptPlan plan, deps_.prompts.Build(asked.messages, asked.images));
  asked.messages.back().parts.back().text = kOtherQuestion;  // StartOf put the first one there
  ASSIGN_OR_RETURN(const PromptPlan other, deps_.prompts.Build(asked.messages, asked.images));
  Request request = ToRequest(std::move(asked), std::move(plan));
  const auto [end, unused] =
      std::mismatch(request.ids.begin(), request.ids.end(), other.ids.begin(), other.ids.end());
  request.ids.erase(end, request.ids.end());
  std::erase_if(request.pictures, [end = request.ids.size()](const PromptPicture& picture) {
    return static_cast<size_t>(picture.first_token) >= end;
  });
  request.priority = Priority::kAhead;
  request.max_tokens = 0;
  return request;
}

absl::Status PrefillReactor::Submit() {
  if (wire_.IsCancelled()) return ClientGone();  // OnCancel may come later
  ASSIGN_OR_RETURN(Request request, MakeRequest());
  if (request.ids.size() < static_cast<size_t>(deps_.engine.block_size())) {
    Conclude(absl::OkStatus());  // nothing of it could be kept
    return absl::OkStatus();
  }
  request.name = ToName(context_);
  request.arrival = arrival_;
  request.deadline = context_.deadline;
  request.sink = shared_from_this();
  RETURN_IF_ERROR(deps_.engine.Submit(std::move(request)).status());
  bool cancelled = false;
  {
    base::MutexLock lock(mutex_);
    cancelled = cancelled_;
  }
  if (cancelled) OnCancel();
  return absl::OkStatus();
}

void PrefillReactor::OnAccepted(const AcceptedRequest& accepted) {
  base::MutexLock lock(mutex_);
  id_ = accepted.id;
}

void PrefillReactor::OnEnd(const absl::Status& status, const Outcome& outcome) {
  response_.set_prompt_tokens(outcome.prompt_tokens);
  response_.set_cached_tokens(outcome.cached_tokens);
  response_.set_computed_tokens(outcome.computed_tokens);
  response_.set_dropped(outcome.finish == FinishReason::kDropped);
  {
    base::MutexLock lock(mutex_);
    outcome_ = outcome;
  }
  Conclude(status);
}

void PrefillReactor::OnCancel() {
  std::optional<SequenceId> id;
  {
    base::MutexLock lock(mutex_);
    cancelled_ = true;
    id = id_;
  }
  if (!id.has_value()) return;  // Submit sees it
  deps_.engine.Cancel(*id, ClientGone());
}

// Once: the engine's end, or what kept it from beginning. The engine's thread has better to do than
// to write it.
void PrefillReactor::Conclude(absl::Status status) {
  const absl::Time now = deps_.clock.Now();
  {
    base::MutexLock lock(mutex_);
    if (status_.has_value()) return;
    status_ = std::move(status);
    end_time_ = now;
  }
  deps_.delivery.Schedule(shared_from_this());
}

void PrefillReactor::Deliver() {
  grpc::Status status;
  {
    base::MutexLock lock(mutex_);
    status = rpc::ToGrpc(*status_);
  }
  Finish(status);
}

void PrefillReactor::OnDone() {
  {
    base::MutexLock lock(mutex_);
    TellCallEnd({"Prefill", context_, arrival_, end_time_, *status_, outcome_}, deps_.spans);
  }
  self_.reset();
}

}  // namespace tessera::decode
