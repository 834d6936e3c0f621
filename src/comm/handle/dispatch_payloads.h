// The payloads of a dispatch: words from anywhere to anywhere, or one array of whole rows.
#pragma once

#include <array>

#include "comm/handle/argument_checks.h"
#include "comm/handle/output_grid.h"
#include "comm/handle/requests.h"

namespace moe {

class DispatchPayloads {
 public:
  // Whether they are words, and not an array.
  static bool areWords(const DispatchRequest& asked);

  // Checks the arguments and says where words are. `tokens`: those that are sent.
  DispatchPayloads(const Handle& handle, const DispatchRequest& asked, const OutputGrid& grid, int tokens);

  // On the wire, payloads are side payload: sets what follows.
  void place(std::int32_t* blockOffsets, DispatchArgs* out) const;
  // What terms say of them.
  int fingerprint() const;
  // Of payloads that there are not, NULL.
  const std::array<Extent, kPayloadsMax>& inputs() const { return inputs_; }
  const std::array<Extent, kPayloadsMax>& outputs() const { return outputs_; }

 private:
  void take(int i, const moePayload_t& given, const OutputGrid& grid, int tokens);
  bool isArrayInSlots() const;
  void checkBytes(const Handle& handle) const;

  PayloadArgs args_{};
  bool words_;  // areWords
  bool array_;  // how this rank moves them: peers see no difference between an array and dense words in LL slots
  std::array<Extent, kPayloadsMax> inputs_{}, outputs_{};
  int byRows_ = 0;  // words of payloads that are stored row by row
};

}  // namespace moe
