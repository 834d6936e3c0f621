// libibverbs and owners of what it makes. It is loaded at run time, so that moecomm also loads on machines without it.
// Inline functions of verbs.h (ibv_post_send, ibv_poll_cq) go through the tables of the opened device and need no entry
// here.
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

// ---- Owners of libibverbs objects. A member that uses another one is declared after it, so that it is destroyed
// first.

// Destroying fails only if something else still uses the object. That is a defect of ours, and a destructor cannot
// repair it.
template <class Object>
struct Destroy {
  int (*destroy)(Object*) = nullptr;
  void operator()(Object* object) const noexcept { destroy(object); }
};

template <class Object>
using Owner = std::unique_ptr<Object, Destroy<Object>>;

using Context = Owner<ibv_context>;
using ProtectionDomain = Owner<ibv_pd>;
using MemoryRegion = Owner<ibv_mr>;
using CompletionQueue = Owner<ibv_cq>;
using QueuePair = Owner<ibv_qp>;

}  // namespace moe::verbs
