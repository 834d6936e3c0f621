// The commands on objects: protection domains, memory, completion queues, queue pairs. They create and destroy the
// objects of the software adapter.
#include <rdma/ib_user_verbs.h>

#include <bit>
#include <cerrno>

#include <rdma/mlx5-abi.h>

#include "fake_mlx5/engine.h"
#include "fake_mlx5/fake_command.h"

namespace moe::test {
namespace {

// Calls act(adapter), which returns 0 or an errno value.
template <class Act>
int withAdapter(Act act) {
  int error = EIO;
  Engine::instance().with([&](Adapter& adapter) { error = act(adapter); });
  return error;
}

int allocatePd(const Command& command) {
  return withAdapter([&](Adapter& adapter) {
    ib_uverbs_alloc_pd_resp domain{};
    domain.pd_handle = adapter.allocatePd(command.context);
    mlx5_ib_alloc_pd_resp mlx5{};
    mlx5.pdn = domain.pd_handle;
    respond(command, domain, mlx5);
    return 0;
  });
}
int freePd(const Command& command) {
  return withAdapter(
      [&](Adapter& adapter) { return adapter.freePd(requestOf<ib_uverbs_dealloc_pd>(command).pd_handle); });
}

// Refuses memory that peers may write and this process may not.
int registerMemory(const Command& command) {
  const auto request = requestOf<ib_uverbs_reg_mr>(command);
  const bool isWritten = (request.access_flags & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0;
  if (isWritten && (request.access_flags & kAccessLocalWrite) == 0) return EINVAL;
  // Done before the adapter stands still, because it may wait for the GPU.
  Region region = {0,
                   0,
                   request.pd_handle,
                   request.start,
                   request.length,
                   request.hca_va,
                   request.access_flags,
                   openGpuMemory(request.start)};
  return withAdapter([&](Adapter& adapter) {
    ib_uverbs_reg_mr_resp answer{};
    answer.mr_handle = region.handle = adapter.newHandle();
    answer.lkey = answer.rkey = adapter.registerMemory(region);
    respond(command, answer);
    return 0;
  });
}
int deregisterMemory(const Command& command) {
  return withAdapter([&](Adapter& adapter) {
    adapter.deregisterMemory(requestOf<ib_uverbs_dereg_mr>(command).mr_handle);
    return 0;
  });
}

// libmlx5 allocates a power of two and asks for one entry less.
int newCq(const Command& command, const mlx5_ib_create_cq& mlx5, std::uint32_t entries, ib_uverbs_create_cq_resp* queue,
          mlx5_ib_create_cq_resp* driver) {
  if (mlx5.cqe_size != 64 || mlx5.cqe_comp_en != 0) return EOPNOTSUPP;
  return withAdapter([&](Adapter& adapter) {
    queue->cq_handle = adapter.newHandle();
    queue->cqe = entries;
    driver->cqn = 0x400 + queue->cq_handle;
    adapter.createCq(
        {command.context, queue->cq_handle, driver->cqn, std::bit_ceil(entries + 1), mlx5.buf_addr, mlx5.db_addr});
    return 0;
  });
}
int createCq(const Command& command) {
  ib_uverbs_create_cq_resp queue{};
  mlx5_ib_create_cq_resp mlx5{};
  const int error = newCq(command, driverRequestOf<mlx5_ib_create_cq, ib_uverbs_create_cq>(command),
                          requestOf<ib_uverbs_create_cq>(command).cqe, &queue, &mlx5);
  if (error == 0) respond(command, queue, mlx5);
  return error;
}
int createCqExtended(const Command& command) {
  ib_uverbs_ex_create_cq_resp queue{};
  queue.response_length = sizeof(queue);
  mlx5_ib_create_cq_resp mlx5{};
  const int error = newCq(command, driverRequestOf<mlx5_ib_create_cq, ib_uverbs_ex_create_cq>(command),
                          requestOf<ib_uverbs_ex_create_cq>(command).cqe, &queue.base, &mlx5);
  if (error == 0) respond(command, queue, mlx5);
  return error;
}
int destroyCq(const Command& command) {
  return withAdapter(
      [&](Adapter& adapter) { return adapter.destroyCq(requestOf<ib_uverbs_destroy_cq>(command).cq_handle); });
}

// Both kinds of command use fields of the same names.
template <class Request>
int newQueuePair(const Command& command, ib_uverbs_create_qp_resp* queue, mlx5_ib_create_qp_resp* driver) {
  constexpr int kReliableConnection = 2;
  const auto request = requestOf<Request>(command);
  const auto mlx5 = driverRequestOf<mlx5_ib_create_qp, Request>(command);
  if (request.qp_type != kReliableConnection || request.is_srq != 0) return EOPNOTSUPP;
  const auto at = [](std::uint64_t address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); };
  queue->max_send_wr = request.max_send_wr;
  queue->max_recv_wr = request.max_recv_wr;
  queue->max_send_sge = request.max_send_sge;
  queue->max_recv_sge = request.max_recv_sge;
  queue->max_inline_data = request.max_inline_data;
  const std::uint32_t sendCq = request.send_cq_handle, receiveCq = request.recv_cq_handle;
  PairLayout layout = {0,
                       0,
                       request.pd_handle,
                       mlx5.uidx,
                       command.context,
                       Engine::instance().deviceOf(command.context),
                       static_cast<std::uint8_t*>(at(mlx5.buf_addr)),
                       static_cast<std::uint32_t*>(at(mlx5.db_addr)),
                       mlx5.sq_wqe_count,
                       mlx5.rq_wqe_count,
                       mlx5.rq_wqe_shift};
  return withAdapter([&](Adapter& adapter) {
    queue->qp_handle = layout.handle = adapter.newHandle();
    Adapter::NewPair made{};
    const int error = adapter.createPair(layout, sendCq, receiveCq, &made);
    queue->qpn = made.number;
    driver->bfreg_index = made.doorbell;
    return error;
  });
}
int createQp(const Command& command) {
  ib_uverbs_create_qp_resp queue{};
  mlx5_ib_create_qp_resp mlx5{};
  const int error = newQueuePair<ib_uverbs_create_qp>(command, &queue, &mlx5);
  if (error == 0) respond(command, queue, mlx5);
  return error;
}
int createQpExtended(const Command& command) {
  ib_uverbs_ex_create_qp_resp queue{};
  queue.response_length = sizeof(queue);
  mlx5_ib_create_qp_resp mlx5{};
  const int error = newQueuePair<ib_uverbs_ex_create_qp>(command, &queue.base, &mlx5);
  if (error == 0) respond(command, queue, mlx5);
  return error;
}
// The extended request starts like the plain one.
int modifyQp(const Command& command) {
  return withAdapter([&](Adapter& adapter) { return adapter.modify(requestOf<ib_uverbs_modify_qp>(command)); });
}
int modifyQpExtended(const Command& command) {
  ib_uverbs_ex_modify_qp_resp answer{};
  answer.response_length = sizeof(answer);
  respond(command, answer);
  return modifyQp(command);
}
int queryQp(const Command& command) {
  return withAdapter([&](Adapter& adapter) {
    ib_uverbs_query_qp_resp answer{};
    const int error = adapter.query(requestOf<ib_uverbs_query_qp>(command).qp_handle, &answer);
    respond(command, answer);
    return error;
  });
}
int destroyQp(const Command& command) {
  return withAdapter(
      [&](Adapter& adapter) { return adapter.destroyPair(requestOf<ib_uverbs_destroy_qp>(command).qp_handle); });
}

constexpr Answer kObjectAnswers[] = {
    {IB_USER_VERBS_CMD_ALLOC_PD, false, allocatePd},
    {IB_USER_VERBS_CMD_DEALLOC_PD, false, freePd},
    {IB_USER_VERBS_CMD_REG_MR, false, registerMemory},
    {IB_USER_VERBS_CMD_DEREG_MR, false, deregisterMemory},
    {IB_USER_VERBS_CMD_CREATE_CQ, false, createCq},
    {IB_USER_VERBS_CMD_DESTROY_CQ, false, destroyCq},
    {IB_USER_VERBS_CMD_CREATE_QP, false, createQp},
    {IB_USER_VERBS_CMD_MODIFY_QP, false, modifyQp},
    {IB_USER_VERBS_CMD_QUERY_QP, false, queryQp},
    {IB_USER_VERBS_CMD_DESTROY_QP, false, destroyQp},
    {IB_USER_VERBS_EX_CMD_CREATE_CQ, true, createCqExtended},
    {IB_USER_VERBS_EX_CMD_CREATE_QP, true, createQpExtended},
    {IB_USER_VERBS_EX_CMD_MODIFY_QP, true, modifyQpExtended},
};

}  // namespace

int answerObjectCommand(const Command& command) {
  for (const Answer& answer : kObjectAnswers) {
    if (answer.number == command.number && answer.extended == command.extended) return answer.answer(command);
  }
  return EOPNOTSUPP;
}

}  // namespace moe::test
