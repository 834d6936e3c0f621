#include "perf/moe_perf/tune.h"

#include <fmt/format.h>

#include <limits>

#include "base/printable.h"
#include "comm/config/tuning_file.h"
#include "comm/handle/mode_choice.h"

namespace moe::perf {
namespace {

double lossOf(double taken, double other) {
  return taken > other && other > 0 ? taken / other - 1 : 0;
}

// Arguments may have any bytes. A line end would end the comment.
std::string commentOf(const std::string& text) {
  return "# " + printableAscii(text) + "\n";
}

std::string versionOf(const Provenance& provenance) {
  return provenance.version + (provenance.commit.empty() ? "" : " (" + provenance.commit + ")");
}

// "2 ranks in 2 domains, NVIDIA H200"
std::string machineOf(const Tuning& tuning) {
  const Machine& machine = tuning.machine;
  const std::string domains = machine.domains > 1 ? fmt::format(" in {} domains", machine.domains) : "";
  return fmt::format("{} ranks{}, {}", machine.nranks, domains,
                     machine.backend == "host" ? tuning.provenance.cpu : machine.device);
}

std::string crossingOf(const Tuning& tuning) {
  const int tokens = tokensOfLl(tuning.points);
  if (tokens == 0) return "HT for all of these";
  const bool last = tokens == tuning.points.back().tokens;
  return fmt::format("LL up to {} token{}{}", tokens, tokens == 1 ? "" : "s",
                     last ? ", the most that were measured" : "");
}

}  // namespace

int tokensOfLl(const std::vector<TunePoint>& points) {
  double least = std::numeric_limits<double>::infinity();
  int tokens = 0;
  for (std::size_t count = 0; count <= points.size(); ++count) {
    double loss = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      loss += i < count ? lossOf(points[i].ll, points[i].ht) : lossOf(points[i].ht, points[i].ll);
    }
    if (loss >= least) continue;
    least = loss;
    tokens = count == 0 ? 0 : points[count - 1].tokens;
  }
  return tokens;
}

ModeSetup setupOf(const Machine& machine) {
  const HostLoad& load = machine.hostLoad;
  const Processors supply =
      machine.nranks > 1 ? scarcer(Processors::spare, load.ranks, load.processors) : Processors::spare;
  return moe::setupOf(machine.backend == "host", machine.domains, supply);
}

std::string tuneTitle() {
  return fmt::format("{:>7} {:>10} {:>10}  median us of a step\n", "tokens", "LL", "HT");
}

std::string tuneText(const TunePoint& point) {
  return fmt::format("{:>7} {:>10.1f} {:>10.1f}\n", point.tokens, point.ll, point.ht);
}

std::string tunedLine(const Tuning& tuning) {
  const std::int64_t bytes = bytesOfDispatch(tokensOfLl(tuning.points), tuning.machine.nranks, tuning.rowBytesMax);
  return tuningLine(setupOf(tuning.machine), static_cast<Layout>(tuning.options.layout), bytes);
}

std::string tuningFileText(const Tuning& tuning) {
  const Provenance& made = tuning.provenance;
  std::string text = fmt::format("{}\n", kTuningVersion);
  text += commentOf(tuning.options.command);
  text += commentOf(fmt::format("{}, moecomm {}, {}: {}", made.date, versionOf(made), made.host, machineOf(tuning)));
  text += "#" + tuneTitle();
  for (const TunePoint& point : tuning.points) text += "#" + tuneText(point);
  text += commentOf(fmt::format("{}, rows of {} bytes", crossingOf(tuning), tuning.rowBytesMax));
  return text + tunedLine(tuning) + "\n";
}

}  // namespace moe::perf
