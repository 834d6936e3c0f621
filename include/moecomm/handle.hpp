// Handles, and the operations that await their second half. Included by moecomm.hpp.
#ifndef MOECOMM_HANDLE_HPP_
#define MOECOMM_HANDLE_HPP_

#include <moecomm.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <moecomm/arguments.hpp>
#include <moecomm/basics.hpp>
#include <moecomm/communicator.hpp>

namespace moecomm {
namespace detail {

struct HandleState {
  HandleState() = default;
  HandleState(const HandleState&) = delete;
  HandleState& operator=(const HandleState&) = delete;
  ~HandleState() { free(); }
  // A handle ends with its communicator.
  moeResult_t free() noexcept {
    const moeHandle_t freed = std::exchange(handle, nullptr);
    return comm.get() != nullptr ? moeHandleDestroy(freed) : moeSuccess;
  }

  void noteStart(std::int32_t flags) noexcept {
    pending = (flags & moeSendOnly) != 0;
    if (pending) ++started;
  }
  void complete(moeStream_t stream) {
    const moeComm_t owner = comm.require();
    check(moeComplete(handle, stream), owner);
    pending = false;
  }
  void complete(const moeDispatchArgs_t& args, moeStream_t stream) {
    const moeComm_t owner = comm.require();
    check(moeCompleteDispatch(handle, &args, stream), owner);
    pending = false;
  }
  void keep(const moeCounts_t& counts) {
    shape.layoutRows = counts.layoutRows;
    shape.arrived = counts.rows;
  }

  CommLink comm;
  moeHandle_t handle = nullptr;
  Shape shape;                    // of the latest route
  std::int32_t tokensMax = 0;     // of the handle
  std::int32_t nextBound = 0;     // of the next route
  std::int32_t mode = moeModeHt;  // in use
  bool onHost = false;            // counts are there when the route returns
  bool pending = false;           // an operation awaits moeComplete
  std::uint64_t started = 0;      // operations that did; the number of the latest one
};

}  // namespace detail

// Why a handle delivers nothing: see moeHandleGetStatus.
struct HandleStatus {
  moeResult_t result = moeSuccess;
  std::int32_t rank = -1;  // whose argument it was; -1 with moeSuccess
  std::string sentence;    // empty with moeSuccess

  bool ok() const noexcept { return result == moeSuccess; }
  // Throws Error if the handle has a fault.
  void require() const {
    if (!ok()) throw Error(result, sentence);
  }
};

// A dispatch or combine that was started and awaits complete(), which all ranks call. It may outlive moves of its
// Handle. An operation whose Pending is dropped stays outstanding: Handle::complete ends it, and so does the handle's
// end. The destructor does not, as the arrays may be gone by then.
class [[nodiscard]] Pending {
 public:
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;

  // moeComplete: waits for the peers and fills the outputs. Throws moeInvalidUsage if it has been called, or if the
  // handle has ended.
  void complete(moeStream_t stream = nullptr) { require().complete(stream); }
  // moeCompleteDispatch: the same for a dispatch with moeOutputsLater, which gets its outputs here.
  void complete(const DispatchArgs& args, moeStream_t stream = nullptr) {
    detail::HandleState& state = require();
    args.require(state.shape);
    state.complete(args.native(), stream);
  }

 private:
  friend class Handle;
  detail::HandleState& require() const {
    const std::shared_ptr<detail::HandleState> state = state_.lock();
    if (state == nullptr || !state->pending || state->started != number_)
      throw Error(moeInvalidUsage, "this operation is not outstanding: completed, moved from, or its handle has ended");
    return *state;
  }
  explicit Pending(const std::shared_ptr<detail::HandleState>& state) : state_(state), number_(state->started) {}

  std::weak_ptr<detail::HandleState> state_;
  std::uint64_t number_;
};

// A shape of operations and its latest route. The calls are those of moecomm.h: stream-ordered, and collective where
// they are so there. With the host backend `stream` is ignored.
class Handle {
 public:
  Handle() noexcept = default;  // empty
  Handle(Handle&&) noexcept = default;
  Handle& operator=(Handle&&) noexcept = default;  // ends what this one was before
  // moeHandleCreate. All ranks make the same handles in the same order.
  Handle(const Communicator& comm, const moeHandleConfig_t& config) : state_(std::make_shared<detail::HandleState>()) {
    detail::HandleState& s = *state_;
    s.comm = detail::CommLink(comm.state_);
    check(moeHandleCreate(&s.handle, comm.require(), &config), comm.get());
    const moeCommInfo_t info = comm.info();
    const moeLimits_t most = comm.limits();
    s.mode = deviceCounts().mode;
    s.onHost = info.backend == moeBackendHost;
    s.tokensMax = config.tokensMax != 0 ? config.tokensMax : s.mode == moeModeLl ? most.llTokensMax : most.tokensMax;
    s.nextBound = s.tokensMax;
    s.shape.nranks = config.localOnly != 0 ? 1 : info.nranks;
    s.shape.localExperts = config.experts / info.nranks + (info.rank < config.experts % info.nranks ? 1 : 0);
    s.shape.topk = config.topk;
    s.shape.layout = config.layout;
    s.shape.alignment = std::max(config.expertAlignment, 1);
    s.shape.indexType = config.indexType;
  }

  // Frees the handle. All work that uses it has run. Idempotent, and nothing to do once the communicator has ended.
  void destroy() {
    const std::shared_ptr<detail::HandleState> s = std::move(state_);
    if (s != nullptr) check(s->free(), s->comm.get());
  }

  moeHandle_t get() const noexcept { return state_ != nullptr && state_->comm.get() ? state_->handle : nullptr; }
  explicit operator bool() const noexcept { return get() != nullptr; }

  // ---- Routes -------------------------------------------------------------------------------------------------------

  // moeRoute: handle.route({topkIdx, topkWeights}, stream), {topkIdx}, {} or {pointer, pointer, tokens}.
  void route(const Routing& routing, moeStream_t stream = nullptr) {
    const moeComm_t comm = require();
    const std::int32_t tokens = routing.require(state_->shape);
    check(moeRoute(state_->handle, routing.idx_, routing.weights_, tokens, stream), comm);
    state_->shape = nextShape(tokens);
  }

  // moeHandleSetTokensBound: for later routes, the same on all ranks; 0: the handle's tokensMax.
  void setTokensBound(std::int32_t tokensBound) {
    const moeComm_t comm = require();
    check(moeHandleSetTokensBound(state_->handle, tokensBound), comm);
    state_->nextBound = tokensBound != 0 ? tokensBound : state_->tokensMax;
  }

  // moeHandleSetPlacement: for later routes, the same on all ranks.
  void setPlacement(const moePlacement_t& placement, moeStream_t stream = nullptr) {
    const moeComm_t comm = require();
    check(moeHandleSetPlacement(state_->handle, &placement, stream), comm);
  }
  void clearPlacement(moeStream_t stream = nullptr) {
    const moeComm_t comm = require();
    check(moeHandleSetPlacement(state_->handle, nullptr, stream), comm);
  }

  // moeHandleGetCounts: of the last route, on the host. Waits for them. Ask again after a graph with a route has run.
  moeCounts_t counts() {
    moeCounts_t found = MOE_COUNTS_INITIALIZER;
    ask(moeHandleGetCounts, &found);
    state_->keep(found);
    return found;
  }

  // ---- Dispatch and combine -----------------------------------------------------------------------------------------

  // moeDispatch. With moeSendOnly in args.flags, complete() ends it. A plain moeDispatchArgs_t is passed on unchecked.
  void dispatch(const DispatchArgs& args, moeStream_t stream = nullptr) {
    require();
    args.require(state_->shape);
    dispatch(args.native(), stream);
  }
  void dispatch(const moeDispatchArgs_t& args, moeStream_t stream = nullptr) {
    const moeComm_t comm = require();
    check(moeDispatch(state_->handle, &args, stream), comm);
    state_->noteStart(args.flags);
  }
  // Starts a dispatch, with moeSendOnly. With moeOutputsLater in args.flags, Pending::complete(args) brings the
  // outputs.
  Pending startDispatch(DispatchArgs args, moeStream_t stream = nullptr) {
    args.flags |= moeSendOnly;
    dispatch(args, stream);
    return Pending(state_);
  }

  // moeRouteDispatch: a new route and a dispatch in one call. All ranks make this call, or all make the two.
  void routeDispatch(const Routing& routing, const DispatchArgs& args, moeStream_t stream = nullptr) {
    require();
    args.require(nextShape(routing.require(state_->shape)));
    routeDispatch(routing, args.native(), stream);
  }
  void routeDispatch(const Routing& routing, const moeDispatchArgs_t& args, moeStream_t stream = nullptr) {
    const moeComm_t comm = require();
    const std::int32_t tokens = routing.require(state_->shape);
    check(moeRouteDispatch(state_->handle, routing.idx_, routing.weights_, tokens, &args, stream), comm);
    state_->shape = nextShape(tokens);
    state_->noteStart(args.flags);
  }
  // The same, with moeSendOnly.
  Pending startRouteDispatch(const Routing& routing, DispatchArgs args, moeStream_t stream = nullptr) {
    args.flags |= moeSendOnly;
    routeDispatch(routing, args, stream);
    return Pending(state_);
  }

  // moeCombine. With moeSendOnly in args.flags, complete() ends it. A plain moeCombineArgs_t is passed on unchecked.
  void combine(const CombineArgs& args, moeStream_t stream = nullptr) {
    require();
    learnCounts();
    args.require(state_->shape);
    combine(args.native(), stream);
  }
  void combine(const moeCombineArgs_t& args, moeStream_t stream = nullptr) {
    const moeComm_t comm = require();
    check(moeCombine(state_->handle, &args, stream), comm);
    state_->noteStart(args.flags);
  }
  // Starts a combine, with moeSendOnly.
  Pending startCombine(CombineArgs args, moeStream_t stream = nullptr) {
    args.flags |= moeSendOnly;
    combine(args, stream);
    return Pending(state_);
  }

  // moeComplete, for an operation that has no Pending.
  void complete(moeStream_t stream = nullptr) {
    require();
    state_->complete(stream);
  }

  // ---- Queries ------------------------------------------------------------------------------------------------------

  // The fault of an argument that showed only while the work ran: a bad expert id, an output that is too small. Never
  // blocks; synchronize the stream first. No call throws such a fault: ask, or call status().require().
  HandleStatus status() const {
    moeHandleStatus_t found = MOE_HANDLE_STATUS_INITIALIZER;
    ask(moeHandleGetStatus, &found);
    return {static_cast<moeResult_t>(found.result), found.rank, found.sentence};
  }
  std::int32_t mode() const { return require(), state_->mode; }            // moeModeHt or moeModeLl
  std::int32_t tokensMax() const { return require(), state_->tokensMax; }  // most tokens of a rank
  moeDeviceCounts_t deviceCounts() const {
    moeDeviceCounts_t found = MOE_DEVICE_COUNTS_INITIALIZER;
    ask(moeHandleGetDeviceCounts, &found);
    return found;
  }
  moeArrivals_t arrivals() const {
    moeArrivals_t found = MOE_ARRIVALS_INITIALIZER;
    ask(moeHandleGetArrivals, &found);
    return found;
  }
  moeStatistics_t statistics() const {
    moeStatistics_t found = MOE_STATISTICS_INITIALIZER;
    ask(moeHandleGetStatistics, &found);
    return found;
  }
  moeHandleView_t view() const {
    moeHandleView_t found = MOE_HANDLE_VIEW_INITIALIZER;
    ask(moeHandleGetView, &found);
    return found;
  }

 private:
  moeComm_t require() const {
    if (state_ == nullptr) throw Error(moeInvalidUsage, "the handle is empty: destroyed, or moved from");
    return state_->comm.require();
  }
  template <class Function, class Answer>
  void ask(Function function, Answer* answer) const {
    const moeComm_t comm = require();
    check(function(state_->handle, answer), comm);
  }
  // The shape after a route of this rank's `tokens`.
  detail::Shape nextShape(std::int32_t tokens) const {
    detail::Shape next = state_->shape;
    next.tokens = tokens;
    next.bound = state_->nextBound;
    next.layoutRows = next.arrived = -1;
    return next;
  }
  // With the host backend the counts of a route are there without a wait, unless its dispatch awaits complete().
  void learnCounts() {
    detail::HandleState& s = *state_;
    if (!s.onHost || s.pending || s.shape.tokens < 0 || s.shape.layoutRows >= 0) return;
    moeCounts_t found = MOE_COUNTS_INITIALIZER;
    if (moeHandleGetCounts(s.handle, &found) == moeSuccess) s.keep(found);
  }

  std::shared_ptr<detail::HandleState> state_;
};

}  // namespace moecomm
#endif  // MOECOMM_HANDLE_HPP_
