// Implements the dispatch of operations.h: inputs, outputs and their check.
#include <fmt/format.h>

#include <algorithm>

#include "device/rows/cast_row.h"
#include "device/view/ll_slots.h"
#include "device/view/terms.h"
#include "support/base/index.h"
#include "support/programs/operations.h"
#include "support/reference/cast_reference.h"
#include "support/reference/payload.h"

namespace moe::test {
namespace {

constexpr std::uint64_t kSideSeed = 0x51de;

// True if a rank asks for this optional output. All combinations occur.
bool wants(std::uint64_t seed, int rank, int output) {
  return mix(seed, static_cast<std::uint64_t>(rank * 8 + output)) % 4 != 0;
}

}  // namespace

DispatchOperation::DispatchOperation(TestComm& comm, TestHandle& handle, std::shared_ptr<const ReferenceRoute> route,
                                     OutputAreas* areas, DispatchCase config, std::string name)
    : Operation(comm, handle, std::move(name)),
      route_(std::move(route)),
      areas_(areas),
      config_(std::move(config)),
      ranks_(at(comm.nranks())) {}

bool DispatchOperation::inWindow(int rank) const {
  return !handle_.shape().lowLatency && !config_.staged[at(rank)];
}

std::int64_t DispatchOperation::outputRows(int rank) const {
  const Layout layout = route_->config.layout;
  const bool open = layout == Layout::flat || layout == Layout::expertMajor;
  const std::int64_t rows = route_->arrivals[at(rank)].layoutRows;
  if (!config_.capacity.empty() && config_.capacity[at(rank)] < rows) return config_.capacity[at(rank)];
  return rows + (open && config_.padding != 0 && !inWindow(rank) ? config_.spareRows : 0);
}

Arrivals DispatchOperation::shown(int rank) const {
  if (!fault_.at(rank)) return route_->arrivals[at(rank)];
  Arrivals nothing;
  nothing.expertOffsets.assign(at(expertCount(route_->config, rank) + 1), 0);
  return nothing;
}

std::int64_t DispatchOperation::paddedRows(int rank) const {
  return std::min(outputRows(rank), ranks_[at(rank)].params.dispatch.capacity);
}

// A window area holds the rows, followed by the side payload and the scales of a cast.
void DispatchOperation::poisonOutputs(int rank, Report& report) {
  PerRank& own = ranks_[at(rank)];
  const std::int64_t rows = outputRows(rank);
  const int longer = rank == config_.oddRank ? 16 : 0;  // for the size that this rank states
  if (inWindow(rank)) {
    const auto scaleBytes = static_cast<std::int64_t>(config_.cast ? scalesOf(rank, rows, rows).bytes() : 0);
    const std::int64_t beside = roundUp(scaleBytes, 16) + payloadsOf(rank, rows, rows).bytes();
    if (!areas_->acquire(rank, config_.area, rows * (config_.rowBytes + longer + config_.sideBytes) + beside))
      report.add(rank, name_ + ": the output was written before it was offered");
  } else {
    own.outRows = GuardedBytes(config_.inSlots ? 0 : at(rows * (config_.rowBytes + longer)));
    own.outSide = GuardedBytes(config_.inSlots ? 0 : at(rows * config_.sideBytes));
  }
  const bool perExpert = hasRowPerExpert(route_->config.layout);
  own.outIds = GuardedBytes(perExpert ? 0 : at(rows * route_->config.topk) * (handle_.shape().wideIndex ? 8 : 4));
  own.outWeights = GuardedBytes(at(rows * (perExpert ? 1 : route_->config.topk)) * 4);
  own.outSources = GuardedBytes(at(rows) * 4);
  own.outOffsets = GuardedBytes(at(expertCount(route_->config, rank) + 1) * 4);
  own.outBlocks = GuardedBytes(own.outOffsets.size());
}

WordsOutput DispatchOperation::scalesOf(int rank, std::int64_t rows, std::int64_t capacity) const {
  return {config_.cast.form(), route_->config, route_->arrivals[at(rank)].expertOffsets, rows, capacity};
}
PayloadArrays DispatchOperation::payloadsOf(int rank, std::int64_t rows, std::int64_t capacity) const {
  return {config_.payloads, route_->config, route_->arrivals[at(rank)].expertOffsets, rows, capacity};
}

std::vector<std::uint8_t> DispatchOperation::sideRow(int source, int token) const {
  std::vector<std::uint8_t> row(at(config_.sideBytes));
  fillRow(rowKey(config_.seed ^ kSideSeed, source, token), row.data(), config_.sideBytes);
  if (config_.payloads) std::fill(row.begin() + std::ptrdiff_t{4} * config_.payloads.words(), row.end(), 0);
  return row;
}
std::vector<std::uint32_t> DispatchOperation::payloadWords(int source, int token) const {
  std::vector<std::uint32_t> words(at(config_.sideBytes / 4));
  if (!words.empty()) std::memcpy(words.data(), sideRow(source, token).data(), words.size() * 4);
  return words;
}

std::vector<std::uint8_t> DispatchOperation::sourceRow(int source, int token) const {
  std::vector<std::uint8_t> row(at(sourceBytes()));
  const std::uint64_t key = rowKey(config_.seed, source, token);
  if (config_.cast) {
    fillTypedRow(config_.cast.rowType, key, row.data(), sourceBytes());
  } else {
    fillRow(key, row.data(), sourceBytes());
  }
  return row;
}

void DispatchOperation::start(int rank, Report& report) {
  PerRank& own = ranks_[at(rank)];
  poisonOutputs(rank, report);
  const int tokens = route_->inputs[at(rank)].tokens;
  const int longer = rank == config_.oddRank ? 16 : 0;
  own.rows = GuardedBytes(at(std::int64_t{tokens} * (sourceBytes() + longer)));
  own.side = GuardedBytes(at(std::int64_t{tokens} * config_.sideBytes));
  for (int t = 0; t < tokens; ++t) {
    const std::vector<std::uint8_t> row = sourceRow(rank, t);
    std::memcpy(own.rows.data() + std::int64_t{t} * sourceBytes(), row.data(), row.size());
    const std::vector<std::uint8_t> side = sideRow(rank, t);
    if (!side.empty()) std::memcpy(own.side.data() + std::int64_t{t} * config_.sideBytes, side.data(), side.size());
  }
  const Arrivals& arrivals = route_->arrivals[at(rank)];
  const std::int64_t rows = outputRows(rank);
  const bool perExpert = hasRowPerExpert(route_->config.layout);
  const std::uint64_t seed = config_.seed;
  StepParams& p = own.params = emptyParams(rank, 0);
  DispatchArgs& d = p.dispatch;
  d.rows = tokens == 0 ? nullptr : own.rows.data();
  d.side = config_.sideBytes == 0 || tokens == 0 ? nullptr : own.side.data();
  d.tokens = tokens;
  d.rowBytes = static_cast<std::uint32_t>(travellingBytes() + longer);
  d.sideBytes = static_cast<std::uint32_t>(config_.sideBytes);
  d.parts = config_.parts;
  d.arriving = config_.cast ? partsOfCodes(config_.parts, config_.cast) : config_.parts;
  d.padding = config_.inSlots ? config_.padding & kPadIndices : config_.padding;
  if (longer != 0) d.padding = 0;  // the output has no room for such rows
  d.idBase = config_.globalIds ? firstExpert(route_->config, rank) : 0;
  d.invalidId = config_.invalidId;
  const bool window = inWindow(rank);
  d.outRows = window ? areas_->data(rank, config_.area) : own.outRows.data();
  d.outSide = window ? d.outRows + rows * config_.rowBytes : own.outSide.data();
  d.capacity = config_.capacity.empty() ? rows : config_.capacity[at(rank)];
  if (config_.padding != 0 && d.capacity >= arrivals.layoutRows) d.capacity = rows;
  if (config_.inSlots) d.outRows = d.outSide = nullptr;
  placeScales(rank);
  if (config_.payloads) placePayloads(rank);
  d.terms = packDispatchTerms(sourceBytes() + longer, config_.cast.rowType, config_.sideBytes, d.cast.type,
                              config_.cast.weighsInput, payloadFingerprint(d.payloads));
  if (!handle_.shape().lowLatency) {
    d.staged = window ? 0 : comm_.shape().stagingRows;
    if (rank == config_.smallStaging) d.staged = static_cast<std::int64_t>(arrivals.tokens.size()) - 1;
    const StagingArea staging = stagingAt(comm_.shape(), comm_.at(), config_.stagingArea);
    d.outRowsOffset = window ? areas_->offset(rank, config_.area) : staging.rows;
    d.outSideOffset = window ? d.outRowsOffset + static_cast<std::uint64_t>(rows * config_.rowBytes) : staging.side;
  }
  if (!perExpert && wants(seed, rank, 0)) d.outTopkIdx = own.outIds.data();
  if (wants(seed, rank, 1)) d.outTopkWeights = reinterpret_cast<float*>(own.outWeights.data());
  if (wants(seed, rank, 2)) d.outSourceIndex = reinterpret_cast<std::int32_t*>(own.outSources.data());
  if (route_->config.layout == Layout::expertMajor && wants(seed, rank, 3))
    d.outExpertOffsets = reinterpret_cast<std::int32_t*>(own.outOffsets.data());
}

// The payloads of a window output lie in its area, behind everything else.
void DispatchOperation::placeScales(int rank) {
  PerRank& own = ranks_[at(rank)];
  DispatchArgs& d = own.params.dispatch;
  const std::int64_t rows = outputRows(rank);
  const bool window = config_.cast && inWindow(rank);
  if (window && d.capacity > rows) d.capacity = rows;
  const bool wanted = !config_.inSlots || wants(config_.seed, rank, 4);
  if (config_.cast) own.scales = scalesOf(rank, wanted ? rows : 0, wanted ? d.capacity : 0);
  own.outScales = GuardedBytes(window ? 0 : own.scales.bytes());
  const std::int64_t before = scalesBegin(rank);
  own.scalesAt = window ? areas_->data(rank, config_.area) + before : own.outScales.data();
  own.rule = config_.cast.ruleOf(rank);
  d.cast = castArgs(config_.cast, own.scales, own.scalesAt, own.rule);
  if (config_.cast.weighsInput) d.cast.rowWeights = handle_.view(rank).sent.weights;
  if (d.cast.grid.blocked != 0 && own.scales.bytes() > 0) d.padding |= kPadScales;
  if (d.cast.grid.blocked != 0 && route_->config.layout == Layout::expertMajor && wants(config_.seed, rank, 7))
    d.cast.outBlockOffsets = reinterpret_cast<std::int32_t*>(own.outBlocks.data());
  if (window) d.cast.outScalesOffset = areas_->offset(rank, config_.area) + static_cast<std::uint64_t>(before);
}

// In a window output they lie behind the scales, if there are any.
void DispatchOperation::placePayloads(int rank) {
  PerRank& own = ranks_[at(rank)];
  DispatchArgs& d = own.params.dispatch;
  const std::int64_t rows = outputRows(rank);
  const bool window = inWindow(rank);
  if (window && d.capacity > rows) d.capacity = rows;
  own.payloads = payloadsOf(rank, config_.inSlots ? 0 : rows, config_.inSlots ? 0 : d.capacity);
  const std::int64_t before = scalesBegin(rank) + roundUp(static_cast<std::int64_t>(own.scales.bytes()), 16);
  own.payloads.place(window ? areas_->data(rank, config_.area) + before : nullptr,
                     window ? areas_->offset(rank, config_.area) + static_cast<std::uint64_t>(before) : 0);
  std::vector<std::vector<std::uint32_t>> tokens;
  for (int t = 0; t < d.tokens; ++t) tokens.push_back(payloadWords(rank, t));
  d.payloads = own.payloads.args(tokens);
  d.side = nullptr;
  d.outSide = nullptr;
  if (!config_.cast) d.cast.codeBytes = d.rowBytes;
  if (!own.payloads.inBlocks() || config_.inSlots || own.payloads.bytes() == 0) return;
  d.padding |= kPadScales;
  if (route_->config.layout == Layout::expertMajor && wants(config_.seed, rank, 7))
    d.cast.outBlockOffsets = reinterpret_cast<std::int32_t*>(own.outBlocks.data());
}

StepParams DispatchOperation::params(int rank, int phases) {
  if ((phases & kSendPhase) != 0) handle_.startDispatch(rank);
  StepParams params = ranks_[at(rank)].params;
  params.phases = phases;
  const bool delivers = handle_.shape().lowLatency && !config_.inSlots && !config_.cast;
  params.dispatch.countingBlock = wants(config_.seed, rank, 6) ? 1 : 0;
  params.dispatch.straight = phases == (kSendPhase | kReceivePhase) && delivers && wants(config_.seed, rank, 5) ? 1 : 0;
  return params;
}

// Watches a handle's arrival words, as their consumer would.
Watch DispatchOperation::watch(int rank, int phases, Report& report) {
  if (!handle_.shape().arrivals || (phases & kReceivePhase) == 0) return {};
  return {handle_.view(rank).arriving.complete, expertCount(route_->config, rank), handle_.dispatches(rank),
          [this, rank, &report](int expert) { checkExpert(rank, expert, report); }};
}

// Checks rows, side payload and description of an expert whose arrival word has come. Casts and payloads are checked at
// the end.
void DispatchOperation::checkExpert(int rank, int expert, Report& report) const {
  const DispatchArgs& d = ranks_[at(rank)].params.dispatch;
  for (const ArrivedToken& token : shown(rank).tokens) {
    for (const ArrivedEntry& entry : token.entries) {
      if (entry.localExpert != expert) continue;
      const auto is = [&](std::uint64_t seed, const std::uint8_t* rows, int bytes) {
        return rowIs(rowKey(seed, token.source, token.token), rows + entry.row * bytes, bytes);
      };
      const int source = token.source * route_->config.tokensMax + token.token;
      const bool good = (config_.cast || is(config_.seed, d.outRows, config_.rowBytes)) &&
                        (config_.payloads || is(config_.seed ^ kSideSeed, d.outSide, config_.sideBytes)) &&
                        (d.outTopkWeights == nullptr || d.outTopkWeights[entry.row] == entry.weight) &&
                        (d.outSourceIndex == nullptr || d.outSourceIndex[entry.row] == source);
      if (good) continue;
      return report.add(rank, fmt::format("{}: expert {} has its arrival word, but not token {}:{} in row {}", name_,
                                          expert, token.source, token.token, entry.row));
    }
  }
}

// Checks the codes of a row, and the scales behind them if the row is in a slot. Notes which scales it must have.
bool DispatchOperation::checkCast(WordsOutput& scales, const ArrivedToken& token, std::int64_t row,
                                  const std::uint8_t* codes) const {
  const CastCase& cast = config_.cast;
  const ReferenceCast expected =
      referenceCast(cast.ruleOf(token), cast.rowType, sourceRow(token.source, token.token).data(), cast.elements);
  scales.expect(row, expected.scales);
  const std::size_t behind = config_.inSlots ? expected.scales.size() * 4 : 0;
  return std::memcmp(codes, expected.codes.data(), expected.codes.size()) == 0 &&
         std::memcmp(codes + expected.codes.size(), expected.scales.data(), behind) == 0;
}

void DispatchOperation::checkRows(int rank, const Arrivals& arrivals, Report& report) {
  PerRank& own = ranks_[at(rank)];
  const DispatchArgs& d = own.params.dispatch;
  std::vector<const ArrivedToken*> tokenOf(at(outputRows(rank)), nullptr);
  for (const ArrivedToken& token : arrivals.tokens) {
    if (!hasRowPerExpert(route_->config.layout)) tokenOf[at(token.row)] = &token;
    if (hasRowPerExpert(route_->config.layout))
      for (const ArrivedEntry& entry : token.entries) tokenOf[at(entry.row)] = &token;
  }
  const std::uint8_t *outRows = d.outRows, *outSide = d.outSide;
  if (config_.inSlots) {
    const CommView& c = own.params.comm;
    outRows = llSlot(c, own.params.handle, rank, c.at.llRows, c.rowBytesMax, 0, 0, 0);
    outSide = llSlot(c, own.params.handle, rank, c.at.llSide, c.sideBytesMax, 0, 0, 0);
  }
  const int stride = config_.inSlots ? travellingBytes() : config_.rowBytes;
  bool padded = false;
  own.scales.expectPads(arrivals, (d.padding & kPadRows) != 0);
  own.payloads.expectPads(arrivals, (d.padding & kPadRows) != 0);
  const auto isRow = [&](const ArrivedToken* token, std::uint64_t seed, const std::uint8_t* row, std::int64_t bytes) {
    if (token == nullptr && padded) return std::count(row, row + bytes, 0) == bytes;
    if (token == nullptr) return config_.inSlots || hearsOverRails(rank) || isPoison(row, at(bytes));
    if (config_.cast && seed == config_.seed) return checkCast(own.scales, *token, (row - outRows) / stride, row);
    if (seed != config_.seed) {
      const std::vector<std::uint8_t> side = sideRow(token->source, token->token);
      return std::equal(side.begin(), side.end(), row);
    }
    return rowIs(rowKey(seed, token->source, token->token), row, bytes);
  };
  for (std::int64_t row = 0; row < outputRows(rank); ++row) {
    const ArrivedToken* token = tokenOf[at(row)];
    padded = (d.padding & kPadRows) != 0 && row < paddedRows(rank);
    if (token == nullptr && config_.cast && padded && config_.cast.scales != moeScales128x4)
      own.scales.expect(row, std::vector<std::uint32_t>(at(config_.cast.words()), 0));
    if (!isRow(token, config_.seed, outRows + row * stride, config_.rowBytes))
      return report.add(rank, fmt::format("{}: row {} is not that of token {}:{}", name_, row,
                                          token ? token->source : -1, token ? token->token : -1));
    if (config_.payloads && token != nullptr) own.payloads.expect(row, payloadWords(token->source, token->token));
    if (config_.payloads && token == nullptr && padded) own.payloads.expectZeros(row);
    const bool arrays = config_.payloads && !config_.inSlots;
    if (!arrays && !isRow(token, config_.seed ^ kSideSeed, outSide + row * config_.sideBytes, config_.sideBytes))
      return report.add(rank, fmt::format("{}: side payload of row {} is wrong", name_, row));
  }
  if (hearsOverRails(rank)) return;
  if (!own.scales.isRight(own.scalesAt)) report.add(rank, name_ + ": scales are wrong");
  if (!own.payloads.isRight()) report.add(rank, name_ + ": payloads are wrong");
}

void DispatchOperation::checkEntries(int rank, const Arrivals& arrivals, Report& report) const {
  const PerRank& own = ranks_[at(rank)];
  const DispatchArgs& d = own.params.dispatch;
  const int topk = route_->config.topk;
  GuardedBytes ids(own.outIds.size()), weights(own.outWeights.size()), sources(own.outSources.size());
  auto put = [](GuardedBytes& to, std::int64_t index, auto value) {
    std::memcpy(to.data() + index * std::int64_t{sizeof value}, &value, sizeof value);
  };
  auto putId = [&](std::int64_t index, int id) {
    if (handle_.shape().wideIndex) return put(ids, index, std::int64_t{id});
    put(ids, index, id);
  };
  const bool perExpert = hasRowPerExpert(route_->config.layout);
  for (std::int64_t row = 0; (d.padding & kPadIndices) != 0 && row < paddedRows(rank); ++row) {
    put(sources, row, -1);
    if (perExpert) put(weights, row, 0.0f);
    for (int k = 0; k < topk && !perExpert; ++k) putId(row * topk + k, d.invalidId), put(weights, row * topk + k, 0.0f);
  }
  for (const ArrivedToken& token : arrivals.tokens) {
    const int source = token.source * route_->config.tokensMax + token.token;
    if (perExpert) {
      for (const ArrivedEntry& entry : token.entries) {
        put(sources, entry.row, source);
        put(weights, entry.row, entry.weight);
      }
      continue;
    }
    put(sources, token.row, source);
    for (int k = 0; k < topk; ++k) putId(token.row * topk + k, d.invalidId), put(weights, token.row * topk + k, 0.0f);
    for (const ArrivedEntry& entry : token.entries) {
      putId(token.row * topk + entry.topk, d.idBase + entry.localExpert);
      put(weights, token.row * topk + entry.topk, entry.weight);
    }
  }
  auto compare = [&](const char* what, bool asked, const GuardedBytes& actual, const GuardedBytes& expected) {
    const bool good = asked ? std::memcmp(actual.data(), expected.data(), actual.size()) == 0
                            : isPoison(actual.data(), actual.size());
    if (!good) report.add(rank, fmt::format("{}: {} are wrong", name_, what));
  };
  compare("top-k indices", d.outTopkIdx != nullptr, own.outIds, ids);
  compare("top-k weights", d.outTopkWeights != nullptr, own.outWeights, weights);
  compare("source indices", d.outSourceIndex != nullptr, own.outSources, sources);
  GuardedBytes offsets(own.outOffsets.size());
  std::memcpy(offsets.data(), arrivals.expertOffsets.data(), offsets.size());
  compare("expert offsets", d.outExpertOffsets != nullptr, own.outOffsets, offsets);
  const std::vector<int> noBlocks(arrivals.expertOffsets.size(), 0);
  const bool ofScales = d.cast.grid.blocked != 0;
  std::vector<int> blocks = ofScales ? own.scales.blockOffsets() : own.payloads.blockOffsets();
  if (fault_.at(rank) || blocks.empty()) blocks = noBlocks;
  GuardedBytes blockOffsets(own.outBlocks.size());
  std::memcpy(blockOffsets.data(), blocks.data(), blockOffsets.size());
  compare("block offsets", d.cast.outBlockOffsets != nullptr, own.outBlocks, blockOffsets);
}

void DispatchOperation::checkGuards(int rank, Report& report) {
  PerRank& own = ranks_[at(rank)];
  const bool released = !inWindow(rank) || areas_->release(rank, config_.area);
  bool good = released;
  for (const GuardedBytes* bytes : {&own.outRows, &own.outSide, &own.outIds, &own.outWeights, &own.outSources,
                                    &own.outOffsets, &own.outBlocks, &own.outScales})
    good = good && bytes->guardsAreIntact();
  good = good && own.payloads.guardsAreIntact();
  if (!good) report.add(rank, name_ + ": something was written behind an output");
}

// In LL, a rank learns that row sizes differ only when rows have come. Its outputs may then hold anything.
void DispatchOperation::checkOutputs(int rank, Report& report) {
  if (config_.oddRank >= 0 && handle_.shape().lowLatency) return;
  const Arrivals arrivals = shown(rank);
  checkRows(rank, arrivals, report);
  checkEntries(rank, arrivals, report);
}

void DispatchOperation::finish(int rank, Report& report) {
  checkOutputs(rank, report);
  checkGuards(rank, report);
  for (int e = 0; handle_.shape().arrivals && e < expertCount(route_->config, rank); ++e) {
    const std::uint64_t seen = flagEpoch(handle_.view(rank).arriving.complete[e]), expected = handle_.dispatches(rank);
    if (seen == expected) continue;
    report.add(rank, fmt::format("{}: the arrival word of expert {} is {}, not {}", name_, e, seen, expected));
  }
  checkStatus(rank, report);
  writeBack(rank);
  ranks_[at(rank)] = PerRank{};
}

// From now on the caller of LL RANK_MAJOR may put rows where combine looks for them. It need not combine at all.
void DispatchOperation::writeBack(int rank) {
  const CommView& c = ranks_[at(rank)].params.comm;
  const HandleView& h = ranks_[at(rank)].params.handle;
  if (h.lowLatency == 0 || h.layout != Layout::rankMajor) return;
  auto* rows = c.mine<std::uint8_t>(llSetOffset(c, h, c.at.llCombineRows, c.rowBytesMax));
  std::memset(rows, 0x5e, at(std::int64_t{c.nranks} * c.llTokensMax * c.rowBytesMax));
}

}  // namespace moe::test
