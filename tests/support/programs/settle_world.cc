#include "support/programs/settle_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "device/view/settled.h"
#include "support/base/index.h"

namespace moe::test {
namespace {

std::string settleRank(TestComm& comm, int rank, const EndedOperations& ended, const std::vector<int>& lost) {
  std::vector<Flag> words = comm.lastingWords(rank);
  const RemoteLayout* far = comm.shape().domains() > 1 ? &comm.at().far : nullptr;
  SettledWords(words, comm.at(), far, comm.shape(), lost).write(ended);
  const std::string wrong = comm.setLastingWords(rank, words, lost);
  RankMemory& memory = comm.rank(rank);
  memory.state = settledState(ended, lost);
  for (const ToldArea& area : toldAreas(comm.at(), comm.nranks(), comm.shape().llSets)) {
    if (!lost.empty()) comm.clear(rank, area.begin, area.begin + area.bytes);
  }
  memory.failure = Failure{};
  memory.orders.abort = 0;
  // Ranks whose programs had ended have not left. They wait for the others to recover.
  std::fill(memory.departed.begin(), memory.departed.end(), 0u);
  return wrong.empty() ? "" : fmt::format("in a recovery {}; ", wrong);
}

void settleHandle(TestHandle& handle, int rank) {
  const HandleView view = handle.view(rank);
  const int tokensMax = handle.shape().tokensMax;
  *view.state = voidedState(*view.state);
  Failure why{};
  why.ready = view.state->faults;
  why.fault = kVoidRoute.fault;
  why.peer = kVoidRoute.culprit;
  *view.fault = why;
  handle.setTokensBound(rank, tokensMax);
  emptyRoute(view, tokensMax, [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); });
  if (!handle.shape().arrivals) return;
  const std::span words(view.arriving.complete, at(handle.shape().map.count(rank)));
  settleArrivals(words);
  handle.setDispatches(rank, words.empty() ? 0 : flagEpoch(words[0]));
}

}  // namespace

std::string settleWorld(Scenario& world) {
  TestComm& comm = *world.comm;
  std::vector<EndedOperations> ended;
  std::vector<int> alive;
  for (int r = 0; r < comm.nranks(); ++r) {
    if (!world.isLost(r)) alive.push_back(r);
  }
  for (const int r : alive) ended.push_back(endedOf(comm.rank(r).state));
  const EndedOperations all = beyond(ended);
  std::string wrong;
  for (const int r : alive) {
    wrong += settleRank(comm, r, all, world.lost);
    for (const auto& handle : world.handles) settleHandle(*handle, r);
    if (comm.lastingWords(r) != comm.lastingWords(alive[0]))
      wrong += fmt::format("rank {} recovers with other words; ", r);
  }
  comm.setLost(world.lost);
  world.areas->clear();
  return wrong;
}

}  // namespace moe::test
