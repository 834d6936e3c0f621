// Builds a communicator: the ranks meet, agree on their configuration, make their windows and map each other's. After
// each round every rank knows of every rank's failure, so that all give up for the same reason. A process that takes
// the place of a lost rank waits for the others instead, which have agreed already (decision 0125).
#include <fmt/format.h>

#include <algorithm>

#include "bootstrap/group/unique_id.h"
#include "comm/communicator/agreed_values.h"
#include "comm/communicator/comm.h"
#include "comm/communicator/domain_links.h"
#include "comm/communicator/newcomer.h"
#include "comm/communicator/places.h"
#include "comm/communicator/rounds.h"
#include "comm/config/config.h"
#include "comm/config/tuning_file.h"
#include "comm/recorder/watch.h"
#include "device/view/window_layout.h"
#include "transport/transports.h"

namespace moe {
namespace {

// Rank 0's tuning file. Empty bytes stand for it on other ranks.
struct TuningCard {
  Outcome outcome;
  ModeLimits limits = untuned();
};

}  // namespace

class CommInit {
 public:
  CommInit(int nranks, int rank, const Config& config, std::unique_ptr<Backend> backend) : comm_(new Comm) {
    comm_->config_ = config;
    comm_->log_ =
        std::make_unique<Log>(Log::Options{config.logLevel, config.logFile, config.log, config.logUser}, rank, nranks);
    logEnvironment(*comm_->log_, config, namesInEnvironment());
    comm_->room_.view.rank = rank;
    comm_->room_.view.nranks = nranks;
    comm_->backend_ = std::move(backend);
    if (!comm_->backend_) chooseBackend();
  }

  std::unique_ptr<Comm> build(const moeUniqueId_t& id, int rendezvousRank) {
    if (bootstrap::decodeUniqueId(id).replaces) {
      takePlaceAt(id, rendezvousRank);
      return announcing(*comm_->bootstrap_, [&] { return becomeRank(); });
    }
    comm_->bootstrap_ = bootstrap::Bootstrap::join(id, comm_->bootstrapOptions(rendezvousRank));
    return announcing(*comm_->bootstrap_, [&] { return buildTogether(); });
  }

 private:
  std::unique_ptr<Comm> buildTogether() {
    agree();
    agreeOnTuning();
    logStage("all ranks have met, and are configured alike");
    chooseDomains();
    if (!places_->shareClock()) comm_->toRank0_ = measureClock(*comm_->bootstrap_);
    together(*comm_->bootstrap_, [&] { makeWindow(); });
    logStage("all ranks have their windows");
    exchangeCards();
    together(*comm_->bootstrap_, [&] { openWindows(); });
    logStage("all ranks of a domain have mapped their windows");
    comm_->bootstrap_->stopServingFd();
    if (comm_->hasDomains()) connectDomains();
    makeView();
    together(*comm_->bootstrap_, [&] { comm_->startWatch(); });  // others may look from now on
    comm_->bootstrap_->barrier();                                // no rank writes to a window before its owner is ready
    comm_->startMonitor();
    comm_->hearTransports();
    comm_->log_->write(moeLogInfo, "init", "joined {} ranks in {} ms, backend {}, window {} bytes", comm_->nranks(),
                       milliseconds(), comm_->backend_->kind() == moeBackendCuda ? "cuda" : "host",
                       comm_->room_.view.at.totalBytes);
    comm_->log_->write(moeLogInfo, "init", "peers: {}", describePeers(*comm_));
    return std::move(comm_);
  }

  void chooseBackend() {
    const Config& config = comm_->config_;
    std::string why = "the host backend was requested";
    if (config.backend != moeBackendHost)
      comm_->backend_ = makeCudaBackend(config.device, static_cast<Bulk>(config.bulk), &why);
    if (comm_->backend_) return;
    if (config.backend == moeBackendCuda) throw Error(moeUnsupported, "the cuda backend is not available: " + why);
    comm_->log_->write(moeLogInfo, "init", "using the host backend: {}", why);
    comm_->backend_ = makeHostBackend({static_cast<HostSimd>(config.hostSimd), config.hostThreads});
  }

  void agree() {
    const auto all = comm_->bootstrap_->allGather(asBytes(agreedValues(comm_->config_, comm_->backend_->kind())));
    const auto first = readCard<AgreedValues>(all.front(), 0);
    for (int rank = 1; rank < comm_->nranks(); ++rank) {
      const auto other = readCard<AgreedValues>(all[static_cast<std::size_t>(rank)], rank);
      if (const std::string why = disagreement(first, 0, other, rank); !why.empty())
        throw AgreedError(moeInvalidUsage, why);
    }
  }

  // Rank 0 reads its file for all, so that ranks never choose differently.
  void agreeOnTuning() {
    const std::string& path = comm_->config_.tuningFile;
    TuningCard mine;
    if (comm_->rank() == 0 && !path.empty()) mine.outcome = outcomeOf(0, [&] { mine.limits = readTuningFile(path); });
    const auto all = comm_->bootstrap_->allGather(comm_->rank() == 0 ? asBytes(mine) : std::span<const std::uint8_t>());
    const auto card = readCard<TuningCard>(all.front(), 0);
    throwIfFailed(card.outcome);
    comm_->tunedLimits_ = card.limits;
    if (card.limits == untuned()) return;
    comm_->log_->write(moeLogInfo, "init", "mode AUTO: thresholds from the tuning file of rank 0{}",
                       comm_->rank() == 0 ? ", " + path : "");
  }

  // By default domains are as large as ranks reach each other.
  void chooseDomains() {
    places_.emplace(*comm_);
    places_->gather(*comm_->bootstrap_);
    const ReachTable reach = places_->gatherReach(*comm_->bootstrap_);
    int size = domainSizeOf(comm_->nranks(), comm_->config_);
    if (comm_->config_.domainSize == 0) {
      size = largestDomains(reach);
    } else if (const auto apart = apartInDomains(reach, size)) {
      const auto [from, to] = *apart;
      throw AgreedError(
          moeInvalidUsage,
          fmt::format("moeCommInit: config.domainSize is {}, but rank {} does not reach the memory of "
                      "rank {}, {}",
                      size, from, to,
                      places_->of(from).host.sameHost(places_->of(to).host) ? "whose GPU it has no access to"
                                                                            : "which is on another host"));
    }
    comm_->room_.shape = shapeOf(comm_->nranks(), size, comm_->config_);
    for (int rank = comm_->rank() / size * size, end = rank + size; rank < end; ++rank) {
      sharesProcess_ = sharesProcess_ || (rank != comm_->rank() && places_->self().sameProcess(places_->of(rank).host));
    }
    // The data that combines put over the rails have one generation.
    if (comm_->room_.shape.domains() > 1) comm_->room_.operations = OutstandingOperations(1);
  }

  // Ranks that are threads of one process use each other's windows by address. A device reaches another device's memory
  // in this way only if that memory is not shared by a descriptor.
  WindowSharing windowSharing() const {
    const auto wanted = static_cast<WindowSharing>(comm_->config_.window);
    if (!sharesProcess_) return wanted;
    if (wanted == WindowSharing::automatic || wanted == WindowSharing::ipc) return WindowSharing::ipc;
    throw Error(moeUnsupported, fmt::format("MOECOMM_WINDOW is {}, but ranks of this domain are threads of one process",
                                            wanted == WindowSharing::fd ? "fd" : "fabric"));
  }

  void makeWindow() {
    Comm& comm = *comm_;
    const WindowPlan plan = WindowPlan::of(comm.room_.shape);
    if (comm.rank() == 0) warnOfStaging(*comm.log_, comm.room_.shape, comm.config_);
    comm.room_.view.at = static_cast<const WindowLayout&>(plan);
    comm.farLayout_ = plan.far;
    const auto bytes = static_cast<std::size_t>(comm.room_.view.at.totalBytes);
    comm.room_.window = places_->reach().makeWindow(bytes, comm.allocator(), windowSharing());
    comm.log_->write(moeLogDebug, "init", "processes map the window by {}", comm.room_.window->sharing());
    comm.heap_ =
        std::make_shared<WindowHeap>(comm.room_.window->memory(), comm.room_.view.at.heap,
                                     static_cast<std::uint64_t>(comm.room_.shape.heapBytes), comm.backend_->device());
    comm.room_.state = comm.backend_->allocatePrivate(sizeof(CommState), comm.allocator());
    comm.recorder_ = std::make_unique<FlightRecorder>(*comm.backend_, comm.allocator(), comm.room_.state,
                                                      comm.config_.recorder != 0);
    comm.failure_ = comm.backend_->allocateHostVisible(2 * sizeof(Failure));
    comm.orders_ = comm.backend_->allocateHostVisible(sizeof(WaitOrders));
    comm.orders()->timeoutNs = static_cast<std::uint64_t>(comm.config_.timeoutMs) * 1000000;
    comm.departed_ =
        comm.backend_->allocateHostVisible(static_cast<std::size_t>(comm.nranks()) * sizeof(std::uint32_t));
    comm.room_.table = comm.backend_->allocatePrivate(static_cast<std::size_t>(comm.nranks()) * sizeof(std::uint8_t*),
                                                      comm.allocator());
  }

  void exchangeCards() {
    Comm& comm = *comm_;
    const WindowCard mine = places_->cardOf(*comm.room_.window);
    if (comm.room_.window->fd() >= 0) comm.bootstrap_->serveFd(comm.room_.window->fd());
    const auto all = comm.bootstrap_->allGather(asBytes(mine));
    for (int rank = 0; rank < comm.nranks(); ++rank) {
      const bool inDomain = rank / comm.room_.shape.domainSize == comm.rank() / comm.room_.shape.domainSize;
      comm.peers_.push_back({readCard<WindowCard>(all[static_cast<std::size_t>(rank)], rank), {}, inDomain});
    }
  }

  void openWindows() {
    Comm& comm = *comm_;
    const WindowCard& mine = comm.peers_[static_cast<std::size_t>(comm.rank())].card;
    const Deadline deadline = Deadline::after(std::chrono::milliseconds(comm.config_.timeoutMs));
    const FetchFd fetch = [&](int rank) { return comm.bootstrap_->fetchFdFrom(rank, deadline); };
    std::vector<std::uint8_t*> table;
    for (int rank = 0; rank < comm.nranks(); ++rank) {
      Peer& peer = comm.peers_[static_cast<std::size_t>(rank)];
      if (rank == comm.rank()) {
        peer.window = {comm.room_.window->memory(), moeTransportSelf};
      } else if (comm.bootstrap_->isLost(rank)) {
        peer.window = comm.room_.window->openLost(rank, peer.card);
      } else if (peer.inDomain) {
        peer.window = comm.room_.window->open(rank, mine, peer.card, fetch);
      }
      table.push_back(peer.window.memory.get());
    }
    comm.countSharers();
    comm.backend_->copyToPrivate(comm.room_.table.get(), table.data(), table.size() * sizeof(table[0]));
  }

  void connectDomains() {
    const Comm& comm = *comm_;
    const int asked = comm.config_.transport;
    DomainLinks(*comm_, *comm.bootstrap_, comm.timeout())
        .connect(asked != 0 ? std::vector{asked} : fastestFirst(comm.backend_->kind()));
  }

  void makeView() {
    Comm& comm = *comm_;
    CommView& view = comm.room_.view;
    view.domainSize = comm.room_.shape.domainSize;
    view.domainFirst = comm.rank() / view.domainSize * view.domainSize;
    if (comm.far_) view.far = reinterpret_cast<const FarView*>(comm.far_.get());
    view.windows = reinterpret_cast<std::uint8_t* const*>(comm.room_.table.get());
    for (std::size_t i = 0; i < comm.peers_.size() && i < std::size_t{kInlineWindows}; ++i) {
      view.inlineWindows[i] = comm.peers_[i].window.memory.get();
    }
    view.state = reinterpret_cast<CommState*>(comm.room_.state.get());
    view.failure = reinterpret_cast<Failure*>(comm.failure_.get());
    view.orders = comm.orders();
    view.departed = reinterpret_cast<std::uint32_t*>(comm.departed_.get());
    showSizes(comm.room_.shape, &view);
    view.recorder = comm.recorder_->ring();
  }

  // ---- A newcomer ----

  // Makes all that a rank needs of its own, and waits at its sponsor. Returns within the recovery that takes it in.
  void takePlaceAt(const moeUniqueId_t& id, int rendezvousRank) {
    Comm& comm = *comm_;
    if (domainSizeOf(comm.nranks(), comm.config_) != comm.nranks()) {
      throw Error(moeUnsupported,
                  fmt::format("moeCommInit: config.domainSize is {}, and the id is for the place of a lost "
                              "rank, for which there must be one domain",
                              comm.config_.domainSize));
    }
    places_.emplace(comm);
    comm.room_.shape = shapeOf(comm.nranks(), comm.nranks(), comm.config_);
    makeWindow();
    if (const std::string why = comm.room_.window->whyFixed(); !why.empty()) {
      throw Error(moeUnsupported, fmt::format("moeCommInit: rank {} takes the place of a lost rank, and its window {}",
                                              comm.rank(), why));
    }
    logStage("waits for the place of a lost rank");
    const NewcomerCard card{agreedValues(comm.config_, comm.backend_->kind()), places_->cardOf(*comm.room_.window)};
    std::vector<std::uint8_t> bytes;
    comm.bootstrap_ =
        bootstrap::Bootstrap::joinAsNewcomer(id, comm.bootstrapOptions(rendezvousRank), asBytes(card), &bytes);
    takeOver(GroupTable::read(bytes, comm.nranks()), card.window);
  }

  void takeOver(GroupTable table, const WindowCard& mine) {
    Comm& comm = *comm_;
    comm.tunedLimits_ = table.head.limits;
    comm.handlesMade_ = table.head.handlesMade;
    std::copy_n(table.head.llHandles, kLlSetsMax, comm.room_.llHandles);
    comm.expected_.assign(table.handles.begin(), table.handles.end());
    comm.lost_ = comm.bootstrap_->lost();
    table.windows[static_cast<std::size_t>(comm.rank())] = mine;
    for (const WindowCard& card : table.windows) comm.peers_.push_back({card, {}, true});
  }

  // The rounds of the survivors' recovery.
  std::unique_ptr<Comm> becomeRank() {
    Comm& comm = *comm_;
    Settlement settlement(comm);
    const auto map = [&] {
      openWindows();
      makeView();
    };
    const auto settle = [&](const EndedOperations& ended) {
      settlement.settle(comm.room_, ended, comm.lost_);
      comm.startWatch();
    };
    Admission(comm, *comm.bootstrap_, "moeCommRecover").run(map, settle);
    comm.bootstrap_->stopServingFd();
    comm.startMonitor();
    comm.log_->write(moeLogInfo, "init", "took the place of a lost rank after {} ms; it creates {} handles first",
                     milliseconds(), comm.expected_.size());
    return std::move(comm_);
  }

  void logStage(const char* what) const { comm_->log_->write(moeLogDebug, "init", "{} ms: {}", milliseconds(), what); }

  std::int64_t milliseconds() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin_).count();
  }

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::unique_ptr<Comm> comm_;
  std::optional<Places> places_;
  bool sharesProcess_ = false;  // with a rank of its domain
};

void requireRanks(int nranks) {
  if (nranks >= 1 && nranks <= Limits::kRanks) return;
  throw Error(moeInvalidArgument, fmt::format("nranks is {}, must be 1..{}", nranks, Limits::kRanks));
}

std::unique_ptr<Comm> Comm::create(int nranks, int rank, const moeUniqueId_t& id, const Config& config,
                                   int rendezvousRank, std::unique_ptr<Backend> backend) {
  requireRanks(nranks);
  domainSizeOf(nranks, config);
  if (!config.dumpFolder.empty()) requireWritableFolder("config.dumpFolder (MOECOMM_DUMP_FOLDER)", config.dumpFolder);
  if (rank < 0 || rank >= nranks)
    throw Error(moeInvalidArgument, fmt::format("rank is {}, must be 0..{}", rank, nranks - 1));
  return CommInit(nranks, rank, config, std::move(backend)).build(id, rendezvousRank);
}

}  // namespace moe
