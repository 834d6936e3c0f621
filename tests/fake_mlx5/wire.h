// The wire between the software adapters of a machine. Each has a datagram socket in a common folder, named by its
// process number. Packets of a queue pair stay in order unless they are lost. Those of different ones do not.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "fake_mlx5/fault_plan.h"
#include "fake_mlx5/packet.h"

namespace moe::test {

// The number of a process is in those of its queue pairs.
inline constexpr std::uint32_t kProcessShift = 12;

class Wire {
 public:
  explicit Wire(const std::string& folder);  // takes the first number that is free; throws std::runtime_error
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  std::uint32_t process() const { return process_; }
  int descriptor() const { return socket_; }
  // The process whose Wire this is a copy of: the child of a fork leaves the socket's name alone.
  void forget() { name_.clear(); }

  // False while much waits that this queue pair has sent.
  bool hasRoom(std::uint32_t queuePair) const;
  bool isIdle(std::uint32_t queuePair) const { return !queues_.contains(queuePair); }
  void send(const PacketHead& head, const std::uint8_t* data, FaultPlan& faults, std::uint64_t nowNs);
  bool flush(FaultPlan& faults, std::uint64_t nowNs);  // true if anything went
  bool receive(Packet* packet);

 private:
  struct Waiting {
    Packet packet;
    std::uint64_t dueNs;
    std::uint64_t dueSent;  // or when this many have been sent
  };
  bool isDue(const Waiting& waiting, std::uint64_t nowNs) const;
  bool deliver(std::deque<Waiting>& queue, std::uint64_t nowNs);

  std::string folder_, name_;
  int socket_ = -1;
  std::uint32_t process_ = 0;
  std::uint64_t sent_ = 0;
  std::vector<std::uint8_t> outgoing_, incoming_;  // datagrams of several packets
  std::size_t incomingBytes_ = 0, incomingRead_ = 0;
  std::map<std::uint32_t, std::deque<Waiting>> queues_;  // by the sending queue pair
};

}  // namespace moe::test
