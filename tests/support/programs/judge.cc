// Judges whether a scenario ended as it must.
#include <fmt/format.h>

#include "support/programs/scenario.h"

namespace moe::test {
namespace {

std::string describe(int rank, const Ending& ending) {
  const Failure& f = ending.failure;
  if (ending.finished) return fmt::format("rank {} finished", rank);
  return fmt::format("rank {} ended with fault {} phase {} peer {} index {} expected {} actual {}", rank,
                     static_cast<int>(f.fault), static_cast<int>(f.phase), f.peer, f.index, f.expected, f.actual);
}

std::string expectFault(const std::vector<Ending>& endings, int rank, Fault fault) {
  const Ending& ending = endings[static_cast<std::size_t>(rank)];
  if (!ending.finished && ending.failure.ready != 0 && ending.failure.fault == fault) return {};
  return describe(rank, ending) + fmt::format(" instead of fault {}; ", static_cast<int>(fault));
}

// Every rank looks at all ranks. The culprit names any other rank. In LL combines across domains, a rank may fail
// because another rank, which looked first, has ended.
std::string judgeDisagreement(Scenario& world, const std::vector<Ending>& endings) {
  const bool spreads = world.trouble == Trouble::rowSize && world.comm->shape().domains() > 1;
  std::string wrong;
  for (int r = 0; r < static_cast<int>(endings.size()); ++r) {
    if (spreads) {
      const bool finished = endings[static_cast<std::size_t>(r)].finished;
      wrong +=
          finished ? describe(r, endings[static_cast<std::size_t>(r)]) + "; " : followBlame(endings, r, world.culprit);
      continue;
    }
    wrong += expectFault(endings, r, Fault::disagreement);
    const int named = endings[static_cast<std::size_t>(r)].failure.peer;
    if ((r == world.culprit) == (named == world.culprit))
      wrong += describe(r, endings[static_cast<std::size_t>(r)]) + "; ";
  }
  return wrong;
}

// The rank whose rows are not made names these rows itself. Some of the other ranks wait for it.
std::string judgeUnready(const Scenario& world, const std::vector<Ending>& endings) {
  std::string wrong;
  for (int r = 0; r < static_cast<int>(endings.size()); ++r) {
    const Ending& ending = endings[static_cast<std::size_t>(r)];
    if (r != world.culprit) {
      if (!ending.finished) wrong += followBlame(endings, r, world.culprit);
      continue;
    }
    const Failure& f = ending.failure;
    const bool named = f.phase == Phase::expertRows && f.peer == r && f.index == world.missingWord;
    if (ending.finished || f.fault != Fault::timeout || !named)
      wrong += describe(r, ending) + fmt::format(" and not with word {:#x}; ", world.missingWord);
  }
  return wrong;
}

std::string judgeEndings(Scenario& world, const std::vector<Ending>& endings) {
  if (world.trouble == Trouble::unready) return judgeUnready(world, endings);
  if (world.trouble != Trouble::none) return judgeDisagreement(world, endings);
  std::string wrong;
  for (std::size_t r = 0; r < endings.size(); ++r) {
    if (!endings[r].finished) wrong += describe(static_cast<int>(r), endings[r]) + "; ";
  }
  return wrong;
}

}  // namespace

std::string Scenario::findStrayWrite() const {
  std::string stray = comm->findStrayWrite();
  for (const auto& handle : handles) stray += handle->findStrayWrite();
  return stray;
}

std::string followBlame(const std::vector<Ending>& endings, int rank, int cause) {
  int at = rank;
  for (std::size_t hops = 0; hops < endings.size() && at != cause; ++hops) {
    const Ending& ending = endings[static_cast<std::size_t>(at)];
    if (ending.failure.ready == 0 || ending.failure.fault == Fault::none) break;
    at = ending.failure.peer;
  }
  if (at == cause) return {};
  return describe(rank, endings[static_cast<std::size_t>(rank)]) +
         fmt::format(", which does not lead to rank {}; ", cause);
}

std::string judge(Scenario& world, const std::vector<Ending>& endings) {
  std::string wrong = judgeEndings(world, endings);
  if (const std::string stray = world.findStrayWrite(); !stray.empty()) wrong += stray + "; ";
  return wrong + world.program->report().text();
}

}  // namespace moe::test
