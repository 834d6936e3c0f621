// Puts, as adapters carry them.
#include <algorithm>
#include <cstring>

#include "support/simulator_parts.h"

namespace moe::sim {

void Simulator::addParcel(int from, const Put& put, std::uint32_t begin, std::uint32_t bytes, std::uint64_t time) {
  if (freeParcels_.empty()) {
    freeParcels_.push_back(static_cast<std::uint32_t>(parcels_.size()));
    parcels_.emplace_back();
  }
  const std::uint32_t index = freeParcels_.back();
  freeParcels_.pop_back();
  parcels_[index] = {put, begin, bytes, from};
  std::uint64_t& end = queueEnd_[queueOf(from, put)];
  end = std::max(end, time);
  push(time, Kind::carry, index);
}

std::size_t Simulator::queueOf(int from, const Put& put) const {
  const int pair = from * program_.nranks() + put.to;
  return static_cast<std::size_t>(pair * kConnections + put.connection % kConnections);
}

// Parcels of bytes arrive in any order; a word behind all that was put by its connection before. Connections are
// independent.
void Simulator::put(int from, const Put& put) {
  const std::size_t queue = queueOf(from, put);
  if (put.bytes == 0) {
    note("put word", comm_.rank(put.to).window.data() + put.target, put.source);
    return addParcel(from, put, 0, sizeof(Flag), std::max(now_, queueEnd_[queue]) + 1 + landingNs());
  }
  note("put", comm_.rank(put.to).window.data() + put.target, put.bytes);
  for (std::uint32_t begin = 0; begin < put.bytes; begin += 256) {
    const std::uint64_t ns = 5 * landingNs() * static_cast<std::uint64_t>(queueSlowness_[queue]);
    addParcel(from, put, begin, std::min(put.bytes - begin, 256u), now_ + ns);
  }
}

void Simulator::carry(std::uint32_t index) {
  const Parcel parcel = parcels_[index];
  freeParcels_.push_back(index);
  const Rank& sender = *ranks_[static_cast<std::size_t>(parcel.from)];
  if (sender.dead && now_ > sender.result.endNs + sender.linger) return;
  std::uint8_t* to = comm_.rank(parcel.put.to).window.data() + parcel.put.target + parcel.begin;
  if (parcel.put.bytes != 0) {
    std::memcpy(to, comm_.rank(parcel.from).window.data() + parcel.put.source + parcel.begin, parcel.bytes);
    return;
  }
  Store word{};
  word.to = to;
  std::memcpy(word.data, &parcel.put.source, sizeof(Flag));
  if (comm_.isFlag(to)) checkGrowth(word);
  std::memcpy(to, &parcel.put.source, sizeof(Flag));
  wakeWaiters(to);
}

}  // namespace moe::sim
