#include "transport/rdma/library.h"

#include <fmt/format.h>

#include "base/error.h"

namespace moe::verbs {

std::shared_ptr<const Library> Library::load(const std::string& name) {
  auto library = std::make_shared<Library>(name);
  if (!library->file.found()) {
    throw Error(moeUnsupported, fmt::format("RDMA: {} cannot be loaded; install rdma-core (Debian, Ubuntu: libibverbs1 "
                                            "and ibverbs-providers)",
                                            name));
  }
  const auto need = [&](const char* symbol, auto& function) {
    if (library->file.find(symbol, function)) return;
    throw Error(moeUnsupported, fmt::format("RDMA: {} has no {}: it is too old", name, symbol));
  };
  need("ibv_get_device_list", library->getDeviceList);
  need("ibv_free_device_list", library->freeDeviceList);
  need("ibv_open_device", library->openDevice);
  need("ibv_close_device", library->closeDevice);
  need("ibv_query_device", library->queryDevice);
  need("ibv_query_port", library->queryPortOfOld);
  need("ibv_get_async_event", library->getAsyncEvent);
  need("ibv_ack_async_event", library->ackAsyncEvent);
  need("ibv_alloc_pd", library->allocPd);
  need("ibv_dealloc_pd", library->deallocPd);
  need("ibv_reg_mr", library->regMr);
  need("ibv_dereg_mr", library->deregMr);
  need("ibv_create_cq", library->createCq);
  need("ibv_destroy_cq", library->destroyCq);
  need("ibv_create_qp", library->createQp);
  need("ibv_modify_qp", library->modifyQp);
  need("ibv_destroy_qp", library->destroyQp);
  need("ibv_wc_status_str", library->statusText);
  need("ibv_event_type_str", library->eventText);
  library->file.find("ibv_reg_dmabuf_mr", library->regDmaBufMr);
  return library;
}

// Does the work of verbs.h's inline function, which would need libibverbs at link time.
int Library::queryPort(ibv_context* context, int port, ibv_port_attr* attributes) const {
  *attributes = {};
  const auto number = static_cast<std::uint8_t>(port);
  verbs_context* extended = verbs_get_ctx_op(context, query_port);
  if (extended != nullptr) return extended->query_port(context, number, attributes, sizeof *attributes);
  return queryPortOfOld(context, number, reinterpret_cast<_compat_ibv_port_attr*>(attributes));
}

}  // namespace moe::verbs
