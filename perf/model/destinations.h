// Where a token goes, on average: exact expectations for the k best of E experts, every choice of k equally likely.
#pragma once

#include "perf/model/machine.h"

namespace moe::model {

// The probability that at least one of the chosen experts is among `mine`.
double hitProbability(int mine, int experts, int topk);

// The expected number of groups that are hit, of `groups` with `size` experts each, when a token may use `limit` of
// them: it takes the groups of its best experts. It then hits the smaller of the limit and of what it would hit without
// one.
double groupsHit(int groups, int size, int topk, int limit);

// Per token, averaged over its source.
struct Destinations {
  double ranks;        // distinct, own rank included
  double neighbours;   // other ranks of the own domain
  double remoteRanks;  // ranks of other domains
  double domains;      // distinct, own domain included
  double remoteDomains;
};

// With a limit of domains the ranks are those of a uniform choice among the experts of so many domains, which is a
// little less than what the best domains give.
Destinations destinationsOf(const Workload& workload, int domainRanks);

}  // namespace moe::model
