// The configuration of a handle, checked and brought to one form. All functions throw moeInvalidArgument, naming the
// field and its value.
#pragma once

#include <vector>

#include "comm/communicator/comm.h"
#include "device/view/handle_layout.h"

namespace moe {

// The shape that a configuration asks for, in a communicator.
HandleShape handleShape(const moeHandleConfig_t& config, const Comm& comm, const Backend& backend);

// The places of experts: the logical expert of each physical one; -1: none.
std::vector<std::int32_t> logicalExpertsOf(const moePlacement_t& placement, const ExpertMap& map);

}  // namespace moe
