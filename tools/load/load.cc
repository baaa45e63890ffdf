#include "tools/load/load.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/rpc/status.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tools/client/dial.h"

namespace tessera::tools {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kUploadPiece = size_t{1} << 20;

// Empty for an OK.
std::string ErrorText(const grpc::Status& status) {
  if (status.ok()) return "";
  return rpc::FromGrpc(status).ToString(absl::StatusToStringMode::kWithNoExtraData);
}

class Load {
 public:
  Load(const std::shared_ptr<grpc::Channel>& channel, const std::vector<PictureQuestions>& pictures,
       const LoadOptions& options, const std::function<void()>& done)
      : stub_(v1::GatewayService::NewStub(channel)),
        pictures_(pictures),
        options_(options),
        done_(done),
        random_(options.seed) {}

  std::vector<LoadResult> Run() {
    std::vector<std::thread> clients;
    const int32_t count = std::min(options_.concurrency, options_.sessions);
    for (int32_t i = 0; i < count; ++i) clients.emplace_back([this] { Client(); });
    for (std::thread& client : clients) client.join();
    base::MutexLock lock(mutex_);
    return std::move(results_);
  }

 private:
  double Now() const { return std::chrono::duration<double>(SteadyClock::now() - start_).count(); }

  void Client() {
    int32_t session = 0;
    while (TakeSession(session)) {
      Session(session);
      done_();
    }
  }

  // The next session, at its time. With a rate, one that comes while all clients are busy begins as
  // soon as one is free.
  bool TakeSession(int32_t& session) {
    double begin = 0;
    {
      base::MutexLock lock(mutex_);
      if (taken_ == options_.sessions) return false;
      session = taken_++;
      if (options_.rate > 0) {
        next_begin_ += std::exponential_distribution<double>(options_.rate)(random_);
        begin = next_begin_;
      }
    }
    const double wait = begin - Now();
    if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    return true;
  }

  void Session(int32_t session) {
    const PictureQuestions& picture = pictures_[session % pictures_.size()];
    const std::string name = absl::StrCat("bench-", options_.seed, "-", session);
    v1::GenerateStreamRequest stream;
    v1::GenerateRequest& request = *stream.mutable_request();
    request.set_session(name);
    request.mutable_options()->set_max_tokens(options_.max_tokens);
    LoadResult uploaded;
    std::string handle;
    if (options_.by_handle && !Upload(picture, name, handle, uploaded)) return Keep(uploaded);
    const size_t offset = session / pictures_.size() * static_cast<size_t>(options_.turns);
    for (int32_t turn = 0; turn < options_.turns; ++turn) {
      v1::Message& asked = *request.add_messages();
      asked.set_role("user");
      if (turn == 0 && options_.by_handle) asked.add_parts()->mutable_image()->set_handle(handle);
      if (turn == 0 && !options_.by_handle) {
        asked.add_parts()->mutable_image()->mutable_inline_data()->set_data(picture.bytes);
      }
      asked.add_parts()->set_text(picture.questions[(offset + turn) % picture.questions.size()]);
      std::string text;
      LoadResult result = Ask(stream, text);
      result.turn = turn;
      result.picture_bytes = picture.bytes.size();
      const bool ok = result.ok;
      Keep(std::move(result));
      if (!ok) return;
      v1::Message& answered = *request.add_messages();
      answered.set_role("assistant");
      answered.add_parts()->set_text(text);
    }
  }

  // Its deadline, and who asks.
  void Prepare(grpc::ClientContext& context) const {
    AddKey(options_.api_key, context);
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoMicroseconds(options_.timeout));
  }

  bool Upload(const PictureQuestions& picture, const std::string& session, std::string& handle,
              LoadResult& result) {
    result.begin = Now();
    grpc::ClientContext context;
    Prepare(context);
    v1::UploadImageResponse response;
    const auto writer = stub_->UploadImage(&context, &response);
    for (size_t at = 0; at < picture.bytes.size(); at += kUploadPiece) {
      v1::UploadImageRequest piece;
      if (at == 0) piece.set_session(session);
      piece.set_data(picture.bytes.substr(at, kUploadPiece));
      if (!writer->Write(piece)) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    result.picture_bytes = picture.bytes.size();
    result.error = ErrorText(status);
    handle = response.handle();
    return status.ok();
  }

  LoadResult Ask(const v1::GenerateStreamRequest& request, std::string& text) {
    LoadResult result;
    grpc::ClientContext context;
    Prepare(context);
    result.begin = Now();
    const auto reader = stub_->GenerateStream(&context, request);
    v1::GenerateStreamResponse event;
    double last = 0;
    while (reader->Read(&event)) {
      if (event.has_end()) {
        result.end = std::move(*event.mutable_end());
        continue;
      }
      const double now = Now();
      if (text.empty()) {
        result.ttft = now - result.begin;
      } else {
        result.gaps.push_back(now - last);
      }
      last = now;
      text += event.text();
    }
    const grpc::Status status = reader->Finish();
    result.e2e = Now() - result.begin;
    if (text.empty()) result.ttft = result.e2e;
    result.ok = status.ok();
    result.error = ErrorText(status);
    return result;
  }

  void Keep(LoadResult result) {
    base::MutexLock lock(mutex_);
    results_.push_back(std::move(result));
  }

  const std::unique_ptr<v1::GatewayService::Stub> stub_;
  const std::vector<PictureQuestions>& pictures_;
  const LoadOptions options_;
  const std::function<void()>& done_;
  const SteadyClock::time_point start_ = SteadyClock::now();
  base::Mutex mutex_;
  int32_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  double next_begin_ ABSL_GUARDED_BY(mutex_) = 0;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::vector<LoadResult> results_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::vector<LoadResult> RunLoad(const std::shared_ptr<grpc::Channel>& channel,
                                const std::vector<PictureQuestions>& pictures,
                                const LoadOptions& options, const std::function<void()>& done) {
  return Load(channel, pictures, options, done).Run();
}

}  // namespace tessera::tools
