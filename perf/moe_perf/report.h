// The output of moe_perf: a table for people, JSON and CSV for programs. Only rank 0 reports.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perf/moe_perf/options.h"
#include "perf/moe_perf/provenance.h"
#include "perf/moe_perf/runner.h"
#include "perf/moe_perf/soak.h"
#include "perf/moe_perf/stored_report.h"
#include "perf/statistics.h"
#include "perf/transport/transport_test.h"

namespace moe::perf {

// The faster of the two ways to move the combine's rows.
const CeilingTime& combineCeiling(const RowCeilings& ceilings);

// Medians as shares of the ceilings, the best ones or those `at` a number of multiprocessors. 1 is as fast as the
// ceiling, and 0 means not measured. A pair is compared with both ceilings together.
struct CeilingShares {
  double dispatch = 0;
  double combine = 0;
  double pair = 0;
  double step = 0;  // the step's share of the same ceilings as the pair
};
CeilingShares ceilingShares(const CaseResult& result, const RowCeilings& at);
CeilingShares ceilingShares(const CaseResult& result);

// Bytes per microsecond are megabytes per second. Returns 0 where nothing was measured or moved.
double gigabytesPerSecond(double bytes, double microseconds);

// The speed of dispatch relative to memcpy, by medians; 0 where nothing was measured.
double dispatchToMemcpy(const CaseResult& result);

// Columns of the table, unless --verbose was given.
inline constexpr std::size_t kTableColumns = 79;

// The cases follow the header.
std::string headerText(const Options& options, const CaseResult& first);
std::string caseText(const Options& options, const CaseResult& result);
std::string soakText(const SoakResult& result);
std::string transportText(const TransportResult& result);

Cases casesOf(const Provenance& provenance, const Options& options, const std::vector<CaseResult>& results);

// Arrays of objects, one per case. A soak and a transport test have one object each.
std::string jsonText(const Provenance& provenance, const Options& options, const std::vector<CaseResult>& results);
std::string jsonText(const Provenance& provenance, const Options& options, const SoakResult& result);
std::string jsonText(const Provenance& provenance, const TransportResult& result);

// A line of names, then one line per case, with the numbers of the JSON report. Nested numbers have names such as
// "pair_us.median".
std::string csvText(const Provenance& provenance, const Options& options, const std::vector<CaseResult>& results);

}  // namespace moe::perf
