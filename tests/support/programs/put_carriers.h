// Carries puts between ranks that are threads. One thread per rank copies from window to window.
#pragma once

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "device/policy/host/queue_memory.h"
#include "support/programs/protocol_world.h"

namespace moe::test {

class PutCarriers {
 public:
  explicit PutCarriers(TestComm& comm) : comm_(comm) {
    if (comm.shape().domains() == 1) return;
    for (int rank = 0; rank < comm.nranks(); ++rank) {
      threads_.emplace_back([this, rank](const std::stop_token& stop) { carryAll(rank, stop); });
    }
  }

 private:
  void carryAll(int rank, const std::stop_token& stop) const {
    PutQueue& puts = comm_.rank(rank).puts;
    const HostQueueMemory memory;
    const PutRing ring = puts.ring();
    std::uint64_t taken = memory.load(ring.taken);
    Put put;
    while (!stop.stop_requested()) {
      if (taken % 16 == 15) awaitPosters(ring, taken);
      if (!take(memory, ring, taken, &put)) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        continue;
      }
      carry(rank, put);
      memory.publish(&puts.taken, ++taken);
    }
  }

  // Waits until a poster finds the ring full, or for a while: the posters may have no more puts.
  static void awaitPosters(const PutRing& ring, std::uint64_t taken) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (HostQueueMemory().load(ring.reserved) - taken <= ring.count && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  void carry(int rank, const Put& put) const {
    std::uint8_t* to = comm_.rank(put.to).window.data() + put.target;
    if (put.bytes == 0) {
      std::atomic_ref(*reinterpret_cast<Flag*>(to)).store(put.source, std::memory_order_release);
    } else {
      std::memcpy(to, comm_.rank(rank).window.data() + put.source, put.bytes);
    }
  }

  TestComm& comm_;
  std::vector<std::jthread> threads_;
};

}  // namespace moe::test
