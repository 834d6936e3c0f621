// Published results, and our measured ones, beside what the model says for the same case.
#pragma once

#include <string>
#include <vector>

namespace moe::model {

struct Measured {
  std::string figure;  // as published
  double us = 0;       // the figure as a time
  double modelUs = 0;

  double offPercent() const { return 100 * (modelUs / us - 1); }
};

struct Comparison {
  std::string system;
  std::string mode;  // "LL", "HT"
  int ranks = 0;
  Measured dispatch, combine;  // without a figure: not published
};

// docs/internals/scaling.md has the sources, under the name of the system.
std::vector<Comparison> comparisons();

}  // namespace moe::model
