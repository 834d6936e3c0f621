// One step of an MoE layer through the C API, verified against the reference: random routing, rows that name their
// source, an affine expert, and a combine with all its options. Collective: every rank makes the same step from the
// same seed.
#pragma once

#include <algorithm>

#include "support/api/api_world.h"
#include "support/api/fields.h"
#include "support/base/rng.h"
#include "support/base/watch.h"
#include "support/cases/cast_case.h"
#include "support/cases/payload_case.h"
#include "support/reference/placed_experts.h"
#include "support/reference/reference.h"

namespace moe::test {

struct StepCase {
  int mode = moeModeHt;
  int layout = moeLayoutFlat;
  int rowType = moeRowBf16;
  int hidden = 64;
  int experts = 8;
  int topk = 2;
  int groups = 0;          // of experts
  int groupsPerToken = 0;  // a token uses experts of this many best groups; 0: of all groups
  int tokensMax = 8;
  bool bounded = false;  // each step has a bound of its own
  int rowsBudget = 0;
  bool expertCounts = false;
  bool placed = false;  // steps have placements, and swap them
  // Not 0: the handle is localOnly, and the reference's world is one rank. All ranks together have this many experts;
  // this rank has `experts` of them, from `firstOwn` on.
  int allExperts = 0;
  int firstOwn = 0;
  int alignment = 1;
  int sideBytes = 0;     // size of a payload that is one array of rows
  PayloadCase payloads;  // payloads instead of that array
  bool window = true;    // outputs are in window memory
  bool wideIndex = false;
  bool weighted = false;     // combine applies the weights
  bool lateWeights = false;  // combine carries weights, which differ from those of the route
  int biases = 0;
  bool weightGrads = false;
  int cast = moeCastNone;
  bool exact = false;  // the cast is exact
  int scales = moeScalesRowMajor;
  bool scalesInput = false;  // the cast has an input scale
  bool scalesAll = false;    // and a global scale
  bool weighsInput = false;  // rows are multiplied by their weights first; topk is 1
  int wire = moeWireRow;     // wire format of the combine
  bool arrivals = false;     // arrival words
  int padding = 0;           // moePad bits
  int idKind = moeIdsLocal;
  int invalidId = -1;
  bool describes = false;  // asks for the arrays that a separate step fills
  std::uint64_t seed = 1;

  std::string name() const;
};

// A case for loops over both modes and all layouts, which differ in most options too.
inline StepCase mixedCase(int mode, int layout) {
  StepCase c;
  c.mode = mode;
  c.layout = layout;
  c.alignment = layout == moeLayoutExpertMajor ? 4 : 1;
  c.weighted = c.weightGrads = true;
  c.lateWeights = layout == moeLayoutExpertMajor;
  c.biases = layout % 3;
  c.window = layout % 2 == 0;
  c.sideBytes = 16;
  c.seed = static_cast<std::uint64_t>(100 * mode + layout);
  return c;
}

// The same, for groups that lose ranks: each rank has two experts.
inline StepCase lossCase(int nranks, int mode, int layout) {
  StepCase c = mixedCase(mode, layout);
  c.experts = 2 * nranks;
  c.topk = std::min(3, c.experts);
  c.placed = layout == moeLayoutExpertMajorPadded;
  return c;
}

// A handle with its inputs and outputs on one rank. The calls only queue work. The functions check* wait and compare.
class MoeStep {
 public:
  MoeStep(RankContext& context, const StepCase& c);
  ~MoeStep();

  // Draws routing and rows for an iteration, and uploads the inputs.
  void prepare(int iteration);
  void route();
  void dispatch(int flags = 0);
  void routeDispatch(int flags = 0);  // both in one call
  void complete();
  // Does the experts' work on the rows that arrived, on the host: y = a_e * x + b_e. Waits for the dispatch.
  void runExperts();
  void combine(int flags = 0);
  void checkDispatch();
  void checkCombine();
  // Prepares an iteration, routes and dispatches, in every second iteration by one call.
  void begin(int iteration) {
    prepare(iteration);
    if (iteration % 2 == 1) return routeDispatch();
    route();
    dispatch();
  }
  // All that follows a dispatch, with its checks.
  void finish() {
    checkDispatch();
    runExperts();
    combine();
    checkCombine();
  }
  moeHandle_t handle() const { return handle_; }
  const ReferenceRoute& reference() const { return *reference_; }

 private:
  void makeRouting();
  void swapPlacement(const RouteConfig& config);
  moeResult_t tellPlacement() const;
  int namedExperts() const {
    if (case_.allExperts != 0) return case_.allExperts;
    return placed_ ? placed_->logicalExperts : case_.experts;
  }
  void leaveOutForeign(std::vector<int>* ids) const;
  // The number of local expert 0 in moeIdsGlobal.
  int firstGlobal() const { return case_.firstOwn + firstExpert(reference_->config, context_.rank); }
  template <class Call>
  void callDispatch(int flags, Call call);
  std::vector<int> drawExperts(Rng& rng, bool skewed) const;
  std::vector<int> drawInGroups(Rng& rng) const;
  std::vector<std::uint8_t> inputRow(int source, int token) const;
  std::vector<std::uint8_t> expertRow(int rank, const ArrivedToken& arrived, const ArrivedEntry* entry) const;
  const Arrivals& arrivals() const { return reference_->arrivals[static_cast<std::size_t>(context_.rank)]; }
  const RouteInput& input() const { return reference_->inputs[static_cast<std::size_t>(context_.rank)]; }
  std::vector<float> lateWeights() const;
  int bound() const { return case_.bounded ? 1 + iteration_ * 3 % case_.tokensMax : case_.tokensMax; }
  int rowBytes() const;
  std::int64_t layoutRows() const;
  template <class Body>
  void forEachLayoutRow(Body body) const {
    const bool perExpert = hasRowPerExpert(static_cast<Layout>(case_.layout));
    for (const ArrivedToken& arrived : arrivals().tokens) {
      if (!perExpert) body(arrived, arrived.row);
      for (const ArrivedEntry& entry : arrived.entries) {
        if (perExpert) body(arrived, entry.row);
      }
    }
  }
  float gradOf(int rank, std::int64_t row, int k) const;
  CastCase castCase() const;
  std::int64_t scaleBytesMax() const;
  int outRowBytes() const { return case_.cast != moeCastNone ? castCase().codeBytes() : rowBytes(); }
  Watch watchArrivals();
  void checkExpert(int expert) const;
  void checkArrivals();
  void checkRows();
  void checkCast();
  std::uint32_t payloadWord(int source, int token, int word) const;
  WordsOutput payloadOutput(const WordsForm& form, const RouteConfig& route, const std::vector<int>& offsets) const;
  void takePayloads();
  void freePayloads();
  void preparePayloads();
  std::vector<moePayload_t> payloadArgs() const;
  bool asksForBlocks() const;
  void checkPayloads();
  std::vector<std::int64_t> outIds(std::size_t count) const;
  void checkArrays();
  void takeDescribed();
  void askToCast(moeCast_t& cast) const;
  void askToDescribe(moeDescribe_t& describe) const;
  bool asksForExperts() const;
  void checkDescribed();
  void checkPadding();
  std::vector<std::int64_t> emptyRows() const;
  void checkCounts();

  RankContext& context_;
  StepCase case_;
  int iteration_ = 0;
  std::uint64_t dispatches_ = 0;
  bool outputsLater_ = false;  // complete() brings the outputs
  moeHandle_t handle_ = nullptr;
  std::unique_ptr<ReferenceRoute> reference_;
  std::optional<PlacedExperts> placed_;
  std::vector<int> placedLost_;    // the ranks that had been lost when it was set
  std::vector<int> givenExperts_;  // entries of this rank, before a budget leaves some out
  std::int64_t rowsMax_ = 0;
  struct PayloadMemory {
    std::uint8_t *in, *out;
    std::size_t outBytes;
  };
  std::vector<PayloadMemory> payloads_;
  std::uint8_t *rows_, *side_, *out_, *outSide_, *combined_, *bias0_, *bias1_, *outScales_;
  void *ids_, *outIds_;
  float *weights_, *lateWeights_, *outWeights_, *grads_, *outGrads_, *factors_;
  std::int32_t *outSource_, *outOffsets_, *outBlocks_;
  std::int64_t* outRange_ = nullptr;
  std::int32_t* outRows_ = nullptr;
  std::int32_t* outExperts_ = nullptr;
};

}  // namespace moe::test
