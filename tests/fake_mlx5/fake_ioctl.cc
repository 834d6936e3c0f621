#include "fake_mlx5/fake_ioctl.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "fake_mlx5/fake_kernel.h"

namespace moe::test {
namespace {

template <class Value>
void answerAttribute(ib_uverbs_attr& attribute, const Value& value) {
  auto* to = reinterpret_cast<void*>(static_cast<std::uintptr_t>(attribute.data));
  std::memcpy(to, &value, std::min(sizeof(value), std::size_t{attribute.len}));
  attribute.flags |= UVERBS_ATTR_F_VALID_OUTPUT;
}

int getContext(ib_uverbs_ioctl_hdr& command) {
  for (int i = 0; i < command.num_attrs; ++i) {
    ib_uverbs_attr& attribute = command.attrs[i];
    if (attribute.attr_id == UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS) answerAttribute(attribute, std::uint32_t{1});
    if (attribute.attr_id == UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT) {
      answerAttribute(attribute, std::uint64_t{IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS});
    }
    if (attribute.attr_id == UVERBS_ATTR_UHW_OUT) answerAttribute(attribute, describeContext());
  }
  return 0;
}

// Answers with a descriptor that never reports an event.
int allocateEvents(ib_uverbs_ioctl_hdr& command) {
  for (int i = 0; i < command.num_attrs; ++i) {
    if (command.attrs[i].attr_id == UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE) {
      command.attrs[i].data_s64 = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
  }
  return 0;
}

}  // namespace

int answerIoctl(unsigned long request, void* argument) {
  if (request != RDMA_VERBS_IOCTL) return ENOTTY;
  auto& command = *static_cast<ib_uverbs_ioctl_hdr*>(argument);
  const auto is = [&](unsigned object, unsigned method) {
    return command.object_id == object && command.method_id == method;
  };
  if (is(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT)) return getContext(command);
  if (is(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC)) return allocateEvents(command);
  return EPROTONOSUPPORT;
}

}  // namespace moe::test
