// Compares the constants and offsets of device/queue/mlx5 with those of mlx5dv.h.
#include <cstddef>

#include <infiniband/mlx5dv.h>

#include "device/queue/mlx5/completion_queue.h"
#include "device/queue/mlx5/send_queue.h"
#include "fake_mlx5/other_wqes.h"

namespace moe::mlx5 {
namespace {

constexpr int number(auto value) {
  return static_cast<int>(value);
}

static_assert(number(Opcode::rdmaWrite) == MLX5_OPCODE_RDMA_WRITE);
static_assert(number(Opcode::rdmaWriteImm) == MLX5_OPCODE_RDMA_WRITE_IMM);
static_assert(number(Opcode::rdmaRead) == MLX5_OPCODE_RDMA_READ);
static_assert(number(Opcode::compareSwap) == MLX5_OPCODE_ATOMIC_CS);
static_assert(number(Opcode::fetchAdd) == MLX5_OPCODE_ATOMIC_FA);
static_assert(number(kSolicited) == MLX5_WQE_CTRL_SOLICITED);
static_assert(number(kSignalled) == MLX5_WQE_CTRL_CQ_UPDATE);
static_assert(number(kFenced) == MLX5_WQE_CTRL_FENCE);
static_assert(kInlineData == static_cast<std::uint32_t>(MLX5_INLINE_SEG));
static_assert(number(kSlotBytes) == MLX5_SEND_WQE_BB);
static_assert(kSendRecord == MLX5_SND_DBR);

static_assert(sizeof(Quad) == sizeof(mlx5_wqe_ctrl_seg) && sizeof(Quad) == sizeof(mlx5_wqe_raddr_seg));
static_assert(sizeof(Quad) == sizeof(mlx5_wqe_data_seg) && sizeof(Quad) == sizeof(mlx5_wqe_atomic_seg));

static_assert(sizeof(Cqe) == sizeof(mlx5_cqe64));
static_assert(offsetof(mlx5_cqe64, srqn_uidx) == 4 * kCqeUserIndex);
static_assert(offsetof(mlx5_cqe64, imm_inval_pkey) == 4 * kCqeImmediate);
static_assert(offsetof(mlx5_cqe64, byte_cnt) == 4 * kCqeBytes);
static_assert(offsetof(mlx5_err_cqe, vendor_err_synd) == 4 * kCqeSyndrome + 2);
static_assert(offsetof(mlx5_err_cqe, syndrome) == 4 * kCqeSyndrome + 3);
static_assert(offsetof(mlx5_cqe64, sop_drop_qpn) == 4 * kCqeQueuePair);
static_assert(offsetof(mlx5_cqe64, wqe_counter) == 4 * kCqeLast);
static_assert(offsetof(mlx5_cqe64, op_own) == 4 * kCqeLast + 3);

static_assert(number(CqeOpcode::requester) == MLX5_CQE_REQ);
static_assert(number(CqeOpcode::writeImmReceived) == MLX5_CQE_RESP_WR_IMM);
static_assert(number(CqeOpcode::requesterError) == MLX5_CQE_REQ_ERR);
static_assert(number(CqeOpcode::responderError) == MLX5_CQE_RESP_ERR);
static_assert(number(CqeOpcode::invalid) == MLX5_CQE_INVALID);

static_assert(number(Syndrome::localLength) == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
static_assert(number(Syndrome::localOperation) == MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
static_assert(number(Syndrome::localProtection) == MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
static_assert(number(Syndrome::flushed) == MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
static_assert(number(Syndrome::windowBind) == MLX5_CQE_SYNDROME_MW_BIND_ERR);
static_assert(number(Syndrome::badResponse) == MLX5_CQE_SYNDROME_BAD_RESP_ERR);
static_assert(number(Syndrome::localAccess) == MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR);
static_assert(number(Syndrome::remoteInvalidRequest) == MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
static_assert(number(Syndrome::remoteAccess) == MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
static_assert(number(Syndrome::remoteOperation) == MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
static_assert(number(Syndrome::retriesExceeded) == MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
static_assert(number(Syndrome::receiverNotReady) == MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
static_assert(number(Syndrome::remoteAborted) == MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR);

}  // namespace
}  // namespace moe::mlx5
