// Summaries of a list of samples.
#pragma once

#include <vector>

namespace moe::perf {

struct Summary {
  double min = 0;
  double median = 0;
  double p99 = 0;
  double max = 0;
};
Summary summarize(std::vector<double> samples);

}  // namespace moe::perf
