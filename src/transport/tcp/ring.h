// The threads of the peers that one ring of a TCP transport serves.
#pragma once

#include "transport/tcp/put_carrier.h"
#include "transport/tcp/receiver.h"
#include "transport/tcp/sender.h"
#include "transport/tcp/tcp_transport.h"

namespace moe {

struct TcpRing {
  TcpRing(TcpGroup& group, const TcpOptions& options)
      : sender(group, options.backlogMax),
        receiver(group, sender),
        carrier(group.setup().backend, options.ringSlots, sender,
                [&group](moeResult_t result, const std::string& sentence) { group.fail(result, sentence); }) {
    sender.setWake([this] { carrier.wake(); });
  }
  // Answers that the receiver has requested are still sent.
  ~TcpRing() {
    receiver.stop();
    carrier.stop();
  }

  TcpSender sender;
  TcpReceiver receiver;
  PutCarrier carrier;
};

}  // namespace moe
