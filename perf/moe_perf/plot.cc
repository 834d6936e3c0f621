#include "perf/moe_perf/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>

#include "perf/plot/chart.h"
#include "tools/program_text.h"

namespace moe::perf {
namespace {

using plot::LegendEntry;
using plot::Panel;
using plot::Points;

constexpr std::size_t kSweepsMax = 4;
// A sweep has a colour. The two operations of a panel have strokes and dots of their own, and so have their ceilings.
constexpr std::array<const char*, kSweepsMax> kColors = {plot::kBlue, plot::kRed, plot::kGreen, plot::kViolet};
constexpr std::array<plot::Dash, 2> kDashes = {plot::Dash::solid, plot::Dash::dashed};
constexpr std::array<plot::Dash, 2> kCeilingDashes = {plot::Dash::dotted, plot::Dash::dashDotted};
constexpr double kCeilingWidth = 1.2;
constexpr std::size_t kLegendColumnsMax = 36, kCaptionColumnsMax = 165;
constexpr int kTokenTicksMax = 9, kTimeTicksMax = 13;

// Cases that differ in tokens alone, by tokens.
struct Sweep {
  std::string name;         // for legends; empty if it is the only one
  std::string differences;  // the fields in which it differs from others
  std::map<int, const Cases*> cases;
};

struct Curve {
  std::string name, color;
  std::size_t operation = 0;  // the first or the second of its panel
  Points points, lower, upper, ceiling;
};

using Value = double (*)(const Cases&, const std::string& operation);

std::vector<std::string> sweepFields() {
  std::vector<std::string> fields = fieldsOfWork();
  for (const auto* more : {&fieldsOfSettings(), &fieldsOfMachine()}) {
    fields.insert(fields.end(), more->begin(), more->end());
  }
  return fields;
}

// Names each sweep by the fields that distinguish it from the others, or by a letter if these are too long for a
// legend.
void nameSweeps(std::vector<Sweep>& sweeps) {
  for (const std::string& field : sweepFields()) {
    const auto textOf = [&](const Sweep& sweep) { return fieldText(*sweep.cases.begin()->second, field); };
    const bool alike = std::all_of(sweeps.begin(), sweeps.end(),
                                   [&](const Sweep& sweep) { return textOf(sweep) == textOf(sweeps.front()); });
    if (alike) continue;
    for (Sweep& sweep : sweeps) {
      sweep.differences += fmt::format("{}{} {}", sweep.differences.empty() ? "" : ", ", field, textOf(sweep));
    }
  }
  const bool shortEnough = std::all_of(
      sweeps.begin(), sweeps.end(), [](const Sweep& sweep) { return sweep.differences.size() <= kLegendColumnsMax; });
  char letter = 'A';
  for (Sweep& sweep : sweeps) {
    const std::string next(1, letter++);
    sweep.name = shortEnough ? sweep.differences : next;
  }
}

// If cases are equal, the last one counts.
std::vector<Sweep> sweepsOf(const Cases& cases) {
  std::vector<Sweep> sweeps;
  std::map<std::vector<std::string>, std::size_t> numbers;
  for (const Cases& one : cases) {
    if (one["tokens"].get<int>() <= 0) continue;
    std::vector<std::string> key;
    for (const std::string& field : sweepFields()) key.push_back(fieldText(one, field));
    const auto [found, isNew] = numbers.emplace(key, sweeps.size());
    if (isNew) sweeps.emplace_back();
    sweeps[found->second].cases[one["tokens"]] = &one;
  }
  if (sweeps.empty()) throw std::runtime_error("--plot: no case has tokens");
  if (sweeps.size() > kSweepsMax) {
    throw std::runtime_error(
        fmt::format("--plot: {} kinds of cases, at most {} fit in one picture", sweeps.size(), kSweepsMax));
  }
  nameSweeps(sweeps);
  return sweeps;
}

double timeOf(const Cases& one, const std::string& operation, const char* which) {
  return one[operation + "_us"][which];
}
// Older reports have no percentiles to draw a band between.
bool hasBand(const Cases& one, const std::string& operation) {
  const Cases& times = one[operation + "_us"];
  const auto isTime = [&](const char* which) { return times.contains(which) && times[which].is_number(); };
  return isTime("p10") && isTime("p90");
}

double ceilingOf(const Cases& one, const std::string& operation) {
  const auto found = one.find(operation + "_ceiling");
  return found == one.end() ? 0 : (*found)["us"]["median"].get<double>();
}
// A pair's ceiling is that of dispatch and combine together. A step has the same one, which is drawn once.
double timeCeiling(const Cases& one, const std::string& operation) {
  if (operation == "step") return 0;
  if (operation != "pair") return ceilingOf(one, operation);
  const double dispatch = ceilingOf(one, "dispatch"), combine = ceilingOf(one, "combine");
  return dispatch > 0 && combine > 0 ? dispatch + combine : 0;
}

double rateOf(const Cases& one, const std::string& operation) {
  return one[operation == "dispatch" ? "remote_gbps" : "combine_remote_gbps"];
}
double rateCeiling(const Cases& one, const std::string& operation) {
  const double us = ceilingOf(one, operation);
  const double bytes = one[operation == "dispatch" ? "remote_bytes" : "combine_remote_bytes"];
  return us > 0 ? bytes / us * 1e-3 : 0;
}

Curve timeCurve(const Sweep& sweep, const std::string& operation) {
  Curve curve;
  for (const auto& [tokens, one] : sweep.cases) {
    const double x = tokens, ceiling = timeCeiling(*one, operation);
    curve.points.push_back({x, timeOf(*one, operation, "median")});
    if (hasBand(*one, operation)) {
      curve.lower.push_back({x, timeOf(*one, operation, "p10")});
      curve.upper.push_back({x, timeOf(*one, operation, "p90")});
    }
    if (ceiling > 0) curve.ceiling.push_back({x, ceiling});
  }
  return curve;
}

Curve rateCurve(const Sweep& sweep, const std::string& operation) {
  Curve curve;
  for (const auto& [tokens, one] : sweep.cases) {
    const double x = tokens, ceiling = rateCeiling(*one, operation);
    curve.points.push_back({x, rateOf(*one, operation)});
    if (ceiling > 0) curve.ceiling.push_back({x, ceiling});
  }
  return curve;
}

std::vector<Curve> curvesOf(const std::vector<Sweep>& sweeps, const std::vector<std::string>& operations,
                            Curve (*make)(const Sweep&, const std::string&)) {
  std::vector<Curve> curves;
  for (std::size_t i = 0; i < sweeps.size(); ++i) {
    for (std::size_t operation = 0; operation < operations.size(); ++operation) {
      const std::string& name = operations[operation];
      Curve curve = make(sweeps[i], name);
      curve.name = sweeps[i].name.empty() ? name : fmt::format("{}: {}", sweeps[i].name, name);
      curve.color = kColors.at(i);
      curve.operation = operation;
      curves.push_back(curve);
    }
  }
  return curves;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = 0;

  void add(const Points& points) {
    for (const plot::Point& point : points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  }
};

Range rangeOf(const std::vector<Curve>& curves) {
  Range range;
  for (const Curve& curve : curves) {
    for (const Points* points : {&curve.points, &curve.lower, &curve.upper, &curve.ceiling}) range.add(*points);
  }
  return range;
}

void draw(Panel& panel, const std::vector<Curve>& curves) {
  for (const Curve& curve : curves) {
    if (curve.lower.size() > 1) panel.band(curve.lower, curve.upper, curve.color);
  }
  for (const Curve& curve : curves) {
    if (!curve.ceiling.empty()) {
      panel.line(curve.ceiling, curve.color, {kCeilingDashes.at(curve.operation), kCeilingWidth});
    }
    panel.line(curve.points, curve.color, {kDashes.at(curve.operation)});
    for (const plot::Point& point : curve.points) panel.dot(point, curve.color, curve.operation == 0);
  }
}

std::vector<LegendEntry> legendOf(const std::vector<Curve>& curves) {
  std::vector<LegendEntry> entries;
  for (const Curve& curve : curves) {
    entries.push_back({curve.name, curve.color, {kDashes.at(curve.operation)}});
    const std::string ceiling = curve.name.ends_with("pair") ? " and step, ceiling" : ", ceiling";
    if (curve.ceiling.empty()) continue;
    entries.push_back({curve.name + ceiling, curve.color, {kCeilingDashes.at(curve.operation), kCeilingWidth}});
  }
  return entries;
}

// The fields that all cases have in common, and the meaning of the letters of sweeps.
std::vector<std::string> captionOf(const std::vector<Sweep>& sweeps) {
  std::string caption;
  const Cases& first = *sweeps.front().cases.begin()->second;
  for (const char* field : {"nranks", "backend", "device", "mode", "layout", "format", "hidden", "topk", "experts",
                            "routing", "graph", "host", "date"}) {
    const std::string text = fieldText(first, field);
    const bool common = std::all_of(sweeps.begin(), sweeps.end(), [&](const Sweep& sweep) {
      return fieldText(*sweep.cases.begin()->second, field) == text;
    });
    if (common) caption += fmt::format("{}{} {}", caption.empty() ? "" : ", ", field, text);
  }
  std::string lines = tools::wrapped(caption, kCaptionColumnsMax);
  for (const Sweep& sweep : sweeps) {
    if (sweep.name == sweep.differences) continue;
    lines += "\n" + tools::wrapped(fmt::format("{}: {}", sweep.name, sweep.differences), kCaptionColumnsMax);
  }
  std::istringstream text(lines);
  std::vector<std::string> all;
  for (std::string line; std::getline(text, line);) all.push_back(line);
  return all;
}

}  // namespace

std::string plotText(const Cases& cases) {
  const std::vector<Sweep> sweeps = sweepsOf(cases);
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const Sweep& sweep : sweeps) {
    low = std::min(low, static_cast<double>(sweep.cases.begin()->first));
    high = std::max(high, static_cast<double>(sweep.cases.rbegin()->first));
  }
  const plot::Axis tokens{plot::powersOfTwo(low, high, kTokenTicksMax), "tokens per rank"};
  std::vector<Panel> panels;
  int legendRows = 0;
  const auto add = [&](const std::string& title, const plot::Axis& y, const std::vector<Curve>& curves) {
    Panel& panel = panels.emplace_back(static_cast<int>(panels.size()), title, tokens, y);
    draw(panel, curves);
    const std::vector<LegendEntry> entries = legendOf(curves);
    panel.legendBelow(entries);
    legendRows = std::max(legendRows, static_cast<int>(entries.size()));
  };
  const auto addTimes = [&](const std::string& title, const std::vector<std::string>& operations) {
    const std::vector<Curve> curves = curvesOf(sweeps, operations, timeCurve);
    const Range range = rangeOf(curves);
    add(title, {plot::decades(range.low, range.high, kTimeTicksMax)}, curves);
  };
  addTimes("Dispatch, combine: median us, p10 to p90", {"dispatch", "combine"});
  addTimes("Pair, step: median us, p10 to p90", {"pair", "step"});
  const std::vector<Curve> rates = curvesOf(sweeps, {"dispatch", "combine"}, rateCurve);
  const double most = rangeOf(rates).high;
  add("GB/s per rank, by the median", {plot::roundSteps(most > 0 ? most : 1), "", plot::Scale::linear}, rates);
  return plot::svgText(panels, legendRows, captionOf(sweeps));
}

}  // namespace moe::perf
