#include "common/rpc/trace/trace_context.h"

#include <gtest/gtest.h>

#include "common/base/digest.h"

namespace tessera::rpc {
namespace {

constexpr char kGood[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContextTest, ACallersHeaderIsRead) {
  const auto trace = ParseTraceparent(kGood);
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(base::ToHex(trace->trace_id), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(base::ToHex(trace->span_id), "b7ad6b7169203331");
  EXPECT_TRUE(trace->sampled);
  EXPECT_EQ(ToTraceparent(*trace), kGood);
  // Of the flags one is known.
  EXPECT_FALSE(
      ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-fe")->sampled);
}

TEST(TraceContextTest, LaterVersionsAreReadAsFarAsTheyAreKnown) {
  EXPECT_TRUE(ParseTraceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
  EXPECT_TRUE(ParseTraceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"));
  EXPECT_FALSE(ParseTraceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more"));
}

TEST(TraceContextTest, WhatIsNoneBeginsANewTrace) {
  const char* const bad[] = {"",
                             "x",
                             "00-ab-cd-01",
                             "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
                             "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
                             "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
                             "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                             "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
                             "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                             "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                             "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                             "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01",
                             "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331_01",
                             "0x-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"};
  for (const char* text : bad) {
    EXPECT_FALSE(ParseTraceparent(text).has_value()) << text;
    const TraceContext trace = BeginSpan(text, true);
    EXPECT_EQ(trace.trace_id.size(), 16u);
    EXPECT_EQ(trace.span_id.size(), 8u);
    EXPECT_TRUE(trace.parent_id.empty());
    EXPECT_TRUE(trace.sampled);
    EXPECT_FALSE(BeginSpan(text, false).sampled);
    EXPECT_TRUE(ParseTraceparent(ToTraceparent(trace)).has_value());
  }
}

TEST(TraceContextTest, AHopIsASpanOfItsCallersTrace) {
  const TraceContext hop = BeginSpan(kGood, false), other = BeginSpan(kGood, false);
  EXPECT_EQ(base::ToHex(hop.trace_id), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(base::ToHex(hop.parent_id), "b7ad6b7169203331");
  EXPECT_NE(hop.span_id, hop.parent_id);
  EXPECT_NE(hop.span_id, other.span_id);
  EXPECT_TRUE(hop.sampled);
  // What the caller does not keep is not kept.
  EXPECT_FALSE(BeginSpan("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", true).sampled);
}

}  // namespace
}  // namespace tessera::rpc
