// What moe_perf says: a table for people, a JSON array for programs. Rank 0 alone reports.
#pragma once

#include <string>
#include <vector>

#include "options.h"
#include "runner.h"
#include "soak.h"
#include "transport_test.h"

namespace moe::perf {

struct Summary {
  double min = 0;
  double median = 0;
  double p99 = 0;
};
Summary summarize(std::vector<double> samples);

// The faster of the two ways of moving the combine's rows.
const CeilingTime& combineCeiling(const RowCeilings& ceilings);

// How near the medians come to the ceilings, the best ones or those `at` a number of multiprocessors: 1 is as fast, 0
// where nothing was measured. A pair has both ceilings.
struct CeilingShares {
  double dispatch = 0;
  double combine = 0;
  double pair = 0;
};
CeilingShares ceilingShares(const CaseResult& result, const RowCeilings& at);
CeilingShares ceilingShares(const CaseResult& result);

// The library's dispatch by its twin's: above 1 where the twin is faster. 0 where there was none.
double dispatchToTwin(const CaseResult& result);

void printHeader(const Options& options, const CaseResult& first);
void printCase(const CaseResult& result);

void printSoak(const SoakResult& result);
void printTransport(const TransportResult& result);

// Throw std::runtime_error if the file cannot be written.
void writeJson(const std::string& file, const Options& options, const std::vector<CaseResult>& results);
void writeJson(const std::string& file, const Options& options, const SoakResult& result);
void writeJson(const std::string& file, const TransportResult& result);

}  // namespace moe::perf
