// Puts as adapters carry them. The library's own code posts them to queues of mlx5 adapters (mlx5/put_queue.h), each a
// ring of few slots.
#include <algorithm>
#include <cstring>

#include "support/simulator/simulator_parts.h"

namespace moe::sim {
namespace {

// Offsets in windows stand for addresses.
Put putOf(const Quad* wqe, int to) {
  const auto offset = [](std::uint32_t high, std::uint32_t low) {
    return std::uint64_t{mlx5::bigEndian(high)} << 32 | mlx5::bigEndian(low);
  };
  const std::uint32_t bytes = mlx5::bigEndian(wqe[2].x);
  const std::uint64_t target = offset(wqe[1].x, wqe[1].y);
  if ((bytes & mlx5::kInlineData) != 0) return putWord(to, target, std::uint64_t{wqe[2].z} << 32 | wqe[2].y);
  return putBytes(to, target, offset(wqe[2].z, wqe[2].w), bytes);
}

}  // namespace

void Simulator::makeQueues() {
  const int nranks = program_.nranks();
  queues_.resize(static_cast<std::size_t>(nranks * nranks * kConnections));
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    Queue& queue = queues_[i];
    queue.id = static_cast<std::uint32_t>(i);
    queue.from = static_cast<int>(i) / kConnections / nranks;
    queue.to = static_cast<int>(i) / kConnections % nranks;
    queue.slowness = rng_.oneIn(4) ? 1 << rng_.below(8) : 1;
    const std::uint32_t slots = 1u << rng_.below(6);
    queue.segments.resize(std::size_t{slots} * mlx5::kSlotSegments);
    const mlx5::SendQueue send{queue.segments.data(), slots,           queue.id, queue.record, nullptr,
                               &queue.counters,       &queue.completed};
    posted_.push_back({send, 0, 0, 0, 0, 0, 64u << rng_.below(6)});
  }
  for (int rank = 0; rank < nranks; ++rank) {
    RemoteView& remote = comm_.rank(rank).far.remote;
    remote.connections = kConnections;
    remote.queues = posted_.data() + std::size_t{kConnections} * static_cast<unsigned>(rank * nranks);
  }
}

void Simulator::ring(std::uint64_t doorbell) {
  push(now_ + landingNs(), Kind::look, static_cast<std::uint32_t>(mlx5::bigEndian(doorbell) >> 8 & 0xffffff));
}

bool Simulator::adapterIsGone(const Queue& queue) const {
  const Rank& rank = *ranks_[static_cast<std::size_t>(queue.from)];
  return rank.dead && now_ > rank.result.endNs + rank.linger;
}

// The adapter begins all work that the record covers.
void Simulator::look(std::uint32_t id) {
  Queue& queue = queues_[id];
  if (adapterIsGone(queue)) return;
  const auto told = static_cast<std::uint16_t>(mlx5::bigEndian(queue.record[mlx5::kSendRecord]));
  const std::uint64_t end = queue.begun + static_cast<std::uint16_t>(told - static_cast<std::uint16_t>(queue.begun));
  if (end - queue.completed > posted_[id].send.slotCount) {
    defect_ += "more was posted to a queue than it has room for; ";
    return;
  }
  while (queue.begun < end) execute(queue, queue.begun++);
}

// Parcels of bytes arrive in any order. A word arrives after everything before it on its connection. Connections are
// independent.
void Simulator::execute(Queue& queue, std::uint64_t index) {
  const Quad* wqe = mlx5::segmentAt(posted_[queue.id].send, index, 0);
  if (static_cast<std::uint16_t>(mlx5::bigEndian(wqe[0].x) >> 8) != static_cast<std::uint16_t>(index)) {
    defect_ += "the adapter was told of a work element that is another one's; ";
    return;
  }
  const Put put = putOf(wqe, queue.to);
  queue.work.push_back({0, (mlx5::bigEndian(wqe[0].z) & mlx5::kSignalled) != 0});
  if (put.bytes == 0) return addParcel(queue, put, index, 0, std::max(now_, queue.end) + 1 + landingNs());
  for (std::uint32_t begin = 0; begin < put.bytes; begin += 256) {
    addParcel(queue, put, index, begin, now_ + 5 * landingNs() * static_cast<std::uint64_t>(queue.slowness));
  }
}

void Simulator::addParcel(Queue& queue, const Put& put, std::uint64_t index, std::uint32_t begin, std::uint64_t time) {
  if (freeParcels_.empty()) {
    freeParcels_.push_back(static_cast<std::uint32_t>(parcels_.size()));
    parcels_.emplace_back();
  }
  const std::uint32_t parcel = freeParcels_.back();
  freeParcels_.pop_back();
  parcels_[parcel] = {put, begin, std::min(put.bytes - begin, 256u), queue.id, index};
  ++queue.work.back().parcels;
  queue.end = std::max(queue.end, time);
  push(time, Kind::carry, parcel);
}

void Simulator::carry(std::uint32_t index) {
  const Parcel parcel = parcels_[index];
  freeParcels_.push_back(index);
  Queue& queue = queues_[parcel.queue];
  if (adapterIsGone(queue)) return;
  if (comm_.isLost(parcel.put.to)) return finish(queue, parcel.index);  // transports drop these
  std::uint8_t* to = comm_.rank(parcel.put.to).window.data() + parcel.put.target + parcel.begin;
  if (parcel.put.bytes != 0) {
    std::memcpy(to, comm_.rank(queue.from).window.data() + parcel.put.source + parcel.begin, parcel.bytes);
    return finish(queue, parcel.index);
  }
  Store word{};
  word.to = to;
  std::memcpy(word.data, &parcel.put.source, sizeof(Flag));
  if (comm_.isFlag(to)) checkGrowth(word);
  std::memcpy(to, &parcel.put.source, sizeof(Flag));
  wakeWaiters(to);
  finish(queue, parcel.index);
}

bool Simulator::hasPutsUnderWay(int rank) const {
  return std::any_of(queues_.begin(), queues_.end(),
                     [&](const Queue& queue) { return queue.from == rank && queue.ended != queue.counters.posted; });
}

// A parcel of this work element has arrived. Work ends in order, and its completion arrives later.
void Simulator::finish(Queue& queue, std::uint64_t index) {
  --queue.work[static_cast<std::size_t>(index - queue.ended)].parcels;
  while (!queue.work.empty() && queue.work.front().parcels == 0) {
    ++queue.ended;
    if (queue.work.front().signalled) {
      queue.reports.push_back(queue.ended);
      push(now_ + landingNs(), Kind::complete, queue.id);
    }
    queue.work.pop_front();
  }
}

void Simulator::complete(std::uint32_t id) {
  Queue& queue = queues_[id];
  queue.completed = queue.reports.front();
  queue.reports.pop_front();
}

}  // namespace moe::sim
