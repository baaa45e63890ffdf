#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/server_interceptor.h>
#include <grpcpp/support/status.h>

#include <memory>

// A message that cannot be parsed (text that is no UTF-8, bytes that are no message) never reaches
// a method, and gRPC 1.51's callback API hides it: as UNIMPLEMENTED where there is one request, as
// the end of the stream where there are several. It is INTERNAL everywhere, as in gRPC's other
// APIs.
namespace tessera::rpc {

// What the client is told.
grpc::Status BadMessage();

// For methods with one request: puts BadMessage in the place of gRPC's UNIMPLEMENTED.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeBadMessageInterceptor();

// For methods that read a stream: before each StartRead(&message), and after OnReadDone(false),
// where true means that there was a message and it could not be parsed, false that there was none.
void BeforeRead(google::protobuf::Message& message);
bool WasBadMessage(const google::protobuf::Message& message);

}  // namespace tessera::rpc
