// A small seeded random generator. One seed gives the same numbers on every machine and with every standard library.
#pragma once

#include <cstdint>

namespace moe::test {

// One round of SplitMix64: a good hash of a 64-bit number.
constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  return mix(mix(a) ^ b);
}

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(mix(seed)) {}

  std::uint64_t next() { return mix(state_++); }

  // From 0 to n - 1.
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  // From `first` to `last`, inclusive.
  int between(int first, int last) { return first + below(last - first + 1); }
  bool oneIn(int n) { return below(n) == 0; }
  bool coin() { return oneIn(2); }

 private:
  std::uint64_t state_;
};

}  // namespace moe::test
