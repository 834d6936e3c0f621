// The other end of a reliable connection: does what the peer's adapter asks for, once and in order, and answers.
#pragma once

#include "fake_mlx5/packet.h"
#include "fake_mlx5/queue_pair.h"

namespace moe::test {

void takeRequest(Station& station, QueuePair& pair, const Packet& packet);
// Acknowledges what was done since the last call; true if there was something.
bool stepResponder(Station& station, QueuePair& pair);
// Of a queue pair in error: what it has posted to receive completes with an error.
bool flushReceives(Station& station, QueuePair& pair);

}  // namespace moe::test
