#include "fake_mlx5/fault_plan.h"

#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace moe::test {
namespace {

constexpr const char* kNames[kFaultCount] = {"drop", "duplicate", "delay", "reorder",         "rnr",
                                             "nak",  "slow_cqe",  "error", "ignore_doorbell", "stuck"};

std::uint64_t numberOf(const std::string& text, const std::string& word) {
  char* end = nullptr;
  const std::uint64_t number = std::strtoull(text.c_str(), &end, 0);
  if (text.empty() || *end != 0) throw std::runtime_error("FAKE_MLX5_FAULTS: no number in \"" + word + "\"");
  return number;
}

}  // namespace

const char* faultName(Fault fault) {
  return kNames[static_cast<int>(fault)];
}

FaultPlan::FaultPlan(const std::string& text, std::uint32_t process) {
  std::istringstream words(text);
  for (std::string word; words >> word;) readWord(word);
  rng_ = Rng(mix(seed_, process));
}

void FaultPlan::readWord(const std::string& word) {
  const std::size_t sign = word.find_first_of("=@");
  const std::string name = word.substr(0, sign), value = sign == std::string::npos ? "" : word.substr(sign + 1);
  if (name == "seed") {
    seed_ = numberOf(value, word);
    return;
  }
  int index = 0;
  while (index < kFaultCount && name != kNames[index]) ++index;
  if (index == kFaultCount) throw std::runtime_error("FAKE_MLX5_FAULTS: nothing is called \"" + name + "\"");
  Rule& chosen = rules_[index];
  const auto fault = static_cast<Fault>(index);
  chosen.onwards = fault == Fault::stuck;
  if (fault == Fault::error) {
    const std::size_t at = value.find('@');
    if (at == std::string::npos) throw std::runtime_error("FAKE_MLX5_FAULTS: error=SYNDROME@NUMBER, not " + word);
    syndrome_ = static_cast<mlx5::Syndrome>(numberOf(value.substr(0, at), word));
    chosen.at = numberOf(value.substr(at + 1), word);
  } else if (word[sign] == '@') {
    chosen.at = numberOf(value, word);
  } else if (fault == Fault::ignoreDoorbell) {
    chosen.first = numberOf(value, word);
  } else {
    chosen.perMille = static_cast<std::uint32_t>(numberOf(value, word));
  }
}

bool FaultPlan::strikes(Fault fault) {
  Rule& r = rule(fault);
  const std::uint64_t event = ++r.events;
  const bool struck = (r.at != 0 && (event == r.at || (r.onwards && event > r.at))) || event <= r.first ||
                      (r.perMille != 0 && random(1000) < r.perMille);
  r.happened += struck;
  return struck;
}

}  // namespace moe::test
