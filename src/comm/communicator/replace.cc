// moeCommReplace: a survivor issues the id with which a new process takes the number of a lost rank (decision 0125),
// and checks the processes that come with it.
#include <fmt/format.h>

#include "comm/communicator/comm.h"
#include "comm/communicator/newcomer.h"

namespace moe {
namespace {

constexpr const char* kReplaceCall = "moeCommReplace";

template <class Value>
void append(std::vector<std::uint8_t>& bytes, const Value* values, std::size_t count) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(values);
  bytes.insert(bytes.end(), first, first + count * sizeof *values);
}

// Takes values off the front of `bytes`.
template <class Value>
void take(std::span<const std::uint8_t>& bytes, Value* values, std::size_t count) {
  if (bytes.size() / sizeof *values < count) {
    throw Error(moeInternalError, "the sponsor of this process sent a malformed table of the group");
  }
  std::memcpy(values, bytes.data(), count * sizeof *values);
  bytes = bytes.subspan(count * sizeof *values);
}

}  // namespace

std::vector<std::uint8_t> GroupTable::bytes() const {
  std::vector<std::uint8_t> out;
  append(out, &head, 1);
  append(out, windows.data(), windows.size());
  append(out, handles.data(), handles.size());
  return out;
}

GroupTable GroupTable::read(std::span<const std::uint8_t> bytes, int nranks) {
  GroupTable table;
  take(bytes, &table.head, 1);
  table.windows.resize(static_cast<std::size_t>(nranks));
  take(bytes, table.windows.data(), table.windows.size());
  table.handles.resize(bytes.size() / sizeof(HandleCard));
  take(bytes, table.handles.data(), table.handles.size());
  return table;
}

NewcomerCard cardOf(const bootstrap::Newcomer& newcomer) {
  return readCard<NewcomerCard>(newcomer.card, newcomer.rank);
}

GroupTable Comm::groupTable() const {
  GroupTable table;
  table.head.limits = tunedLimits_;
  std::copy_n(room_.llHandles, kLlSetsMax, table.head.llHandles);
  table.head.handlesMade = handlesMade_;
  for (const Peer& peer : peers_) table.windows.push_back(peer.card);
  for (const Owned& owned : handles_) {
    if (const HandleCard card = owned.card(owned.handle.get()); card.number >= 0) table.handles.push_back(card);
  }
  table.handles.insert(table.handles.end(), expected_.begin(), expected_.end());
  return table;
}

moeUniqueId_t Comm::replace(int rank) {
  if (rank < 0 || rank >= nranks())
    throw Error(moeInvalidArgument, fmt::format("{}: rank is {}, must be 0..{}", kReplaceCall, rank, nranks() - 1));
  if (rank == this->rank())
    throw Error(moeInvalidArgument, fmt::format("{}: rank is {}, this rank itself", kReplaceCall, rank));
  requireAwake(kReplaceCall);
  if (hasDomains()) throw Error(moeUnsupported, fmt::format("{}: there are several domains", kReplaceCall));
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer.window.range) {
    throw Error(moeUnsupported,
                fmt::format("{}: the window of rank {} cannot be mapped anew here: it is shared by CUDA "
                            "IPC, or that of a thread of this process",
                            kReplaceCall, rank));
  }
  const MonitorHeld held(*bootstrap_, timeout());
  try {
    return bootstrap_->awaitNewcomer(
        rank, config_.interfaceName,
        [=, own = this->rank(), bytes = peer.card.bytes,
         mine = agreedValues(config_, backend_->kind())](std::span<const std::uint8_t> told) {
          NewcomerCard card;
          if (told.size() != sizeof card) {
            throw Error(moeInvalidUsage, fmt::format("moeCommInit: rank {} runs another version of the library", own));
          }
          std::memcpy(&card, told.data(), sizeof card);
          if (const std::string why = disagreement(mine, own, card.settings, rank); !why.empty())
            throw Error(moeInvalidUsage, why);
          if (card.window.bytes == bytes) return;
          throw Error(
              moeInvalidUsage,
              fmt::format("moeCommInit: the window of rank {} has {} bytes, and that of the process before it had {}: "
                          "config.heapBytes must be the same",
                          rank, card.window.bytes, bytes));
        });
  } catch (const Error& error) {
    throw Error(error.result(), fmt::format("{}: {}", kReplaceCall, error.what()));
  }
}

// ---- The handles of the others ----

void Comm::requireExpected(const HandleCard& mine) const {
  if (expected_.empty()) return;
  const HandleCard& theirs = expected_.front();
  const auto compare = [&](const char* field, std::int32_t own, std::int32_t other) {
    if (own == other) return;
    throw Error(moeInvalidUsage,
                fmt::format("moeHandleCreate: {} is {}, but the next handle of the other ranks, number {}, has {}: a "
                            "process that takes the place of a lost rank first creates the handles of the others, in "
                            "their order",
                            field, own, theirs.number, other));
  };
  compare("config.experts", mine.experts, theirs.experts);
  compare("config.topk", mine.topk, theirs.topk);
  compare("config.layout", mine.layout, theirs.layout);
  compare("config.mode (1: LL)", mine.lowLatency, theirs.lowLatency);
}

std::optional<HandleCard> Comm::takeExpected() {
  if (expected_.empty()) return std::nullopt;
  const HandleCard card = expected_.front();
  expected_.pop_front();
  return card;
}

}  // namespace moe
