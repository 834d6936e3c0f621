// Measures the ceilings of a case with GPUs. It fills the buffers, tries the variants of each kind of traffic, and
// measures the best one again for longer. All ranks take the same steps in the same order, so that no rank allocates
// while another's kernels wait for its own.
#include "perf/ceiling/ceiling.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "backend/cuda_raii.h"
#include "moecomm.h"
#include "perf/ceiling/ceiling_clock.h"
#include "perf/ceiling/ceiling_move.h"
#include "perf/ceiling/peer_buffers.h"
#include "perf/statistics.h"

namespace moe::perf {
namespace {

constexpr int kFewTokens = 512;  // up to here a launch is short compared with its overhead
constexpr int kTryReplays = 5;   // for each variant tried
constexpr int kReplays = 20;     // for the best variant
constexpr int kRoundTrips = 256;
constexpr std::uint64_t kDispatchSeed = 0xd15fa7c4;
constexpr std::uint64_t kCombineSeed = 0xc0381e;

std::size_t alignUp(std::size_t bytes) {
  return static_cast<std::size_t>(roundUp(static_cast<std::int64_t>(bytes), 256));
}

// Offsets in every rank's buffer, and the sizes of the private buffers.
struct BufferPlan {
  std::size_t flags = 0;
  std::size_t arrived = alignUp(kFlagAreaBytes);  // FLAT rows of a dispatch, later the rows of the combine
  std::size_t arrivedBytes = 0;
  std::size_t slots = 0;
  std::size_t slotBytes = 0;

  BufferPlan(std::int64_t arrivedRows, std::int64_t slotRows, std::size_t dispatchRow, std::size_t combineRow)
      : arrivedBytes(alignUp(static_cast<std::size_t>(arrivedRows) * std::max(dispatchRow, combineRow))),
        slots(arrived + arrivedBytes),
        slotBytes(alignUp(static_cast<std::size_t>(slotRows) * combineRow)) {}

  std::size_t total() const { return slots + slotBytes; }
};

// A row of dispatch travels with its side payload, or with its scales if it is cast. Here both are one row.
RowShape dispatchShape(const Options& options) {
  const Format format = options.format;
  if (options.cast != Cast::none) return {Format::fp8, options.castRowBytes(), 0};
  return {format, (options.rowBytes() + options.sideBytes()) / elementBytes(format), 0};
}

RowShape combineShape(const Options& options) {
  return {combineFormat(options.format), options.hidden, 0};
}

int attributeOf(int gpu, cudaDeviceAttr attribute) {
  int value = 0;
  checkCuda(cudaDeviceGetAttribute(&value, attribute, gpu), "cannot ask for an attribute of the GPU");
  return value;
}

bool hasBulkCopies(int gpu) {
  // Stages of the largest variant, barriers, and the driver's own share.
  const auto sharedBytes = static_cast<std::size_t>(attributeOf(gpu, cudaDevAttrMaxSharedMemoryPerBlockOptin));
  return attributeOf(gpu, cudaDevAttrComputeCapabilityMajor) >= 9 &&
         sharedBytes >= bulkSharedBytes(4, kBulkWarpsMax) + 1024;
}

std::vector<RowTraffic> gatherTraffic(const CeilingCase& which, int destinationsPerToken) {
  std::vector<RowTraffic> traffic;
  for (const Plan* plan : which.plans) {
    std::vector<SentRows> sent;
    for (const auto& numbers :
         which.group.gather(toNumbers(sentRows(*plan, which.group.nranks(), destinationsPerToken)))) {
      sent.push_back(toSentRows(numbers));
    }
    traffic.emplace_back(std::move(sent), destinationsPerToken);
  }
  return traffic;
}

BufferPlan planBuffers(const CeilingCase& which, const std::vector<RowTraffic>& traffic, int destinationsPerToken) {
  std::int64_t arrivedRows = 0;
  for (const RowTraffic& one : traffic) {
    for (int rank = 0; rank < which.group.nranks(); ++rank) arrivedRows = std::max(arrivedRows, one.flatRows(rank));
  }
  return {arrivedRows, static_cast<std::int64_t>(which.tokens) * destinationsPerToken,
          static_cast<std::size_t>(dispatchShape(which.options).rowBytes()),
          static_cast<std::size_t>(combineShape(which.options).rowBytes())};
}

// The fastest variant so far.
struct Contest {
  CeilingVariant winner{};
  int multiprocessors = 0;
  double least = 0;

  void enter(const CeilingVariant& variant, int count, double median) {
    if (multiprocessors != 0 && median >= least) return;
    winner = variant;
    multiprocessors = count;
    least = median;
  }
};

class CeilingBench {
 public:
  CeilingBench(const CeilingCase& which, const std::function<void(const std::string&)>& progress);
  Ceilings run();

 private:
  using CopiesOf = std::vector<RowCopy> (RowTraffic::*)(int) const;

  int rank() const { return which_.group.rank(); }
  int nranks() const { return which_.group.nranks(); }
  PayloadOf payloadOf(std::uint64_t seed) const { return {seed, iteration_.get()}; }
  Addresses onlyMine(void* memory) const;
  FlagJobs flagJobs() const;

  void fillSource();
  void fillArrived();
  std::vector<MoveRows> rowsOf(CopiesOf copiesOf) const;
  CeilingMove pushMove();
  CeilingMove pushBackMove();
  CeilingMove pullMove(MoveKind kind);

  void agreeOnMachine();
  int choiceOf(int multiprocessors) const;
  void measure(CeilingMove move, int choice, CeilingTime RowCeilings::*which, Ceilings& ceilings);
  std::vector<double> timesOf(CeilingMove& move, const CeilingVariant& variant, int multiprocessors, int replays);
  void requireRight(CeilingMove& move, const std::string& name);
  CeilingTime roundTrip();
  CeilingTime barrier();

  const CeilingCase& which_;
  const std::function<void(const std::string&)>& progress_;
  bool few_;
  bool bulk_ = false;         // all ranks' GPUs have bulk copies
  int multiprocessors_ = 1;   // the least that any rank has to itself
  int destinationsPerToken_;  // the most ranks that a token goes to
  std::vector<RowTraffic> traffic_;
  BufferPlan plan_;
  PeerBuffers buffers_;
  Buffer<std::uint32_t> iteration_;
  Buffer<FlagState> flagState_;
  Buffer<std::byte> source_;
  Buffer<std::byte> sums_;
  CeilingClock clock_;
};

CeilingBench::CeilingBench(const CeilingCase& which, const std::function<void(const std::string&)>& progress)
    : which_(which),
      progress_(progress),
      few_(which.tokens <= kFewTokens),
      destinationsPerToken_(std::min(which.group.nranks(), which.options.topk)),
      traffic_(gatherTraffic(which, destinationsPerToken_)),
      plan_(planBuffers(which, traffic_, destinationsPerToken_)),
      buffers_(which.group, which.gpu, plan_.total()),
      iteration_(which.device, 1),
      flagState_(which.device, 1),
      source_(which.device, static_cast<std::size_t>(which.tokens * dispatchShape(which.options).rowBytes())),
      sums_(which.device, static_cast<std::size_t>(which.tokens * combineShape(which.options).rowBytes())),
      clock_(which.device, which.group, flagJobs()) {
  agreeOnMachine();
  checkCuda(loadCeilingKernels(bulk_), "cannot load the kernels of the ceilings");
}

// All ranks must try the same variants.
void CeilingBench::agreeOnMachine() {
  const int mine = std::max(1, attributeOf(which_.gpu, cudaDevAttrMultiProcessorCount) / buffers_.sharers());
  bulk_ = true;
  multiprocessors_ = mine;
  for (const auto& rank : which_.group.gather(std::vector<int>{mine, hasBulkCopies(which_.gpu) ? 1 : 0})) {
    multiprocessors_ = std::min(multiprocessors_, rank.at(0));
    bulk_ = bulk_ && rank.at(1) == 1;
  }
}

Ceilings CeilingBench::run() {
  Ceilings ceilings;
  ceilings.roundTrip = roundTrip();
  ceilings.barrier = barrier();
  fillSource();
  const int dispatch = choiceOf(which_.multiprocessors.dispatch), combine = choiceOf(which_.multiprocessors.combine);
  measure(pushMove(), dispatch, &RowCeilings::push, ceilings);
  fillArrived();
  measure(pushBackMove(), combine, &RowCeilings::pushBack, ceilings);
  measure(pullMove(MoveKind::pull), combine, &RowCeilings::pull, ceilings);
  measure(pullMove(MoveKind::pullSums), combine, &RowCeilings::pullSums, ceilings);
  buffers_.close();
  return ceilings;
}

Addresses CeilingBench::onlyMine(void* memory) const {
  Addresses addresses(static_cast<std::size_t>(nranks()));
  addresses[static_cast<std::size_t>(rank())] = reinterpret_cast<std::uint64_t>(memory);
  return addresses;
}

FlagJobs CeilingBench::flagJobs() const {
  FlagJobs jobs{flagState_.get(), rank(), nranks(), {}};
  const Addresses flags = buffers_.at(plan_.flags);
  for (std::size_t i = 0; i < flags.size(); ++i) jobs.flags[i] = reinterpret_cast<std::uint64_t*>(flags[i]);
  return jobs;
}

void CeilingBench::fillSource() {
  which_.device.run(
      FillRows{payloadOf(kDispatchSeed), dispatchShape(which_.options), rank(), which_.tokens, source_.get()});
  which_.device.wait();
}

void CeilingBench::fillArrived() {
  std::size_t rows = 0;
  for (const RowTraffic& traffic : traffic_) rows = std::max(rows, traffic.combinePushes(rank()).size());
  which_.device.run(FillRows{payloadOf(kCombineSeed), combineShape(which_.options), rank(),
                             static_cast<std::int32_t>(rows), buffers_.mine(plan_.arrived)});
  which_.device.wait();
}

std::vector<MoveRows> CeilingBench::rowsOf(CopiesOf copiesOf) const {
  std::vector<MoveRows> versions;
  for (const RowTraffic& traffic : traffic_) {
    MoveRows rows{(traffic.*copiesOf)(rank()), {}};
    for (int other = 0; other < nranks(); ++other) {
      const std::vector<RowSpec> arrivals = arrivalsOf((traffic.*copiesOf)(other), rank());
      rows.arrivals.insert(rows.arrivals.end(), arrivals.begin(), arrivals.end());
    }
    versions.push_back(std::move(rows));
  }
  return versions;
}

CeilingMove CeilingBench::pushMove() {
  return {which_.device,
          rank(),
          {MoveKind::push, "push", dispatchShape(which_.options), payloadOf(kDispatchSeed), which_.tokens,
           destinationsPerToken_, onlyMine(source_.get()), buffers_.at(plan_.arrived), plan_.arrivedBytes},
          rowsOf(&RowTraffic::dispatchPushes)};
}

CeilingMove CeilingBench::pushBackMove() {
  return {which_.device,
          rank(),
          {MoveKind::push, "push back", combineShape(which_.options), payloadOf(kCombineSeed), which_.tokens,
           destinationsPerToken_, buffers_.at(plan_.arrived), buffers_.at(plan_.slots), plan_.slotBytes},
          rowsOf(&RowTraffic::combinePushes)};
}

CeilingMove CeilingBench::pullMove(MoveKind kind) {
  const bool sums = kind == MoveKind::pullSums;
  const Addresses to = sums ? onlyMine(sums_.get()) : buffers_.at(plan_.slots);
  return {which_.device,
          rank(),
          {kind, sums ? "pull with sums" : "pull", combineShape(which_.options), payloadOf(kCombineSeed), which_.tokens,
           destinationsPerToken_, buffers_.at(plan_.arrived), to, sums ? sums_.count() : plan_.slotBytes},
          rowsOf(&RowTraffic::combinePulls)};
}

// Returns the same on all ranks, and 0 if the caller has chosen.
int CeilingBench::choiceOf(int multiprocessors) const {
  int most = 0;
  for (const auto& rank : which_.group.gather(std::vector<int>{multiprocessors})) most = std::max(most, rank.at(0));
  return which_.options.sms > 0 ? 0 : std::min(most, multiprocessors_);
}

// Every rank sees the same times, so all ranks choose the same variant.
void CeilingBench::measure(CeilingMove move, int choice, CeilingTime RowCeilings::*which, Ceilings& ceilings) {
  Contest overall, atChoice;
  for (const int count : multiprocessorsToTry(which_.options.sms, choice, few_, multiprocessors_)) {
    for (const CeilingVariant& variant : move.variants(bulk_, few_)) {
      const double median = summarize(timesOf(move, variant, count, kTryReplays)).median;
      overall.enter(variant, count, median);
      if (count == choice) atChoice.enter(variant, count, median);
    }
  }
  const auto again = [&](const Contest& contest) {
    const CeilingVariant winner = contest.winner;
    return CeilingTime{move.name() + ": " + winner.name(contest.multiprocessors),
                       timesOf(move, winner, contest.multiprocessors, kReplays)};
  };
  ceilings.*which = again(overall);
  const bool same = choice == 0 || choice == overall.multiprocessors;
  ceilings.atChoice.*which = same ? ceilings.*which : again(atChoice);
}

std::vector<double> CeilingBench::timesOf(CeilingMove& move, const CeilingVariant& variant, int multiprocessors,
                                          int replays) {
  const std::string name = move.name() + ": " + variant.name(multiprocessors);
  progress_("ceiling, " + name);
  move.prepare(variant, multiprocessors);
  requireRight(move, name);
  const int versions = static_cast<int>(traffic_.size());
  return clock_.time(few_ ? 20 : 5, replays, [&](int i) { move.launch(i % versions); });
}

// Launches of different versions may overtake each other between ranks, so they are launched one by one.
void CeilingBench::requireRight(CeilingMove& move, const std::string& name) {
  std::vector<unsigned long long> mine{0};
  for (int version = 0; version < static_cast<int>(traffic_.size()); ++version) {
    move.clear();
    which_.group.barrier();
    move.launch(version);
    which_.device.wait();
    which_.group.barrier();
    mine[0] += move.countWrong(version);
  }
  unsigned long long wrong = 0;
  for (const auto& found : which_.group.gather(mine)) wrong += found.at(0);
  if (wrong > 0) throw std::runtime_error("--ceiling: " + std::to_string(wrong) + " wrong elements after " + name);
}

CeilingTime CeilingBench::roundTrip() {
  progress_("ceiling, flags");
  const FlagJobs jobs = flagJobs();
  std::vector<double> times = clock_.time(1, kReplays, [&](int) {
    if (rank() < 2) checkCuda(launchRoundTrips(jobs, kRoundTrips, which_.device.stream()), "cannot launch round trips");
  });
  for (double& time : times) time /= kRoundTrips;
  return {"flag round trip: rank 0 and rank 1, one lane each", std::move(times)};
}

CeilingTime CeilingBench::barrier() {
  const FlagJobs jobs = flagJobs();
  const auto launch = [&](int) { checkCuda(launchBarrier(jobs, which_.device.stream()), "cannot launch a barrier"); };
  return {"barrier: a kernel of one warp, back to back", clock_.time(20, kReplays, launch)};
}

}  // namespace

Ceilings measureCeilings(const CeilingCase& which, const std::function<void(const std::string&)>& progress) {
  const int nranks = which.group.nranks();
  if (nranks < 2 || nranks > kCeilingRanksMax) {
    throw std::runtime_error("--ceiling needs 2 to " + std::to_string(kCeilingRanksMax) + " ranks, there are " +
                             std::to_string(nranks));
  }
  return CeilingBench(which, progress).run();
}

}  // namespace moe::perf
