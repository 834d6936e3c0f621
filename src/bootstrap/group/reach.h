// How a rank that joins reaches others: the process that serves its id, and ranks of its group. join.cc and
// join_newcomer.cc use it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/group/bootstrap.h"
#include "bootstrap/group/unique_id.h"
#include "bootstrap/net/dialer.h"
#include "bootstrap/net/poll_set.h"

namespace moe::bootstrap {

// Each address gets only a part of the time, so that a silent one does not block the next.
std::chrono::milliseconds perAddress(const Options& options);

// Waits for a source that has no node yet.
void pollOnce(Source& source, Deadline deadline);

// If this process lacks something, there is no reason to wait for others.
void refuseShortage(const Dialer& dialer, const std::string& whom);

// " (rank 0 serves it)", or nothing if that is not known: for sentences about a missing rendezvous.
std::string serverOf(const Options& options);

// Connects to the process that serves an id. Throws Error: moeInvalidUsage (another secret or version), moeRemoteError
// (nobody listens), moeTimeout, moeSystemError.
std::unique_ptr<Link> reachRendezvous(const IdContents& id, const Options& options, Deadline deadline);

// The addresses at which this rank listens.
// If the ranks meet at a loopback address, all of them are on this host, which may lack one of the families.
std::vector<Address> ownAddresses(const IdContents& id, const Options& options);

}  // namespace moe::bootstrap
