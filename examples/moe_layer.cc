// One layer of a Mixture-of-Experts model in C++, on CPUs, verified. Each token goes to two experts, expert e
// multiplies its rows by e + 1, and combine sums them with the router's weights. Run: moerun -n 4 ./moe_layer
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>

#include <moecomm.hpp>

namespace {

constexpr int kTokens = 64, kTopk = 2, kHidden = 128, kExpertsPerRank = 4, kSteps = 3;

// What the model's router says: the experts of each token and their weights, both [tokens][topk].
struct Choice {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
};
Choice drawChoice(int rank, int step, int experts) {
  Choice choice;
  for (int t = 0; t < kTokens; ++t) {
    const int first = (7 * t + 3 * rank + 5 * step) % experts;
    choice.experts.insert(choice.experts.end(), {first, (first + 1 + t % (experts - 1)) % experts});
    choice.weights.insert(choice.weights.end(), {0.75f, 0.25f});
  }
  return choice;
}

class MoeLayer {
 public:
  // The output is window memory, into which peers write. It has room for the most rows that may arrive.
  MoeLayer(const moecomm::Communicator& comm, int experts)
      : arrived_(comm, std::size_t{kTokens} * kTopk * kHidden * static_cast<std::size_t>(comm.info().nranks)),
        handle_(comm, moecomm::HandleConfig(experts, kTopk, moeLayoutExpertMajor)) {}

  void forward(const Choice& choice, const std::vector<float>& rows, std::vector<float>& sums) {
    handle_.route({choice.experts, choice.weights});
    handle_.dispatch({rows, arrived_, kHidden});
    runExperts(handle_.counts());
    moecomm::CombineArgs combine(arrived_, sums, kHidden);
    combine.weights = moeWeightsApply;  // all other fields of moeCombineArgs_t are there too
    handle_.combine(combine);
    handle_.status().require();  // throws if an expert id was bad, with the rank, the token and the value
  }

 private:
  // EXPERT_MAJOR: the rows of each local expert, one group behind the other.
  void runExperts(const moeCounts_t& counts) {
    float* row = arrived_.data();
    for (int e = 0; e < counts.localExperts; ++e) {
      const auto factor = static_cast<float>(counts.firstExpert + e + 1);
      for (int i = 0; i < counts.rowsPerExpert[e] * kHidden; ++i) *row++ *= factor;
    }
  }

  moecomm::WindowMemory<float> arrived_;
  moecomm::Handle handle_;  // ends first: members are destroyed from the last to the first
};

int countWrong(const Choice& choice, const std::vector<float>& rows, const std::vector<float>& sums) {
  int wrong = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::size_t t = i / kHidden * kTopk;
    const auto factor = [&](std::size_t k) { return choice.weights[k] * static_cast<float>(choice.experts[k] + 1); };
    wrong += sums[i] != (factor(t) + factor(t + 1)) * rows[i];  // small numbers: the sums are exact
  }
  return wrong;
}

int run() {
  moecomm::Config config;
  config.backend = moeBackendHost;
  config.tokensMax = kTokens;
  config.heapBytes = 64 << 20;  // for window memory
  const moecomm::Communicator comm = moecomm::Communicator::fromEnv(config);
  const moeCommInfo_t info = comm.info();
  MoeLayer layer(comm, kExpertsPerRank * info.nranks);
  std::vector<float> rows(std::size_t{kTokens} * kHidden), sums(rows.size());
  std::iota(rows.begin(), rows.end(), static_cast<float>(info.rank));
  int wrong = 0;
  for (int step = 0; step < kSteps; ++step) {
    const Choice choice = drawChoice(info.rank, step, kExpertsPerRank * info.nranks);
    layer.forward(choice, rows, sums);
    wrong += countWrong(choice, rows, sums);
  }
  std::printf("rank %d: %d steps, %d elements are wrong\n", info.rank, kSteps, wrong);
  return wrong != 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {  // moecomm::Error, whose sentence names the rank and the cause
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
