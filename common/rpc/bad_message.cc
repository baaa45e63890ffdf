#include "common/rpc/bad_message.h"

#include <google/protobuf/unknown_field_set.h>

#include <atomic>

namespace tessera::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;

class BadMessageInterceptor final : public grpc::experimental::Interceptor {
 public:
  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      no_message_ = batch->GetRecvMessage() == nullptr;
    }
    // A method that is not written yet has its message when it is refused.
    if (no_message_ && batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS) &&
        batch->GetSendStatus().error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      batch->ModifySendStatus(BadMessage());
    }
    batch->Proceed();
  }

 private:
  std::atomic<bool> no_message_{false};  // reads and the end of a call overlap
};

class BadMessageFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo*) override {
    return new BadMessageInterceptor();
  }
};

// An unknown field of a number that no parser accepts. Parsing clears a message first.
constexpr int kMark = 0;

}  // namespace

grpc::Status BadMessage() {
  return grpc::Status(grpc::StatusCode::INTERNAL,
                      "the request cannot be parsed: it is no message of this method, or a text in "
                      "it is not valid UTF-8; send what protos/tessera/v1 describes, every text as "
                      "UTF-8");
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeBadMessageInterceptor() {
  return std::make_unique<BadMessageFactory>();
}

void BeforeRead(google::protobuf::Message& message) {
  message.Clear();
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(kMark, 0);
}

bool WasBadMessage(const google::protobuf::Message& message) {
  const auto& fields = message.GetReflection()->GetUnknownFields(message);
  return fields.field_count() != 1 || fields.field(0).number() != kMark;
}

}  // namespace tessera::rpc
