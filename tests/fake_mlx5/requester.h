// The requesting side of a reliable connection. It takes WQEs, sends requests to the peer's adapter, repeats them if
// needed, and completes them in order.
#pragma once

#include "fake_mlx5/packet.h"
#include "fake_mlx5/queue_pair.h"

namespace moe::test {

// Does what can be done now. Returns true if there was something to do.
bool stepRequester(Station& station, QueuePair& pair);
// Takes readData, atomicResult, acknowledge or refuse.
void takeAnswer(Station& station, QueuePair& pair, const Packet& packet);

}  // namespace moe::test
