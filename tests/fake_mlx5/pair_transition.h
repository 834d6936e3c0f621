// The kernel's part when a program connects a queue pair. It refuses wrong transitions and missing attributes, and
// stores the rest.
#pragma once

#include <rdma/ib_user_verbs.h>

#include "fake_mlx5/queue_pair.h"

namespace moe::test {

// Returns 0 or an errno value.
int modifyPair(QueuePair& pair, const ib_uverbs_modify_qp& request, Violations& violations);
ib_uverbs_query_qp_resp describePair(const QueuePair& pair);

}  // namespace moe::test
