// The wire between the software adapters of a machine. Each adapter has a datagram socket in a common folder, named by
// its process number. Packets of one queue pair stay in order unless they are lost. Packets of different queue pairs do
// not.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "fake_mlx5/fault_plan.h"
#include "fake_mlx5/packet.h"

namespace moe::test {

// The numbers of a process's queue pairs contain the number of the process.
inline constexpr std::uint32_t kProcessShift = 12;

class Wire {
 public:
  explicit Wire(const std::string& folder);  // takes the first free number; throws std::runtime_error
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  std::uint32_t process() const { return process_; }
  int descriptor() const { return socket_; }
  // For the child of a fork: leaves the socket file to the process that made this Wire.
  void forget() { name_.clear(); }

  // Returns false while many packets of this queue pair wait.
  bool hasRoom(std::uint32_t queuePair) const;
  bool isIdle(std::uint32_t queuePair) const { return !queues_.contains(queuePair); }
  void send(const PacketHead& head, const std::uint8_t* data, FaultPlan& faults, std::uint64_t nowNs);
  bool flush(FaultPlan& faults, std::uint64_t nowNs);  // returns true if anything was sent
  bool receive(Packet* packet);

 private:
  struct Waiting {
    Packet packet;
    std::uint64_t dueNs;
    std::uint64_t dueSent;  // or sent once this many others have been sent
  };
  bool isDue(const Waiting& waiting, std::uint64_t nowNs) const;
  bool deliver(std::deque<Waiting>& queue, std::uint64_t nowNs);

  std::string folder_, name_;
  int socket_ = -1;
  std::uint32_t process_ = 0;
  std::uint64_t sent_ = 0;
  std::vector<std::uint8_t> outgoing_, incoming_;  // datagrams that hold several packets
  std::size_t incomingBytes_ = 0, incomingRead_ = 0;
  std::map<std::uint32_t, std::deque<Waiting>> queues_;  // by sending queue pair
};

}  // namespace moe::test
