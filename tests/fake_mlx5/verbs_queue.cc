#include "fake_mlx5/verbs_queue.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace moe::test {
namespace {

void check(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

ibv_context* openFirstDevice() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  check(devices != nullptr, "ibv_get_device_list");
  ibv_context* context = count > 0 ? ibv_open_device(devices[0]) : nullptr;
  ibv_free_device_list(devices);
  check(context != nullptr, "no RDMA device, or it does not open");
  return context;
}

}  // namespace

VerbsQueue::VerbsQueue() : memory_(1 << 16), context_(openFirstDevice()) {
  pd_.reset(ibv_alloc_pd(context_.get()));
  check(pd_ != nullptr, "ibv_alloc_pd");
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
  region_.reset(ibv_reg_mr(pd_.get(), memory_.data(), memory_.size(), kAccess));
  check(region_ != nullptr, "ibv_reg_mr");
  cq_.reset(ibv_create_cq(context_.get(), 255, nullptr, nullptr, 0));
  check(cq_ != nullptr, "ibv_create_cq");
  createQueuePair();
  makeReadyToSend();
  mlx5dv_obj objects{};
  objects.qp.in = qp_.get();
  objects.qp.out = &send_;
  objects.cq.in = cq_.get();
  objects.cq.out = &completions_;
  check(mlx5dv_init_obj(&objects, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) == 0, "mlx5dv_init_obj");
}

// Creates a queue pair that allows both ways of posting: ibv_post_send and ibv_wr_*.
void VerbsQueue::createQueuePair() {
  ibv_qp_init_attr_ex verbs{};
  verbs.send_cq = verbs.recv_cq = cq_.get();
  verbs.qp_type = IBV_QPT_RC;
  verbs.pd = pd_.get();
  verbs.cap.max_send_wr = 64;
  verbs.cap.max_recv_wr = 16;
  verbs.cap.max_send_sge = verbs.cap.max_recv_sge = 1;
  verbs.cap.max_inline_data = 60;
  verbs.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  verbs.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                         IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
  mlx5dv_qp_init_attr mlx5{};
  qp_.reset(mlx5dv_create_qp(context_.get(), &verbs, &mlx5));
  check(qp_ != nullptr, "mlx5dv_create_qp");
}

void VerbsQueue::makeReadyToSend() {
  ibv_qp_attr attributes{};
  const auto modify = [&](ibv_qp_state state, int mask) {
    attributes.qp_state = state;
    check(ibv_modify_qp(qp_.get(), &attributes, IBV_QP_STATE | mask) == 0, "ibv_modify_qp");
  };
  attributes.port_num = 1;
  modify(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  attributes.path_mtu = IBV_MTU_4096;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.is_global = 1;
  modify(IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                          IBV_QP_MIN_RNR_TIMER);
  modify(IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

}  // namespace moe::test
