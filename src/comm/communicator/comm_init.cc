// Builds a communicator: the ranks meet, agree on their configuration, make their windows and map each other's. After
// each round every rank knows of every rank's failure, so that all give up for the same reason. A process that takes
// the place of a lost rank waits for the others instead, which have agreed already (decision 0125).
#include <fmt/format.h>

#include <algorithm>

#include "bootstrap/group/unique_id.h"
#include "comm/communicator/agreed_values.h"
#include "comm/communicator/comm.h"
#include "comm/communicator/domains.h"
#include "comm/communicator/newcomer.h"
#include "comm/communicator/rounds.h"
#include "comm/config/config.h"
#include "comm/config/tuning_file.h"
#include "comm/recorder/watch.h"
#include "device/view/window_layout.h"
#include "transport/reach.h"
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
      return reporting([&] { return becomeRank(); });
    }
    comm_->bootstrap_ = bootstrap::Bootstrap::join(id, options(rendezvousRank));
    return reporting([&] { return buildTogether(); });
  }

 private:
  bootstrap::Options options(int rendezvousRank) const {
    const Config& config = comm_->config_;
    return {comm_->nranks(),      comm_->rank(),  std::chrono::milliseconds(config.timeoutMs),
            config.interfaceName, rendezvousRank, comm_->log_.get()};
  }

  template <class Part>
  std::unique_ptr<Comm> reporting(Part part) {
    try {
      return part();
    } catch (const AgreedError&) {
      throw;
    } catch (...) {
      const Error error = currentErrorOf(comm_->rank());
      comm_->bootstrap_->announceIfFirst(error);
      throw Error(error);
    }
  }

  std::unique_ptr<Comm> buildTogether() {
    agree();
    agreeOnTuning();
    logStage("all ranks have met, and are configured alike");
    chooseDomains();
    if (!sharesClock_) comm_->toRank0_ = measureClock(*comm_->bootstrap_);
    together(*comm_->bootstrap_, [&] { makeWindow(); });
    logStage("all ranks have their windows");
    exchangeCards();
    together(*comm_->bootstrap_, [&] { openWindows(); });
    logStage("all ranks of a domain have mapped their windows");
    comm_->bootstrap_->stopServingFd();
    if (comm_->room_.shape.domains() > 1) connectDomains();
    makeView();
    together(*comm_->bootstrap_, [&] { comm_->startWatch(); });  // others may look from now on
    comm_->bootstrap_->barrier();                                // no rank writes to a window before its owner is ready
    startMonitor();
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
    gatherPlaces();
    const ReachTable reach = gatherReach();
    int size = domainSizeOf(comm_->nranks(), comm_->config_);
    if (comm_->config_.domainSize == 0) {
      size = largestDomains(reach);
    } else if (const auto apart = apartInDomains(reach, size)) {
      const auto [from, to] = *apart;
      throw AgreedError(moeInvalidUsage,
                        fmt::format("moeCommInit: config.domainSize is {}, but rank {} does not reach the memory of "
                                    "rank {}, {}",
                                    size, from, to,
                                    placeOf(from).host.sameHost(placeOf(to).host) ? "whose GPU it has no access to"
                                                                                  : "which is on another host"));
    }
    comm_->room_.shape = shapeOf(comm_->nranks(), size, comm_->config_);
    for (int rank = comm_->rank() / size * size, end = rank + size; rank < end; ++rank) {
      sharesProcess_ = sharesProcess_ || (rank != comm_->rank() && self_.sameProcess(placeOf(rank).host));
    }
    // The data that combines put over the rails have one generation.
    if (comm_->room_.shape.domains() > 1) comm_->room_.operations = OutstandingOperations(1);
  }

  void gatherPlaces() {
    const PlaceCard mine = ownPlace();
    const auto all = comm_->bootstrap_->allGather(asBytes(mine));
    for (int rank = 0; rank < comm_->nranks(); ++rank)
      places_.push_back(readCard<PlaceCard>(all[static_cast<std::size_t>(rank)], rank));
    sharesClock_ = std::all_of(places_.begin(), places_.end(),
                               [&](const auto& place) { return place.host.sameKernel(places_[0].host); });
    if (comm_->nranks() > 1) forgetFabricOfThreads();
  }

  // Threads of one process share their windows by address, so these have no handle of the fabric.
  void forgetFabricOfThreads() {
    for (PlaceCard& place : places_) {
      if (place.inFabric == 0) continue;
      const auto sharers = std::count_if(places_.begin(), places_.end(),
                                         [&](const PlaceCard& other) { return other.host.sameProcess(place.host); });
      if (sharers > 1) place.inFabric = 0;
    }
  }

  ReachTable gatherReach() {
    Comm& comm = *comm_;
    std::vector<std::uint8_t> mine;
    for (int rank = 0; rank < comm.nranks(); ++rank) {
      std::string why;
      const bool reached = rank == comm.rank() || reach_->reaches(placeOf(rank), &why);
      mine.push_back(reached ? 1 : 0);
      if (!reached && !why.empty())
        comm.log_->write(moeLogInfo, "init", "does not reach the memory of rank {}: {}", rank, why);
    }
    ReachTable all = comm.bootstrap_->allGather(mine);
    for (int rank = 0; rank < comm.nranks(); ++rank) {
      if (all[static_cast<std::size_t>(rank)].size() != mine.size()) throwOtherVersion(rank);
    }
    return all;
  }

  PlaceCard ownPlace() {
    const Comm& comm = *comm_;
    const auto sharing = static_cast<WindowSharing>(comm.config_.window);
    reach_ = comm.backend_->kind() == moeBackendCuda
                 ? makeCudaReach(comm.backend_->device(), sharing, static_cast<bool>(comm.allocator()))
                 : makeHostReach();
    if (const std::string why = reach_->whyOutsideFabric(); !why.empty())
      comm.log_->write(moeLogInfo, "init", "the NVLink fabric is not used: {}", why);
    PlaceCard place = reach_->place();
    self_ = place.host;
    return place;
  }
  const PlaceCard& placeOf(int rank) const { return places_[static_cast<std::size_t>(rank)]; }

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
    farLayout_ = plan.far;
    const auto bytes = static_cast<std::size_t>(comm.room_.view.at.totalBytes);
    comm.room_.window = reach_->makeWindow(bytes, comm.allocator(), windowSharing());
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

  WindowCard ownCard() const {
    WindowCard mine;
    mine.host = self_;
    mine.device = comm_->backend_->device();
    mine.processors = processorsOfThisThread();
    comm_->room_.window->describe(&mine);
    return mine;
  }

  void exchangeCards() {
    Comm& comm = *comm_;
    const WindowCard mine = ownCard();
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
    int sharers = 0;
    for (int rank = 0; rank < comm.nranks(); ++rank) {
      Peer& peer = comm.peers_[static_cast<std::size_t>(rank)];
      const bool sameDevice = peer.card.deviceUuid == mine.deviceUuid && mine.host.sameHost(peer.card.host);
      sharers += sameDevice ? 1 : 0;
      if (rank == comm.rank()) {
        peer.window = {comm.room_.window->memory(), moeTransportSelf};
      } else if (comm.bootstrap_->isLost(rank)) {
        peer.window = comm.room_.window->openLost(rank, peer.card);
      } else if (peer.inDomain) {
        peer.window = comm.room_.window->open(rank, mine, peer.card, fetch);
      }
      table.push_back(peer.window.memory.get());
    }
    comm.backend_->setSharers(sharers);
    comm.backend_->copyToPrivate(comm.room_.table.get(), table.data(), table.size() * sizeof(table[0]));
  }

  void connectDomains() {
    Comm& comm = *comm_;
    const int asked = comm.config_.transport;
    const std::vector<int> kinds = asked != 0 ? std::vector{asked} : fastestFirst(comm.backend_->kind());
    const GatherReasons gather = [&](const std::string& mine) { return gatherTexts(mine); };
    together(*comm_->bootstrap_, [&] { comm.remote_ = makeFirstPossible(remoteSetup(), kinds, gather); });
    const auto cards = comm.bootstrap_->allGather(comm.remote_->card());
    together(*comm_->bootstrap_, [&] { connectTo(cards); });
    comm.log_->write(moeLogInfo, "init", "{} domains of {} ranks, joined by {}", comm.room_.shape.domains(),
                     comm.room_.shape.domainSize, nameOfTransport(comm.remote_->kind()));
  }

  // Connects to the others. They wait for this rank, so they must learn at once if it gives up.
  void connectTo(const std::vector<CardBytes>& cards) {
    try {
      // A rank that has connected waits in the next round. It does not know of failures here, so it must not give up
      // first.
      const std::chrono::milliseconds patience(std::max(comm_->config_.timeoutMs / 4 * 3, 1));
      comm_->remote_->connect(cards, Deadline::after(patience));
    } catch (...) {
      comm_->bootstrap_->announceIfFirst(currentErrorOf(comm_->rank()));
      throw;
    }
  }

  std::vector<std::string> gatherTexts(const std::string& mine) {
    const auto* first = reinterpret_cast<const std::uint8_t*>(mine.data());
    std::vector<std::string> all;
    for (const auto& bytes : comm_->bootstrap_->allGather({first, mine.size()})) {
      all.emplace_back(bytes.begin(), bytes.end());
    }
    return all;
  }

  RemoteSetup remoteSetup() const {
    Comm& comm = *comm_;
    RemoteSetup setup{comm.rank(),
                      comm.nranks(),
                      {},
                      comm.room_.window->base(),
                      static_cast<std::size_t>(comm.room_.view.at.totalBytes),
                      *comm.backend_,
                      *comm.log_,
                      *comm.orders(),
                      comm.config_.interfaceName,
                      comm.config_.rdma,
                      {},
                      farLayout_.leaving};
    for (int rank = 0; rank < comm.nranks(); ++rank) {
      if (!comm.peers_[static_cast<std::size_t>(rank)].inDomain) setup.peers.push_back(rank);
    }
    setup.hearGroup = [&comm] { comm.bootstrap_->throwIfBroken("connecting the domains"); };
    setup.allArrived = [&comm] {
      if (comm.status() == moeSuccess) comm.bootstrap_->announceLeaving();
    };
    setup.keyOf = [&comm](int rank) { return comm.bootstrap_->keyFor("puts", rank); };
    setup.oneHost = std::all_of(comm.peers_.begin(), comm.peers_.end(), [&](const Peer& peer) {
      return peer.card.host.sameHost(comm.peers_[static_cast<std::size_t>(comm.rank())].card.host);
    });
    setup.fail = [&comm](moeResult_t result, const std::string& sentence) { comm.transportFailed(result, sentence); };
    return setup;
  }

  void makeView() {
    Comm& comm = *comm_;
    CommView& view = comm.room_.view;
    view.domainSize = comm.room_.shape.domainSize;
    view.domainFirst = comm.rank() / view.domainSize * view.domainSize;
    if (comm.remote_) {
      const FarView far{farLayout_, comm.remote_->view()};
      comm.far_ = comm.backend_->allocatePrivate(sizeof far, comm.allocator());
      comm.backend_->copyToPrivate(comm.far_.get(), &far, sizeof far);
      view.far = reinterpret_cast<const FarView*>(comm.far_.get());
    }
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

  void startMonitor() {
    Comm* comm = comm_.get();
    std::vector<bootstrap::HostIdentity> processes;
    for (const Peer& peer : comm->peers_) processes.push_back(peer.card.host);
    comm->bootstrap_->startMonitor(
        [comm](const bootstrap::Bootstrap::Failure& failure) { comm->fail(failure.result, failure.sentence, false); },
        [comm] {
          comm->lookAtSteps();
          comm->lookForLeavers();
        },
        std::chrono::milliseconds(10), processes);
    if (const auto report = comm->transportReports_.complete()) comm->fail(report->first, report->second, true);
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
    ownPlace();
    comm.room_.shape = shapeOf(comm.nranks(), comm.nranks(), comm.config_);
    makeWindow();
    if (const std::string why = comm.room_.window->whyFixed(); !why.empty()) {
      throw Error(moeUnsupported, fmt::format("moeCommInit: rank {} takes the place of a lost rank, and its window {}",
                                              comm.rank(), why));
    }
    logStage("waits for the place of a lost rank");
    const NewcomerCard card{agreedValues(comm.config_, comm.backend_->kind()), ownCard()};
    std::vector<std::uint8_t> bytes;
    comm.bootstrap_ = bootstrap::Bootstrap::joinAsNewcomer(id, options(rendezvousRank), asBytes(card), &bytes);
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
    startMonitor();
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
  RemoteLayout farLayout_{};
  std::unique_ptr<Reach> reach_;
  std::vector<PlaceCard> places_;  // of all ranks; empty in a newcomer
  bootstrap::HostIdentity self_{};
  bool sharesProcess_ = false;  // with a rank of its domain
  bool sharesClock_ = false;    // all ranks run on one kernel
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
