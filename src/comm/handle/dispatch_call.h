// A dispatch on an earlier route, or together with a route; and the parts of its arguments that have their own files
// (output_grid.cc, dispatch_payloads.cc, dispatch_cast.cc, describe_call.cc).
#pragma once

#include <algorithm>
#include <array>
#include <climits>
#include <optional>

#include "comm/handle/call_checks.h"
#include "comm/handle/handle.h"
#include "comm/handle/requests.h"
#include "comm/handle/route_call.h"

namespace moe {

// Where the words beside an output's rows are: scales of a cast, and payloads.
class OutputGrid {
 public:
  // For a dispatch whose ranks have at most `bound` tokens, to an output with room for `rowsMax` rows.
  OutputGrid(const Handle& handle, int bound, std::int64_t rowsMax)
      : shape_(handle.shape()),
        experts_(handle.localExperts()),
        ranks_(handle.room().shape.nranks),
        bound_(bound),
        rowsMax_(rowsMax) {}

  // The most rows that can come. The number fits 31 bits.
  std::int64_t rows() const { return std::min<std::int64_t>(rowsMax_, INT_MAX); }
  std::int64_t rowsMax() const { return rowsMax_; }
  Layout layout() const { return shape_.layout; }
  int experts() const { return experts_; }

  // The grid for `words` words per row, in a moeScales layout.
  ScaleGrid of(int layout, int words) const {
    return layout == moeScales128x4 ? blocked(words) : ofWords(layout, words);
  }
  ScaleGrid ofWords(int layout, int words) const;
  ScaleGrid blocked(int words) const;
  // The bytes of an output in blocks, with `rowBytes` bytes per row.
  std::int64_t blockedBytes(std::int64_t rowBytes) const;

 private:
  const HandleShape& shape_;
  int experts_, ranks_, bound_;
  std::int64_t rowsMax_;
};

// The payloads of a dispatch: words from anywhere to anywhere, or one array of whole rows.
class DispatchPayloads {
 public:
  // Whether they are words, and not an array.
  static bool areWords(const DispatchRequest& asked);

  // Checks the arguments and says where words are. `tokens`: those that are sent.
  DispatchPayloads(const Handle& handle, const DispatchRequest& asked, const OutputGrid& grid, int tokens);

  // Sets the arguments of the step. On the wire, payloads are side payload.
  void place(std::int32_t* blockOffsets, DispatchArgs* out) const;
  // The number by which terms compare payloads.
  int fingerprint() const;
  // Unused entries of these arrays are NULL.
  const std::array<Extent, kPayloadsMax>& inputs() const { return inputs_; }
  const std::array<Extent, kPayloadsMax>& outputs() const { return outputs_; }

 private:
  void take(int i, const moePayload_t& given, const OutputGrid& grid, int tokens);
  bool isArrayInSlots() const;
  void checkBytes(const Handle& handle) const;

  PayloadArgs args_{};
  bool words_;  // result of areWords
  bool array_;  // how this rank moves them: peers see no difference between an array and dense words in LL slots
  std::array<Extent, kPayloadsMax> inputs_{}, outputs_{};
  int byRows_ = 0;  // words of payloads that are stored row by row
};

// The arrays in which a dispatch describes its rows (describe_call.cc).
class Description {
 public:
  // Checks the arguments.
  Description(const Handle& handle, const moeDescribe_t& asked);

  void place(StepParams* out) const;
  std::array<Extent, 10> outputs(std::int64_t rows) const;

 private:
  void checkLayout() const;

  const Handle& handle_;
  const moeDescribe_t& asked_;
};

class DispatchCall {
 public:
  DispatchCall(Handle& handle, const DispatchRequest& asked)
      : DispatchCall(handle, asked, nullptr, "moeDispatch", handle.tokens(), handle.view().tokensMax) {}
  DispatchCall(const RouteCall& route, const DispatchRequest& asked)
      : DispatchCall(route.handle(), asked, &route, route.name(), route.args().tokens, route.bound()) {}
  // The receiving part of a dispatch that has been begun without outputs (late_outputs.cc).
  DispatchCall(Handle& handle, const DispatchRequest& asked, const StepParams& begun);

  DispatchCall(const DispatchCall&) = delete;
  DispatchCall& operator=(const DispatchCall&) = delete;

  // The operation to launch. Throws unless all arguments are good.
  Operation& operation();

 private:
  DispatchCall(Handle& handle, const DispatchRequest& asked, const RouteCall* route, const char* name, int tokens,
               int bound);

  // With moeOutputsLater: what the call reads.
  static std::optional<DispatchRequest> sentPart(const DispatchRequest& asked);
  bool sendsOnly() const { return begun_ == nullptr && (args_.flags & moeSendOnly) != 0; }
  bool outputsLater() const { return begun_ == nullptr && (args_.flags & moeOutputsLater) != 0; }
  int tokensSent() const { return begun_ == nullptr ? tokens_ : 0; }
  Step step() const;

  // Checks: dispatch_checks.cc.
  void check() const;
  void checkPadding() const;
  void checkOutputs() const;
  void checkOutputsLater() const;
  void checkPlaces(const Description& description, const DispatchPayloads& payloads) const;

  // Fill the parameters of the step.
  void takeArguments(const Description& description, const DispatchPayloads& payloads);
  const float* rowWeights() const;
  void placeOutput(const DispatchPayloads& payloads);
  void placeInStaging();
  void goOn();
  void plan();

  Handle& handle_;
  const std::optional<DispatchRequest> part_;  // of the request, if this call reads only a part
  const DispatchRequest& asked_;
  const moeDispatchArgs_t& args_;
  const RouteCall* route_;             // the route that the same call makes; NULL: it was made before
  const StepParams* begun_ = nullptr;  // of the part that has been launched; NULL: none
  const char* name_;
  int tokens_;       // tokens of the route
  OutputGrid grid_;  // places of the output
  Operation operation_;
};

// Throws moeInvalidUsage for a dispatch with moeOutputsLater in a graph, since its counts are for the host
// (late_outputs.cc).
void checkMayBeLate(const Handle& handle, std::int32_t flags, const char* call, moeStream_t stream);

// Checks the cast of a dispatch (dispatch_cast.cc) and returns where its scales go, but not rowWeights. Without a cast
// it checks that no argument asks for scales.
CastArgs castArgs(const DispatchRequest& asked, const OutputGrid& grid);
// The bytes of args.cast.outScales.
std::int64_t outScaleBytes(const DispatchRequest& asked, const OutputGrid& grid);

}  // namespace moe
