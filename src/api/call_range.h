// A range of NVTX for a call, which tools such as Nsight Systems show beside the kernels. NVTX is a header of the CUDA
// toolkit: it looks once whether a tool has been injected into the process (NVTX_INJECTION64_PATH), and without one a
// range costs a look at a pointer. Builds without CUDA have no ranges.
#pragma once

#if MOECOMM_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace moe {

#if MOECOMM_NVTX

class CallRange {
 public:
  explicit CallRange(const char* call) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = call;
    nvtxDomainRangePushEx(domain(), &attributes);
  }
  ~CallRange() { nvtxDomainRangePop(domain()); }
  CallRange(const CallRange&) = delete;
  CallRange& operator=(const CallRange&) = delete;

 private:
  static nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t kDomain = nvtxDomainCreateA("moecomm");
    return kDomain;
  }
};

#else

class CallRange {
 public:
  explicit CallRange(const char*) noexcept {}
  ~CallRange() {}  // not trivial: an object of this class is no unused variable
};

#endif

}  // namespace moe
