// The rules by which options of moe_perf go together: a table, and the function that checks it.
#pragma once

#include <span>
#include <string>

#include "perf/moe_perf/options.h"

namespace moe::perf {

enum class Relation { needs, excludes };

// Where `option` holds, `other` must hold too, or must not hold.
struct OptionRule {
  using Condition = bool (*)(const Options&);

  Condition option;
  Relation relation;
  Condition other;
  const char* sentence;  // the message for a broken rule; {hidden} and the like stand for given numbers
  const char* example;   // arguments that break this rule and none before it

  bool broken(const Options& options) const;
};

std::span<const OptionRule> optionRules();

// The sentence of the first broken rule; empty if there is none.
std::string brokenRule(const Options& options);

}  // namespace moe::perf
