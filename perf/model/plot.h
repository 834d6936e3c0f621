// The picture of docs/internals/scaling.md.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace moe::model {

// Draws what documentJson() returns, as SVG: times of LL and HT over ranks, and the model against published results.
std::string plotText(const nlohmann::ordered_json& document);

}  // namespace moe::model
