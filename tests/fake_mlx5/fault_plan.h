// The mishaps that the software adapter is to have. They come from the environment variable FAKE_MLX5_FAULTS, as words
// separated by blanks.
//
//   seed=7                 seeds all random choices, together with the process's number
//   drop=50                5 % of the packets get lost; drop@3: the third one
//   duplicate=             packets are sent twice
//   delay=                 packets wait up to a millisecond, and later ones of the same queue pair wait with them
//   reorder=               packets wait until one of another queue pair has overtaken them
//   rnr=                   messages are answered with "receiver not ready"
//   nak=                   messages are refused, as if the remote key were wrong
//   slow_cqe=              completions come up to a millisecond late
//   error=0x13@100         the hundredth message fails at the sender, with this syndrome
//   ignore_doorbell=1      this many doorbells go unnoticed; the adapter reads the record later
//   stuck@5                from the fifth message on, nothing is answered
#pragma once

#include <cstdint>
#include <string>

#include "device/queue/mlx5/completion_queue.h"
#include "support/base/rng.h"

namespace moe::test {

enum class Fault { drop, duplicate, delay, reorder, rnr, nak, slowCqe, error, ignoreDoorbell, stuck };
inline constexpr int kFaultCount = 10;
const char* faultName(Fault fault);

class FaultPlan {
 public:
  // Throws std::runtime_error for text that it does not understand.
  FaultPlan(const std::string& text, std::uint32_t process);

  // Counts one event of this kind. Returns true if the mishap is to hit it.
  bool strikes(Fault fault);
  std::uint64_t happened(Fault fault) const { return rule(fault).happened; }

  mlx5::Syndrome errorSyndrome() const { return syndrome_; }
  // Returns a number below `bound`.
  std::uint64_t random(std::uint64_t bound) { return rng_.next() % bound; }

 private:
  struct Rule {
    std::uint32_t perMille = 0;
    std::uint64_t at = 0;     // number of the event, from 1; 0: none
    std::uint64_t first = 0;  // hits this many events from the start
    bool onwards = false;     // hits all events after `at` too
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
