#include <gtest/gtest.h>

#include "base/error.h"
#include "bootstrap/net/frame.h"

namespace moe::test {
namespace {

using namespace bootstrap;
constexpr FrameMask kAll = ~FrameMask{0};

std::vector<std::uint8_t> patched(std::size_t at, std::uint8_t value) {
  auto bytes = encodeFrame(FrameType::gather, 3, std::vector<std::uint8_t>{1, 2, 3}, 9);
  bytes[at] = value;
  return bytes;
}

TEST(Frame, ComesOutAsItWentIn) {
  const std::vector<std::uint8_t> payload = {5, 6, 7};
  FrameParser parser(kAll);
  parser.feed(encodeFrame(FrameType::gather, 65535, payload, 0xabcd));
  parser.feed(encodeFrame(FrameType::goodbye, 4));
  const auto first = parser.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->type, FrameType::gather);
  EXPECT_EQ(first->rank, 65535U);
  EXPECT_EQ(first->sequence, 0xabcd);
  EXPECT_EQ(std::vector<std::uint8_t>(first->payload.begin(), first->payload.end()), payload);
  const auto second = parser.next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->type, FrameType::goodbye);
  EXPECT_TRUE(second->payload.empty());
  EXPECT_FALSE(parser.next());
  EXPECT_FALSE(parser.broken());
}

TEST(Frame, ArrivesByteByByte) {
  const auto bytes = encodeFrame(FrameType::gather, 1, std::vector<std::uint8_t>(100, 42));
  FrameParser parser(kAll);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(parser.next()) << i;
    parser.feed(std::span(bytes).subspan(i, 1));
  }
  EXPECT_TRUE(parser.frameReady());
  EXPECT_TRUE(parser.next());
}

TEST(Frame, WithAnythingWrongInItsHeaderBreaksTheStreamForGood) {
  struct Case {
    std::size_t at;
    std::uint8_t value;
    const char* complaint;
  };
  for (const Case& c : {Case{0, 0, "protocol"},
                        {4, 0, "type 0"},
                        {4, 25, "type 25"},
                        {4, 255, "type 255"},
                        {5, 1, "version 1"},
                        {11, 2, "bytes"},
                        {14, 1, "rank 65539"}}) {
    FrameParser parser(kAll);
    parser.feed(patched(c.at, c.value));
    EXPECT_FALSE(parser.next());
    EXPECT_TRUE(parser.broken());
    EXPECT_NE(parser.complaint().find(c.complaint), std::string::npos) << parser.complaint();
    parser.feed(encodeFrame(FrameType::goodbye, 0));
    EXPECT_FALSE(parser.next());
  }
}

TEST(Frame, OfATypeThatIsNotAcceptedBreaksTheStream) {
  FrameParser parser(maskOf(FrameType::goodbye));
  parser.feed(encodeFrame(FrameType::gather, 0));
  EXPECT_FALSE(parser.next());
  EXPECT_TRUE(parser.broken());
}

TEST(Frame, OfWrongLengthIsRefusedBeforeItsBodyComes) {
  auto header = encodeFrame(FrameType::failure, 0, std::vector<std::uint8_t>(4));
  header.resize(kFrameHeaderBytes);
  for (const std::uint32_t length : {0U, 3U, 1029U, 0xffffffffU}) {
    for (unsigned i = 0; i < 4; ++i) header[8 + i] = static_cast<std::uint8_t>(length >> 8 * i);
    FrameParser parser(kAll);
    parser.feed(header);
    EXPECT_FALSE(parser.next());
    EXPECT_TRUE(parser.broken()) << length;
    EXPECT_EQ(parser.heldBytes(), 0U);
  }
}

TEST(Frame, TooLargeOrTooSmallIsNotMade) {
  EXPECT_THROW(encodeFrame(FrameType::gather, 0, std::vector<std::uint8_t>(kPayloadBytesMax + 1)), Error);
  EXPECT_THROW(encodeFrame(FrameType::hello, 0), Error);
  EXPECT_EQ(encodeFrame(FrameType::gather, 0, std::vector<std::uint8_t>(kPayloadBytesMax)).size(),
            kPayloadBytesMax + kFrameHeaderBytes);
}

}  // namespace
}  // namespace moe::test
