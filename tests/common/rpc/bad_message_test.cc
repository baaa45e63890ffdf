#include "common/rpc/bad_message.h"

#include <gtest/gtest.h>

#include "tessera/v1/gateway.pb.h"

namespace tessera::rpc {
namespace {

TEST(BadMessageTest, AnUntouchedMessageWasTheEnd) {
  v1::UploadImageRequest message;
  message.set_data("of the last read");
  BeforeRead(message);
  EXPECT_TRUE(message.data().empty());
  EXPECT_FALSE(WasBadMessage(message));
}

TEST(BadMessageTest, AParseThatFailedWasABadMessage) {
  v1::UploadImageRequest message;
  // No UTF-8, a cut length, a tag of field 0, an unknown field before it.
  for (const std::string& bytes : {std::string("\x12\x01\xff"), std::string("\x0a\x7f"),
                                   std::string("\0\0", 2), std::string("\x78\x01\x0a\x7f")}) {
    BeforeRead(message);
    EXPECT_FALSE(message.ParseFromString(bytes));
    EXPECT_TRUE(WasBadMessage(message));
  }
}

}  // namespace
}  // namespace tessera::rpc
