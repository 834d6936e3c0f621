// Brings one rank into its group: the rendezvous, the connection to its parent in the tree, and a first barrier.
#pragma once

#include <memory>

#include "bootstrap/group/bootstrap.h"
#include "bootstrap/group/node.h"

namespace moe::bootstrap {

// Throws Error; see Bootstrap::join.
std::unique_ptr<Node> joinGroup(const moeUniqueId_t& id, const Options& options);

}  // namespace moe::bootstrap
