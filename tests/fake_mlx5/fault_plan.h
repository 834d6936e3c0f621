// Which mishaps the software adapter is to have: from the environment variable FAKE_MLX5_FAULTS, words with blanks
// between.
//
//   seed=7                 of all chances; the process's number goes in as well
//   drop=50                5 % of the packets get lost; drop@3: the third one
//   duplicate=, delay=     are sent twice; wait up to a millisecond, and what follows of the same queue pair with them
//   reorder=               wait until a packet of another queue pair has overtaken them
//   rnr=                   messages answered with "receiver not ready"
//   nak=                   messages refused, as if the remote key were wrong
//   slow_cqe=              completions that come up to a millisecond late
//   error=0x13@100         the hundredth message fails at the sender, with this syndrome
//   ignore_doorbell=1      so many doorbells go unnoticed; the record is looked at later
//   stuck@5                from the fifth message on, nothing is answered
#pragma once

#include <cstdint>
#include <string>

#include "device/queue/mlx5/syndrome.h"
#include "support/rng.h"

namespace moe::test {

enum class Fault { drop, duplicate, delay, reorder, rnr, nak, slowCqe, error, ignoreDoorbell, stuck };
inline constexpr int kFaultCount = 10;
const char* faultName(Fault fault);

class FaultPlan {
 public:
  // Throws std::runtime_error at what it does not understand.
  FaultPlan(const std::string& text, std::uint32_t process);

  // Counts one event of this kind; true if the mishap is to happen to it.
  bool strikes(Fault fault);
  std::uint64_t happened(Fault fault) const { return rule(fault).happened; }

  mlx5::Syndrome errorSyndrome() const { return syndrome_; }
  // Less than `bound`.
  std::uint64_t random(std::uint64_t bound) { return rng_.next() % bound; }

 private:
  struct Rule {
    std::uint32_t perMille = 0;
    std::uint64_t at = 0;     // the event's number, from 1; 0: none
    std::uint64_t first = 0;  // so many events from the beginning
    bool onwards = false;     // and all after `at`
    std::uint64_t events = 0, happened = 0;
  };
  Rule& rule(Fault fault) { return rules_[static_cast<int>(fault)]; }
  const Rule& rule(Fault fault) const { return rules_[static_cast<int>(fault)]; }
  void readWord(const std::string& word);

  Rule rules_[kFaultCount];
  mlx5::Syndrome syndrome_ = mlx5::Syndrome::none;
  std::uint64_t seed_ = 1;
  Rng rng_{1};
};

}  // namespace moe::test
