#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tools/trace_output.h"

namespace moe::tools {
namespace {

constexpr int kMargin = 70, kLabelsMax = 32;

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

}  // namespace

std::string heatMapSvg(const WaitTable& waits, const std::string& title) {
  const int n = waits.nranks, cell = std::clamp(640 / std::max(n, 1), 4, 48), side = n * cell;
  const double most = waits.seconds.empty() ? 0 : *std::max_element(waits.seconds.begin(), waits.seconds.end());
  std::string svg;
  const auto out = std::back_inserter(svg);
  fmt::format_to(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      std::max(side + 2 * kMargin, 560), side + 2 * kMargin);
  fmt::format_to(out, "<text x=\"{}\" y=\"20\" font-size=\"14\">{}</text>\n", kMargin, escaped(title));
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\">awaited rank</text>\n", kMargin, kMargin - 26);
  fmt::format_to(out, "<text x=\"12\" y=\"{0}\" transform=\"rotate(-90 12 {0})\">rank that waited</text>\n",
                 kMargin + side);
  const int every = (n + kLabelsMax - 1) / kLabelsMax;
  for (int rank = 0; rank < n; rank += std::max(every, 1)) {
    const int middle = kMargin + rank * cell + cell / 2;
    fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", middle, kMargin - 8, rank);
    fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kMargin - 8, middle + 4, rank);
  }
  for (int rank = 0; rank < n; ++rank) {
    for (int awaited = 0; awaited < n; ++awaited) {
      const double seconds = waits.of(rank, awaited);
      fmt::format_to(out, "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#ddd\">",
                     kMargin + awaited * cell, kMargin + rank * cell, cell, cell,
                     colourOf(most > 0 ? seconds / most : 0));
      fmt::format_to(out, "<title>rank {} waited {:.3f} ms for rank {}</title></rect>\n", rank, 1e3 * seconds, awaited);
    }
  }
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\">darkest: {:.3f} ms{}</text>\n", kMargin, kMargin + side + 24, 1e3 * most,
                 waits.known ? "" : "; no waits are recorded");
  return svg + "</svg>\n";
}

}  // namespace moe::tools
