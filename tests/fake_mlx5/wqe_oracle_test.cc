// Compares every WQE, doorbell record and doorbell that device/queue/mlx5 writes with libmlx5's.
#include <gtest/gtest.h>

#include "fake_mlx5/oracle.h"
#include "fake_mlx5/other_wqes.h"

namespace moe::test {
namespace {

constexpr mlx5::RemoteAddress kRemote = {0x7f00112233445566, 0xa1b2c3d4};

std::vector<std::uint32_t> words(std::size_t count) {
  std::vector<std::uint32_t> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<std::uint32_t>(0x01020304 * (i + 1));
  return result;
}

// One of every kind, and inline data of every length.
std::vector<Request> everyKind(Oracle& oracle) {
  const mlx5::LocalRange row = oracle.local(7168), word = oracle.local(8), large = oracle.local(0x7fffffff);
  std::vector<Request> requests = {
      {.kind = Kind::write, .remote = kRemote, .local = row},
      {.kind = Kind::write, .remote = kRemote, .local = large},
      {.kind = Kind::writeImm, .remote = kRemote, .local = row, .immediate = 0xcafe1234},
      {.kind = Kind::read, .remote = kRemote, .local = row},
      {.kind = Kind::fetchAdd, .remote = kRemote, .local = word, .add = 0x1122334455667788},
      {.kind = Kind::compareSwap, .remote = kRemote, .local = word, .compare = 42, .swap = 0x99aabbccddeeff00},
  };
  for (std::size_t count = 1; count <= mlx5::kInlineWordsMax; ++count) {
    requests.push_back({.kind = Kind::inlineWrite, .remote = kRemote, .words = words(count)});
  }
  return requests;
}

mlx5::Opcode opcodeOf(Kind kind) {
  switch (kind) {
    case Kind::write:
    case Kind::inlineWrite:
      return mlx5::Opcode::rdmaWrite;
    case Kind::writeImm:
      return mlx5::Opcode::rdmaWriteImm;
    case Kind::read:
      return mlx5::Opcode::rdmaRead;
    case Kind::fetchAdd:
      return mlx5::Opcode::fetchAdd;
    case Kind::compareSwap:
      return mlx5::Opcode::compareSwap;
  }
  return mlx5::Opcode::rdmaWrite;
}

void completeLast(Oracle& oracle, std::uint64_t index, Kind kind) {
  mlx5::Completion done{};
  done.opcode = mlx5::CqeOpcode::requester;
  done.wqeOpcode = static_cast<std::uint8_t>(opcodeOf(kind));
  done.counter = static_cast<std::uint16_t>(index);
  oracle.complete(done);
}

void expectNoDifference(const Oracle& oracle) {
  EXPECT_TRUE(oracle.differences().empty())
      << oracle.differences().size() << " differences; the first: " << oracle.differences().front();
}

const char* nameOf(Interface interface) {
  return interface == Interface::postSend ? "PostSend" : "WrBuilder";
}

class WqeOracle : public ::testing::TestWithParam<Interface> {};
INSTANTIATE_TEST_SUITE_P(, WqeOracle, ::testing::Values(Interface::postSend, Interface::wrBuilder),
                         [](const auto& test) { return nameOf(test.param); });

TEST_P(WqeOracle, EveryKindWithEveryFlagHasTheBytesOfLibmlx5) {
  Oracle oracle;
  for (const int flags : {0, +mlx5::kSignalled, +mlx5::kSolicited, +mlx5::kFenced, mlx5::kSignalled | mlx5::kFenced,
                          mlx5::kSignalled | mlx5::kSolicited | mlx5::kFenced}) {
    for (Request& request : everyKind(oracle)) {
      request.flags = static_cast<std::uint8_t>(flags);
      completeLast(oracle, oracle.post(GetParam(), {request}), request.kind);
    }
  }
  expectNoDifference(oracle);
}

TEST_P(WqeOracle, ABatchRingsOnceForAll) {
  Oracle oracle;
  std::vector<Request> batch = everyKind(oracle);
  batch.back().flags = mlx5::kSignalled;
  completeLast(oracle, oracle.post(GetParam(), batch), batch.back().kind);
  expectNoDifference(oracle);
}

// Posts more WQEs than a 16-bit index counts. The ring and the completion queue wrap hundreds of times, and WQEs of two
// slots wrap around the end of the ring.
TEST_P(WqeOracle, NothingDiffersWhenIndexRingAndOwnerBitWrap) {
  constexpr int kRounds = 70'000;
  Oracle oracle;
  std::vector<Request> requests = everyKind(oracle);
  for (Request& request : requests) request.flags = mlx5::kSignalled;
  int across = 0;
  for (int round = 0; round < kRounds && oracle.differences().empty(); ++round) {
    const Request& request = requests[static_cast<std::size_t>(round) % requests.size()];
    const std::uint64_t index = oracle.post(GetParam(), {request}), end = mlx5::endOfWqe(oracle.queue(), index);
    completeLast(oracle, index, request.kind);
    if (end % oracle.queue().slotCount == 1 && end - index == 2) ++across;
  }
  expectNoDifference(oracle);
  EXPECT_GT(across, 100);
  EXPECT_GT(*oracle.queue().completed, 65536u);
}

// ---- The oracle finds planted mistakes

struct Planted {
  Mistake mistake;
  Kind kind;
  const char* name;
};
void PrintTo(const Planted& planted, std::ostream* out) {
  *out << planted.name;
}
class PlantedMistake : public ::testing::TestWithParam<Planted> {};
INSTANTIATE_TEST_SUITE_P(, PlantedMistake,
                         ::testing::Values(Planted{Mistake::segmentCount, Kind::write, "SegmentCount"},
                                           Planted{Mistake::inlineBit, Kind::inlineWrite, "InlineBit"},
                                           Planted{Mistake::operandsSwapped, Kind::compareSwap, "OperandsSwapped"},
                                           Planted{Mistake::immediateOrder, Kind::writeImm, "ImmediateOrder"},
                                           Planted{Mistake::recordWord, Kind::write, "RecordWord"},
                                           Planted{Mistake::doorbellQueuePair, Kind::write, "DoorbellQueuePair"}),
                         [](const auto& test) { return test.param.name; });

TEST_P(PlantedMistake, IsFoundAndNothingElse) {
  for (const Interface interface : {Interface::postSend, Interface::wrBuilder}) {
    for (const Mistake mistake : {Mistake::none, GetParam().mistake}) {
      Oracle oracle;
      for (const Request& request : everyKind(oracle)) {
        if (request.kind != GetParam().kind) continue;
        oracle.post(interface, {request}, mistake);
        break;
      }
      EXPECT_EQ(oracle.differences().size(), mistake == Mistake::none ? 0u : 1u);
    }
  }
}

}  // namespace
}  // namespace moe::test
