#include "perf/model/destinations.h"

#include <algorithm>
#include <vector>

#include "device/view/shape.h"

namespace moe::model {
namespace {

double choose(int n, int k) {
  double product = 1;
  for (int i = 0; i < k; ++i) product *= static_cast<double>(n - i) / (i + 1);
  return n < k ? 0 : product;
}

// The number of ways to take `topk` experts from exactly j groups, for all j.
std::vector<double> waysByGroups(int groups, int size, int topk) {
  const int most = std::min(groups, topk);
  std::vector<std::vector<double>> ways(static_cast<std::size_t>(most) + 1,
                                        std::vector<double>(static_cast<std::size_t>(topk) + 1, 0.0));
  const auto at = [&](int j, int n) -> double& {
    return ways[static_cast<std::size_t>(j)][static_cast<std::size_t>(n)];
  };
  at(0, 0) = 1;
  for (int group = 0; group < groups; ++group) {
    for (int j = most; j >= 1; --j) {
      for (int n = topk; n >= 1; --n) {
        for (int c = 1; c <= std::min(size, n); ++c) at(j, n) += choose(size, c) * at(j - 1, n - c);
      }
    }
  }
  std::vector<double> result;
  for (int j = 0; j <= most; ++j) result.push_back(at(j, topk));
  return result;
}

// The expected number of ranks hit. Ranks may differ by one expert.
double ranksHit(int ranks, int experts, int topk) {
  const ExpertMap map{experts, ranks};
  const double larger = map.extra * hitProbability(map.base + 1, experts, topk);
  return larger + (ranks - map.extra) * hitProbability(map.base, experts, topk);
}

double domainsHit(int ranks, int domainRanks, int experts, int topk) {
  const ExpertMap map{experts, ranks};
  double sum = 0;
  for (int first = 0; first < ranks; first += domainRanks) {
    sum += hitProbability(map.first(first + domainRanks) - map.first(first), experts, topk);
  }
  return sum;
}

}  // namespace

double hitProbability(int mine, int experts, int topk) {
  double missed = 1;
  for (int i = 0; i < topk; ++i) missed *= std::max(0.0, static_cast<double>(experts - mine - i) / (experts - i));
  return 1 - missed;
}

double groupsHit(int groups, int size, int topk, int limit) {
  const std::vector<double> ways = waysByGroups(groups, size, topk);
  double sum = 0, all = 0;
  for (int j = 0; j < static_cast<int>(ways.size()); ++j) {
    sum += std::min(j, limit) * ways[static_cast<std::size_t>(j)];
    all += ways[static_cast<std::size_t>(j)];
  }
  return sum / all;
}

Destinations destinationsOf(const Workload& w, int domainRanks) {
  const int inDomain = std::min(domainRanks, w.ranks), domains = w.ranks / inDomain, experts = w.expertCount();
  const bool limited = w.domainLimit > 0 && w.domainLimit < domains;
  Destinations to{};
  if (limited) {
    to.domains = groupsHit(domains, experts / domains, w.topk, w.domainLimit);
    to.ranks = ranksHit(w.domainLimit * inDomain, w.domainLimit * (experts / domains), w.topk);
  } else {
    to.domains = domainsHit(w.ranks, inDomain, experts, w.topk);
    to.ranks = ranksHit(w.ranks, experts, w.topk);
  }
  // Sources are spread evenly, so each of the R ranks is the source equally often.
  to.neighbours = to.ranks * (inDomain - 1) / w.ranks;
  to.remoteRanks = to.ranks * (w.ranks - inDomain) / w.ranks;
  to.remoteDomains = to.domains * (domains - 1) / domains;
  return to;
}

}  // namespace moe::model
