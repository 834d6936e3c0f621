// The library's operations as tests need them: route, dispatch and combine on all ranks of a TestComm. Inputs identify
// themselves, outputs lie between guard zones, and a check compares with the reference. An operation gives each rank
// the parameters of its steps and checks the rank's results. A runner executes the steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/rows/wire_row.h"
#include "device/view/steps.h"
#include "moecomm.h"
#include "support/base/watch.h"
#include "support/cases/cast_case.h"
#include "support/cases/payload_case.h"
#include "support/programs/protocol_world.h"
#include "support/reference/reference.h"

namespace moe::test {

// The errors of each rank. Ranks run concurrently, so each writes its own list.
class Report {
 public:
  explicit Report(int nranks) : lines_(static_cast<std::size_t>(nranks)) {}

  void add(int rank, std::string line) {
    auto& lines = lines_[static_cast<std::size_t>(rank)];
    if (lines.size() < 5) lines.push_back(std::move(line));
  }
  bool empty() const;
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> lines_;
};

// The fault for which a handle delivers nothing until its next route: the status that it must report, and the ranks
// that have it.
struct HandleFault {
  Fault fault = Fault::none;
  int culprit = -1;
  bool alone = false;  // only the culprit knows, and only the rows that came there count as nothing

  bool at(int rank) const { return fault != Fault::none && (!alone || rank == culprit); }
};

// An operation runs in one phase, or in two with other operations in between. All members except the constructors are
// called on the rank's own thread.
class Operation {
 public:
  Operation(TestComm& comm, TestHandle& handle, std::string name)
      : comm_(comm), handle_(handle), name_(std::move(name)) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  const std::string& name() const { return name_; }
  // States what the handle's status must say when the operation has finished.
  void expect(const HandleFault& fault) { fault_ = fault; }
  // Fills inputs and poisons outputs, as the caller would prepare them.
  virtual void start(int rank, Report& report) = 0;
  virtual StepParams params(int rank, int phases) = 0;
  // Watches the step whose parameters were made last.
  virtual Watch watch(int /*rank*/, int /*phases*/, Report& /*report*/) { return {}; }
  // Compares the results. The caller may then reuse inputs and outputs at once.
  virtual void finish(int rank, Report& report) = 0;

 protected:
  StepParams emptyParams(int rank, int phases) const;
  void checkStatus(int rank, Report& report) const;
  // Whether a rank of an HT handle learns only from other domains that an operation delivers nothing.
  bool hearsOverRails(int rank) const;

  TestComm& comm_;
  TestHandle& handle_;
  std::string name_;
  HandleFault fault_;

 private:
  bool peersDisagree() const;
};

// The places of HT window outputs: several areas of equal size in each rank's heap, reused.
class OutputAreas {
 public:
  OutputAreas(TestComm& comm, int count, std::int64_t bytesEach);

  int count() const { return count_; }
  // The same area has another offset on each rank.
  std::uint64_t offset(int rank, int area) const;
  std::uint8_t* data(int rank, int area) const;
  // Poisons the first `bytes`. Returns false if the area was written since `release`.
  bool acquire(int rank, int area, std::int64_t bytes);
  // Poisons what was used. Returns false if something was written behind it.
  bool release(int rank, int area);
  // Poisons all of them, whatever operations that will never end have left there.
  void clear();

 private:
  std::int64_t& used(int rank, int area) const;

  TestComm& comm_;
  int count_;
  std::int64_t bytesEach_;
  mutable std::vector<std::int64_t> used_;
};

class RouteOperation : public Operation {
 public:
  // `given`: the inputs that the ranks pass, if they differ from those of `route`, which then is the result. `placed`:
  // the placement that the ranks use.
  RouteOperation(TestComm& comm, TestHandle& handle, std::shared_ptr<const ReferenceRoute> route, bool giveWeights,
                 std::string name, std::vector<RouteInput> given = {}, std::optional<PlacedExperts> placed = {});
  void start(int rank, Report& report) override;
  StepParams params(int rank, int phases) override;
  void finish(int rank, Report& report) override;

 private:
  const RouteInput& inputOf(int rank) const;

  std::shared_ptr<const ReferenceRoute> route_;
  std::vector<RouteInput> given_;
  std::optional<PlacedExperts> placed_;
  bool giveWeights_;
  std::vector<GuardedBytes> ids_, weights_;
};

struct DispatchCase {
  std::uint64_t seed = 1;
  int rowBytes = 16;
  int sideBytes = 0;
  Parts parts{1, 16};
  int area = 0;                        // HT: index in OutputAreas
  CastCase cast;                       // rowBytes is then the size of the codes
  PayloadCase payloads;                // payloads whose rows have sideBytes
  bool inSlots = false;                // LL RANK_MAJOR: rows stay where they arrive
  std::vector<bool> staged;            // HT, [nranks]
  std::vector<std::int64_t> capacity;  // [nranks]; empty: exactly what arrives
  int stagingArea = 0;                 // HT
  int smallStaging = -1;               // HT: this rank states a staging area of one row less than arrive
  int oddRank = -1;                    // this rank states rows that are 16 bytes longer
  int padding = 0;                     // PadBits
  int spareRows = 0;                   // with padding: rows after the last one, in outputs that are not in the window
  bool globalIds = false;
  int invalidId = -1;
};

class DispatchOperation : public Operation {
 public:
  DispatchOperation(TestComm& comm, TestHandle& handle, std::shared_ptr<const ReferenceRoute> route, OutputAreas* areas,
                    DispatchCase config, std::string name);
  void start(int rank, Report& report) override;
  StepParams params(int rank, int phases) override;
  Watch watch(int rank, int phases, Report& report) override;
  void finish(int rank, Report& report) override;

  const ReferenceRoute& route() const { return *route_; }
  // Whether a rank's outputs are known: no rows, or all of them.
  bool isChecked() const { return config_.oddRank < 0 || !handle_.shape().lowLatency; }
  bool deliversNothing(int rank) const { return fault_.at(rank); }

 private:
  struct PerRank {
    GuardedBytes rows, side, outRows, outSide, outIds, outWeights, outSources, outOffsets, outBlocks, outScales;
    WordsOutput scales;
    PayloadArrays payloads;
    std::uint8_t* scalesAt = nullptr;
    ReferenceRule rule{};
    StepParams params{};
  };
  bool inWindow(int rank) const;
  int travellingBytes() const { return config_.cast ? config_.cast.travellingBytes() : config_.rowBytes; }
  int sourceBytes() const { return config_.cast ? static_cast<int>(config_.cast.sourceBytes()) : config_.rowBytes; }
  std::vector<std::uint8_t> sourceRow(int source, int token) const;
  std::int64_t outputRows(int rank) const;
  // The rows that a rank sees arrive: none, if its handle has a fault.
  Arrivals shown(int rank) const;
  // Rows of the output that padding reaches.
  std::int64_t paddedRows(int rank) const;
  void poisonOutputs(int rank, Report& report);
  WordsOutput scalesOf(int rank, std::int64_t rows, std::int64_t capacity) const;
  PayloadArrays payloadsOf(int rank, std::int64_t rows, std::int64_t capacity) const;
  // A row's side payload, as it travels.
  std::vector<std::uint8_t> sideRow(int source, int token) const;
  std::vector<std::uint32_t> payloadWords(int source, int token) const;
  std::int64_t scalesBegin(int rank) const { return outputRows(rank) * (config_.rowBytes + config_.sideBytes); }
  void placeScales(int rank);
  void placePayloads(int rank);
  void checkOutputs(int rank, Report& report);
  void checkRows(int rank, const Arrivals& arrivals, Report& report);
  void checkExpert(int rank, int expert, Report& report) const;
  bool checkCast(WordsOutput& scales, const ArrivedToken& token, std::int64_t row, const std::uint8_t* codes) const;
  void checkEntries(int rank, const Arrivals& arrivals, Report& report) const;
  void checkGuards(int rank, Report& report);
  void writeBack(int rank);

  std::shared_ptr<const ReferenceRoute> route_;
  OutputAreas* areas_;
  DispatchCase config_;
  std::vector<PerRank> ranks_;
};

// Whether a rank's dispatch that routes is a plain step: see stepFor.
bool takesPlainStep(const StepParams& params);
// Whether the caller asks a plain dispatch for arrays, which another step fills (asksForMore).
bool asksForArrays(const StepParams& params);

// A dispatch that routes: both in one step. If a rank's step is plain, it also fills arrays that describe what arrived.
class RouteDispatchOperation : public Operation {
 public:
  RouteDispatchOperation(TestComm& comm, TestHandle& handle, std::shared_ptr<RouteOperation> route,
                         std::shared_ptr<DispatchOperation> dispatch, std::string name)
      : Operation(comm, handle, std::move(name)),
        route_(std::move(route)),
        dispatch_(std::move(dispatch)),
        ranks_(static_cast<std::size_t>(comm.nranks())) {}
  void start(int rank, Report& report) override;
  StepParams params(int rank, int phases) override;
  Watch watch(int rank, int phases, Report& report) override { return dispatch_->watch(rank, phases, report); }
  void finish(int rank, Report& report) override;

 private:
  struct PerRank {
    bool asks = false;
    bool addsUp = false;  // a step that notes no waits also adds to the caller's sums
    GuardedBytes ranges, counts, sums;
  };
  void drawArrays(int rank, const StepParams& params);
  void describe(int rank, StepParams* params);
  void checkDescription(int rank, Report& report) const;

  std::shared_ptr<RouteOperation> route_;
  std::shared_ptr<DispatchOperation> dispatch_;
  std::vector<PerRank> ranks_;
};

// A combine that starts before the rows of the experts are made, on some ranks.
struct ReadyCase {
  std::vector<bool> ranks;  // [nranks]; empty: on none
  bool leaves = false;      // leaves rows to the second part, if there are two
  int blockRows = 0;        // a power of two; 0: a word for each local expert
  std::uint32_t value = 1;  // the value that a word reaches; it begins two below that
  int never = -1;           // a block of this rank that has rows is never made
};

struct CombineOptions {
  std::uint64_t seed = 1;
  CombineCase sum;
  Parts parts{1, 16};
  bool bias0 = false, bias1 = false, grads = false;
  bool weights = false;       // the combine carries weights of its own, not those of the route
  int area = -1;              // HT: index in OutputAreas, for rows that peers read in place
  std::vector<bool> inPlace;  // [nranks]; HT: in the area; LL: in the slots, on all ranks or none. Empty: on none
  int stagingArea = 0;        // HT
  int smallStaging = -1;      // HT: this rank states a staging area of one row less than it needs
  int shortRows = -1;         // this rank's rows have no room for what arrived, or are NULL
  bool noRows = false;        // these rows are NULL
  int noGrads = -1;           // this rank passes no gradients though the combine carries them
  int oddRank = -1;           // this rank's call differs in:
  enum class Odd { rowBytes, rowType, grads, wire } odd = Odd::rowBytes;
  ReadyCase ready;

  // By how much the odd rank's rows are longer. Rows in a wire format consist of whole units.
  int oddBytes() const { return sum.wire == moeWireRow ? 16 : kWireUnit * elementBytes(sum.rowType); }
};

class CombineOperation : public Operation {
 public:
  CombineOperation(TestComm& comm, TestHandle& handle, std::shared_ptr<const ReferenceRoute> route, OutputAreas* areas,
                   CombineOptions options, std::string name);
  void start(int rank, Report& report) override;
  StepParams params(int rank, int phases) override;
  Watch watch(int rank, int phases, Report& report) override;
  void finish(int rank, Report& report) override;
  // The ready word that does not come: expert << 32 | word. -1: all do.
  std::int64_t missingWord() const;

 private:
  struct PerRank {
    GuardedBytes rows, grads, weights, bias0, bias1, out, outGrads, words;
    StepParams params{};
  };
  bool isReadyLater(int rank) const {
    return !options_.ready.ranks.empty() && options_.ready.ranks[static_cast<std::size_t>(rank)];
  }
  std::int64_t readyWords(int rank) const;
  std::int64_t readyWord(const ArrivedEntry& entry) const;
  void fillReady(int rank);
  void makeBlock(int rank, std::int64_t word) const;
  // Writes to `row` the row that `rank` passes for a token that arrived there, or for one of its entries.
  const std::uint8_t* makeRow(int rank, const ArrivedToken& token, const ArrivedEntry* entry, std::uint8_t* row) const;
  bool inPlace(int rank) const { return !options_.inPlace.empty() && options_.inPlace[static_cast<std::size_t>(rank)]; }
  std::uint8_t* makeRows(int rank, Report& report);
  std::int64_t rowBytesSaid(int rank) const;
  int rowTypeSaid(int rank) const;
  int wireSaid(int rank) const;
  bool gradsSaid(int rank) const;
  bool isOdd(int rank, CombineOptions::Odd odd) const { return rank == options_.oddRank && odd == options_.odd; }
  void fillArgs(int rank, std::uint8_t* rows);
  void fillGrads(int rank);
  void fillWeights(int rank);
  std::vector<float> mergedWeights(int rank) const;
  void checkGrads(int rank, Report& report) const;

  std::shared_ptr<const ReferenceRoute> route_;
  OutputAreas* areas_;
  CombineOptions options_;
  std::vector<PerRank> ranks_;
};

// Checks the counts of rows that would have arrived without the budget of the handle.
void checkWanted(const HandleView& handle, const Arrivals& wanted, int rank, const std::string& name, Report& report);
// Checks the rows of all experts.
void checkAllExperts(const HandleView& handle, const ReferenceRoute& route, int rank, const std::string& name,
                     Report& report);
// Checks the counts that the handle shows to kernels and to the host, after a route (HT) or a dispatch (LL).
void checkCounts(const HandleView& handle, const RouteConfig& config, const Arrivals& arrivals, int rank,
                 const std::string& name, Report& report);

}  // namespace moe::test
