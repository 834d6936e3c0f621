// The cast of a dispatch.
#pragma once

#include "comm/handle/output_grid.h"

namespace moe {

// Checks the arguments of a cast and says where its scales go; rowWeights is left open. Without a cast: that nothing
// asks for scales.
CastArgs castArgs(const moeDispatchArgs_t& args, const OutputGrid& grid);

// Of args.outScales.
std::int64_t outScaleBytes(const moeDispatchArgs_t& args, const OutputGrid& grid);

}  // namespace moe
