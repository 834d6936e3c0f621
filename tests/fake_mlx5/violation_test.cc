// Tests that the software adapter finds posters' mistakes. Without them, tests on it would prove little.
#include <gtest/gtest.h>

#include "fake_mlx5/endpoint.h"

namespace moe::test {
namespace {

// A poster whose steps the test can make in any order.
class BadPoster {
 public:
  BadPoster() { adapter_.connect(0x41, 0x42); }

  const mlx5::SendQueue& queue() const { return sender_.queue(); }
  mlx5::WqeHead head(std::uint64_t index) const { return mlx5::headAt(queue(), index, mlx5::kSignalled); }
  mlx5::Wqe<3> flag(std::uint64_t index) const {
    return mlx5::inlineWrite(head(index), {reinterpret_cast<std::uintptr_t>(&word_), key_}, mlx5::inlineFlag(7));
  }
  Quad* write(std::uint64_t index) const {
    mlx5::writeWqe(HostQueueMemory(), queue(), index, flag(index));
    return mlx5::segmentAt(queue(), index, 0);
  }
  void record(std::uint64_t end) const { HostQueueMemory().storeRecord(queue().record + 1, mlx5::sendRecord(end)); }
  void ring(std::uint64_t end) const {
    HostQueueMemory().ring(queue().doorbell, mlx5::doorbellValue(queue().queuePair, end));
  }
  void tell(std::uint64_t end) const { record(end), ring(end); }
  void step() { adapter_.step(); }  // takes a doorbell, or executes a WQE
  void post(std::uint64_t index) {
    write(index);
    tell(index + 1);
    step(), step();
  }
  std::string violations() const {
    std::string all;
    for (const std::string& violation : adapter_.violations()) all += violation + "\n";
    return all;
  }

 private:
  SoftAdapter adapter_{1};
  Endpoint sender_{adapter_, 0x41, 4, 4}, receiver_{adapter_, 0x42, 4, 4};
  alignas(8) std::uint64_t word_ = 0;
  std::uint32_t key_ = adapter_.registerMemory(&word_, sizeof(word_), kRemoteWrite);
};

// Posts one WQE after `change(its segments)`.
template <class Change>
void postChanged(BadPoster& poster, Change change) {
  change(poster.write(0));
  poster.tell(1);
  poster.step(), poster.step();
}

constexpr std::uint32_t big(std::uint32_t value) {
  return mlx5::bigEndian(value);
}

struct Case {
  const char* name;
  const char* violation;  // part of the expected report; "" for none
  void (*act)(BadPoster&);
};

constexpr Case kCases[] = {
    {"Nothing", "", [](BadPoster& p) { p.post(0), p.post(1); }},
    {"DoorbellBeforeRecord", "before its record",
     [](BadPoster& p) {
       p.write(0);
       p.ring(1);
       p.step();
     }},
    {"RecordOfTheReceiveQueue", "before its record",
     [](BadPoster& p) {
       p.write(0);
       HostQueueMemory().storeRecord(p.queue().record, mlx5::sendRecord(1));
       p.ring(1);
       p.step();
     }},
    {"DoorbellOfAnotherQueuePair", "the doorbell names another",
     [](BadPoster& p) {
       p.write(0);
       p.record(1);
       HostQueueMemory().ring(p.queue().doorbell, mlx5::doorbellValue(0x99, 1));
       p.step();
     }},
    {"DoorbellBeforeWqe", "index is not that of its slot",
     [](BadPoster& p) {
       for (std::uint64_t i = 0; i < 3; ++i) p.post(i);
       p.write(3);
       p.tell(5);  // slot 4 still holds WQE 0, executed long ago
       for (int i = 0; i < 3; ++i) p.step();
     }},
    {"WqeWrittenAfterTheDoorbell", "changed after the doorbell",
     [](BadPoster& p) {
       Quad* segment = p.write(0);
       p.tell(1);
       p.step();
       segment[2].y ^= 1;
       p.step();
     }},
    {"MoreThanTheRingHolds", "more is posted than the queue holds",
     [](BadPoster& p) {
       for (std::uint64_t i = 0; i < 5; ++i) p.write(i);
       p.tell(5);
       p.step();
     }},
    {"RecordGoesBack", "the record went back",
     [](BadPoster& p) {
       p.post(0), p.post(1);
       p.tell(1);
       p.step();
     }},
    {"CompletionsThatNobodyTakes", "completion queue overran",
     [](BadPoster& p) {
       for (std::uint64_t i = 0; i < 5; ++i) p.post(i);
     }},
    {"WrongIndex", "index is not that of its slot",
     [](BadPoster& p) { postChanged(p, [](Quad* s) { s[0].x ^= big(1u << 8); }); }},
    {"WrongQueuePair", "names another queue pair",
     [](BadPoster& p) { postChanged(p, [](Quad* s) { s[0].y ^= big(1u << 8); }); }},
    {"WrongLength", "does not fit the inline data",
     [](BadPoster& p) { postChanged(p, [](Quad* s) { s[0].y += big(1); }); }},
    {"UnknownOpcode", "opcode that is not for use",
     [](BadPoster& p) { postChanged(p, [](Quad* s) { s[0].x ^= big(0x40); }); }},
    {"OddCompletion", "no such way of completing",
     [](BadPoster& p) { postChanged(p, [](Quad* s) { s[0].z ^= big(1u << 2); }); }},
    {"ImmediateOfAWrite", "an immediate that nobody gets",
     [](BadPoster& p) { postChanged(p, [](Quad* s) { s[0].w = 1; }); }},
    {"ReservedWord", "reserved word behind the remote key",
     [](BadPoster& p) { postChanged(p, [](Quad* s) { s[1].w = 1; }); }},
};

class Violation : public ::testing::TestWithParam<Case> {};
void PrintTo(const Case& planted, std::ostream* out) {
  *out << planted.name;
}
INSTANTIATE_TEST_SUITE_P(, Violation, ::testing::ValuesIn(kCases), [](const auto& test) { return test.param.name; });

TEST_P(Violation, IsNoted) {
  BadPoster poster;
  GetParam().act(poster);
  const std::string violations = poster.violations(), expected = GetParam().violation;
  if (expected.empty()) {
    EXPECT_EQ(violations, "");
  } else {
    EXPECT_NE(violations.find(expected), std::string::npos) << violations;
  }
}

}  // namespace
}  // namespace moe::test
