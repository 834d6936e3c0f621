// A handle: a route and the operations that use it. It keeps what lasts from call to call, and answers questions about
// it. Each call is a separate object: calls.h. Everything that depends on the routing happens on the device.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator/comm.h"
#include "comm/handle/operation.h"
#include "comm/handle/statistics.h"
#include "device/view/handle_layout.h"

namespace moe {

class Handle : public Alive<0x6d6f65636f6d6d48> {
 public:
  // Throws moeInvalidArgument if the configuration does not fit the communicator.
  Handle(Comm& comm, const moeHandleConfig_t& config);
  ~Handle();

  Comm& comm() const { return comm_; }
  int number() const { return view_.number; }  // in logs and records: see Comm::takeHandleNumber
  void setTokensBound(std::int32_t bound);
  // NULL: none.
  void setPlacement(const moePlacement_t* placement, moeStream_t stream);
  // Ends an operation that was only begun. Rows of a dispatch without outputs are dropped.
  void complete(moeStream_t stream);

  moeCounts_t counts();
  moeDeviceCounts_t deviceCounts() const;
  moeHandleStatus_t status();
  moeStatistics_t statistics() const { return statistics_.all(); }
  moeHandleView_t slots() const;
  moeArrivals_t arrivals() const;

  // ---- For the calls of this folder ----

  const HandleShape& shape() const { return shape_; }
  const HandleView& view() const { return view_; }
  Room& room() const { return room_; }
  Backend& backend() const { return comm_.backend(); }
  const Statistics& counters() const { return statistics_; }
  bool lowLatency() const { return shape_.lowLatency; }
  bool rowsPerExpert() const {
    return shape_.layout == Layout::expertMajor || shape_.layout == Layout::expertMajorPadded;
  }
  int localExperts() const { return shape_.map.count(room_.view.rank); }
  int firstExpert() const { return firstExpert_; }  // its index among the experts of all ranks
  std::size_t indexBytes() const { return shape_.wideIndex ? sizeof(std::int64_t) : sizeof(std::int32_t); }
  int tokens() const { return tokens_; }            // tokens of the last route; -1: none yet
  int tokensBound() const { return tokensBound_; }  // bound of the next one
  // Whether a dispatch that comes with a route routes in its own step.
  bool routesInDispatch() const { return routesInDispatch_; }
  // The rows that this rank sends if each of its tokens goes to as many ranks as possible. It only decides how rows are
  // cut among warps.
  int arrivingRowsGuess(int tokens) const { return tokens * view_.destinationsMax; }
  // As Comm::windowOffset. Steps of localOnly handles reach no heap: their memory is checked but has no offset.
  std::int64_t windowOffset(const void* memory, std::uint64_t bytes, const char* name) const;
  RefusedMemory& refused() { return refused_; }

  // Throw moeInvalidUsage; `call` is named.
  void checkRouted(const char* call) const;
  void checkNotPending(const char* call) const;
  void checkOutstanding(OperationKind kind, const char* call) const;

  // The arguments with which every step of this handle is launched.
  StepParams params() const;
  void launch(Step step, const StepParams& params, const LaunchShape& shape, moeStream_t stream);
  // Launches an operation and, unless it is only begun, what follows it.
  void start(const Operation& operation, moeStream_t stream);
  // The arguments of a dispatch that awaits its outputs; NULL if none does.
  const StepParams* awaitingOutputs() const { return pending_.outputsLater ? &pending_.params : nullptr; }
  // Launches the receiving part of the operation that was begun.
  void receive(StepParams params, const LaunchShape& shape, moeStream_t stream);
  std::uint32_t nextTicket(moeStream_t stream) const { return tickets_.next(backend().capturing(stream)); }
  // Called when a step that routes has been launched.
  void noteRoute(const StepParams& params) noexcept;
  // What a process that takes the place of a lost rank must know of this handle.
  HandleCard card() const;
  // The communicator has recovered: the handle delivers nothing until its next route. No step runs.
  void voidRoute();
  // Throws moeUnsupported if the handle's rows cross domains over rails, and ranks are lost. `call` is named.
  void requireRails(const char* call) const;
  // Called when a refused route has been launched, which has no tokens.
  void forgetTokens() noexcept { tokens_ = 0; }

 private:
  // An operation that was only begun.
  struct Pending {
    OperationKind kind = OperationKind::none;
    std::uint64_t number = 0;
    Step step{};
    StepParams params{};
    LaunchShape shape;
    bool outputsLater = false;
  };

  void placeOwnExperts();
  // Logs how this handle was made.
  void tell(const moeHandleConfig_t& config, std::int64_t bytes) const;
  void waitForCounts();
  std::span<CountWord> bringCounts();
  // The record of why the handle delivers nothing; none: it delivers.
  std::optional<Failure> fault() const;
  void forgetPending();
  // Throws moeInvalidUsage if recovery has voided the route and no other has followed; `call` is named.
  void checkNotVoid(const char* call) const;
  // The staging area that an operation uses, or kNotStaged.
  int stagingOf(OperationKind kind, const StepParams& p) const;
  Series seriesOf(OperationKind kind) const;
  // Launches the steps that follow an operation, if the caller asks for any.
  void follow(Step step, const StepParams& params, moeStream_t stream);

  Comm& comm_;
  const bool localOnly_;
  HandleShape shape_;
  int firstExpert_;
  Room& room_;
  Memory block_, told_;
  RefusedMemory refused_;
  Statistics statistics_;
  HandleView view_{};              // its tokensMax and terms are those of the last route
  Placement* placementMemory_;     // memory for a placement's table; view_ points to it while there is a placement
  bool placementWritten_ = false;  // captured routes may use the table from now on
  int tokens_ = -1;
  bool routeVoid_ = false;  // no route has been launched since recovery; replays of graphs may have made one
  int tokensBound_;
  bool routesInDispatch_;
  Tickets tickets_;
  std::vector<std::int32_t> countsOnHost_;  // counts of the latest moeHandleGetCounts, in the order of the words
  std::string sentence_;                    // sentence of the latest status
  Pending pending_;
};

}  // namespace moe
