// Spreads the GPUs of a machine over its adapters' ports: each takes the nearest, and ties go to the least used.
#pragma once

#include <vector>

#include "topology/nic_choice.h"

namespace moe::topology {

// `perGpu` adapters for each GPU. 0: two if every GPU can have two of its own on its switch, else one. A GPU gets fewer
// only where fewer can be used.
std::vector<std::vector<NicOfGpu>> assignNics(const std::vector<PciPlace>& gpus, const std::vector<NicPort>& rails,
                                              int perGpu);

}  // namespace moe::topology
