#include "fake_mlx5/fake_kernel.h"

#include <rdma/ib_user_verbs.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <rdma/mlx5-abi.h>

#include "fake_mlx5/doorbells.h"
#include "fake_mlx5/fake_command.h"

namespace moe::test {

// ---- The device: what a ConnectX-7 answers, for the queries that occur

mlx5_ib_alloc_ucontext_resp describeContext() {
  mlx5_ib_alloc_ucontext_resp mlx5{};
  mlx5.qp_tab_size = 1 << 18;
  mlx5.bf_reg_size = 512;
  mlx5.tot_bfregs = 2 * kRegisterPages;
  mlx5.num_dyn_bfregs = 512;
  mlx5.cache_line_size = 64;
  mlx5.max_sq_desc_sz = 1024;
  mlx5.max_rq_desc_sz = 512;
  mlx5.max_send_wqebb = mlx5.max_recv_wr = mlx5.max_srq_recv_wr = 32768;
  mlx5.num_ports = 1;
  mlx5.cqe_version = 1;
  mlx5.eth_min_inline = MLX5_USER_INLINE_MODE_NONE;
  mlx5.log_uar_size = 12;
  mlx5.num_uars_per_page = 1;
  mlx5.response_length = sizeof(mlx5);
  return mlx5;
}

namespace {

constexpr std::uint64_t kFirmware = 0x001c002703ea;

int getContext(const Command& command) {
  ib_uverbs_get_context_resp verbs{};
  verbs.async_fd = static_cast<std::uint32_t>(eventfd(0, EFD_CLOEXEC));
  verbs.num_comp_vectors = 1;
  respond(command, verbs, describeContext());
  return 0;
}

template <class Response>
void describeDevice(Response& device) {
  device.fw_ver = kFirmware;
  device.vendor_id = 0x2c9;
  device.vendor_part_id = 4129;
  device.phys_port_cnt = 1;
  device.max_qp = 1 << 17;
  device.max_qp_wr = 32768;
  device.max_sge = 30;
  device.max_cq = 1 << 24;
  device.max_cqe = 1 << 22;
  device.max_mr = 1 << 24;
  device.max_pd = 1 << 23;
  device.max_qp_rd_atom = device.max_qp_init_rd_atom = 16;
  device.atomic_cap = 1;
  device.max_mr_size = ~std::uint64_t{0};
  device.page_size_cap = 0xfffff000;
  device.max_pkeys = 128;
}

int queryDevice(const Command& command) {
  ib_uverbs_query_device_resp device{};
  describeDevice(device);
  respond(command, device);
  return 0;
}
int queryDeviceExtended(const Command& command) {
  ib_uverbs_ex_query_device_resp device{};
  device.response_length = sizeof(device);
  describeDevice(device.base);
  respond(command, device);
  return 0;
}

int queryPort(const Command& command) {
  ib_uverbs_query_port_resp port{};
  port.state = 4;  // active
  port.max_mtu = port.active_mtu = 5;
  port.gid_tbl_len = 2;
  port.pkey_tbl_len = 1;
  port.max_msg_sz = 1u << 30;
  port.active_width = 2;
  port.active_speed = 128;
  port.phys_state = 5;
  port.link_layer = 2;  // Ethernet
  respond(command, port);
  return 0;
}

// ---- Commands

constexpr Answer kDeviceAnswers[] = {
    {IB_USER_VERBS_CMD_GET_CONTEXT, false, getContext},
    {IB_USER_VERBS_CMD_QUERY_DEVICE, false, queryDevice},
    {IB_USER_VERBS_CMD_QUERY_PORT, false, queryPort},
    {IB_USER_VERBS_EX_CMD_QUERY_DEVICE, true, queryDeviceExtended},
};

template <class T>
T* pointerOf(std::uint64_t address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

// Extended commands count lengths in words of 8 bytes, others in words of 4.
Command takeApart(int context, const std::byte* bytes) {
  ib_uverbs_cmd_hdr header;
  std::memcpy(&header, bytes, sizeof(header));
  Command command{};
  command.context = context;
  command.number = header.command & IB_USER_VERBS_CMD_COMMAND_MASK;
  command.extended = (header.command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0;
  command.request = bytes + sizeof(header);
  if (command.extended) {
    ib_uverbs_ex_cmd_hdr more;
    std::memcpy(&more, command.request, sizeof(more));
    command.request += sizeof(more);
    command.response = pointerOf<std::byte>(more.response);
    command.driverRequest = command.request + std::size_t{header.in_words} * 8;
    command.driverResponse = command.response + std::size_t{header.out_words} * 8;
    command.responseBytes = (std::size_t{header.out_words} + more.provider_out_words) * 8;
  } else {
    command.response = pointerOf<std::byte>(requestOf<std::uint64_t>(command));  // the request starts with this address
    command.responseBytes = std::size_t{header.out_words} * 4;
  }
  return command;
}

}  // namespace

int answerCommand(int context, const void* bytes) {
  const Command command = takeApart(context, static_cast<const std::byte*>(bytes));
  // Commands without a response have no length for it.
  if (command.responseBytes != 0) std::memset(command.response, 0, command.responseBytes);
  for (const Answer& answer : kDeviceAnswers) {
    if (answer.number == command.number && answer.extended == command.extended) return answer.answer(command);
  }
  return answerObjectCommand(command);
}

}  // namespace moe::test
