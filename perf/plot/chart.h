// Charts as SVG, for moe_model and moe_perf: panels side by side, with axes, curves, bands and dots. A chart has its
// own white background, so that it can be read on a dark page too.
#pragma once

#include <string>
#include <vector>

namespace moe::plot {

inline constexpr const char* kBlue = "#1f5fa8";
inline constexpr const char* kRed = "#b5371f";
inline constexpr const char* kGreen = "#2f7d3a";
inline constexpr const char* kViolet = "#8a3fa0";
inline constexpr const char* kGray = "#777777";

struct Point {
  double x, y;
};
using Points = std::vector<Point>;

enum class Scale : int { logarithmic, linear };

// An axis reaches from its first tick to its last. There are at least two, in rising order, and those of a logarithmic
// axis are above 0.
struct Axis {
  std::vector<double> ticks;
  std::string title = {};
  Scale scale = Scale::logarithmic;

  double share(double value) const;  // where a value is: 0 at the first tick, 1 at the last
};

enum class Dash : int { solid, dashed, dotted, dashDotted };

struct Stroke {
  Dash dash = Dash::solid;
  double width = 1.8;
};

struct LegendEntry {
  std::string text;
  std::string color;
  Stroke stroke = {};
};

class Panel {
 public:
  // The panel's place is `index`, from the left. Y has no title: the panel's title says what it is.
  Panel(int index, const std::string& title, Axis x, Axis y);

  void line(const Points& points, const std::string& color, const Stroke& stroke = {});
  void band(const Points& lower, const Points& upper, const std::string& color);  // the area between two curves
  void dot(const Point& point, const std::string& color, bool filled = true);

  // Names curves by text in their colours, inside the panel at the top left.
  void legend(const std::vector<LegendEntry>& entries);
  // Names curves below the panel, each beside a piece of it. Charts with such legends need legendRows.
  void legendBelow(const std::vector<LegendEntry>& entries);

  const std::vector<std::string>& items() const { return items_; }

 private:
  Point at(const Point& point) const;
  std::string path(const Points& points) const;
  void text(const Point& where, const std::string& what, const std::string& anchor, int size, const std::string& color);
  void drawAxes();

  double left_;
  Axis x_, y_;
  std::vector<std::string> items_;
};

// The document. `legendRows` is the number of entries of the longest legend below a panel. The lines of
// the caption come below them.
std::string svgText(const std::vector<Panel>& panels, int legendRows = 0, const std::vector<std::string>& caption = {});

// Ticks of a logarithmic axis that holds [low, high]: powers of two, or 1, 2 and 5 times powers of ten. At most
// `countMax` (at least 2) of them are returned: others are left out evenly. low is above 0.
std::vector<double> powersOfTwo(double low, double high, int countMax);
std::vector<double> decades(double low, double high, int countMax);
// Ticks of a linear axis from 0 to at least `high`, which is above 0.
std::vector<double> roundSteps(double high);

}  // namespace moe::plot
