// Summaries of a list of samples.
#pragma once

#include <vector>

namespace moe::perf {

struct Summary {
  double min = 0;
  double p10 = 0;
  double median = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;

  // How far apart the middle 80 % of the samples are, in percent of the median.
  double noisePercent() const { return median > 0 ? 100 * (p90 - p10) / median : 0; }
};
Summary summarize(std::vector<double> samples);

}  // namespace moe::perf
