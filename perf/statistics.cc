#include "perf/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace moe::perf {
namespace {

// The smallest sample that at least this share of all samples does not exceed.
double quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size()))) - 1];
}

}  // namespace

Summary summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {samples.front(),        quantile(samples, 0.1),  quantile(samples, 0.5),
          quantile(samples, 0.9), quantile(samples, 0.99), samples.back()};
}

}  // namespace moe::perf
