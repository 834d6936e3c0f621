// What a caller says of where experts are: checks it, and brings it to one form.
#pragma once

#include <vector>

#include "device/view/shape.h"
#include "moecomm.h"

namespace moe {

// The logical expert of each physical one; -1: none. Throws moeInvalidArgument, naming the field and its value.
std::vector<std::int32_t> logicalExpertsOf(const moePlacement_t& placement, const ExpertMap& map);

}  // namespace moe
