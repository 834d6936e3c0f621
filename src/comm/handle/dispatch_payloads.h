// The payloads of a dispatch.
#pragma once

#include <array>

#include "comm/handle/argument_checks.h"
#include "comm/handle/output_grid.h"

namespace moe {

class DispatchPayloads {
 public:
  // Checks the arguments and says where words are. `tokens`: those that are sent.
  DispatchPayloads(const moeDispatchArgs_t& args, const OutputGrid& grid, int tokens, int sideBytesMax);

  const PayloadArgs& args() const { return args_; }
  // Of payloads that there are not, NULL.
  const std::array<Extent, kPayloadsMax>& inputs() const { return inputs_; }
  const std::array<Extent, kPayloadsMax>& outputs() const { return outputs_; }

 private:
  void take(int i, const moePayload_t& given, const OutputGrid& grid, int tokens);

  PayloadArgs args_{};
  std::array<Extent, kPayloadsMax> inputs_{}, outputs_{};
  int byRows_ = 0;  // words of payloads that are stored row by row
};

// On the wire, payloads are side payload: sets what follows from out->payloads.
void placePayloads(const moeDispatchArgs_t& args, DispatchArgs* out);

// In LL a payload alone whose rows are one piece on both sides is an array, which goes faster. Peers see no difference:
// in slots both are side payload. In HT they would, where they store words to this rank's output.
void takePayloadAsArray(DispatchArgs* out);

}  // namespace moe
