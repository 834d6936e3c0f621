// What carries puts between domains: one implementation per kind of network. It owns the rings that steps post to, the
// threads that carry the puts out, and the connections; where a put lands, it writes to this rank's window.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/deadline.h"
#include "base/log.h"
#include "bootstrap/net/siphash.h"
#include "device/view/remote_view.h"
#include "topology/rdma_settings.h"

namespace moe {

// What a transport is made from. References outlive it.
struct RemoteSetup {
  int rank, nranks;
  std::vector<int> peers;  // the ranks of other domains, in order
  std::uint8_t* window;
  std::size_t windowBytes;
  Backend& backend;
  const Log& log;
  std::int64_t timeoutMs;
  std::string interfaceName;  // that the ranks meet on; empty: chosen
  topology::RdmaSettings rdma;
  // A peer is lost or did what it may not: the communicator's failure. Any thread, any number of times.
  std::function<void(moeResult_t, const std::string&)> fail;
  // Offset of Flags [nranks] of the window, zero, that the transport may use to say and hear who has left.
  std::uint64_t leaving = 0;
  // To be called by finish() when all that this rank has put has arrived, and it goes on to wait for its peers.
  std::function<void()> allArrived = [] {};
  // To be called again and again by connect() while it waits: throws what the group has heard of a rank that is gone.
  // Without it a rank would wait for one of which others know that it is dead, and be taken for dead itself.
  std::function<void()> hearGroup = [] {};
  // What a rank's peers know and nobody else does. Never travels: cards are read by whoever sees the wire.
  std::function<bootstrap::Key(int rank)> keyOf = [](int) { return bootstrap::Key{}; };
  bool oneHost = false;  // all ranks are on this one, and can reach each other at its loopback address
};

using CardBytes = std::vector<std::uint8_t>;

class RemoteTransport {
 public:
  virtual ~RemoteTransport() = default;

  virtual int kind() const = 0;  // a moeTransport value
  // What the others must know to connect to this rank. All ranks' cards are gathered between construction and connect.
  virtual CardBytes card() const = 0;
  // Connects to every peer: afterwards puts flow. cards: [nranks]. All ranks call it at the same time. Throws an Error
  // that names the rank which cannot be reached, by the deadline.
  virtual void connect(const std::vector<CardBytes>& cards, const Deadline& deadline) = 0;
  virtual RemoteView view() const = 0;
  // No step runs any more. Returns when all puts that were posted have arrived at their ranks, or at the deadline, or
  // after a failure, or when giveUp() says so. Peers may still put to this rank, words that say what nobody waits for
  // any more: neither that, nor that it has left meanwhile, is a failure for them.
  virtual void finish(const Deadline& deadline, const std::function<bool()>& giveUp) noexcept = 0;
};

// The transport of this kind, a moeTransport value. Throws moeUnsupported with the reason why there is none here.
std::unique_ptr<RemoteTransport> makeRemoteTransport(RemoteSetup setup, int kind);

const char* nameOfTransport(int kind);

}  // namespace moe
