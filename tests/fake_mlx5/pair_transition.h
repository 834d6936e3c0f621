// The kernel's part when a program connects a queue pair: it refuses a wrong step or missing attributes, and keeps the
// rest.
#pragma once

#include <rdma/ib_user_verbs.h>

#include "fake_mlx5/queue_pair.h"

namespace moe::test {

// 0, or what errno becomes.
int modifyPair(QueuePair& pair, const ib_uverbs_modify_qp& request, Violations& violations);
ib_uverbs_query_qp_resp describePair(const QueuePair& pair);

}  // namespace moe::test
