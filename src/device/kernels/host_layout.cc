#include "device/kernels/host_steps.h"
#include "device/policy/host/warp.h"
#include "device/protocol/report/dispatch_layout.h"

namespace moe {

void runLayout(const LayoutArgs& args) {
  const HostWarp policy;
  DispatchLayout<HostWarp>(policy, args, {0, 1, 1}).run();
}

}  // namespace moe
