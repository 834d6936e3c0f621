// What moe_perf says: a table for people, JSON and CSV for programs. Rank 0 alone reports.
#pragma once

#include <string>
#include <vector>

#include "perf/moe_perf/options.h"
#include "perf/moe_perf/provenance.h"
#include "perf/moe_perf/runner.h"
#include "perf/moe_perf/soak.h"
#include "perf/statistics.h"
#include "perf/transport/transport_test.h"

namespace moe::perf {

// The faster of the two ways of moving the combine's rows.
const CeilingTime& combineCeiling(const RowCeilings& ceilings);

// How near the medians come to the ceilings, the best ones or those `at` a number of multiprocessors. 1 is as fast, 0
// means that nothing was measured. A pair has both ceilings.
struct CeilingShares {
  double dispatch = 0;
  double combine = 0;
  double pair = 0;
};
CeilingShares ceilingShares(const CaseResult& result, const RowCeilings& at);
CeilingShares ceilingShares(const CaseResult& result);

// Bytes per microsecond are megabytes per second; 0 where nothing was measured or moved.
double gigabytesPerSecond(double bytes, double microseconds);

// How fast dispatch was beside memcpy: medians; 0 where nothing was measured.
double dispatchToMemcpy(const CaseResult& result);

// The table's lines have at most 100 columns, unless --wide was given. A case follows the header.
std::string headerText(const Options& options, const CaseResult& first);
std::string caseText(const Options& options, const CaseResult& result);
std::string soakText(const SoakResult& result);
std::string transportText(const TransportResult& result);

// Arrays of objects, one per case; a soak and a transport test have one each.
std::string jsonText(const Provenance& provenance, const Options& options, const std::vector<CaseResult>& results);
std::string jsonText(const Provenance& provenance, const Options& options, const SoakResult& result);
std::string jsonText(const Provenance& provenance, const TransportResult& result);

// A line of names, then one line per case: the numbers of the JSON report, "pair_us.median" for one inside another.
std::string csvText(const Provenance& provenance, const Options& options, const std::vector<CaseResult>& results);

}  // namespace moe::perf
