// The host backend's route beside a hand-written one for one thread. Both make the same tables from the same entries,
// but the second one has no windows, flags, waves or domains. Their ratio in one run is the price of generality.
#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/lanes.h"
#include "device/view/views.h"
#include "moecomm.h"
#include "perf/host_bench/host_bench.h"

namespace moe::perf {
namespace {

constexpr int kTokens = 1024, kExperts = 32, kTopk = 8;

// Draws the same experts on every run.
std::vector<std::int32_t> drawExperts() {
  std::vector<std::int32_t> ids;
  std::uint32_t state = 1;
  for (int token = 0; token < kTokens; ++token) {
    const auto begin = static_cast<std::ptrdiff_t>(ids.size());
    while (static_cast<std::ptrdiff_t>(ids.size()) < begin + kTopk) {
      state = state * 1664525u + 1013904223u;
      const auto expert = static_cast<std::int32_t>((state >> 8) % kExperts);
      if (std::find(ids.begin() + begin, ids.end(), expert) == ids.end()) ids.push_back(expert);
    }
  }
  return ids;
}

// The hand-written route of one rank among several, FLAT. It counts and checks entries, writes each token's
// destinations with a header for each, and keeps as many headers as it has sent.
class HandWritten {
 public:
  explicit HandWritten(int ranks)
      : ranks_(ranks),
        perRank_(kExperts / ranks),
        ids_(kTokens * kTopk),
        weights_(kTokens * kTopk),
        counts_(kExperts),
        rows_(size(ranks)),
        seen_(size(ranks)),
        entries_(size(ranks)),
        heads_(size(ranks)),
        destinations_(size(kTokens * std::min(kTopk, ranks))),
        sent_(size(ranks * kTokens * (1 + kTopk))),
        kept_(sent_.size()) {}

  void route(const std::int32_t* topkIdx, const float* topkWeights) {
    count(topkIdx, topkWeights);
    place();
    keep();
  }
  int rowsOf(int rank) const { return rows_[size(rank)]; }

 private:
  static std::size_t size(int n) { return static_cast<std::size_t>(n); }

  void count(const std::int32_t* topkIdx, const float* topkWeights) {
    std::fill(counts_.begin(), counts_.end(), 0);
    std::fill(rows_.begin(), rows_.end(), 0);
    std::fill(seen_.begin(), seen_.end(), -1);
    for (int token = 0; token < kTokens; ++token) {
      for (int k = 0; k < kTopk; ++k) {
        const std::size_t entry = size(token * kTopk + k);
        const int expert = topkIdx[entry];
        if (expert < -1 || expert >= kExperts) throw std::runtime_error("an entry names an expert that does not exist");
        ids_[entry] = expert;
        weights_[entry] = topkWeights[entry];
        if (expert < 0) continue;
        ++counts_[size(expert)];
        const std::size_t rank = size(expert / perRank_);
        if (seen_[rank] == token) continue;
        seen_[rank] = token;
        ++rows_[rank];
      }
    }
  }

  void place() {
    std::fill(seen_.begin(), seen_.end(), -1);
    std::fill(rows_.begin(), rows_.end(), 0);
    Destination* to = destinations_.data();
    for (int token = 0; token < kTokens; ++token) {
      const Destination* first = to;
      for (int k = 0; k < kTopk; ++k) {
        const std::size_t entry = size(token * kTopk + k);
        if (ids_[entry] < 0) continue;
        const int rank = ids_[entry] / perRank_;
        const std::size_t at = size(rank);
        if (seen_[at] != token) {
          seen_[at] = token;
          const int index = rows_[at]++;
          heads_[at] = &sent_[size((rank * kTokens + index) * (1 + kTopk))];
          entries_[at] = 0;
          *to++ = {static_cast<std::int16_t>(rank), 0, index, index, index};
        }
        std::uint32_t weight;
        std::memcpy(&weight, &weights_[entry], sizeof weight);
        heads_[at][++entries_[at]] = {static_cast<std::uint32_t>(ids_[entry] - rank * perRank_),
                                      static_cast<std::uint32_t>(k), weight, 0};
      }
      for (const Destination* row = first; row != to; ++row) {
        const std::size_t at = size(row->rank);
        *heads_[at] = {static_cast<std::uint32_t>(token), 0, 0, static_cast<std::uint32_t>(entries_[at])};
      }
    }
  }

  void keep() {
    Quad* to = kept_.data();
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int row = 0; row < rows_[size(rank)]; ++row, to += 1 + kTopk) {
        const Quad* from = &sent_[size((rank * kTokens + row) * (1 + kTopk))];
        std::copy(from, from + 1 + from->w, to);
      }
    }
  }

  int ranks_, perRank_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
  std::vector<int> counts_, rows_, seen_, entries_;
  std::vector<Quad*> heads_;
  std::vector<Destination> destinations_;
  std::vector<Quad> sent_, kept_;
};

void routeByHand(benchmark::State& state, int ranks) {
  const std::vector<std::int32_t> ids = drawExperts();
  const std::vector<float> weights(ids.size(), 0.125f);
  HandWritten route(ranks);
  for (auto _ : state) {
    route.route(ids.data(), weights.data());
    benchmark::DoNotOptimize(route.rowsOf(0));
    benchmark::ClobberMemory();
  }
}

struct Leave {
  void operator()(moeComm_t comm) const { moeCommDestroy(comm); }
};

// The library's route with one rank, on one thread like the other.
void routeByLibrary(benchmark::State& state) {
  const auto need = [](moeResult_t result) {
    if (result != moeSuccess) throw std::runtime_error(moeGetLastError(nullptr));
  };
  const std::vector<std::int32_t> ids = drawExperts();
  const std::vector<float> weights(ids.size(), 0.125f);
  moeUniqueId_t id;
  need(moeGetUniqueId(&id));
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  config.backend = moeBackendHost;
  config.modes = moeModeHt;
  config.tokensMax = kTokens;
  config.rowBytesMax = 16;
  moeComm_t comm = nullptr;
  need(moeCommInit(&comm, 1, 0, &id, &config));
  const std::unique_ptr<moeComm, Leave> leave(comm);
  moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
  shape.experts = kExperts;
  shape.topk = kTopk;
  shape.mode = moeModeHt;
  shape.tokensMax = kTokens;
  moeHandle_t handle = nullptr;
  need(moeHandleCreate(&handle, comm, &shape));
  for (auto _ : state) need(moeRoute(handle, ids.data(), weights.data(), kTokens, nullptr));
}

}  // namespace

void addRouteBenchmarks() {
  const auto add = [](const std::string& name, const std::function<void(benchmark::State&)>& body) {
    benchmark::RegisterBenchmark(name.c_str(), [body](benchmark::State& state) {
      runGuarded(state, [&] { body(state); });
    })->Unit(benchmark::kMicrosecond);
  };
  add("Route1024/byHand", [](benchmark::State& state) { routeByHand(state, 1); });
  add("Route1024/byHandFor2Ranks", [](benchmark::State& state) { routeByHand(state, 2); });
  add("Route1024/byLibrary", routeByLibrary);
}

}  // namespace moe::perf
