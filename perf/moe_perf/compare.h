// moe_perf --compare: times of cases beside those of an older report.
#pragma once

#include <string>

#include "perf/moe_perf/options.h"
#include "perf/moe_perf/stored_report.h"

namespace moe::perf {

struct ReportComparison {
  std::string text;       // the table, and what differs
  bool exceeded = false;  // there was a limit, and a time grew by more or a case could not be compared
};

struct ComparisonSettings {
  std::string oldName;       // the older report's file
  bool verbose = false;      // compares dispatch and combine too
  double limitPercent = -1;  // most that the median of a pair or a step may grow; below 0: no limit
  Across across = Across::none;
};

// Compares each case of `now` with the last one of `old` that is the same work (fieldsOfWork, tokens). A case without
// such an old case is not compared, and the text names the fields that differ. Settings and machines that differ are
// named too. With `across` a case may differ in that field and in those that follow from it, and one that does is
// preferred. A difference is marked with ~ if the middle 80 % of the old and of the new times overlap.
ReportComparison compare(const Cases& old, const Cases& now, const ComparisonSettings& settings);

}  // namespace moe::perf
