#include "client/websocket.h"

#include <gtest/gtest.h>

namespace sublet::client {
namespace {

std::string Frame(int first, std::string_view data) {
  return std::string(1, static_cast<char>(first)) + static_cast<char>(data.size()) +
         std::string(data);
}

TEST(WebSocketFrames, CutsMessagesOutOfAnySplit) {
  const std::string bytes = Frame(0x82, "hello") + Frame(0x89, "p") + Frame(0x02, "a") +
                            Frame(0x80, "b") + Frame(0x88, "");
  WebSocketFrames frames;
  std::vector<std::string> seen;
  for (const char c : bytes) {
    frames.Append({&c, 1});
    for (;;) {
      auto message = frames.Next();
      ASSERT_TRUE(message.ok());
      if (!*message) {
        break;
      }
      seen.push_back(std::to_string(static_cast<int>((*message)->kind)) + (*message)->data);
    }
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"0hello", "1p", "0ab", "3"}));
}

TEST(WebSocketFrames, RefusesMasksReservedBitsAndGiants) {
  for (const std::string& bad :
       {std::string("\xc2\x00", 2), std::string("\x82\x80", 2), std::string("\x80\x01x", 3),
        std::string("\x82\x7f\x00\x00\x00\x01\x00\x00\x00\x00", 10)}) {
    WebSocketFrames frames;
    frames.Append(bad);
    EXPECT_FALSE(frames.Next().ok());
  }
}

TEST(WebSocketFrames, ClientFramesAreMasked) {
  const std::string frame = EncodeClientFrame(2, "ab", 0x01020304);
  EXPECT_EQ(frame, std::string("\x82\x82\x01\x02\x03\x04", 6) + char('a' ^ 1) + char('b' ^ 2));
  EXPECT_EQ(EncodeClientFrame(2, std::string(70000, 'x'), 0).size(), 70000u + 14);
}

}  // namespace
}  // namespace sublet::client
