#include "perf/model/plot.h"

#include <algorithm>
#include <vector>

#include "perf/plot/chart.h"

namespace moe::model {
namespace {

using nlohmann::ordered_json;
using plot::Panel;
using plot::Points;

struct Series {
  std::string machine, key, name, color;
};

// Times of cases over ranks: dispatch as a line, combine dashed.
Panel rankPanel(int index, const std::string& title, const ordered_json& cases, const std::vector<Series>& series,
                const std::vector<double>& yTicks) {
  Panel panel(index, title, {{16, 32, 64, 128, 256, 512, 1024, 2048}, "ranks"}, {yTicks});
  std::vector<plot::LegendEntry> entries;
  for (const Series& one : series) {
    for (const char* operation : {"dispatch", "combine"}) {
      Points points;
      for (const ordered_json& c : cases) {
        if (c["machine"] == one.machine) points.push_back({c["ranks"], c[one.key][operation]["us"]});
      }
      panel.line(points, one.color, {std::string(operation) == "combine" ? plot::Dash::dashed : plot::Dash::solid});
    }
    entries.push_back({one.name, one.color});
  }
  entries.push_back({"combine: dashed", plot::kGray});
  panel.legend(entries);
  return panel;
}

// Lines where the model is equal to what was published, or 10 % off.
void drawDiagonals(Panel& panel) {
  for (const double factor : {1.0, 1.1, 1 / 1.1}) {
    panel.line({{10 * std::max(1.0, 1 / factor), 10 * std::max(1.0, factor)},
                {10000 / std::max(1.0, factor), 10000 * std::min(1.0, factor)}},
               plot::kGray, {factor != 1.0 ? plot::Dash::dashed : plot::Dash::solid, 0.9});
  }
}

const char* colorOf(const ordered_json& published) {
  if (published["system"].get<std::string>().find("moecomm") != std::string::npos) return plot::kGreen;
  return published["mode"] == "LL" ? plot::kBlue : plot::kRed;
}

Panel publishedPanel(int index, const ordered_json& published) {
  const std::vector<double> ticks = {10, 100, 1000, 10000};
  Panel panel(index, "Model over published, us", {ticks, "published, us"}, {ticks});
  drawDiagonals(panel);
  for (const ordered_json& one : published) {
    for (const char* operation : {"dispatch", "combine"}) {
      if (!one.contains(operation)) continue;
      const ordered_json& both = one[operation];
      panel.dot({both["published_us"], both["model_us"]}, colorOf(one), std::string(operation) == "dispatch");
    }
  }
  panel.legend({{"others, LL", plot::kBlue},
                {"others, HT", plot::kRed},
                {"moecomm, pairs", plot::kGreen},
                {"combine: hollow", plot::kGray},
                {"dashed: 10 % off", plot::kGray}});
  return panel;
}

}  // namespace

std::string plotText(const ordered_json& document) {
  const ordered_json& cases = document.at("cases");
  return plot::svgText({rankPanel(0, "LL, 128 tokens, us", cases,
                                  {{"nodes of 8", "ll", "nodes of 8, direct", plot::kBlue},
                                   {"nodes of 8", "ll_once_per_domain", "nodes of 8, once per node", plot::kRed},
                                   {"fabrics of 72", "ll", "fabrics of 72, direct", plot::kGreen}},
                                  {10, 20, 50, 100, 200, 500, 1000}),
                        rankPanel(1, "HT, 4096 tokens, us", cases,
                                  {{"nodes of 8", "ht", "nodes of 8", plot::kBlue},
                                   {"fabrics of 72", "ht", "fabrics of 72", plot::kGreen}},
                                  {200, 500, 1000, 2000, 5000, 10000, 20000}),
                        publishedPanel(2, document.at("published"))});
}

}  // namespace moe::model
