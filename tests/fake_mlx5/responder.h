// The responding side of a reliable connection. It executes the requests of the peer's adapter, once and in order, and
// answers them.
#pragma once

#include "fake_mlx5/packet.h"
#include "fake_mlx5/queue_pair.h"

namespace moe::test {

void takeRequest(Station& station, QueuePair& pair, const Packet& packet);
// Acknowledges what was done since the last call. Returns true if there was something.
bool stepResponder(Station& station, QueuePair& pair);
// For a queue pair in error: completes its posted receives with an error. Returns true if there was one.
bool flushReceives(Station& station, QueuePair& pair);

}  // namespace moe::test
