#include "perf/ceiling/ceiling_move.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/cuda_raii.h"

namespace moe::perf {

std::string CeilingVariant::name(int multiprocessors) const {
  const std::string how = stages == 0 ? "16-byte accesses" : fmt::format("bulk copies in {} stages", stages);
  return fmt::format("{}, {} SMs x {} warps", how, multiprocessors, warps);
}

CeilingMove::CeilingMove(Device& device, int rank, MoveSetup setup, std::vector<MoveRows> versions)
    : device_(device),
      rank_(rank),
      setup_(std::move(setup)),
      width_(std::max(1, static_cast<int>(setup_.to.size()) - 1)),
      findings_(device, 1) {
  for (MoveRows& rows : versions) {
    Version& version = versions_.emplace_back();
    version.rows = std::move(rows);
    version.arrivals = toDevice(device, version.rows.arrivals);
    if (setup_.kind != MoveKind::pullSums) continue;
    version.arrivalOffsets =
        toDevice(device, offsetsByToken(version.rows.arrivals, setup_.tokens, setup_.destinationsPerToken));
  }
}

std::vector<CeilingVariant> CeilingMove::variants(bool bulk, bool fewTokens) const {
  std::vector<CeilingVariant> all{{0, 8}, {0, 16}};
  if (fewTokens) all.push_back({0, 4});                       // a small block starts sooner
  if (setup_.kind == MoveKind::push) all.push_back({0, 32});  // a push needs few registers
  if (setup_.kind == MoveKind::pullSums || !bulk) return all;
  for (const int stages : {3, 4}) {
    for (const int warps : {4, kBulkWarpsMax}) all.push_back({stages, warps});
  }
  return all;
}

void CeilingMove::prepare(const CeilingVariant& variant, int multiprocessors) {
  variant_ = variant;
  const int warps = multiprocessors * variant.warps;
  for (Version& version : versions_) {
    const bool bulk = variant.stages > 0;
    const std::int64_t rows = bulk ? static_cast<std::int64_t>(version.rows.copies.size()) : rowsOf(version);
    version.parts = cutRows(rows, rowBytes(), warps, bulk ? kBulkStageBytes : rowBytes());
    // A block without any rows would cost its start and do nothing.
    version.blocks = static_cast<int>(std::clamp<std::int64_t>(rows * version.parts.count, 1, multiprocessors));
    bulk ? prepareCopies(version) : prepareTable(version);
  }
}

void CeilingMove::launch(int number) {
  const Version& version = versions_.at(static_cast<std::size_t>(number));
  const GridShape shape{version.blocks, variant_.warps};
  const cudaStream_t stream = device_.stream();
  const auto start = [&] {
    if (variant_.stages > 0) {
      const auto count = static_cast<std::int64_t>(version.copies.count());
      return launchBulk({version.copies.get(), count}, variant_.stages, shape, stream);
    }
    switch (setup_.kind) {
      case MoveKind::push:
        break;
      case MoveKind::pull:
        return launchPull(pullJobs(version), shape, stream);
      case MoveKind::pullSums:
        return launchPullSums(pullJobs(version), setup_.shape.format, shape, stream);
    }
    const auto* source = reinterpret_cast<const std::uint8_t*>(setup_.from[static_cast<std::size_t>(rank_)]);
    return launchPush(
        {source, version.table.get(), width_, static_cast<std::int32_t>(rowsOf(version)), rowBytes(), version.parts},
        shape, stream);
  };
  checkCuda(start(), [&] { return "cannot launch a kernel of the ceilings (" + setup_.name + ")"; });
}

void CeilingMove::clear() {
  if (setup_.target > 0) device_.clear(target(), setup_.target);
}

unsigned long long CeilingMove::countWrong(int number) {
  const Version& version = versions_.at(static_cast<std::size_t>(number));
  device_.clear(findings_.get(), sizeof(Findings));
  if (setup_.kind == MoveKind::pullSums) {
    device_.run(VerifySums{setup_.payloadOf, setup_.shape, version.arrivals.get(), version.arrivalOffsets.get(),
                           setup_.tokens, target(), findings_.get()});
  } else {
    device_.run(VerifyRows{setup_.payloadOf, setup_.shape, version.arrivals.get(),
                           static_cast<std::int64_t>(version.arrivals.count()), 1, target(), findings_.get()});
  }
  Findings findings{};
  device_.download(&findings, findings_.get(), sizeof(findings));
  return findings.wrongPayloads;
}

// Rows that the kernels with tables go through.
std::int64_t CeilingMove::rowsOf(const Version& version) const {
  if (setup_.kind != MoveKind::push) return setup_.tokens;
  return version.rows.copies.empty() ? 0 : version.rows.copies.back().from.row + 1;
}

std::uint8_t* CeilingMove::target() const {
  return reinterpret_cast<std::uint8_t*>(setup_.to[static_cast<std::size_t>(rank_)]);
}

// Independent of the variant's shape.
void CeilingMove::prepareTable(Version& version) {
  if (version.table.count() > 0) return;
  const std::vector<RowCopy>& copies = version.rows.copies;
  version.table = toDevice(
      device_, setup_.kind == MoveKind::push
                   ? sinkTable(copies, rowsOf(version), width_, rowBytes(), setup_.to)
                   : sourceTable(copies, setup_.tokens, width_, setup_.destinationsPerToken, rowBytes(), setup_.from));
}

void CeilingMove::prepareCopies(Version& version) {
  version.copies =
      toDevice(device_, bulkCopies(version.rows.copies, version.parts, rowBytes(), setup_.from, setup_.to));
}

PullJobs CeilingMove::pullJobs(const Version& version) const {
  return {version.table.get(), width_, setup_.tokens, setup_.destinationsPerToken, rowBytes(), version.parts, target()};
}

}  // namespace moe::perf
