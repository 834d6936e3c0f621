#include "fake_mlx5/oracle.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "device/policy/host/queue_memory.h"
#include "fake_mlx5/cqe_image.h"

namespace moe::test {
namespace {

std::atomic<std::uint64_t> compared{0}, different{0};

template <class Enum>
std::uint64_t number(Enum value) {
  return static_cast<std::uint64_t>(value);
}

std::string hex(const void* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += fmt::format("{}{:02x}",
                        i % 16 == 0 && i != 0 ? "\n    "
                        : i % 4 == 0          ? " "
                                              : "",
                        static_cast<const std::uint8_t*>(bytes)[i]);
  }
  return text;
}

ibv_wc_status statusOf(mlx5::Syndrome syndrome) {
  using mlx5::Syndrome;
  switch (syndrome) {
    case Syndrome::none:
      return IBV_WC_SUCCESS;
    case Syndrome::localLength:
      return IBV_WC_LOC_LEN_ERR;
    case Syndrome::localOperation:
      return IBV_WC_LOC_QP_OP_ERR;
    case Syndrome::localProtection:
      return IBV_WC_LOC_PROT_ERR;
    case Syndrome::flushed:
      return IBV_WC_WR_FLUSH_ERR;
    case Syndrome::windowBind:
      return IBV_WC_MW_BIND_ERR;
    case Syndrome::badResponse:
      return IBV_WC_BAD_RESP_ERR;
    case Syndrome::localAccess:
      return IBV_WC_LOC_ACCESS_ERR;
    case Syndrome::remoteInvalidRequest:
      return IBV_WC_REM_INV_REQ_ERR;
    case Syndrome::remoteAccess:
      return IBV_WC_REM_ACCESS_ERR;
    case Syndrome::remoteOperation:
      return IBV_WC_REM_OP_ERR;
    case Syndrome::retriesExceeded:
      return IBV_WC_RETRY_EXC_ERR;
    case Syndrome::receiverNotReady:
      return IBV_WC_RNR_RETRY_EXC_ERR;
    case Syndrome::remoteAborted:
      return IBV_WC_REM_ABORT_ERR;
  }
  return IBV_WC_GENERAL_ERR;
}

ibv_wc_opcode opcodeOf(const mlx5::Completion& completion) {
  if (completion.opcode == mlx5::CqeOpcode::writeImmReceived) return IBV_WC_RECV_RDMA_WITH_IMM;
  switch (static_cast<mlx5::Opcode>(completion.wqeOpcode)) {
    case mlx5::Opcode::rdmaRead:
      return IBV_WC_RDMA_READ;
    case mlx5::Opcode::compareSwap:
      return IBV_WC_COMP_SWAP;
    case mlx5::Opcode::fetchAdd:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_RDMA_WRITE;
  }
}

}  // namespace

Oracle::Oracle() : shadow_(verbs_.send().sq.wqe_cnt, verbs_.qp()->qp_num), idOfSlot_(queue_.slotCount) {
  const mlx5dv_qp& send = verbs_.send();
  const mlx5dv_cq& completions = verbs_.completions();
  if (send.sq.stride != mlx5::kSlotBytes || completions.cqe_size != sizeof(mlx5::Cqe)) {
    throw std::runtime_error("slots or completions are not of 64 bytes");
  }
  completions_ = {static_cast<const mlx5::Cqe*>(completions.buf), completions.cqe_cnt, consumedRecord_, 0};
}

std::uint64_t Oracle::comparisons() {
  return compared;
}
std::uint64_t Oracle::unexpectedDifferences() {
  return different;
}

mlx5::LocalRange Oracle::local(std::uint32_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(verbs_.memory()), verbs_.lkey(), bytes};
}

std::uint64_t Oracle::post(Interface interface, const std::vector<Request>& batch, Mistake mistake) {
  const mlx5dv_qp& send = verbs_.send();
  std::memset(send.bf.reg, 0, 2 * std::size_t{send.bf.size});
  std::uint64_t index = queue_.counters->posted;
  clearSlots(index, 2 * batch.size());
  postVerbs(interface, batch);
  postOwn(batch);
  planted_ = planted_ || mistake != Mistake::none;
  plant(mistake, index);
  std::uint64_t last = index;
  for (const Request& request : batch) {
    compareWqe(index, request);
    idOfSlot_[index % queue_.slotCount] = nextId_++;
    last = index;
    index = mlx5::endOfWqe(queue_, index);
  }
  compareDoorbell(last);
  return last;
}

void Oracle::postReceive(std::uint64_t id) {
  ibv_recv_wr receive{}, *bad = nullptr;
  receive.wr_id = receiveId_ = id;
  if (ibv_post_recv(verbs_.qp(), &receive, &bad) != 0) throw std::runtime_error("ibv_post_recv failed");
  queue_.record[0] = verbs_.send().dbrec[0];  // the word of the receive queue, which we do not write
}

void Oracle::plant(Mistake mistake, std::uint64_t index) {
  Quad* segment = mlx5::segmentAt(queue_, index, 0);
  switch (mistake) {
    case Mistake::none:
      break;
    case Mistake::segmentCount:
      segment[0].y ^= mlx5::bigEndian(std::uint32_t{1});
      break;
    case Mistake::inlineBit:
      segment[2].x ^= mlx5::bigEndian(mlx5::kInlineData);
      break;
    case Mistake::operandsSwapped:
      segment[2] = {segment[2].z, segment[2].w, segment[2].x, segment[2].y};
      break;
    case Mistake::immediateOrder:
      segment[0].w = mlx5::bigEndian(segment[0].w);
      break;
    case Mistake::recordWord:
      std::swap(queue_.record[0], queue_.record[1]);
      break;
    case Mistake::doorbellQueuePair:
      *queue_.doorbell ^= std::uint64_t{1} << 32;
      break;
  }
}

// Cleared slots let whole slots be compared. libmlx5 leaves unwritten what the adapter does not read: the rest of a
// slot, the immediate of operations without one, and the second operand of fetchAdd.
void Oracle::clearSlots(std::uint64_t index, std::size_t count) {
  for (std::uint64_t slot = index; slot < index + count; ++slot) {
    std::memset(mlx5::segmentAt(queue_, slot, 0), 0, mlx5::kSlotBytes);
    std::memset(verbsSlot(slot), 0, mlx5::kSlotBytes);
  }
}

std::uint8_t* Oracle::verbsSlot(std::uint64_t index) {
  return static_cast<std::uint8_t*>(verbs_.send().sq.buf) + index % queue_.slotCount * mlx5::kSlotBytes;
}

void Oracle::compareWqe(std::uint64_t index, const Request& request) {
  const std::uint64_t end = mlx5::endOfWqe(queue_, index);
  for (std::uint64_t slot = index; slot < end; ++slot) {
    same(fmt::format("slot {} of a WQE of kind {}", slot - index, static_cast<int>(request.kind)),
         mlx5::segmentAt(queue_, slot, 0), verbsSlot(slot), mlx5::kSlotBytes);
  }
}

// libmlx5 rings with the first bytes of the last WQE. Our doorbell holds the next index and nothing else:
// docs/decisions/0014.
void Oracle::compareDoorbell(std::uint64_t lastIndex) {
  const mlx5dv_qp& send = verbs_.send();
  same("doorbell record", queue_.record, send.dbrec, 8);
  std::uint8_t rung[8], own[8];
  const auto* reg = static_cast<const std::uint8_t*>(send.bf.reg);
  std::uint64_t first;
  std::memcpy(&first, reg, 8);
  std::memcpy(rung, first != 0 ? reg : reg + send.bf.size, 8);  // libmlx5 alternates between the halves
  std::memcpy(own, queue_.doorbell, 8);
  same("doorbell, first byte", own, rung, 1);
  same("doorbell, queue pair", own + 4, rung + 4, 3);
  const auto indexIn = [](const std::uint8_t* bytes) { return static_cast<std::uint16_t>(bytes[1] << 8 | bytes[2]); };
  const auto slots = static_cast<std::uint16_t>(mlx5::endOfWqe(queue_, lastIndex) - lastIndex);
  same("doorbell, index", indexIn(own), static_cast<std::uint16_t>(indexIn(rung) + slots));
  same("doorbell, opcode and length", std::uint64_t{own[3]} + own[7], 0);
}

void Oracle::complete(mlx5::Completion expected) {
  const HostQueueMemory memory;
  // the number of a process's first queue pair
  expected.queuePair = queue_.queuePair;
  expected.userIndex = 0;
  mlx5::Completion own{};
  ibv_wc verbs{};
  same("completions before there is one", mlx5::poll(memory, completions_, &own) ? 1u : 0u,
       static_cast<std::uint64_t>(ibv_poll_cq(verbs_.cq(), 1, &verbs)));
  auto* entries = static_cast<mlx5::Cqe*>(verbs_.completions().buf);
  writeCqe(entries, completions_.count, produced_++, expected);
  const bool found = mlx5::poll(memory, completions_, &own);
  same("completions", found ? 1u : 0u, static_cast<std::uint64_t>(ibv_poll_cq(verbs_.cq(), 1, &verbs)));
  if (!found) throw std::runtime_error("a completion was not seen");
  compareCompletion(own, verbs, expected);
  same("consumer record", consumedRecord_, verbs_.completions().dbrec, 4);
  if (own.opcode != mlx5::CqeOpcode::writeImmReceived) mlx5::retire(memory, queue_, own);
}

void Oracle::compareCompletion(const mlx5::Completion& own, const ibv_wc& verbs, const mlx5::Completion& expected) {
  const bool received = own.opcode == mlx5::CqeOpcode::writeImmReceived;
  same("status", statusOf(own.syndrome), verbs.status);
  same("vendor syndrome", own.vendorSyndrome, verbs.vendor_err);
  same("queue pair", own.queuePair, verbs.qp_num);
  same("what was posted", received ? receiveId_ : idOfSlot_[own.counter % queue_.slotCount], verbs.wr_id);
  if (!own.failed()) {
    same("operation", opcodeOf(own), verbs.opcode);
    if (received) same("immediate", own.immediate, verbs.imm_data);
    if (received || own.wqeOpcode == number(mlx5::Opcode::rdmaRead)) {
      same("bytes", own.bytes, verbs.byte_len);
    }
  }
  // Fields that libmlx5 does not expose.
  same("kind of completion", number(own.opcode), number(expected.opcode));
  same("counter", own.counter, expected.counter);
  same("syndrome", number(own.syndrome), number(expected.syndrome));
  same("user index", own.userIndex, expected.userIndex);
}

void Oracle::differ(std::string how) {
  if (!planted_) ++different;
  differences_.push_back(std::move(how));
}

void Oracle::same(const std::string& what, const void* own, const void* verbs, std::size_t bytes) {
  ++compared;
  if (std::memcmp(own, verbs, bytes) == 0) return;
  differ(fmt::format("{}\n  ours{}\n  libmlx5{}", what, hex(own, bytes), hex(verbs, bytes)));
}
void Oracle::same(const std::string& what, std::uint64_t own, std::uint64_t verbs) {
  ++compared;
  if (own != verbs) differ(fmt::format("{}: ours {:x}, libmlx5 {:x}", what, own, verbs));
}

}  // namespace moe::test
