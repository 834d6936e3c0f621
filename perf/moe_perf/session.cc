#include "perf/moe_perf/session.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "device/lanes.h"

namespace moe::perf {

void check(moeResult_t result, moeComm_t comm, const char* call) {
  if (result == moeSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + moeGetErrorString(result) + ": " + moeGetLastError(comm));
}

OutputMemory::OutputMemory(Device& device, moeComm_t comm, bool window, std::size_t bytes)
    : device_(&device), comm_(window ? comm : nullptr) {
  if (bytes == 0) return;
  if (window) {
    check(moeMemAlloc(comm, bytes, &memory_), comm, "moeMemAlloc");
  } else {
    memory_ = device.allocate(bytes);
  }
}

OutputMemory& OutputMemory::operator=(OutputMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(comm_, other.comm_);
  std::swap(memory_, other.memory_);
  return *this;
}

OutputMemory::~OutputMemory() {
  if (memory_ == nullptr) return;
  if (comm_ != nullptr) {
    moeMemFree(comm_, memory_);
  } else {
    device_->free(memory_);
  }
}

// If scales are in blocks, each group of rows, of an expert or a rank, may waste most of a block.
std::int64_t Session::scaleBytes(const Options& options, std::int64_t rows, int nranks) {
  const std::int64_t rowBytes = std::int64_t{options.scaleWords()} * 4;
  if (options.scales != moeScales128x4) return rows * rowBytes;
  return (rows / 128 + std::max(options.experts, nranks)) * 128 * rowBytes;
}

std::int64_t Session::windowBytes(const Options& options, std::int64_t rows, int nranks) {
  if (options.staysInSlots()) return 0;
  return roundUp(rows * options.outRowBytes(), 256) + roundUp(rows * options.sideBytes(), 256) +
         roundUp(scaleBytes(options, rows, nranks), 256) + kVersions * roundUp(rows * options.combineRowBytes(), 256) +
         1024;
}

Session::Session(const Options& options, Device& device, moeComm_t comm, const std::uint32_t* iteration,
                 std::uint64_t seed, const Load& load)
    : options_(options), device_(device), comm_(comm), iteration_(iteration), seed_(seed), shape_(options.rowShape()) {
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  check(moeCommGetInfo(comm, &info), comm, "moeCommGetInfo");
  rank_ = info.rank;
  nranks_ = info.nranks;
  slotCount_ = info.nranks * load.tokensMax;
  domainSize_ = info.domainSize;
  for (std::size_t version = 0; version < kVersions; ++version) {
    versions_[version] = makeVersion(load, static_cast<int>(version));
    const Plan& plan = versions_[version].plan;
    outRowCount_ = std::max(outRowCount_, static_cast<std::size_t>(plan.layoutRows));
    const auto tokenCount = static_cast<std::size_t>(plan.tokens());
    sources_[version] = {device, tokenCount * static_cast<std::size_t>(options.rowBytes())};
    sourceSides_[version] = {device, tokenCount * static_cast<std::size_t>(shape_.sideFloats)};
  }
  makeHandle(load.tokensMax);
  allocateOutputs();
  if (options.faultsOneIn > 0) expectedFault_ = toDevice(device, std::vector<std::uint32_t>{0, moeInvalidArgument});
}

void Session::makeHandle(int tokensMax) {
  moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
  config.experts = options_.experts;
  config.topk = options_.topk;
  config.layout = options_.layout;
  config.mode = options_.mode;
  config.tokensMax = tokensMax;
  check(moeHandleCreate(&handle_, comm_, &config), comm_, "moeHandleCreate");
  moeDeviceCounts_t made = MOE_DEVICE_COUNTS_INITIALIZER;
  check(moeHandleGetDeviceCounts(handle_, &made), comm_, "moeHandleGetDeviceCounts");
  lowLatency_ = made.mode == moeModeLl;
  fault_ = made.fault;
  inSlots_ = options_.staysInSlots();
  if (inSlots_) check(moeHandleGetView(handle_, &view_), comm_, "moeHandleGetView");
}

void Session::allocateOutputs() {
  const bool window = options_.window != 0;
  const std::size_t rows = inSlots_ ? 0 : outRowCount_;
  const auto rowBytes = static_cast<std::size_t>(options_.outRowBytes());
  const auto combinedBytes = static_cast<std::size_t>(options_.combineRowBytes());
  int tokens = 0;
  for (auto& version : versions_) {
    version.expertRows = {device_, comm_, window && !inSlots_, combinesInSlots() ? 0 : outRowCount_ * combinedBytes};
    tokens = std::max(tokens, version.plan.tokens());
  }
  combined_ = {device_, static_cast<std::size_t>(tokens) * combinedBytes};
  outRows_ = {device_, comm_, window, rows * rowBytes};
  outSide_ = {device_, comm_, window, rows * static_cast<std::size_t>(options_.sideBytes())};
  const std::int64_t scales = inSlots_ ? 0 : scaleBytes(options_, static_cast<std::int64_t>(rows), nranks_);
  outScales_ = {device_, comm_, window, static_cast<std::size_t>(scales)};
  const auto topk = static_cast<std::size_t>(options_.topk);
  const std::size_t described = options_.describe != 0 ? outRowCount_ : 0;
  if (!options_.expertMajor()) outTopkIdx_ = {device_, described * topk};
  outTopkWeights_ = {device_, described * (options_.expertMajor() ? 1 : topk)};
  outSources_ = {device_, described};
  if (options_.layout != moeLayoutExpertMajor) return;
  outExpertOffsets_ = {device_, plan(0).expertOffsets.size()};
  if (options_.scales == moeScales128x4) outBlockOffsets_ = {device_, plan(0).expertOffsets.size()};
}

Session::~Session() {
  moeHandleDestroy(handle_);
}

Session::Version Session::makeVersion(const Load& load, int number) {
  Version version;
  version.plan = makePlan(options_, seed_, load, number, rank_);
  const Plan& plan = version.plan;
  version.topkIdx = toDevice(device_, plan.route.experts);
  version.topkWeights = toDevice(device_, plan.route.weights);
  version.entries = toDevice(device_, plan.entries);
  version.entryOffsets = toDevice(device_, plan.entryOffsets);
  version.specs = toDevice(device_, plan.specs);
  version.specEntries = toDevice(device_, plan.specEntries);
  version.specExperts = toDevice(device_, plan.specExperts);
  version.specWeights = toDevice(device_, plan.specWeights);
  version.specSources = toDevice(device_, plan.specSources);
  version.expertOffsets = toDevice(device_, plan.expertOffsets);
  if (options_.faultsOneIn > 0) planFault(load, number, version);
  return version;
}

void Session::planFault(const Load& load, int number, Version& version) {
  const Plan& plan = version.plan;
  version.bad = drawBadEntry(options_, seed_, load, number);
  version.noEntries = {device_, plan.entryOffsets.size()};
  if (version.bad.rank != rank_) return;
  version.badIdx = toDevice(device_, version.bad.putInto(plan.route.experts, options_.topk));
}

void Session::route(int version, bool bad) {
  const Version& route = at(version);
  check(moeRoute(handle_, idsOf(version, bad), route.topkWeights.get(), route.plan.tokens(), device_.stream()), comm_,
        "moeRoute");
}

void Session::dispatch(int source) {
  check(moeDispatch(handle_, &askDispatch(source), device_.stream()), comm_, "moeDispatch");
}

void Session::routeDispatch(int version, bool bad) {
  const Version& route = at(version);
  check(moeRouteDispatch(handle_, idsOf(version, bad), route.topkWeights.get(), route.plan.tokens(),
                         &askDispatch(version), device_.stream()),
        comm_, "moeRouteDispatch");
}

void Session::setPayload(int source) {
  const bool columns = options_.side == Side::columns;
  payload_.bytes = options_.sideBytes();
  payload_.in = sourceSides_[static_cast<std::size_t>(source)].get();
  payload_.out = outSide_.get();
  payload_.outLayout = options_.side == Side::array ? moePayloadArray : moeScalesRowMajor;
  payload_.inRowStride = payload_.outRowStride = columns ? 4 : 0;
  payload_.inWordStride = columns ? std::int64_t{plan(source).tokens()} * 4 : 0;
  payload_.outWordStride = columns ? static_cast<std::int64_t>(outRowCount_) * 4 : 0;
}

const moeDispatchArgs_t& Session::askDispatch(int source) {
  const bool fp8 = options_.format == Format::fp8;
  setPayload(source);
  cast_.type = static_cast<std::int32_t>(options_.cast);
  cast_.outScales = outScales_.get();
  cast_.scaleLayout = options_.scales;
  describe_.outTopkIdx = outTopkIdx_.get();
  describe_.outTopkWeights = outTopkWeights_.get();
  describe_.outSourceIndex = outSources_.get();
  describe_.outExpertOffsets = outExpertOffsets_.get();
  describe_.outBlockOffsets = outBlockOffsets_.get();
  dispatch_.rows = sources_[static_cast<std::size_t>(source)].get();
  dispatch_.rowType = fp8 ? moeRowBytes : static_cast<std::int32_t>(options_.format) + moeRowBf16;
  dispatch_.hidden = options_.hidden;
  dispatch_.flags = options_.sendOnly ? moeSendOnly : 0;
  dispatch_.outRows = outRows_.get();
  dispatch_.outRowsMax = inSlots_ ? 0 : static_cast<std::int64_t>(outRowCount_);
  dispatch_.payloads = &payload_;
  dispatch_.payloadCount = options_.sideBytes() > 0 ? 1 : 0;
  dispatch_.cast = options_.cast != Cast::none ? &cast_ : nullptr;
  dispatch_.describe = &describe_;
  return dispatch_;
}

void Session::combine(int version) {
  moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
  args.rows = expertRows(version);
  args.rowType = static_cast<std::int32_t>(combineFormat(options_.format)) + moeRowBf16;
  args.hidden = options_.hidden;
  args.weights = options_.style() == ExpertStyle::apply ? moeWeightsApply : moeWeightsApplied;
  args.wire = static_cast<std::int32_t>(options_.wire);
  args.flags = options_.sendOnly ? moeSendOnly : 0;
  args.out = combined_.get();
  check(moeCombine(handle_, &args, device_.stream()), comm_, "moeCombine");
}

void Session::complete() {
  check(moeComplete(handle_, device_.stream()), comm_, "moeComplete");
}

void Session::fill(int source) {
  const auto index = static_cast<std::size_t>(source);
  const int tokens = plan(source).tokens();
  device_.run(FillRows{payloadOf(), shape_, rank_, tokens, sources_[index].get()});
  device_.run(FillSide{payloadOf(), shape_, rank_, tokens,
                       sideArray(sourceSides_[index].get(), true, static_cast<std::size_t>(tokens))});
}

void Session::runExperts(int version, const std::uint32_t* iteration) {
  const Version& route = at(version);
  const void* rows = options_.cast == Cast::none ? arrivedRows() : nullptr;
  device_.run(RunExperts{{seed_, iteration != nullptr ? iteration : iteration_},
                         shape_,
                         options_.style(),
                         route.specs.get(),
                         static_cast<std::int64_t>(route.specs.count()),
                         route.specEntries.get(),
                         rows,
                         arrivedSide(),
                         expertRows(version)});
}

void Session::verifyWords(const Version& version, const void* actual, const void* expected, std::size_t perRow,
                          Findings* findings) {
  if (actual == nullptr) return;
  device_.run(VerifyWords{version.specs.get(), static_cast<std::int64_t>(version.specs.count()),
                          static_cast<std::int32_t>(perRow), static_cast<const std::uint32_t*>(actual),
                          static_cast<const std::uint32_t*>(expected), findings});
}

// Follows moeCast_t. Rows in their slots have their scales behind the codes.
ScaleAddress Session::scaleAddress(const Version& version) const {
  constexpr std::int64_t kOneGroup = INT64_MAX, kWord = 4;
  const std::int64_t words = options_.scaleWords();
  if (inSlots_) {
    return {static_cast<const char*>(arrivedRows()) + options_.codeBytes(), kOneGroup, 0, options_.castRowBytes(),
            kWord};
  }
  if (options_.scales == moeScalesRowMajor) return {outScales_.get(), kOneGroup, 0, words * kWord, kWord};
  if (options_.scales == moeScales128x4) return blockAddress(version);
  const bool padded = options_.layout == moeLayoutExpertMajorPadded;
  const bool fixed = padded || options_.layout == moeLayoutRankMajor;
  const std::int64_t rows = fixed ? slotCount_ : static_cast<std::int64_t>(outRowCount_);
  return {outScales_.get(), padded ? rows : kOneGroup, words * rows * kWord, kWord, rows * kWord};
}

ScaleAddress Session::blockAddress(const Version& version) const {
  constexpr std::int64_t kColumnBytes = 512;
  const std::int64_t blockBytes = options_.scaleWords() * kColumnBytes;
  ScaleAddress at{outScales_.get(), INT64_MAX, 0, blockBytes, kColumnBytes, true};
  if (options_.layout == moeLayoutExpertMajor) {
    at.groupRows = version.expertOffsets.get();
    at.groupBlocks = outBlockOffsets_.get();
    at.experts = static_cast<int>(version.expertOffsets.count()) - 1;
  } else if (options_.layout != moeLayoutFlat) {
    at.group = options_.layout == moeLayoutRankMajor ? slotCount_ / nranks_ : slotCount_;
    at.groupStride = (at.group + 127) / 128 * blockBytes;
  }
  return at;
}

void Session::verifyCast(const Version& version, Findings* findings) {
  const std::int64_t rowBytes = inSlots_ ? options_.castRowBytes() : options_.codeBytes();
  device_.run(VerifyCast{payloadOf(), shape_, options_.cast, version.specs.get(),
                         static_cast<std::int64_t>(version.specs.count()), arrivedRows(), rowBytes,
                         scaleAddress(version), findings});
}

void Session::verifyDispatch(int number, int stride, Findings* findings) {
  const Version& version = at(number);
  const auto specCount = static_cast<std::int64_t>(version.specs.count());
  const auto topk = static_cast<std::size_t>(options_.topk);
  if (options_.cast == Cast::none) {
    device_.run(VerifyRows{payloadOf(), shape_, version.specs.get(), specCount, stride, arrivedRows(), findings});
  } else {
    verifyCast(version, findings);
  }
  device_.run(VerifySide{payloadOf(), shape_, version.specs.get(), specCount, arrivedSide(), findings});
  verifyWords(version, outTopkIdx_.get(), version.specExperts.get(), topk, findings);
  verifyWords(version, outTopkWeights_.get(), version.specWeights.get(), options_.expertMajor() ? 1 : topk, findings);
  verifyWords(version, outSources_.get(), version.specSources.get(), 1, findings);
  if (outExpertOffsets_.get() != nullptr) {
    device_.run(VerifyWords{nullptr, static_cast<std::int64_t>(outExpertOffsets_.count()), 1,
                            reinterpret_cast<const std::uint32_t*>(outExpertOffsets_.get()),
                            reinterpret_cast<const std::uint32_t*>(version.expertOffsets.get()), findings});
  }
}

void Session::verifyCombine(int version, int stride, Findings* findings, bool bad) {
  const VerifyCombine check{payloadOf(),
                            shape_,
                            options_.style(),
                            rank_,
                            plan(version).tokens(),
                            at(version).entries.get(),
                            (bad ? at(version).noEntries : at(version).entryOffsets).get(),
                            stride,
                            combined_.get(),
                            findings,
                            domainSize_,
                            !lowLatency_};
  if (options_.wire == Wire::row) {
    device_.run(check);
  } else {
    device_.run(VerifyWire{check, options_.wire});
  }
}

void Session::verifyFault(bool bad, Findings* findings) {
  if (expectedFault_.get() == nullptr) return;
  device_.run(VerifyWords{nullptr, 1, 1, fault_, expectedFault_.get() + (bad ? 1 : 0), findings});
}

int Session::wrongFault(int version) {
  moeHandleStatus_t status = MOE_HANDLE_STATUS_INITIALIZER;
  check(moeHandleGetStatus(handle_, &status), comm_, "moeHandleGetStatus");
  moeCounts_t counts = MOE_COUNTS_INITIALIZER;
  check(moeHandleGetCounts(handle_, &counts), comm_, "moeHandleGetCounts");
  int wrong = status.result == moeInvalidArgument ? 0 : 1;
  wrong += status.rank == at(version).bad.rank ? 0 : 1;
  wrong += counts.rows == 0 ? 0 : 1;
  return wrong;
}

int Session::wrongCounts(int version) {
  moeCounts_t counts = MOE_COUNTS_INITIALIZER;
  check(moeHandleGetCounts(handle_, &counts), comm_, "moeHandleGetCounts");
  const Plan& expected = plan(version);
  int wrong = counts.rows == expected.rows ? 0 : 1;
  wrong += counts.layoutRows == expected.layoutRows ? 0 : 1;
  wrong += counts.localExperts == static_cast<std::int32_t>(expected.rowsPerExpert.size()) ? 0 : 1;
  if (wrong > 0) return wrong;
  for (std::size_t i = 0; i < expected.rowsPerRank.size(); ++i) {
    wrong += counts.rowsPerRank[i] == expected.rowsPerRank[i] ? 0 : 1;
  }
  for (std::size_t i = 0; i < expected.rowsPerExpert.size(); ++i) {
    wrong += counts.rowsPerExpert[i] == expected.rowsPerExpert[i] ? 0 : 1;
  }
  return wrong;
}

void Session::copyLogicalRows(int version) {
  if (outRowCount_ == 0) return;
  const auto rowBytes = static_cast<std::size_t>(options_.outRowBytes());
  const Plan& route = plan(version);
  std::size_t row = 0;
  for (std::size_t token = 0; token + 1 < route.entryOffsets.size(); ++token) {
    std::int32_t rank = -1;
    for (std::int32_t i = route.entryOffsets[token]; i < route.entryOffsets[token + 1]; ++i) {
      if (route.entries[static_cast<std::size_t>(i)].rank == rank) continue;
      rank = route.entries[static_cast<std::size_t>(i)].rank;
      std::memcpy(static_cast<std::byte*>(const_cast<void*>(arrivedRows())) + row * rowBytes,
                  sources_[0].get() + token * rowBytes, rowBytes);
      row = (row + 1) % outRowCount_;
    }
  }
}

}  // namespace moe::perf
