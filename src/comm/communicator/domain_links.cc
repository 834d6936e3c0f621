#include "comm/communicator/domain_links.h"

#include <algorithm>

#include "comm/communicator/rounds.h"
#include "transport/transports.h"

namespace moe {

void DomainLinks::connect(const std::vector<int>& kinds) {
  comm_.transportReports_.begin();
  const GatherReasons gather = [&](const std::string& mine) { return gatherTexts(mine); };
  together(group_, [&] {
    clearGoodbyes();
    comm_.remote_ = makeFirstPossible(setup(), kinds, gather);
  });
  const auto cards = group_.allGather(comm_.remote_->card());
  together(group_, [&] { connectTo(cards); });
  for (Peer& peer : comm_.peers_) {
    if (!peer.inDomain) peer.window.transport = comm_.remote_->kind();
  }
  show();
  comm_.log_->write(moeLogInfo, "init", "{} domains of {} ranks, joined by {}", comm_.room_.shape.domains(),
                    comm_.room_.shape.domainSize, nameOfTransport(comm_.remote_->kind()));
}

void DomainLinks::connectAgain() {
  const auto far =
      std::find_if(comm_.peers_.begin(), comm_.peers_.end(), [](const Peer& peer) { return !peer.inDomain; });
  const int kind = far->window.transport;
  if (setup().peers.empty()) return connect({moeTransportTcp});  // nobody is left to whom puts go
  if (comm_.lost_.empty() || kind != moeTransportIbgda) return connect({kind});
  connect({moeTransportVerbs, moeTransportTcp});
}

bool DomainLinks::isLost(int rank) const {
  return std::find(comm_.lost_.begin(), comm_.lost_.end(), rank) != comm_.lost_.end();
}

void DomainLinks::finish() {
  together(group_, [&] {
    const Deadline end = Deadline::after(timeout_);
    if (comm_.remote_->finish(end, [&] { return comm_.status() != moeSuccess; })) return;
    throw Error(moeTimeout,
                fmt::format("rank {}: what it has put to other domains did not arrive in time", comm_.rank()));
  });
  comm_.remote_.reset();
}

void DomainLinks::cut(const char* call) {
  together(
      group_, [&] { comm_.remote_.reset(); }, call);
}

// Those of the transport before, if there was one. Nobody is connected.
void DomainLinks::clearGoodbyes() {
  const std::vector<Flag> zeros(static_cast<std::size_t>(comm_.nranks()));
  comm_.backend_->copyToPrivate(comm_.room_.window->base() + comm_.farLayout_.leaving, zeros.data(),
                                zeros.size() * sizeof zeros[0]);
}

// Connects to the others. They wait for this rank, so they must learn at once if it gives up.
void DomainLinks::connectTo(const std::vector<CardBytes>& cards) {
  try {
    // A rank that has connected waits in the next round. It does not know of failures here, so it must not give up
    // first.
    const std::chrono::milliseconds patience = std::max(timeout_ * 3 / 4, std::chrono::milliseconds(1));
    comm_.remote_->connect(cards, Deadline::after(patience));
  } catch (...) {
    group_.announceIfFirst(currentErrorOf(comm_.rank()));
    throw;
  }
}

std::vector<std::string> DomainLinks::gatherTexts(const std::string& mine) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(mine.data());
  std::vector<std::string> all;
  for (const auto& bytes : group_.allGather({first, mine.size()})) all.emplace_back(bytes.begin(), bytes.end());
  return all;
}

RemoteSetup DomainLinks::setup() const {
  Comm& comm = comm_;
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
                    comm.farLayout_.leaving};
  for (int rank = 0; rank < comm.nranks(); ++rank) {
    if (!comm.peers_[static_cast<std::size_t>(rank)].inDomain)
      (isLost(rank) ? setup.lost : setup.peers).push_back(rank);
  }
  setup.hearGroup = [&comm] { comm.bootstrap_->throwIfBroken("connecting the domains"); };
  setup.allArrived = [&comm] {
    if (comm.leaves_ && comm.status() == moeSuccess) comm.bootstrap_->announceLeaving();
  };
  setup.keyOf = [&comm](int rank) { return comm.bootstrap_->keyFor("puts", rank); };
  setup.oneHost = std::all_of(comm.peers_.begin(), comm.peers_.end(), [&](const Peer& peer) {
    return peer.card.host.sameHost(comm.peers_[static_cast<std::size_t>(comm.rank())].card.host);
  });
  setup.fail = [&comm](moeResult_t result, const std::string& sentence) { comm.transportFailed(result, sentence); };
  return setup;
}

void DomainLinks::show() {
  const FarView far{comm_.farLayout_, comm_.remote_->view()};
  if (!comm_.far_) comm_.far_ = comm_.backend_->allocatePrivate(sizeof far, comm_.allocator());
  comm_.backend_->copyToPrivate(comm_.far_.get(), &far, sizeof far);
}

}  // namespace moe
