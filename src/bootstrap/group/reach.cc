#include "bootstrap/group/reach.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "bootstrap/group/rendezvous_server.h"
#include "bootstrap/net/find_addresses.h"

namespace moe::bootstrap {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kGiveUpRefused{2000};

void pause(milliseconds duration) {
  PollSet().wait(static_cast<int>(duration.count()));
}

}  // namespace

std::string serverOf(const Options& options) {
  return options.rendezvousRank < 0 ? "" : fmt::format(" (rank {} serves it)", options.rendezvousRank);
}

milliseconds perAddress(const Options& options) {
  return std::clamp(options.timeout / 8, milliseconds(250), milliseconds(5000));
}

void pollOnce(Source& source, Deadline deadline) {
  PollSet set;
  source.arm(set);
  set.wait(std::min(deadline.leftMs(), source.waitMsMax()));
  source.serve(set);
}

void refuseShortage(const Dialer& dialer, const std::string& whom) {
  if (dialer.shortage() == 0 || dialer.state() != Dialer::State::failed) return;
  throw Error(moeSystemError, fmt::format("cannot connect to {}: {}", whom, errorText(dialer.shortage())));
}

std::unique_ptr<Link> reachRendezvous(const IdContents& id, const Options& options, Deadline deadline) {
  const Deadline refusedLongEnough = Deadline::after(kGiveUpRefused);
  const std::string where = describe(id.addresses) + serverOf(options);
  std::string problem = "no answer";
  for (milliseconds between(10);; between = std::min(between * 2, milliseconds(250))) {
    Dialer dialer(id.addresses, rendezvousKey(id.secret), maskOf(FrameType::table, FrameType::refusal),
                  perAddress(options));
    while (dialer.state() == Dialer::State::trying && !deadline.expired()) pollOnce(dialer, deadline);
    if (dialer.state() == Dialer::State::connected) return dialer.take();
    refuseShortage(dialer, "the rendezvous at " + where);
    if (dialer.wrongKey()) {
      throw Error(moeInvalidUsage, fmt::format("rank {}: the process that answers at {} does not know the secret of "
                                               "this unique id: the id belongs to another run",
                                               options.rank, where));
    }
    if (dialer.otherVersion()) {
      throw Error(moeInvalidUsage, fmt::format("rank {}: another version of moecomm answers at {} ({})", options.rank,
                                               where, dialer.problem()));
    }
    if (id.served && dialer.allRefused() && refusedLongEnough.expired()) {
      throw Error(moeRemoteError, fmt::format("rank {}: nobody listens at {}: the process that made the unique id has "
                                              "ended, or the id was used before",
                                              options.rank, where));
    }
    if (!dialer.problem().empty()) problem = dialer.problem();
    if (deadline.expired()) {
      throw Error(moeTimeout, fmt::format("rank {}: no rendezvous at {} within {} ms ({})", options.rank, where,
                                          options.timeout.count(), problem));
    }
    pause(std::min(between, milliseconds(deadline.leftMs())));
  }
}

std::vector<Address> ownAddresses(const IdContents& id, const Options& options) {
  const auto isLoopback = [](const Address& address) { return address.isLoopback(); };
  const bool oneHost = std::all_of(id.addresses.begin(), id.addresses.end(), isLoopback);
  if (!oneHost || !options.interfaceName.empty()) return localAddresses(options.interfaceName);
  std::vector<Address> own;
  for (const Address& address : id.addresses) addOnce(own, Address::loopback(address.family));
  return own;
}

}  // namespace moe::bootstrap
