#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "base/sized_struct.h"

namespace moe::test {
namespace {

// The struct of this library, and those of programs built with an older and with a newer header.
struct Now {
  std::size_t size;
  std::int32_t first;
  std::int32_t second;
  std::int64_t third;
};
struct Older {
  std::size_t size;
  std::int32_t first;
  std::int32_t second;
};
struct Newer {
  std::size_t size;
  std::int32_t first;
  std::int32_t second;
  std::int64_t third;
  std::int64_t fourth;
};
constexpr Now kDefaults = {sizeof(Now), 0, -1, 30};

template <class Other>
const Now* asNow(const Other& other) {
  return reinterpret_cast<const Now*>(&other);
}

std::string refusal(const Now* user) {
  try {
    readStruct(user, "args", kDefaults);
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(SizedStruct, TakesAStructOfThisVersionAsItIs) {
  const Now user = {sizeof(Now), 1, 2, 3};
  const Now read = readStruct(&user, "args", kDefaults);
  EXPECT_EQ(read.first, 1);
  EXPECT_EQ(read.second, 2);
  EXPECT_EQ(read.third, 3);
}

TEST(SizedStruct, GivesAnOlderCallerTheDefaultsOfFieldsThatItLacks) {
  const Older user = {sizeof(Older), 1, 2};
  const Now read = readStruct(asNow(user), "args", kDefaults);
  EXPECT_EQ(read.size, sizeof(Now));
  EXPECT_EQ(read.second, 2);
  EXPECT_EQ(read.third, 30);
}

TEST(SizedStruct, TakesANewerCallersStructIfItsUnknownTailIsZero) {
  const Newer user = {sizeof(Newer), 1, 2, 3, 0};
  const Now read = readStruct(asNow(user), "args", kDefaults);
  EXPECT_EQ(read.size, sizeof(Now));
  EXPECT_EQ(read.third, 3);
}

TEST(SizedStruct, RefusesANewerCallersStructThatUsesAnUnknownField) {
  const Newer user = {sizeof(Newer), 1, 2, 3, std::int64_t{1} << 56};
  EXPECT_NE(refusal(asNow(user)).find("args is newer than this library (32 > 24 bytes)"), std::string::npos);
}

TEST(SizedStruct, RefusesNullAndSizesThatNoStructCanHave) {
  EXPECT_EQ(refusal(nullptr), "args is NULL");
  for (const std::size_t size : {std::size_t{0}, std::size_t{4}, std::size_t{21}, std::size_t{1} << 20}) {
    const Now user = {size, 1, 2, 3};
    EXPECT_NE(refusal(&user).find("args.size is " + std::to_string(size)), std::string::npos);
  }
}

TEST(SizedStruct, NeverWritesPastAnOlderCallersStruct) {
  struct {
    Older user;
    std::array<std::uint8_t, 16> behind;
  } memory = {{sizeof(Older), 0, 0}, {}};
  memory.behind.fill(0xab);
  writeStruct(reinterpret_cast<Now*>(&memory.user), Now{sizeof(Now), 1, 2, 3});
  EXPECT_EQ(memory.user.size, sizeof(Older));
  EXPECT_EQ(memory.user.first, 1);
  EXPECT_EQ(memory.user.second, 2);
  for (const std::uint8_t byte : memory.behind) EXPECT_EQ(byte, 0xab);
}

TEST(SizedStruct, LeavesFieldsOfANewerCallerThatItDoesNotKnow) {
  Newer user = {sizeof(Newer), 0, 0, 0, 44};
  writeStruct(reinterpret_cast<Now*>(&user), Now{sizeof(Now), 1, 2, 3});
  EXPECT_EQ(user.size, sizeof(Newer));
  EXPECT_EQ(user.third, 3);
  EXPECT_EQ(user.fourth, 44);
}

TEST(SizedStruct, RefusesToFillAStructWhoseSizeWasNotSet) {
  Now user = {0, 0, 0, 0};
  EXPECT_THROW(writeStruct(&user, kDefaults), Error);
  EXPECT_THROW(writeStruct(static_cast<Now*>(nullptr), kDefaults), Error);
  EXPECT_EQ(user.second, 0);
}

}  // namespace
}  // namespace moe::test
