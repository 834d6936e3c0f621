#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tools/trace_output.h"

namespace moe::tools {
namespace {

constexpr int kMargin = 70, kLabelsMax = 32;
constexpr int kNumberCell = 30;  // a cell of this size has room for a number
constexpr int kScaleGap = 30, kScaleWidth = 16, kScaleParts = 50;
constexpr int kRight = 130;          // for the scale and its numbers
constexpr double kDarkShare = 0.55;  // from here on numbers are white

// From white to dark red.
std::string colourOf(double share) {
  const auto fade = [&](int full, int none) { return none + static_cast<int>((full - none) * share); };
  return fmt::format("#{:02x}{:02x}{:02x}", fade(165, 255), fade(15, 250), fade(21, 245));
}

std::string escaped(const std::string& text) {
  std::string xml;
  for (const char c : text) {
    if (c == '<') {
      xml += "&lt;";
    } else if (c == '&') {
      xml += "&amp;";
    } else {
      xml += c;
    }
  }
  return xml;
}

struct Unit {
  const char* name;
  double perSecond;
};

// The unit in which the longest wait has two to four digits, up to hours.
Unit unitOf(double seconds) {
  if (seconds >= 10) return {"s", 1};
  return seconds >= 1e-2 ? Unit{"ms", 1e3} : Unit{"us", 1e6};
}

// At most four columns, as XML: "0", "&lt;0.1", "1.2", "12", "1234".
std::string shortNumber(double value) {
  if (value == 0) return "0";
  if (value < 0.095) return "&lt;0.1";
  return value < 9.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

class HeatMap {
 public:
  explicit HeatMap(const WaitTable& waits)
      : waits_(waits),
        n_(waits.nranks),
        cell_(std::clamp(640 / std::max(n_, 1), 4, 48)),
        side_(n_ * cell_),
        most_(waits.seconds.empty() ? 0 : *std::max_element(waits.seconds.begin(), waits.seconds.end())),
        unit_(unitOf(most_)) {}

  std::string draw(const std::string& title, const std::string& verdict) {
    const int width = std::max(side_ + kMargin + kRight, 640), height = side_ + kMargin + 60;
    fmt::format_to(out(),
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
                   "font-family=\"sans-serif\" font-size=\"12\">\n"
                   "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
                   width, height);
    fmt::format_to(out(), "<text x=\"{}\" y=\"20\" font-size=\"14\">{}, in {}</text>\n", kMargin, escaped(title),
                   unit_.name);
    addLabels();
    for (int rank = 0; rank < n_; ++rank) {
      for (int awaited = 0; awaited < n_; ++awaited) addCell(rank, awaited);
    }
    addScale();
    fmt::format_to(out(), "<text x=\"{}\" y=\"{}\">slowest: {}</text>\n", kMargin, kMargin + side_ + 24,
                   escaped(verdict));
    if (!waits_.known) {
      fmt::format_to(out(), "<text x=\"{}\" y=\"{}\">no waits are recorded</text>\n", kMargin, kMargin + side_ + 42);
    }
    return svg_ + "</svg>\n";
  }

 private:
  std::back_insert_iterator<std::string> out() { return std::back_inserter(svg_); }
  double share(double seconds) const { return most_ > 0 ? seconds / most_ : 0; }

  void addLabels() {
    fmt::format_to(out(), "<text x=\"{}\" y=\"{}\">awaited rank</text>\n", kMargin, kMargin - 26);
    fmt::format_to(out(), "<text x=\"24\" y=\"{0}\" transform=\"rotate(-90 24 {0})\">rank that waited</text>\n",
                   kMargin + std::max(side_, 100));
    const int every = std::max((n_ + kLabelsMax - 1) / kLabelsMax, 1);
    for (int rank = 0; rank < n_; rank += every) {
      const int middle = kMargin + rank * cell_ + cell_ / 2;
      fmt::format_to(out(), "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", middle, kMargin - 8, rank);
      fmt::format_to(out(), "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kMargin - 8, middle + 4, rank);
    }
  }

  void addCell(int rank, int awaited) {
    const double seconds = waits_.of(rank, awaited);
    const int x = kMargin + awaited * cell_, y = kMargin + rank * cell_;
    fmt::format_to(out(), "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#ddd\">", x, y,
                   cell_, cell_, colourOf(share(seconds)));
    fmt::format_to(out(), "<title>rank {} waited {:.3f} ms for rank {}</title></rect>\n", rank, 1e3 * seconds, awaited);
    if (cell_ < kNumberCell || rank == awaited) return;
    fmt::format_to(out(), "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{}\" font-size=\"11\">{}</text>\n",
                   x + cell_ / 2, y + cell_ / 2 + 4, share(seconds) > kDarkShare ? "white" : "#222222",
                   shortNumber(unit_.perSecond * seconds));
  }

  // From the longest wait at the top to 0.
  void addScale() {
    const int x = kMargin + side_ + kScaleGap, length = std::max(side_, 100);
    for (int i = 0; i < kScaleParts; ++i) {
      const double top = static_cast<double>(length) * i / kScaleParts;
      fmt::format_to(out(), "<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x,
                     kMargin + top, kScaleWidth, static_cast<double>(length) / kScaleParts + 0.5,
                     colourOf(1 - (i + 0.5) / kScaleParts));
    }
    fmt::format_to(out(), "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#777777\"/>\n", x,
                   kMargin, kScaleWidth, length);
    for (const double part : {1.0, 0.5, 0.0}) {
      fmt::format_to(out(), "<text x=\"{}\" y=\"{:.1f}\">{} {}</text>\n", x + kScaleWidth + 6,
                     kMargin + length * (1 - part) + 4, shortNumber(unit_.perSecond * most_ * part), unit_.name);
    }
  }

  const WaitTable& waits_;
  int n_, cell_, side_;
  double most_;
  Unit unit_;
  std::string svg_;
};

}  // namespace

std::string heatMapSvg(const WaitTable& waits, const std::string& title, const std::string& verdict) {
  return HeatMap(waits).draw(title, verdict);
}

}  // namespace moe::tools
