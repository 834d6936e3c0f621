// What a configuration of a handle asks for, in a communicator.
#pragma once

#include "comm/communicator/comm.h"
#include "device/view/handle_layout.h"

namespace moe {

// Throws moeInvalidArgument, naming the field and its value.
HandleShape handleShape(const moeHandleConfig_t& config, const Comm& comm, const Backend& backend);

}  // namespace moe
