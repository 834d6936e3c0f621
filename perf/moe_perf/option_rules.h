// Which options of moe_perf go together: a table, and the function that walks it.
#pragma once

#include <span>
#include <string>

#include "perf/moe_perf/options.h"

namespace moe::perf {

enum class Relation { needs, excludes };

// Where `option` holds, `other` must hold too, or must not.
struct OptionRule {
  using Condition = bool (*)(const Options&);

  Condition option;
  Relation relation;
  Condition other;
  const char* sentence;  // for who breaks it; {hidden} and the like stand for numbers that were given
  const char* example;   // arguments that break it, and no rule before it

  bool broken(const Options& options) const;
};

std::span<const OptionRule> optionRules();

// The sentence of the first rule that is broken; empty if there is none.
std::string brokenRule(const Options& options);

}  // namespace moe::perf
