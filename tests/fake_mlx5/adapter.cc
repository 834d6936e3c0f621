#include "fake_mlx5/adapter.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "fake_mlx5/fake_sysfs.h"
#include "fake_mlx5/pair_transition.h"
#include "fake_mlx5/requester.h"
#include "fake_mlx5/responder.h"

namespace moe::test {
namespace {

constexpr std::uint64_t kRecordLookNs = 2'000'000;  // when to read the record after a missed doorbell
constexpr int kPacketsPerStep = 64;
// The adapter pauses after some doorbells. A store that comes too late then falls into the pause and is seen.
constexpr std::uint64_t kPauseNs = 200'000, kPauseOneIn = 128;

std::uint64_t nanoseconds() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

Adapter::Adapter(const AdapterSettings& settings)
    : wire_(settings.folder.empty() ? nullptr : std::make_unique<Wire>(settings.folder)),
      violations_(settings.report),
      faults_(settings.faults, process()) {
  station_.wire = wire_.get();
}

// ---- Objects

void Adapter::closeContext(int context) {
  std::size_t pairs = 0, regions = 0;
  for (auto pair = pairs_.begin(); pair != pairs_.end();) {
    const auto next = std::next(pair);
    if (pair->second.layout.context == context) removePair(pair), ++pairs;
    pair = next;
  }
  const std::size_t cqs =
      std::erase_if(cqs_, [&](const auto& entry) { return entry.second.layout.context == context; });
  const std::size_t pds = std::erase_if(pds_, [&](const auto& entry) {
    if (entry.second == context) regions += station_.regions.removeAllOf(entry.first);
    return entry.second == context;
  });
  doorbells_.removeContext(context);
  if (pairs + cqs + regions + pds == 0) return;
  violations_.note("a device was closed with " + std::to_string(pairs) + " queue pairs, " + std::to_string(cqs) +
                   " completion queues, " + std::to_string(regions) + " memory regions and " + std::to_string(pds) +
                   " protection domains that were not destroyed");
}

std::uint32_t Adapter::allocatePd(int context) {
  const std::uint32_t handle = newHandle();
  pds_[handle] = context;
  return handle;
}

int Adapter::freePd(std::uint32_t handle) {
  const bool isUsed =
      station_.regions.hasAnyOf(handle) ||
      std::any_of(pairs_.begin(), pairs_.end(), [&](const auto& entry) { return entry.second.layout.pd == handle; });
  if (isUsed) return EBUSY;
  return pds_.erase(handle) == 0 ? EINVAL : 0;
}

// Keys differ between processes, and a key is not reused soon.
std::uint32_t Adapter::registerMemory(Region region) {
  ++keysMade_;
  region.key = (process() & 0xff) << 24 | (keysMade_ & 0xffff) << 8 | (0x42 + (keysMade_ >> 16)) % 256;
  station_.regions.add(region);
  return region.key;
}

void Adapter::deregisterMemory(std::uint32_t handle) {
  station_.landing.finishAll();
  station_.regions.remove(handle);
}

void Adapter::createCq(const CompletionLayout& layout) {
  const auto at = [](std::uint64_t address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); };
  cqs_.emplace(layout.handle,
               Cq{layout, CompletionRing(static_cast<mlx5::Cqe*>(at(layout.buffer)), layout.count,
                                         static_cast<std::uint32_t*>(at(layout.record)), layout.number)});
}

int Adapter::destroyCq(std::uint32_t handle) {
  const auto found = cqs_.find(handle);
  if (found == cqs_.end()) return EINVAL;
  for (const auto& [number, pair] : pairs_) {
    if (pair.sendCompletions == &found->second.ring || pair.receiveCompletions == &found->second.ring) return EBUSY;
  }
  cqs_.erase(found);
  return 0;
}

int Adapter::createPair(PairLayout layout, std::uint32_t sendCq, std::uint32_t receiveCq, NewPair* made) {
  const auto send = cqs_.find(sendCq), receive = cqs_.find(receiveCq);
  if (send == cqs_.end() || receive == cqs_.end() || !pds_.contains(layout.pd)) return EINVAL;
  ++pairsMade_;
  layout.number = process() << kProcessShift | 0x200 | (pairsMade_ & 0x1ff) | (pairsMade_ & 0x600) << 1;
  if (pairs_.contains(layout.number)) return ENOMEM;
  pairs_.emplace(layout.number, QueuePair(layout, &send->second.ring, &receive->second.ring, violations_));
  *made = {layout.number, doorbells_.attach(layout.context, layout.number)};
  return 0;
}

QueuePair* Adapter::findPair(std::uint32_t handle) {
  for (auto& [number, pair] : pairs_) {
    if (pair.layout.handle == handle) return &pair;
  }
  return nullptr;
}

int Adapter::modify(const ib_uverbs_modify_qp& request) {
  QueuePair* pair = findPair(request.qp_handle);
  if (pair == nullptr) return EINVAL;
  const int error = modifyPair(*pair, request, violations_);
  if (pair->state == PairState::reset) station_.landing.finish(pair->layout.number);
  return error;
}

int Adapter::query(std::uint32_t handle, ib_uverbs_query_qp_resp* answer) {
  const QueuePair* pair = findPair(handle);
  if (pair == nullptr) return EINVAL;
  *answer = describePair(*pair);
  return 0;
}

int Adapter::destroyPair(std::uint32_t handle) {
  const QueuePair* pair = findPair(handle);
  if (pair == nullptr) return EINVAL;
  removePair(pairs_.find(pair->layout.number));
  return 0;
}

// A real adapter has answered before the program sees the data, so owed answers go out first.
void Adapter::removePair(std::map<std::uint32_t, QueuePair>::iterator pair) {
  if (executes()) {
    step();
    stepResponder(station_, pair->second);
    sendRest();
  }
  station_.landing.finish(pair->first);
  doorbells_.detach(pair->first);
  pairs_.erase(pair);
}

std::map<std::string, std::uint64_t> Adapter::counts() const {
  std::map<std::string, std::uint64_t> counts = {{"resent", station_.resent}, {"doorbells", doorbellsTaken_}};
  for (std::size_t device = 0; device < station_.wqes.size(); ++device) {
    counts["wqes"] += station_.wqes[device];
    counts["wqes_" + std::to_string(device)] = station_.wqes[device];
  }
  for (int i = 0; i < kFaultCount; ++i) {
    const auto fault = static_cast<Fault>(i);
    counts[faultName(fault)] = faults_.happened(fault);
  }
  return counts;
}

// ---- Steps

bool Adapter::step() {
  station_.nowNs = nanoseconds();
  bool any = takeDoorbells();
  any = takePackets() || any;
  for (auto& [number, pair] : pairs_) any = stepPair(pair) || any;
  any = station_.landing.step(station_.nowNs) || any;
  for (auto& [handle, cq] : cqs_) any = cq.ring.step(station_.nowNs, violations_) || any;
  return wire_->flush(faults_, station_.nowNs) || any;
}

bool Adapter::takeDoorbells() {
  return doorbells_.take([&](int context, std::uint64_t value, const std::vector<std::uint32_t>& sharers) {
    ring(context, value, sharers);
  });
}

// A doorbell may have overwritten that of another queue pair in the same register. So the adapter also reads the
// records of the other queue pairs.
void Adapter::ring(int context, std::uint64_t value, const std::vector<std::uint32_t>& sharers) {
  const auto named = pairs_.find(value >> 8 & 0xffffff);
  const auto index = static_cast<std::uint16_t>(value >> 40);
  if (named == pairs_.end() || named->second.layout.context != context) {
    return violations_.note("a doorbell names a queue pair that does not exist");
  }
  QueuePair& pair = named->second;
  ++doorbellsTaken_;
  if (!pair.maySend() && pair.state != PairState::error) {
    return violations_.note(named->first, index, "the doorbell was rung before the queue pair may send");
  }
  if (faults_.strikes(Fault::ignoreDoorbell)) {
    pair.requester.recordDueNs = station_.nowNs + kRecordLookNs;
    return;
  }
  pair.send->takeDoorbell(index);
  std::uint64_t& notBeforeNs = pair.requester.notBeforeNs;
  if (faults_.random(kPauseOneIn) == 0) notBeforeNs = std::max(notBeforeNs, station_.nowNs + kPauseNs);
  for (const std::uint32_t number : sharers) {
    QueuePair& sharer = pairs_.at(number);
    if (number != named->first && sharer.maySend()) sharer.send->acceptRecord();
  }
}

bool Adapter::takePackets() {
  static thread_local Packet packet;
  int count = 0;
  while (count < kPacketsPerStep && wire_->receive(&packet)) {
    ++count;
    route(packet);
  }
  return count != 0;
}

// Drops packets for unknown queue pairs and for addresses other than the queue pair's, as networks and ports do.
void Adapter::route(const Packet& packet) {
  const auto found = pairs_.find(packet.head.to);
  if (found == pairs_.end()) return;
  QueuePair& pair = found->second;
  if (packet.head.toGid != fakeGid(pair.layout.device, pair.path.gidIndex)) return;
  if (packet.head.kind == PacketKind::request) {
    takeRequest(station_, pair, packet);
  } else {
    takeAnswer(station_, pair, packet);
  }
}

bool Adapter::stepPair(QueuePair& pair) {
  RequesterState& requester = pair.requester;
  if (requester.recordDueNs != 0 && requester.recordDueNs <= station_.nowNs) {
    requester.recordDueNs = 0;
    pair.send->acceptRecord();
  }
  bool any = stepResponder(station_, pair);
  any = stepRequester(station_, pair) || any;
  return (pair.state == PairState::error && flushReceives(station_, pair)) || any;
}

void Adapter::sendRest() {
  constexpr std::uint64_t kNow = ~std::uint64_t{0};  // no delay is that long
  const std::uint64_t endNs = nanoseconds() + 2'000'000;
  while (nanoseconds() < endNs && wire_->flush(faults_, kNow)) continue;
}

}  // namespace moe::test
