// One end of a reliable connection: takes WQEs, asks the peer's adapter, asks again, and completes in order.
#pragma once

#include "fake_mlx5/packet.h"
#include "fake_mlx5/queue_pair.h"

namespace moe::test {

// Goes as far as it can now; true if there was something to do.
bool stepRequester(Station& station, QueuePair& pair);
// readData, atomicResult, acknowledge or refuse.
void takeAnswer(Station& station, QueuePair& pair, const Packet& packet);

}  // namespace moe::test
