// Where a token goes on average: exact expectations for the k best of E experts, with every choice of k equally likely.
#pragma once

#include "perf/model/machine.h"

namespace moe::model {

// The probability that at least one of the chosen experts is among `mine`.
double hitProbability(int mine, int experts, int topk);

// The expected number of groups hit, of `groups` with `size` experts each, when a token may use `limit` of them. The
// token uses the groups of its best experts. It hits the limit or what it would hit without one, whichever is smaller.
double groupsHit(int groups, int size, int topk, int limit);

// Averages per token over all sources.
struct Destinations {
  double ranks;        // distinct ranks, the source included
  double neighbours;   // other ranks of the source's domain
  double remoteRanks;  // ranks of other domains
  double domains;      // distinct domains, the source's included
  double remoteDomains;
};

// With a limit of domains, the ranks are those of a uniform choice among the experts of that many domains. That is
// slightly less than what the best domains give.
Destinations destinationsOf(const Workload& workload, int domainRanks);

}  // namespace moe::model
