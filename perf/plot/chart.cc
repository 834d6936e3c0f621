#include "perf/plot/chart.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace moe::plot {
namespace {

constexpr double kWidth = 300, kHeight = 250, kLeft = 55, kTop = 40, kGap = 75;  // of a panel, and between panels
constexpr double kRow = 15;                                                      // of a legend
constexpr double kLegendTop = kTop + kHeight + 58;                               // the first row below a panel
constexpr const char* kInk = "#222222";
constexpr const char* kGrid = "#dddddd";

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string textItem(const Point& where, const std::string& what, const std::string& anchor, int size,
                     const std::string& color) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" font-size="{}" fill="{}">{}</text>)", where.x,
                     where.y, anchor, size, color, escaped(what));
}

std::string dashes(Dash dash) {
  switch (dash) {
    case Dash::dashed:
      return " stroke-dasharray=\"5 3\"";
    case Dash::dotted:
      return " stroke-dasharray=\"1.5 2.5\"";
    case Dash::dashDotted:
      return " stroke-dasharray=\"6 2.5 1.5 2.5\"";
    default:
      return "";
  }
}

// Keeps every n-th tick and moves the last one outwards to stay on that grid, so that the axis still holds everything.
std::vector<double> thinned(const std::vector<double>& ticks, int countMax, double (*next)(double)) {
  const std::size_t gaps = ticks.size() - 1, gapsMax = static_cast<std::size_t>(countMax) - 1;
  const std::size_t step = (gaps + gapsMax - 1) / gapsMax;
  std::vector<double> all = ticks, kept;
  while ((all.size() - 1) % step != 0) all.push_back(next(all.back()));
  for (std::size_t i = 0; i < all.size(); i += step) kept.push_back(all[i]);
  return kept;
}

double twice(double tick) {
  return 2 * tick;
}

// 1, 2, 5, 10, 20 ...
double nextDecade(double tick) {
  const double power = std::pow(10.0, std::floor(std::log10(tick) + 1e-9));
  const double digit = std::round(tick / power);
  return (digit < 2 ? 2 : digit < 5 ? 5 : 10) * power;
}

std::vector<double> ticksFrom(double first, double high, int countMax, double (*next)(double)) {
  std::vector<double> ticks = {first, next(first)};
  while (ticks.back() < high) ticks.push_back(next(ticks.back()));
  return thinned(ticks, countMax, next);
}

}  // namespace

double Axis::share(double value) const {
  if (scale == Scale::linear) return (value - ticks.front()) / (ticks.back() - ticks.front());
  return std::log(value / ticks.front()) / std::log(ticks.back() / ticks.front());
}

Panel::Panel(int index, const std::string& title, Axis x, Axis y)
    : left_(kLeft + index * (kWidth + kGap)), x_(std::move(x)), y_(std::move(y)) {
  text({left_, kTop - 14}, title, "start", 13, kInk);
  text({left_ + kWidth / 2, kTop + kHeight + 36}, x_.title, "middle", 11, kInk);
  drawAxes();
}

Point Panel::at(const Point& point) const {
  return {left_ + kWidth * x_.share(point.x), kTop + kHeight * (1 - y_.share(point.y))};
}

std::string Panel::path(const Points& points) const {
  std::string path;
  for (const Point& point : points) {
    const Point place = at(point);
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", place.x, place.y);
  }
  return path;
}

void Panel::text(const Point& where, const std::string& what, const std::string& anchor, int size,
                 const std::string& color) {
  items_.push_back(textItem(where, what, anchor, size, color));
}

void Panel::line(const Points& points, const std::string& color, const Stroke& stroke) {
  items_.push_back(fmt::format(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="{}"{}/>)", path(points),
                               color, stroke.width, dashes(stroke.dash)));
}

void Panel::band(const Points& lower, const Points& upper, const std::string& color) {
  Points around = lower;
  around.insert(around.end(), upper.rbegin(), upper.rend());
  items_.push_back(
      fmt::format(R"(<polygon points="{}" fill="{}" fill-opacity="0.15" stroke="none"/>)", path(around), color));
}

void Panel::dot(const Point& point, const std::string& color, bool filled) {
  const Point place = at(point);
  items_.push_back(fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}" stroke="{}"/>)", place.x, place.y,
                               filled ? color : "#ffffff", color));
}

void Panel::drawAxes() {
  for (const double tick : x_.ticks) {
    line({{tick, y_.ticks.front()}, {tick, y_.ticks.back()}}, kGrid, {Dash::solid, 0.7});
    text({at({tick, y_.ticks.front()}).x, kTop + kHeight + 16}, fmt::format("{:.10g}", tick), "middle", 11, kInk);
  }
  for (const double tick : y_.ticks) {
    line({{x_.ticks.front(), tick}, {x_.ticks.back(), tick}}, kGrid, {Dash::solid, 0.7});
    text({left_ - 5, at({x_.ticks.front(), tick}).y + 4}, fmt::format("{:.10g}", tick), "end", 11, kInk);
  }
}

void Panel::legend(const std::vector<LegendEntry>& entries) {
  double y = kTop + 16;
  for (const LegendEntry& entry : entries) {
    text({left_ + 8, y}, entry.text, "start", 11, entry.color);
    y += kRow;
  }
}

void Panel::legendBelow(const std::vector<LegendEntry>& entries) {
  double y = kLegendTop;
  for (const LegendEntry& entry : entries) {
    items_.push_back(fmt::format(R"(<polyline points="{:.1f},{:.1f} {:.1f},{:.1f}" stroke="{}" stroke-width="{}"{}/>)",
                                 left_, y - 4, left_ + 26, y - 4, entry.color, entry.stroke.width,
                                 dashes(entry.stroke.dash)));
    text({left_ + 32, y}, entry.text, "start", 11, kInk);
    y += kRow;
  }
}

std::string svgText(const std::vector<Panel>& panels, int legendRows, const std::vector<std::string>& caption) {
  const double width = kLeft + static_cast<double>(panels.size()) * (kWidth + kGap) - kGap + 25;
  const double end = legendRows == 0 ? kTop + kHeight + 50 : kLegendTop + kRow * legendRows;
  const double height = caption.empty() ? end : end + kRow * static_cast<double>(caption.size() + 1);
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" font-family="sans-serif">)"
      "\n"
      R"(<rect width="{0}" height="{1}" fill="#ffffff"/>)"
      "\n",
      width, height);
  for (const Panel& panel : panels) svg += fmt::format("{}\n", fmt::join(panel.items(), "\n"));
  double y = end + kRow;
  for (const std::string& line : caption) {
    svg += textItem({kLeft, y}, line, "start", 11, kInk) + "\n";
    y += kRow;
  }
  return svg + "</svg>\n";
}

std::vector<double> powersOfTwo(double low, double high, int countMax) {
  return ticksFrom(std::exp2(std::floor(std::log2(low))), high, countMax, twice);
}

std::vector<double> decades(double low, double high, int countMax) {
  double first = std::pow(10.0, std::floor(std::log10(low)));
  while (nextDecade(first) <= low) first = nextDecade(first);
  return ticksFrom(first, high, countMax, nextDecade);
}

std::vector<double> roundSteps(double high) {
  constexpr int kStepsMax = 6;
  double step = std::pow(10.0, std::floor(std::log10(high)) - 1);
  while (step * kStepsMax < high) step = nextDecade(step);
  std::vector<double> ticks = {0};
  while (ticks.back() < high) ticks.push_back(step * static_cast<double>(ticks.size()));
  return ticks;
}

}  // namespace moe::plot
