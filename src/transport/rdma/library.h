// libibverbs, loaded at run time, so that moecomm also loads on machines without it. Inline functions of verbs.h
// (ibv_post_send, ibv_poll_cq) go through the tables of the opened device and need no entry here.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>

#include "topology/dynamic_library.h"

namespace moe::verbs {

struct Library {
  // Throws moeUnsupported if the library or one of its functions is missing.
  static std::shared_ptr<const Library> load(const std::string& name = "libibverbs.so.1");

  explicit Library(const std::string& name) : file(name.c_str()) {}

  topology::DynamicLibrary file;
  decltype(&::ibv_get_device_list) getDeviceList = nullptr;
  decltype(&::ibv_free_device_list) freeDeviceList = nullptr;
  decltype(&::ibv_open_device) openDevice = nullptr;
  decltype(&::ibv_close_device) closeDevice = nullptr;
  decltype(&::ibv_query_device) queryDevice = nullptr;
  decltype(&::ibv_query_port) queryPortOfOld = nullptr;  // does not fill the last fields; see queryPort
  decltype(&::ibv_get_async_event) getAsyncEvent = nullptr;
  decltype(&::ibv_ack_async_event) ackAsyncEvent = nullptr;
  decltype(&::ibv_alloc_pd) allocPd = nullptr;
  decltype(&::ibv_dealloc_pd) deallocPd = nullptr;
  decltype(&::ibv_reg_mr) regMr = nullptr;
  decltype(&::ibv_dereg_mr) deregMr = nullptr;
  decltype(&::ibv_create_cq) createCq = nullptr;
  decltype(&::ibv_destroy_cq) destroyCq = nullptr;
  decltype(&::ibv_create_qp) createQp = nullptr;
  decltype(&::ibv_modify_qp) modifyQp = nullptr;
  decltype(&::ibv_destroy_qp) destroyQp = nullptr;
  decltype(&::ibv_wc_status_str) statusText = nullptr;
  decltype(&::ibv_event_type_str) eventText = nullptr;

  // Since rdma-core 34; null if the library is older.
  decltype(&::ibv_reg_dmabuf_mr) regDmaBufMr = nullptr;

  // Returns 0 or an errno.
  int queryPort(ibv_context* context, int port, ibv_port_attr* attributes) const;
};

}  // namespace moe::verbs
