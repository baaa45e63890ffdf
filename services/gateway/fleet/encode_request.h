#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <memory>

#include "absl/strings/cord.h"
#include "tessera/v1/vision.pb.h"

// EncodeRequest messages on the wire, whose picture is not copied: they hold `bytes` until gRPC has
// sent them. Pure.
namespace tessera::gateway {

// `offer` with the first `count` of `bytes` as its first chunk; 0: without one, and `bytes` may be
// null. REQUIRES: `offer` has no first chunk.
grpc::ByteBuffer EncodeOfferRequest(const v1::EncodeOffer& offer,
                                    const std::shared_ptr<const absl::Cord>& bytes, size_t count);

// The chunk of `count` of `bytes` from `begin` on.
grpc::ByteBuffer EncodeChunkRequest(const std::shared_ptr<const absl::Cord>& bytes, size_t begin,
                                    size_t count);

}  // namespace tessera::gateway
