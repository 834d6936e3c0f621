// The room of handles of localOnly: this rank alone, in private memory. Its steps wait for nobody. They heed the orders
// of the communicator, and fill its flight recorder. Decision 0086.
#include <fmt/format.h>

#include "comm/communicator/comm.h"
#include "device/view/window_layout.h"

namespace moe {

// Rows for the caller's memory pass through a staging area, however much of that the group has: peers of the group may
// do without it, if they write to the heap.
CommShape localShape(CommShape shape) {
  shape.nranks = 1;
  shape.domainSize = 1;
  shape.stagingRows = shape.tokensMax;
  shape.heapBytes = 0;
  return shape;
}

Room& Comm::localRoom() {
  if (localRoom_) return *localRoom_;
  auto made = std::make_unique<Room>();
  made->shape = localShape(shape());
  const WindowPlan plan = WindowPlan::of(made->shape);
  const auto bytes = static_cast<std::size_t>(plan.totalBytes);
  made->own = backend_->allocatePrivate(bytes, allocator());
  made->state = backend_->allocatePrivate(sizeof(CommState), allocator());
  CommView& v = made->view;
  v.nranks = v.domainSize = 1;
  v.at = static_cast<const WindowLayout&>(plan);
  v.inlineWindows[0] = made->base();
  v.state = reinterpret_cast<CommState*>(made->state.get());
  v.failure = localFailure();
  v.orders = room_.view.orders;
  v.departed = room_.view.departed + rank();
  v.recorder = room_.view.recorder;
  showSizes(made->shape, &v);
  log_->write(moeLogInfo, "dev", "localOnly: {} bytes of private memory for steps of this rank alone", bytes);
  localRoom_ = std::move(made);
  return *localRoom_;
}

}  // namespace moe
