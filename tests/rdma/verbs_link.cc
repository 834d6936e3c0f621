#include "rdma/verbs_link.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "fake_mlx5/other_wqes.h"
#include "rdma/process_board.h"

namespace moe::test {
namespace {

using mlx5::Opcode, mlx5::Syndrome;

ibv_wr_opcode verbsOpcode(Opcode opcode) {
  switch (opcode) {
    case Opcode::rdmaWriteImm:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Opcode::rdmaRead:
      return IBV_WR_RDMA_READ;
    case Opcode::compareSwap:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
    case Opcode::fetchAdd:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    default:
      return IBV_WR_RDMA_WRITE;
  }
}

Syndrome syndromeOf(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return Syndrome::none;
    case IBV_WC_LOC_QP_OP_ERR:
      return Syndrome::localOperation;
    case IBV_WC_LOC_PROT_ERR:
      return Syndrome::localProtection;
    case IBV_WC_WR_FLUSH_ERR:
      return Syndrome::flushed;
    case IBV_WC_LOC_ACCESS_ERR:
      return Syndrome::localAccess;
    case IBV_WC_REM_INV_REQ_ERR:
      return Syndrome::remoteInvalidRequest;
    case IBV_WC_REM_ACCESS_ERR:
      return Syndrome::remoteAccess;
    case IBV_WC_REM_OP_ERR:
      return Syndrome::remoteOperation;
    case IBV_WC_RETRY_EXC_ERR:
      return Syndrome::retriesExceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return Syndrome::receiverNotReady;
    default:
      return Syndrome::badResponse;
  }
}

}  // namespace

void check(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

Link::Link(ibv_context* context, ibv_pd* pd, const LinkSettings& settings) : settings_(settings) {
  cq_.reset(ibv_create_cq(context, static_cast<int>(settings.completions), nullptr, nullptr, 0));
  check(cq_ != nullptr, "ibv_create_cq");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq_.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {settings.slots, settings.receives, 1, 1, 28};
  qp_.reset(ibv_create_qp(pd, &attributes));
  check(qp_ != nullptr, "ibv_create_qp");

  mlx5dv_qp send{};
  mlx5dv_cq completions{};
  mlx5dv_obj objects{};
  objects.qp.in = qp_.get();
  objects.qp.out = &send;
  objects.cq.in = cq_.get();
  objects.cq.out = &completions;
  check(mlx5dv_init_obj(&objects, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) == 0, "mlx5dv_init_obj");
  queue_ = {static_cast<Quad*>(send.sq.buf),
            send.sq.wqe_cnt,
            qp_->qp_num,
            reinterpret_cast<std::uint32_t*>(send.dbrec),
            static_cast<std::uint64_t*>(send.bf.reg),
            &counters_,
            &completed_};
  completions_ = {static_cast<const mlx5::Cqe*>(completions.buf), completions.cqe_cnt,
                  reinterpret_cast<std::uint32_t*>(completions.dbrec), 0};
}

void Link::modify(ibv_qp_attr* attributes, int mask) {
  errno = ibv_modify_qp(qp_.get(), attributes, mask);
  check(errno == 0, "ibv_modify_qp");
}

ibv_qp_state Link::state() const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  check(ibv_query_qp(qp_.get(), &attributes, IBV_QP_STATE, &init) == 0, "ibv_query_qp");
  return attributes.qp_state;
}

void Link::connect(std::uint32_t peer, const ibv_gid& peerGid, std::uint32_t psn, std::uint32_t peerPsn) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = settings_.access;
  modify(&attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_4096;
  attributes.dest_qp_num = peer;
  attributes.rq_psn = peerPsn;
  attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(settings_.readsOfPeer);
  attributes.min_rnr_timer = 6;  // 80 us
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = peerGid;
  attributes.ah_attr.grh.sgid_index = 1;
  attributes.ah_attr.grh.hop_limit = 64;
  modify(&attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = static_cast<std::uint8_t>(settings_.timeout);
  attributes.retry_cnt = static_cast<std::uint8_t>(settings_.retries);
  attributes.rnr_retry = static_cast<std::uint8_t>(settings_.notReadyRetries);
  attributes.sq_psn = psn;
  attributes.max_rd_atomic = static_cast<std::uint8_t>(settings_.reads);
  modify(&attributes,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

// ---- Posting

void Link::post(const Operation& operation) {
  waitFor("room in the send queue", [&] {
    if (tryPost(operation)) return true;
    pump();
    return false;
  });
  waitingFor_ += operation.signalled;
}

bool Link::tryPost(const Operation& operation) {
  if (settings_.byQueues) return counters_.reserved + 1 - completed_ <= queue_.slotCount && submit(operation);
  ibv_sge local = {operation.local.address, operation.local.bytes, operation.local.lkey};
  ibv_send_wr request{}, *bad = nullptr;
  request.sg_list = &local;
  request.num_sge = 1;
  request.opcode = verbsOpcode(operation.opcode);
  request.send_flags =
      (operation.signalled ? unsigned{IBV_SEND_SIGNALED} : 0u) | (operation.fenced ? unsigned{IBV_SEND_FENCE} : 0u);
  request.imm_data = operation.immediate;
  if (operation.local.bytes == 0) {
    local = {reinterpret_cast<std::uintptr_t>(&operation.flag), 8, 0};
    request.send_flags |= IBV_SEND_INLINE;
  }
  if (operation.opcode == Opcode::fetchAdd || operation.opcode == Opcode::compareSwap) {
    const bool adds = operation.opcode == Opcode::fetchAdd;
    request.wr.atomic = {operation.remote.address, operation.operand[0], adds ? 0 : operation.operand[1],
                         operation.remote.rkey};
  } else {
    request.wr.rdma = {operation.remote.address, operation.remote.rkey};
  }
  const int error = ibv_post_send(qp_.get(), &request, &bad);
  if (error != 0 && error != ENOMEM) throw std::runtime_error("ibv_post_send: " + std::string(std::strerror(error)));
  return error == 0;
}

bool Link::submit(const Operation& operation) {
  const HostQueueMemory memory;
  static constexpr WaitOrders kFiveSeconds{0, 5'000'000'000};
  const WaitLimit limit = {memory.nanoseconds(), &kFiveSeconds};
  const std::uint8_t flags =
      static_cast<std::uint8_t>((operation.signalled ? mlx5::kSignalled : 0) | (operation.fenced ? mlx5::kFenced : 0));
  return mlx5::submit(memory, queue_, 1, limit, [&](std::uint64_t index) {
    const mlx5::WqeHead head = mlx5::headAt(queue_, index, flags);
    const mlx5::RemoteAddress& remote = operation.remote;
    const mlx5::LocalRange& local = operation.local;
    const std::uint64_t* operand = operation.operand;
    if (operation.opcode == Opcode::rdmaRead) {
      mlx5::writeWqe(memory, queue_, index, mlx5::rdmaRead(head, remote, local));
    } else if (operation.opcode == Opcode::fetchAdd) {
      mlx5::writeWqe(memory, queue_, index, mlx5::fetchAdd(head, remote, operand[0], local.address, local.lkey));
    } else if (operation.opcode == Opcode::compareSwap) {
      mlx5::writeWqe(memory, queue_, index,
                     mlx5::compareSwap(head, remote, operand[0], operand[1], local.address, local.lkey));
    } else if (operation.opcode == Opcode::rdmaWriteImm) {
      mlx5::writeWqe(memory, queue_, index, mlx5::rdmaWriteImm(head, remote, local, operation.immediate));
    } else if (local.bytes == 0) {
      mlx5::writeWqe(memory, queue_, index, mlx5::inlineWrite(head, remote, mlx5::inlineFlag(operation.flag)));
    } else {
      mlx5::writeWqe(memory, queue_, index, mlx5::rdmaWrite(head, remote, local));
    }
  });
}

// Has no length, because only the immediate and the number of bytes are of interest.
void Link::postReceive() {
  ibv_recv_wr request{}, *bad = nullptr;
  errno = ibv_post_recv(qp_.get(), &request, &bad);
  check(errno == 0, "ibv_post_recv");
}

// ---- Completions

bool Link::pollVerbs(Done* done) {
  ibv_wc completion{};
  const int count = ibv_poll_cq(cq_.get(), 1, &completion);
  check(count >= 0, "ibv_poll_cq");
  if (count == 0) return false;
  done->syndrome = syndromeOf(completion.status);
  // A failed completion does not say what it was. In these tests only posted sends fail.
  done->received = completion.status == IBV_WC_SUCCESS && (completion.opcode & IBV_WC_RECV) != 0;
  done->immediate = completion.imm_data;
  done->bytes = completion.byte_len;
  return true;
}

bool Link::pollQueue(Done* done) {
  mlx5::Completion completion{};
  if (!mlx5::poll(HostQueueMemory(), completions_, &completion)) return false;
  done->syndrome = completion.syndrome;
  done->received =
      completion.opcode != mlx5::CqeOpcode::requester && completion.opcode != mlx5::CqeOpcode::requesterError;
  done->immediate = completion.immediate;
  done->bytes = completion.bytes;
  if (!done->received) mlx5::retire(HostQueueMemory(), queue_, completion);
  return true;
}

void Link::pump() {
  Done done;
  while (settings_.byQueues ? pollQueue(&done) : pollVerbs(&done)) {
    if (!done.received && waitingFor_ != 0) --waitingFor_;
    done_.push_back(done);
  }
}

bool Link::poll(Done* done) {
  pump();
  if (done_.empty()) return false;
  *done = done_.front();
  done_.pop_front();
  return true;
}

Done Link::next() {
  Done done;
  waitFor("a completion", [&] { return poll(&done); });
  return done;
}

void Link::finish() {
  waitFor("completions", [&] {
    pump();
    for (; !done_.empty(); done_.pop_front()) {
      if (done_.front().syndrome == Syndrome::none) continue;
      throw std::runtime_error(std::string("an operation failed: ") + mlx5::syndromeText(done_.front().syndrome));
    }
    return waitingFor_ == 0;
  });
}

}  // namespace moe::test
