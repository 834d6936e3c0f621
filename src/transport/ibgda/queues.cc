#include "transport/ibgda/queues.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace moe::ibgda {
namespace {

constexpr std::uint32_t kSlotCountMax = 32768;

Error unsupported(const verbs::Adapter& adapter, const std::string& why) {
  return Error(moeUnsupported, fmt::format("IBGDA: {}: {}", adapter.name(), why));
}

}  // namespace

std::shared_ptr<const DirectLibrary> DirectLibrary::load(const std::string& name) {
  auto library = std::make_shared<DirectLibrary>(name);
  if (!library->file.found()) {
    throw Error(moeUnsupported,
                fmt::format("IBGDA: {} cannot be loaded; install it (Debian, Ubuntu: ibverbs-providers)", name));
  }
  const auto need = [&](const char* symbol, auto& function) {
    if (library->file.find(symbol, function)) return;
    throw Error(moeUnsupported, fmt::format("IBGDA: {} has no {}: it is too old", name, symbol));
  };
  need("mlx5dv_is_supported", library->isSupported);
  need("mlx5dv_init_obj", library->initObject);
  return library;
}

Queues::Queues(const RemoteSetup& setup, const DirectLibrary& library, verbs::LocalEnd& end)
    : setup_(setup),
      connections_(static_cast<std::size_t>(end.connections())),
      queues_(end.pairs().size()),
      counters_(end.pairs().size()),
      rung_(end.pairs().size()),
      completedMemory_(setup.backend.allocateHostVisible(std::max<std::size_t>(count(), 1) * sizeof(Word))),
      bellMemory_(setup.backend.allocateHostVisible(std::max<std::size_t>(count(), 1) * sizeof(Word))),
      countersMemory_(setup.backend.allocatePrivate(std::max<std::size_t>(count(), 1) * sizeof(Counters), {})),
      table_(setup.backend.allocatePrivate(
          static_cast<std::size_t>(setup.nranks) * connections_ * sizeof(mlx5::PutQueue), {})) {
  indexOf_.resize(static_cast<std::size_t>(end.rails()));
  std::vector<std::uint64_t> slots(indexOf_.size());
  for (std::size_t i = 0; i < count(); ++i) {
    show(library, end, i, end.pairs()[i].get());
    const auto rail = static_cast<std::size_t>(end.connectionOf(i)) % slots.size();
    slots[rail] += queues_[i].send.slotCount;
    indexOf_[rail][queues_[i].send.queuePair] = static_cast<int>(i);
  }
  for (int rail = 0; rail < end.rails(); ++rail) {
    showCompletions(library, end, rail);
    // After an error every request completes, signalled or not.
    if (slots[static_cast<std::size_t>(rail)] > completions_.back().count) {
      throw unsupported(end.railOf(rail).adapter, "the completion queue is too small for all send queues");
    }
  }
  share();
  chooseRinger();
}

void Queues::show(const DirectLibrary& library, const verbs::LocalEnd& end, std::size_t pair, ibv_qp* from) {
  const verbs::RailEnd& rail = end.railOf(end.connectionOf(pair));
  mlx5dv_qp made{};
  mlx5dv_obj objects{};
  objects.qp.in = from;
  objects.qp.out = &made;
  const int error = library.initObject(&objects, MLX5DV_OBJ_QP);
  if (error != 0) throw rail.adapter.failure("libmlx5 does not show a queue pair", error);
  const std::uint32_t slots = made.sq.wqe_cnt;
  if (made.sq.stride != mlx5::kSlotBytes || slots < mlx5::kPutBatch || slots > kSlotCountMax ||
      (slots & (slots - 1)) != 0 || made.bf.reg == nullptr) {
    throw unsupported(rail.adapter,
                      fmt::format("send queues of {} slots of {} bytes are not supported", slots, made.sq.stride));
  }
  mlx5::PutQueue& queue = queues_[pair];
  queue.send.segments = static_cast<Quad*>(made.sq.buf);
  queue.send.slotCount = slots;
  queue.send.queuePair = from->qp_num;
  queue.send.record = reinterpret_cast<std::uint32_t*>(made.dbrec);
  queue.send.doorbell = static_cast<std::uint64_t*>(made.bf.reg);
  queue.send.counters = &counters_[pair].counters;
  queue.send.completed = &completedWords()[pair].value;
  queue.source = reinterpret_cast<std::uint64_t>(setup_.window);
  queue.sourceKey = rail.region.keys.local;
  queue.messageBytes = rail.adapter.limits().messageBytes / 4 * 4;
}

void Queues::showCompletions(const DirectLibrary& library, const verbs::LocalEnd& end, int rail) {
  const verbs::Adapter& adapter = end.railOf(rail).adapter;
  mlx5dv_cq made{};
  mlx5dv_obj objects{};
  objects.cq.in = end.completions(rail);
  objects.cq.out = &made;
  const int error = library.initObject(&objects, MLX5DV_OBJ_CQ);
  if (error != 0) throw adapter.failure("libmlx5 does not show the completion queue", error);
  if (made.cqe_size != sizeof(mlx5::Cqe)) {
    throw unsupported(adapter,
                      fmt::format("completions of {} bytes are not supported (MLX5_CQE_SIZE?)", made.cqe_size));
  }
  completions_.push_back(
      {static_cast<const mlx5::Cqe*>(made.buf), made.cqe_cnt, reinterpret_cast<std::uint32_t*>(made.dbrec), 0});
}

// ---- What steps reach

void Queues::share() {
  for (const mlx5::PutQueue& queue : queues_) {
    const mlx5::SendQueue& send = queue.send;
    shared_.push_back(setup_.backend.shareWithSteps(send.segments, std::size_t{send.slotCount} * mlx5::kSlotBytes,
                                                    HostPages::memory));
    shared_.push_back(setup_.backend.shareWithSteps(send.record, 2 * sizeof(std::uint32_t), HostPages::memory));
  }
}

void Queues::chooseRinger() {
  const auto asked = static_cast<topology::Doorbell>(setup_.rdma.doorbell);
  if (asked == topology::Doorbell::thread) {
    ringer_ = Ringer::thread;
    how_ = "a thread rings for steps, as configured";
    return;
  }
  try {
    shareRegisters();
    how_ = "steps ring";
  } catch (const Error& error) {
    if (asked == topology::Doorbell::steps) throw;
    ringer_ = Ringer::thread;
    fellBack_ = true;
    how_ = fmt::format("a thread rings for steps, because they cannot: {}", error.what());
  }
}

void Queues::shareRegisters() {
  const HostPages kind = setup_.rdma.softUar != 0 ? HostPages::registersInMemory : HostPages::registers;
  std::vector<Memory> registers;
  for (const mlx5::PutQueue& queue : queues_) {
    registers.push_back(setup_.backend.shareWithSteps(queue.send.doorbell, sizeof(std::uint64_t), kind));
  }
  shared_.insert(shared_.end(), registers.begin(), registers.end());
}

RemoteView Queues::view() const {
  RemoteView view{};
  view.connections = static_cast<int>(connections_);
  view.queues = reinterpret_cast<const mlx5::PutQueue*>(table_.get());
  return view;
}

// ---- From the host to the steps, and back

void Queues::aim(const std::vector<verbs::Card>& peers) {
  for (std::size_t i = 0; i < count(); ++i) {
    const verbs::Card& peer = peers[i / connections_];
    queues_[i].target = peer.window;
    const verbs::CardRail& rail = peer.railOf(static_cast<int>(i % connections_));
    queues_[i].dataKey = rail.dataKey;
    queues_[i].wordKey = rail.wordKey;
  }
}

void Queues::hand() {
  std::vector<mlx5::PutQueue> table(static_cast<std::size_t>(setup_.nranks) * connections_);
  auto* counters = reinterpret_cast<Counters*>(countersMemory_.get());
  for (std::size_t i = 0; i < count(); ++i) {
    mlx5::PutQueue& queue = table[static_cast<std::size_t>(rankAt(i)) * connections_ + i % connections_];
    queue = queues_[i];
    queue.send.counters = &counters[i].counters;
    if (ringer_ == Ringer::thread) queue.send.doorbell = &bellWords()[i].value;
  }
  setup_.backend.copyToPrivate(counters, counters_.data(), count() * sizeof(Counters));
  setup_.backend.copyToPrivate(table_.get(), table.data(), table.size() * sizeof(table[0]));
}

bool Queues::takeBack() {
  static_assert(sizeof(Counters) % sizeof(std::uint64_t) == 0);
  setup_.backend.readWords(reinterpret_cast<std::uint64_t*>(counters_.data()),
                           reinterpret_cast<const std::uint64_t*>(countersMemory_.get()),
                           count() * sizeof(Counters) / sizeof(std::uint64_t));
  return std::all_of(queues_.begin(), queues_.end(), [](const mlx5::PutQueue& queue) {
    const mlx5::SendCounters& counters = *queue.send.counters;
    if (counters.reserved != counters.ready || counters.bell != 0) return false;
    mlx5::ringReady(HostQueueMemory(), queue.send);  // for bytes that waited for a word
    return true;
  });
}

int Queues::waitsFor() const {
  const HostQueueMemory memory;
  for (std::size_t i = 0; i < count(); ++i) {
    if (memory.load(queues_[i].send.completed) != counters_[i].counters.posted) return rankAt(i);
  }
  return -1;
}

// ---- The thread's

int Queues::indexOf(int rail, std::uint32_t queuePair) const {
  const auto& known = indexOf_[static_cast<std::size_t>(rail)];
  const auto found = known.find(queuePair);
  return found == known.end() ? -1 : found->second;
}

int Queues::rankOf(int rail, std::uint32_t queuePair) const {
  const int index = indexOf(rail, queuePair);
  return index < 0 ? -1 : rankAt(static_cast<std::size_t>(index));
}

// The record is already written. Each doorbell names an index, so it differs from the last one.
bool Queues::ringFor(std::size_t i) {
  const HostQueueMemory memory;
  const std::uint64_t asked = memory.load(&bellWords()[i].value);
  if (asked == rung_[i]) return false;
  rung_[i] = asked;
  memory.ring(queues_[i].send.doorbell, asked);
  std::uint32_t sendOff = 0;
  memory.publish(&sendOff, std::uint32_t{1});
  return true;
}

bool Queues::anyUnderWay() const {
  const HostQueueMemory memory;
  return std::any_of(queues_.begin(), queues_.end(), [&](const mlx5::PutQueue& queue) {
    return memory.load(queue.send.record + mlx5::kSendRecord) != mlx5::sendRecord(memory.load(queue.send.completed));
  });
}

}  // namespace moe::ibgda
