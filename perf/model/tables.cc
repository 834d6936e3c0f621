#include "perf/model/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "perf/model/destinations.h"
#include "perf/model/estimate.h"
#include "perf/model/footprint.h"
#include "perf/model/published.h"

namespace moe::model {
namespace {

constexpr int kLlTokens = 128, kHtTokens = 4096, kDomainLimit = 4;

Workload at(const Study& study, int ranks) {
  Workload w = study.workload;
  w.ranks = ranks;
  return w;
}

std::string table(const std::string& titles, const std::vector<std::string>& rows) {
  std::string text = fmt::format("| {} |\n|", titles);
  const auto columns = std::count(titles.begin(), titles.end(), '|') + 1;
  for (std::ptrdiff_t i = 0; i < columns; ++i) text += "---|";
  for (const std::string& row : rows) text += fmt::format("\n| {} |", row);
  return text + "\n";
}

std::string rowsOf(const Study& study, const std::string& titles,
                   const std::function<std::string(const Workload&)>& row) {
  std::vector<std::string> rows;
  for (const int ranks : study.ranks) rows.push_back(row(at(study, ranks)));
  return table(titles, rows);
}

int domainsOf(const Study& study, const Workload& w) {
  return std::max(1, w.ranks / study.machine.domainRanks);
}

// A limit of domains applies only where all domains have the same number of experts.
bool mayBeLimited(const Study& study, const Workload& w) {
  return w.expertCount() % domainsOf(study, w) == 0;
}

// The same case with one change, or a dash where the change is impossible or has no effect.
std::string limitedDomains(const Study& study, Workload w) {
  w.domainLimit = kDomainLimit;
  return mayBeLimited(study, w) ? fmt::format("{:.2f}", destinationsOf(w, study.machine.domainRanks).domains) : "-";
}

std::string limitedTimes(const Study& study, Workload w) {
  w.domainLimit = kDomainLimit;
  if (domainsOf(study, w) <= kDomainLimit || !mayBeLimited(study, w)) return "-";
  return fmt::format("{:.0f} / {:.0f}", estimate(study.machine, w, Copies::perDomain, Operation::dispatch).us,
                     estimate(study.machine, w, Copies::perDomain, Operation::combine).us);
}

std::string byProxy(const Study& study, const Workload& w) {
  if (w.ranks <= study.machine.domainRanks) return "-";
  Machine machine = withoutCalls(study.machine);
  machine.postUs = nodesOf8(Transport::proxy).postUs;
  return fmt::format("{:.0f}", estimate(machine, w, Copies::perRank, Operation::dispatch).us);
}

struct Pair {
  Estimate dispatch, combine;
};
Pair pairOf(const Study& study, const Workload& w, Copies copies) {
  return {estimate(study.machine, w, copies, Operation::dispatch),
          estimate(study.machine, w, copies, Operation::combine)};
}

std::string megabytes(double dispatch, double combine, int digits) {
  return fmt::format("{:.{}f} / {:.{}f}", dispatch * 1e-6, digits, combine * 1e-6, digits);
}

// Columns that both modes have: bytes, messages, times, and the bounding resource.
std::string columnsOf(const Pair& pair, int digits) {
  const Traffic& t = pair.dispatch.traffic;
  return fmt::format("{} | {} | {:.0f} + {:.0f} | {:.0f} / {:.0f} | {} / {}",
                     megabytes(pair.dispatch.railBytes, pair.combine.railBytes, digits),
                     megabytes(pair.dispatch.nvlinkBytes, pair.combine.nvlinkBytes, digits), t.railRows, t.words,
                     pair.dispatch.us, pair.combine.us, nameOf(pair.dispatch.bound), nameOf(pair.combine.bound));
}

const std::string kColumns = "ranks | rail MB | NVLink MB | rows + words posted | us | bound";

std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.0f}", static_cast<double>(bytes) / (1 << 20));
}

std::string comparisonColumns(const Measured& m) {
  if (m.figure.empty()) return "- | - | -";
  return fmt::format("{} | {:.0f} | {:+.0f} %", m.figure, m.modelUs, m.offPercent());
}

nlohmann::ordered_json toJson(const Estimate& e) {
  return {{"us", e.us},
          {"bound", nameOf(e.bound)},
          {"rail_bytes", e.railBytes},
          {"nvlink_bytes", e.nvlinkBytes},
          {"rows_posted", e.traffic.railRows},
          {"words_posted", e.traffic.words},
          {"latency_us", e.latencyUs},
          {"rail_us", e.railUs},
          {"nvlink_us", e.nvlinkUs},
          {"posting_us", e.postUs}};
}

nlohmann::ordered_json toJson(const Pair& pair) {
  return {{"dispatch", toJson(pair.dispatch)}, {"combine", toJson(pair.combine)}};
}

nlohmann::ordered_json toJson(const Footprint& f) {
  return {{"ll_window", f.llWindow},
          {"ht_window", f.htWindow},
          {"ht_window_unstaged", f.htWindowUnstaged},
          {"ht_handle", f.htHandle},
          {"route_counts", f.routeCountsArrive},
          {"queue_pairs", f.queuePairs},
          {"queue_bytes", f.queueBytes}};
}

nlohmann::ordered_json toJson(const Measured& m) {
  return {{"published", m.figure}, {"published_us", m.us}, {"model_us", m.modelUs}};
}

nlohmann::ordered_json publishedJson() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Comparison& c : comparisons()) {
    nlohmann::ordered_json row = {
        {"system", c.system}, {"mode", c.mode}, {"ranks", c.ranks}, {"dispatch", toJson(c.dispatch)}};
    if (!c.combine.figure.empty()) row["combine"] = toJson(c.combine);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Study nodesStudy(int tokens) {
  Study study{nodesOf8(), {}, {16, 32, 64, 128, 256, 512, 1024, 2048}};
  study.workload.tokens = tokens;
  return study;
}

Study fabricsStudy(int tokens) {
  Study study{fabricsOf72(), {}, {16, 64, 72, 144, 288, 576, 1152, 2016}};
  study.workload.tokens = tokens;
  return study;
}

std::string destinationsTable(const Study& study) {
  return rowsOf(study, "ranks | experts | domains | ranks of a token | domains of a token | limited to 4 domains",
                [&](const Workload& w) {
                  const Destinations to = destinationsOf(w, study.machine.domainRanks);
                  return fmt::format("{} | {} | {} | {:.2f} | {:.2f} | {}", w.ranks, w.expertCount(),
                                     domainsOf(study, w), to.ranks, to.domains, limitedDomains(study, w));
                });
}

std::string llTable(const Study& study) {
  return rowsOf(study, kColumns + " | dispatch by proxy, us | once per domain, us", [&](const Workload& w) {
    // This code does not exist yet, so there are no calls to count.
    const Pair forwarded = pairOf({withoutCalls(study.machine), {}, {}}, w, Copies::perDomain);
    return fmt::format("{} | {} | {} | {:.0f} / {:.0f}", w.ranks, columnsOf(pairOf(study, w, Copies::perRank), 2),
                       byProxy(study, w), forwarded.dispatch.us, forwarded.combine.us);
  });
}

std::string htTable(const Study& study) {
  return rowsOf(study, kColumns + " | limited to 4 domains, us", [&](const Workload& w) {
    return fmt::format("{} | {} | {}", w.ranks, columnsOf(pairOf(study, w, Copies::perDomain), 0),
                       limitedTimes(study, w));
  });
}

std::string memoryTable(const Study& ll, const Study& ht) {
  return rowsOf(
      ll, "ranks | LL window | HT window | HT, no staging | HT handle | counts per route | queue pairs | their queues",
      [&](const Workload& w) {
        const Footprint f = footprintOf(w, at(ht, w.ranks), ll.machine.domainRanks);
        return fmt::format("{} | {} | {} | {} | {} | {:.1f} | {} | {}", w.ranks, mebibytes(f.llWindow),
                           mebibytes(f.htWindow), mebibytes(f.htWindowUnstaged), mebibytes(f.htHandle),
                           static_cast<double>(f.routeCountsArrive) / (1 << 20), f.queuePairs, mebibytes(f.queueBytes));
      });
}

std::string publishedTable() {
  std::vector<std::string> rows;
  for (const Comparison& c : comparisons()) {
    rows.push_back(fmt::format("{} | {} | {} | {} | {}", c.system, c.mode, c.ranks, comparisonColumns(c.dispatch),
                               comparisonColumns(c.combine)));
  }
  return table("system | mode | ranks | dispatch | model, us | off | combine | model, us | off", rows);
}

std::vector<NamedTable> documentTables() {
  const Study llNodes = nodesStudy(kLlTokens), htNodes = nodesStudy(kHtTokens);
  const Study llFabrics = fabricsStudy(kLlTokens), htFabrics = fabricsStudy(kHtTokens);
  return {{"destinations-nodes", "Destinations, nodes of 8", destinationsTable(llNodes)},
          {"destinations-fabrics", "Destinations, fabrics of 72", destinationsTable(llFabrics)},
          {"ll-nodes", "LL, nodes of 8 (dispatch / combine)", llTable(llNodes)},
          {"ll-fabrics", "LL, fabrics of 72 (dispatch / combine)", llTable(llFabrics)},
          {"ht-nodes", "HT, nodes of 8 (dispatch / combine)", htTable(htNodes)},
          {"ht-fabrics", "HT, fabrics of 72 (dispatch / combine)", htTable(htFabrics)},
          {"memory-nodes", "MiB and queue pairs per rank, nodes of 8", memoryTable(llNodes, htNodes)},
          {"memory-fabrics", "MiB and queue pairs per rank, fabrics of 72", memoryTable(llFabrics, htFabrics)},
          {"published", "Published and measured results beside the model", publishedTable()}};
}

nlohmann::ordered_json toJson(const Study& ll, const Study& ht) {
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  for (const int ranks : ll.ranks) {
    const Workload w = at(ll, ranks);
    cases.push_back({{"machine", ll.machine.name},
                     {"ranks", ranks},
                     {"experts", w.expertCount()},
                     {"ll", toJson(pairOf(ll, w, Copies::perRank))},
                     {"ll_once_per_domain", toJson(pairOf(ll, w, Copies::perDomain))},
                     {"ht", toJson(pairOf(ht, at(ht, ranks), Copies::perDomain))},
                     {"memory", toJson(footprintOf(w, at(ht, ranks), ll.machine.domainRanks))}});
  }
  return cases;
}

nlohmann::ordered_json documentJson() {
  nlohmann::ordered_json cases = toJson(nodesStudy(kLlTokens), nodesStudy(kHtTokens));
  const nlohmann::ordered_json fabrics = toJson(fabricsStudy(kLlTokens), fabricsStudy(kHtTokens));
  cases.insert(cases.end(), fabrics.begin(), fabrics.end());
  return {{"cases", std::move(cases)}, {"published", publishedJson()}};
}

}  // namespace moe::model
