// How a step is spread over a GPU. This is pure arithmetic, so tests need no GPU. docs/internals/notebook.md has the
// measurements behind the numbers. docs/reference/tuning.md, "Multiprocessors", explains how they lead to a count.
#pragma once

#include <algorithm>
#include <cmath>

#include "backend/backend.h"
#include "device/policy/cuda/kernel_numbers.h"

namespace moe {

struct GpuMachine {
  int multiprocessors = 1;
  int sharers = 1;              // ranks on this GPU: all of their blocks must fit at once
  std::size_t sharedBytes = 0;  // most shared memory of a block
  double linkGBs = 0;           // nominal speed of its links to other GPUs, one way; 0: not known
  int major = 9;                // of its compute capability
};

// In a route, a block is what the protocol calls a warp.
inline constexpr int kRouteBlocksMax = 64, kRouteTokensPerBlock = 32, kRouteWarpsPerBlock = 16;
// Up to this many tokens latency counts. A block has this many warps then.
inline constexpr int kSmallTokens = 512, kSmallWarps = 16;
// Warps of a block that is a warp of the policy, if it has at most kFewRows rows.
inline constexpr int kFewWarps = 8, kFewRows = 2;
// The share of multiprocessors for small operations that only move rows between ranks. Each further block is one more
// fence and one more announcement at every peer, and a quarter of the multiprocessors keeps the wire busy. A dispatch
// that routes takes more multiprocessors, because its blocks also count.
inline constexpr int kSmallMoveShare = 4;
// The most blocks per token in small LL operations.
inline constexpr int kSmallBlocksPerToken = 2;
// LL: the fewest tokens for which own rows go straight to the output. With fewer, own rows arrive sooner through slots,
// with the rows of other ranks.
inline constexpr int kStraightTokensMin = 64;
// For larger HT operations that also sum rows here, and for those that only move rows if the link's speed is not known.
// On four GPUs more multiprocessors were not faster. LL takes all multiprocessors, unless it waits for a kernel that
// needs some of them.
inline constexpr int kLargeMultiprocessors = 32;
// For HT dispatches that copy rows here, or that cast or bring payloads lane by lane. Dispatches that do both take all
// multiprocessors. So do combines in a wire format, which lanes code, unless they wait for another kernel.
inline constexpr int kBusyMultiprocessors = 64;
inline constexpr int kBulkRowBytesMin = 1024;             // shorter rows do not go in bulk
inline constexpr std::uint32_t kPartBytes = 512;          // one 16-byte piece per lane
inline constexpr int kStageBytesMax = 7424;               // 7168 columns in fp8, and their scales
inline constexpr int kCastStageBytesMax = 3584;           // the same for steps that cast or have payloads:
                                                          // kernel_numbers.h
inline constexpr std::size_t kStaticSharedBytes = 20608;  // barriers, desks, a record and alignment, rounded up

// For large operations that only move rows (decision 0026): what a multiprocessor moves, and the share of the link's
// speed that the wire takes. Dispatch stores to peers, combine loads from them.
struct MoveSpeed {
  double multiprocessorGBs, linkShare;
};
inline constexpr MoveSpeed kDispatchSpeed{38, 0.70}, kCombineSpeed{49, 0.67};
inline constexpr double kMoveSlack = 0.02;            // share of the time, given up for fewer multiprocessors
inline constexpr double kMoveFixedUs = 8;             // time of an operation without rows
inline constexpr int kMoveStep = 16, kMoveMost = 64;  // 20 to 28 are slower than 16; the model ends at kMoveMost

// The shared memory of a block that is left for stages.
inline std::size_t stageRoom(const GpuMachine& machine) {
  return machine.sharedBytes > kStaticSharedBytes ? machine.sharedBytes - kStaticSharedBytes : 0;
}
inline std::size_t bulkSharedBytesMax(const GpuMachine& machine) {
  const std::size_t room = stageRoom(machine);
  return room > 0 ? room + 128 : 0;
}

// Moved rows use few large stages. Summed rows use more and smaller ones. `rowBytes` is a combine's.
inline WarpStages warpStages(const GpuMachine& machine, Step step, int warpsPerBlock, std::uint32_t rowBytes) {
  const std::size_t each = stageRoom(machine) / static_cast<std::size_t>(warpsPerBlock);
  if (rowOf(step).combines()) {
    const std::uint32_t slot = static_cast<std::uint32_t>(sumPieces(rowBytes)) * kSumPieceBytes;
    return {static_cast<int>(std::clamp<std::size_t>(each / slot, 1, kSumSlotsMax)), slot};
  }
  const std::size_t most = rowOf(step).family == StepFamily::cast ? kCastStageBytesMax : kStageBytesMax;
  return {kBulkStages, static_cast<std::uint32_t>(std::min<std::size_t>(each / kBulkStages / 128 * 128, most))};
}

// Warps of a block. Warps that sum need several slots each.
inline int bulkWarps(const GpuMachine& machine, Step step, std::uint32_t rowBytes) {
  if (!rowOf(step).combines()) return kBulkWarpsMax;
  const int pieces = sumPieces(rowBytes), most = sumWarpsMax(pieces);
  const std::size_t each = static_cast<std::size_t>(kSumSlotsMin * pieces) * kSumPieceBytes;
  return static_cast<int>(std::clamp<std::size_t>(stageRoom(machine) / each, 1, static_cast<std::size_t>(most)));
}

// How many blocks can be resident at once.
inline int residentBlocks(const GpuMachine& machine, int wanted) {
  return std::clamp(wanted, 1, std::max(1, machine.multiprocessors / machine.sharers));
}

// The fewest multiprocessors with which B bytes take at most kMoveSlack longer than necessary. With n multiprocessors
// the wire slows down by (1 + x^4)^(1/4), where x is the wire's speed over theirs.
inline int multiprocessorsForMove(const GpuMachine& machine, const MoveSpeed& speed, std::int64_t bytes) {
  if (bytes <= 0) return kMoveStep;
  const double wire = machine.linkGBs * speed.linkShare / machine.sharers;
  const double wireUs = static_cast<double>(bytes) / wire / 1000;
  const double slowdown = 1 + kMoveSlack * (1 + kMoveFixedUs / wireUs);
  const double x = std::sqrt(std::sqrt(slowdown * slowdown * slowdown * slowdown - 1));
  const double steps = std::ceil(wire / (x * speed.multiprocessorGBs) / kMoveStep);
  return static_cast<int>(std::clamp(steps * kMoveStep, double{kMoveStep}, double{kMoveMost}));
}

inline LaunchShape planRoute(const GpuMachine& machine, const Workload& work) {
  const int blocks = std::clamp((work.rows + kRouteTokensPerBlock - 1) / kRouteTokensPerBlock, 1, kRouteBlocksMax);
  return {residentBlocks(machine, work.sms > 0 ? std::min(work.sms, blocks) : blocks), kRouteWarpsPerBlock};
}

// The blocks of an LL operation that only moves rows between ranks. Each block has one token, because it looks up where
// the token goes. Two blocks share a token as long as there is room for all of them.
inline std::int64_t blocksOfTokens(std::int64_t rows, int piecesOfRow, int warps, int room) {
  const std::int64_t each = std::clamp((piecesOfRow + warps - 1) / warps, 1, kSmallBlocksPerToken);
  return rows * each <= room ? rows * each : rows;
}

// The number of warps per block that this work's kernel is compiled for.
inline int warpsOf(const GpuMachine& machine, const Workload& work) {
  const StepRow row = rowOf(work.step);
  return plainWarpsMax(row, work.split && row.has(kFar), machine.major);
}

// The parts of a row, if there is a warp for each.
inline int piecesOf(const Workload& work) {
  return static_cast<int>((work.rowBytes + kPartBytes - 1) / kPartBytes);
}

// For steps whose warps are blocks. A block has few warps, because all of them go through the same instructions. It has
// more if it handles several rows one after the other, because then the number of pieces in flight decides, and if it
// codes whole rows, because then there is a thread for each piece of 16 elements.
inline LaunchShape planBlocks(const GpuMachine& machine, const Workload& work) {
  const std::int64_t rows = blocksOfTokens(work.rows, piecesOf(work), kFewWarps, machine.multiprocessors - 1);
  const int wanted = static_cast<int>(std::clamp<std::int64_t>(rows, 1, machine.multiprocessors));
  const int blocks = residentBlocks(machine, work.sms > 0 ? std::min(work.sms, wanted) : wanted);
  const bool few =
      rowOf(work.step).codesPlainly() ? rows > work.rows && !work.wholeRows : work.rows <= kFewRows * blocks;
  return {blocks, std::min(few ? kFewWarps : kSmallWarps, warpsOf(machine, work))};
}

// One warp for each piece of a row.
inline LaunchShape planSmall(const GpuMachine& machine, const Workload& work) {
  if (rowOf(work.step).family == StepFamily::plain) return planBlocks(machine, work);
  const int warps = std::min(kSmallWarps, warpsOf(machine, work)), pieces = piecesOf(work);
  const int share = work.movesOnly && !rowOf(work.step).routes() ? kSmallMoveShare : 1;
  const int most = std::max(1, machine.multiprocessors / share);
  const std::int64_t blocks = work.lowLatency && work.movesOnly
                                  ? blocksOfTokens(work.rows, pieces, warps, machine.multiprocessors / 2)
                                  : (std::int64_t{work.rows} * pieces + warps - 1) / warps;
  const int wanted = static_cast<int>(std::clamp<std::int64_t>(blocks, 1, most));
  return {residentBlocks(machine, work.sms > 0 ? std::min(work.sms, wanted) : wanted), warps};
}

inline int largeMultiprocessors(const GpuMachine& machine, const Workload& work) {
  if (work.movesOnly && machine.linkGBs > 0) {
    return multiprocessorsForMove(machine, rowOf(work.step).combines() ? kCombineSpeed : kDispatchSpeed, work.bytes);
  }
  if (work.step == Step::htCast || work.step == Step::htDispatchWaves) return kBusyMultiprocessors;
  const bool codes = rowOf(work.step).family == StepFamily::codedCombine;
  const bool all = work.step == Step::htCastWaves || (!work.waitsForRows && (codes || work.lowLatency));
  return all ? machine.multiprocessors : kLargeMultiprocessors;
}

inline LaunchShape planLarge(const GpuMachine& machine, const Workload& work, bool bulk) {
  const int blocks = residentBlocks(machine, work.sms > 0 ? work.sms : largeMultiprocessors(machine, work));
  const bool moves = bulk && !work.lowLatency && work.rowBytes >= kBulkRowBytesMin;
  if (moves && (rowOf(work.step).kernels & (kBulk | kFarBulk)) != 0) {
    return {blocks, bulkWarps(machine, work.step, work.rowBytes), true, describingWarps(work.step)};
  }
  return {blocks, warpsOf(machine, work)};
}

// Adds a block to a dispatch that routes, if `sms` allows it. If there are several blocks, the last one only counts,
// because the others would wait for it. The same holds for all steps whose warps are blocks.
inline void addCountingBlock(const GpuMachine& machine, const Workload& work, LaunchShape* shape) {
  if (work.sms == 0 || shape->blocks < work.sms) shape->blocks = residentBlocks(machine, shape->blocks + 1);
  shape->countingBlock = shape->blocks > 1;
}

inline LaunchShape planLaunch(const GpuMachine& machine, const Workload& work, bool bulk) {
  if (rowOf(work.step).computes()) return planRoute(machine, work);
  LaunchShape shape =
      work.tokensMax <= kSmallTokens ? planSmall(machine, work) : planLarge(machine, work, bulk && !work.waitsForRows);
  shape.straight = work.tokensMax >= kStraightTokensMin;
  if (rowOf(work.step).routes() || rowOf(work.step).family == StepFamily::plain) {
    addCountingBlock(machine, work, &shape);
  }
  return shape;
}

inline Parts planParts(const LaunchShape& shape, int rows, std::uint32_t rowBytes) {
  constexpr int kPartsMax = 64;  // times the rows that may arrive (Limits::kArrivingRows) this fits 31 bits
  const int most = std::min(static_cast<int>((rowBytes + kPartBytes - 1) / kPartBytes), kPartsMax);
  const int wanted = shape.bulk || rows == 0 ? 1 : std::clamp(shape.warps() / rows, 1, std::max(1, most));
  const auto bytes = static_cast<std::uint32_t>(
      roundUp((rowBytes + static_cast<std::uint32_t>(wanted) - 1) / static_cast<std::uint32_t>(wanted), kPartBytes));
  return {static_cast<int>((rowBytes + bytes - 1) / bytes), bytes};
}

}  // namespace moe
