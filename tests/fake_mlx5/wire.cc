#include "fake_mlx5/wire.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>

namespace moe::test {
namespace {

constexpr std::uint32_t kFirstProcess = 0x10, kProcessMax = 0xfff;
constexpr std::uint64_t kLatestNs = 1'000'000;
constexpr std::size_t kWaitingMax = 64, kDatagramBytes = 65536;

sockaddr_un addressOf(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof(address.sun_path)) throw std::runtime_error("FAKE_MLX5_DIR is too long a name");
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  return address;
}

}  // namespace

Wire::Wire(const std::string& folder) : folder_(folder) {
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) throw std::runtime_error("no socket for the software adapter");
  const int bytes = 4 << 20;
  setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  for (process_ = kFirstProcess; process_ <= kProcessMax; ++process_) {
    name_ = folder_ + "/" + std::to_string(process_);
    const sockaddr_un address = addressOf(name_);
    if (bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return;
    if (errno != EADDRINUSE) break;
  }
  const std::string what = "the software adapter cannot bind " + name_ + ": " + std::strerror(errno);
  close(socket_);
  throw std::runtime_error(what);
}

Wire::~Wire() {
  close(socket_);
  if (!name_.empty()) unlink(name_.c_str());
}

bool Wire::hasRoom(std::uint32_t queuePair) const {
  const auto queue = queues_.find(queuePair);
  return queue == queues_.end() || queue->second.size() < kWaitingMax;
}

void Wire::send(const PacketHead& head, const std::uint8_t* data, FaultPlan& faults, std::uint64_t nowNs) {
  if (faults.strikes(Fault::drop)) return;
  std::deque<Waiting>& queue = queues_[head.from];
  Waiting& waiting = queue.emplace_back();
  waiting.packet.head = head;
  if (head.bytes != 0) std::memcpy(waiting.packet.data, data, head.bytes);
  waiting.dueNs = waiting.dueSent = 0;
  if (faults.strikes(Fault::delay)) {
    waiting.dueNs = nowNs + faults.random(kLatestNs);
    waiting.dueSent = ~std::uint64_t{0};
  } else if (faults.strikes(Fault::reorder)) {
    waiting.dueNs = nowNs + kLatestNs;
    waiting.dueSent = sent_ + 1;
  }
  if (faults.strikes(Fault::duplicate)) queue.push_back(Waiting(waiting));
}

bool Wire::flush(FaultPlan& faults, std::uint64_t nowNs) {
  if (queues_.empty()) return false;
  bool any = false;
  std::vector<std::uint32_t> order;
  for (const auto& [queuePair, queue] : queues_) order.push_back(queuePair);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[faults.random(i)]);
  for (const std::uint32_t queuePair : order) {
    std::deque<Waiting>& queue = queues_[queuePair];
    while (deliver(queue, nowNs)) any = true;
    if (queue.empty()) queues_.erase(queuePair);
  }
  return any;
}

bool Wire::isDue(const Waiting& waiting, std::uint64_t nowNs) const {
  return waiting.dueNs <= nowNs || waiting.dueSent <= sent_;
}

// Sends as many packets as fit into a datagram. Returns false if there is none, or if the peer must be tried again
// later. Packets to a missing peer get lost.
bool Wire::deliver(std::deque<Waiting>& queue, std::uint64_t nowNs) {
  outgoing_.clear();
  std::size_t count = 0;
  for (; count < queue.size() && isDue(queue[count], nowNs); ++count) {
    const Packet& packet = queue[count].packet;
    const auto* begin = reinterpret_cast<const std::uint8_t*>(&packet);
    const std::size_t bytes = offsetof(Packet, data) + packet.head.bytes;
    const bool sameProcess = packet.head.to >> kProcessShift == queue.front().packet.head.to >> kProcessShift;
    if (!sameProcess || outgoing_.size() + bytes > kDatagramBytes) break;
    outgoing_.insert(outgoing_.end(), begin, begin + bytes);
  }
  if (count == 0) return false;
  const sockaddr_un to = addressOf(folder_ + "/" + std::to_string(queue.front().packet.head.to >> kProcessShift));
  const ssize_t sent = sendto(socket_, outgoing_.data(), outgoing_.size(), MSG_DONTWAIT,
                              reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR)) return false;
  sent_ += count;
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(count));
  return true;
}

bool Wire::receive(Packet* packet) {
  if (incomingRead_ == incomingBytes_) {
    incoming_.resize(kDatagramBytes);
    const ssize_t got = recv(socket_, incoming_.data(), incoming_.size(), MSG_DONTWAIT);
    incomingBytes_ = got < 0 ? 0 : static_cast<std::size_t>(got);
    incomingRead_ = 0;
  }
  const std::size_t left = incomingBytes_ - incomingRead_;
  if (left < offsetof(Packet, data)) return false;
  std::memcpy(&packet->head, incoming_.data() + incomingRead_, sizeof(PacketHead));
  const std::size_t bytes = offsetof(Packet, data) + packet->head.bytes;
  if (bytes > left || packet->head.bytes > kPacketDataBytes) {
    incomingRead_ = incomingBytes_;  // not from another software adapter
    return false;
  }
  std::memcpy(packet->data, incoming_.data() + incomingRead_ + offsetof(Packet, data), packet->head.bytes);
  incomingRead_ += bytes;
  return true;
}

}  // namespace moe::test
