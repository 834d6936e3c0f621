// The table of moe_top about what a job's ranks have done since the job began.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tools/moe_top.h"
#include "tools/rates.h"

namespace moe::tools {
namespace {

// At most 6 columns: whole up to 999999, then with a unit.
std::string shortCount(double count) {
  if (count < 1e6) return fmt::format("{:.0f}", count);
  for (const auto& [unit, name] : {std::pair{1e6, 'M'}, {1e9, 'G'}, {1e12, 'T'}}) {
    const double value = count / unit;
    if (value < 99.995) return fmt::format("{:.2f}{}", value, name);
    if (value < 999.95) return fmt::format("{:.1f}{}", value, name);
  }
  return fmt::format("{:.0e}", count);
}

std::string shortCount(std::int64_t count) {
  return shortCount(static_cast<double>(count));
}

// At most 7 columns: "12.3 s", "59.9 m", "23.9 h", "9999 d".
std::string shortTime(std::int64_t ns) {
  const double seconds = secondsOf(ns);
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  if (seconds < 60 * 99.95) return fmt::format("{:.1f} m", seconds / 60);
  if (seconds < 3600 * 99.95) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.0f} d", seconds / 86400);
}

std::string timeIfKnown(const std::optional<std::int64_t>& ns) {
  return ns ? shortTime(*ns) : "?";
}

// Rows and bytes with a "+" are those of calls, and replays of graphs have moved more.
std::string rowText(const RankDump& dump) {
  const std::string place = fmt::format("{:>5} {:<12.12}", dump.rank, dump.host);
  if (!dump.totals) return place + " no totals: an older library, or MOECOMM_RECORDER=off\n";
  const DumpedTotals& t = *dump.totals;
  const char* more = t.replayed() ? "+" : "";
  return fmt::format("{} {:>6} {:>10} {:>8} {:>7} {:>7} {:>8} {:>7}\n", place, shortCount(t.routes),
                     shortCount(t.dispatches), shortCount(t.combines), shortCount(t.callRows) + more,
                     shortCount(static_cast<double>(t.callBytes)) + more, timeIfKnown(t.stepNs), timeIfKnown(t.waitNs));
}

}  // namespace

std::string totalsTable(const std::vector<RankDump>& dumps) {
  std::int64_t since = 0;
  for (const RankDump& dump : dumps) since = std::max(since, dump.totals ? dump.totals->since : 0);
  std::string table = fmt::format("job {}: {} of {} ranks watched, totals of {}\n", dumps[0].job, dumps.size(),
                                  dumps[0].nranks, shortTime(since));
  fmt::format_to(std::back_inserter(table), "{:>5} {:<12} {:>6} {:>10} {:>8} {:>7} {:>7} {:>8} {:>7}\n", "rank", "host",
                 "routes", "dispatches", "combines", "rows", "bytes", "in steps", "waited");
  for (const RankDump& dump : dumps) table += rowText(dump);
  return table;
}

}  // namespace moe::tools
