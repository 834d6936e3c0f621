// What is said about a list of samples.
#pragma once

#include <vector>

namespace moe::perf {

struct Summary {
  double min = 0;
  double median = 0;
  double p99 = 0;
};
Summary summarize(std::vector<double> samples);

// How far the median may be from the one of very many samples, at 95 %: 1.57 times the distance between the quartiles,
// by the root of the number of samples (McGill, Tukey and Larsen). 0 without samples.
double noiseOfMedian(std::vector<double> samples);

// A difference of two times can be below zero, or nothing but noise: then there is no number to show.
bool insideNoise(const std::vector<double>& differences);

}  // namespace moe::perf
