#include "transport/rdma/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transport/rdma/send_budget.h"

namespace moe::verbs {
namespace {

constexpr std::uint32_t kMessageBytesMax = 1U << 30;

}  // namespace

Adapter::Adapter(std::shared_ptr<const Library> library, const topology::RdmaPlan& plan)
    : library_(std::move(library)), name_(topology::textOf(plan.port)) {
  open(plan.port.nic);
  domain_ = ProtectionDomain(library_->allocPd(context_.get()), {library_->deallocPd});
  if (!domain_) throw failure("cannot make a protection domain");
  ask(plan.port.port);
}

void Adapter::open(const std::string& nic) {
  int count = 0;
  ibv_device** const list = library_->getDeviceList(&count);
  if (list == nullptr) {
    throw Error(moeUnsupported, fmt::format("RDMA: libibverbs cannot list the adapters: {}; is ib_uverbs loaded?",
                                            std::strerror(errno)));
  }
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> owner(list, library_->freeDeviceList);
  const auto device = std::find_if(list, list + count, [&](const ibv_device* each) { return nic == each->name; });
  if (device == list + count) {
    throw Error(moeUnsupported, fmt::format("RDMA: libibverbs does not show {}; is its provider installed (Debian, "
                                            "Ubuntu: ibverbs-providers), and /dev/infiniband there?",
                                            nic));
  }
  context_ = Context(library_->openDevice(*device), {library_->closeDevice});
  if (!context_) throw failure("cannot be opened; may this user read and write /dev/infiniband/uverbs*?");
}

void Adapter::ask(int port) {
  ibv_device_attr device{};
  int error = library_->queryDevice(context_.get(), &device);
  if (error != 0) throw failure("cannot ask for the adapter's limits", error);
  error = library_->queryPort(context_.get(), port, &port_);
  if (error != 0) throw failure("cannot ask for the port's state", error);
  limits_ = {device.max_qp, device.max_qp_wr, device.max_cqe, std::min(port_.max_msg_sz, kMessageBytesMax)};
}

CompletionQueue Adapter::makeCompletionQueue(int entries) const {
  CompletionQueue queue(library_->createCq(context_.get(), entries, nullptr, nullptr, 0), {library_->destroyCq});
  if (!queue) throw failure(fmt::format("cannot make a completion queue of {} entries", entries));
  return queue;
}

QueuePair Adapter::makeQueuePair(ibv_cq* completions, int requests) const {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = completions;
  attributes.recv_cq = completions;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = static_cast<std::uint32_t>(requests);
  attributes.cap.max_recv_wr = 1;  // some adapters refuse 0
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = kWordBytes;
  QueuePair pair(library_->createQp(domain_.get(), &attributes), {library_->destroyQp});
  if (!pair) throw failure(fmt::format("cannot make a queue pair of {} requests", requests));
  return pair;
}

Error Adapter::failure(const std::string& what, int error) const {
  return systemError(fmt::format("RDMA: {}: {}", name_, what), error);
}

}  // namespace moe::verbs
