// Carries puts between domains, with one implementation per kind of network. It owns the rings that steps post to, the
// threads that carry the puts out, and the connections. Puts that arrive are written to this rank's window.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/deadline.h"
#include "base/log.h"
#include "bootstrap/net/keyed_hash.h"
#include "device/policy/host/queue_memory.h"
#include "device/view/remote_view.h"
#include "topology/rdma_settings.h"

namespace moe {

// The things from which a transport is made. The references outlive it.
struct RemoteSetup {
  int rank, nranks;
  std::vector<int> peers;  // the ranks of other domains, in order
  std::uint8_t* window;
  std::size_t windowBytes;
  Backend& backend;
  const Log& log;
  const WaitOrders& orders;   // how long waits for another rank may take: timeout()
  std::string interfaceName;  // on which the ranks meet; empty: chosen
  topology::RdmaSettings rdma;
  // Reports that a peer is lost or has broken a rule, which is the communicator's failure. Any thread, any number of
  // times.
  std::function<void(moeResult_t, const std::string&)> fail;
  // The offset of Flags [nranks] in the window, zero at first. Transports may use them to tell and learn which ranks
  // have left.
  std::uint64_t leaving = 0;
  // finish() calls it when everything that this rank has put has arrived, before it waits for its peers.
  std::function<void()> allArrived = [] {};
  // connect() calls it repeatedly while it waits. It throws what the group knows of a lost rank. Without it, a rank
  // would wait for one that others know to be dead, and would be taken for dead itself.
  std::function<void()> hearGroup = [] {};
  // A secret of a rank and its peers. It never travels, because anyone who sees the wire can read cards.
  std::function<bootstrap::Key(int rank)> keyOf = [](int) { return bootstrap::Key{}; };
  std::vector<int> lost = {};  // ranks of other domains that the group goes on without: puts to them are dropped
  bool oneHost = false;        // all ranks are on this host, and reach each other at its loopback address

  // It may change at any time.
  std::chrono::milliseconds timeout() const { return std::chrono::floor<std::chrono::milliseconds>(timeoutOf(orders)); }
};

using CardBytes = std::vector<std::uint8_t>;

class RemoteTransport {
 public:
  virtual ~RemoteTransport() = default;

  virtual int kind() const = 0;  // a moeTransport value
  // The data that the others need to connect to this rank. The cards of all ranks are gathered between construction and
  // connect.
  virtual CardBytes card() const = 0;
  // Connects to every peer; afterwards puts flow. cards: [nranks]. All ranks call it at the same time. Throws an Error
  // that names the rank which cannot be reached by the deadline.
  virtual void connect(const std::vector<CardBytes>& cards, const Deadline& deadline) = 0;
  virtual RemoteView view() const = 0;
  // The last call, when no step runs any more. Returns true when all posted puts have arrived at their ranks; false at
  // the deadline, after a failure, or when giveUp() says so. When it has returned true on all ranks, nothing is on its
  // way any more. Before that, peers may still put words to this rank that nobody waits for. They must not report a
  // failure if such a put fails, or if this rank has left meanwhile.
  virtual bool finish(const Deadline& deadline, const std::function<bool()>& giveUp) noexcept = 0;
};

// The transport of this kind, a moeTransport value. Throws moeUnsupported with the reason if there is none here.
std::unique_ptr<RemoteTransport> makeRemoteTransport(RemoteSetup setup, int kind);

const char* nameOfTransport(int kind);

}  // namespace moe
