// The payloads of a dispatch: checks their arguments and says where their words are.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <string>

#include "comm/handle/argument_checks.h"
#include "comm/handle/handle.h"
#include "device/rows/cast_type.h"

namespace moe {
namespace {

constexpr std::int64_t kWordBytes = sizeof(std::uint32_t);
constexpr int kPayloadBytesMax = 16384;  // so that items of all rows are counted in 31 bits
constexpr const char* kPayloadInputs[] = {"args.payloads[0].in", "args.payloads[1].in", "args.payloads[2].in",
                                          "args.payloads[3].in"};
constexpr const char* kPayloadOutputs[] = {"args.payloads[0].out", "args.payloads[1].out", "args.payloads[2].out",
                                           "args.payloads[3].out"};

void refuse(const std::string& why) {
  throw Error(moeInvalidArgument, why);
}

std::string nameOf(int payload, const char* field) {
  return fmt::format("args.payloads[{}].{}", payload, field);
}

// A stride in words. 0: `dense`.
std::int32_t strideOf(int payload, const char* field, std::int64_t bytes, std::int64_t dense) {
  if (bytes < 0 || bytes % kWordBytes != 0) {
    refuse(fmt::format("{} is {}, must be a multiple of 4, 0 or more", nameOf(payload, field), bytes));
  }
  const std::int64_t words = bytes == 0 ? dense : bytes / kWordBytes;
  if (words > INT32_MAX) {
    refuse(fmt::format("{} comes to {} bytes, must be at most {}", nameOf(payload, field), words * kWordBytes,
                       INT32_MAX * kWordBytes));
  }
  return static_cast<std::int32_t>(words);
}

// Words behind the first one of `rows` rows of `words` words.
std::int64_t lastWord(std::int64_t rows, std::int64_t rowStride, std::int64_t words, std::int64_t wordStride) {
  return (rows - 1) * rowStride + (words - 1) * wordStride;
}

void checkPointers(int i, const moePayload_t& payload, int tokens, const moeDispatchArgs_t& args) {
  const char *in = kPayloadInputs[i], *out = kPayloadOutputs[i];
  if (tokens > 0) requirePointer(payload.in, in, "with tokens");
  if (args.outRowsMax > 0) requirePointer(payload.out, out, "with args.outRowsMax above 0");
  if (args.outRows == nullptr && payload.out != nullptr)
    refuse(fmt::format("{} is {}, but args.outRows is NULL", out, payload.out));
  requireAligned(payload.in, in, kWordBytes);
  requireAligned(payload.out, out, kWordBytes);
}

}  // namespace

void Handle::checkPayloads(const Call& call, const moeDispatchArgs_t& args) const {
  requireRange("args.payloadCount", args.payloadCount, 0, kPayloadsMax);
  if (args.payloadCount == 0) return;
  requirePointer(args.payloads, "args.payloads", "with args.payloadCount set");
  if (args.sideBytes != 0) {
    refuse(fmt::format("args.sideBytes is {}, but args.payloadCount {}: side payload is one or the other",
                       args.sideBytes, args.payloadCount));
  }
  std::int64_t bytes = 0;
  for (int i = 0; i < args.payloadCount; ++i) {
    const moePayload_t& payload = args.payloads[i];
    if (payload.size != sizeof(moePayload_t)) {
      refuse(fmt::format("{} is {}, must be {} (MOE_PAYLOAD_INITIALIZER)", nameOf(i, "size"), payload.size,
                         sizeof(moePayload_t)));
    }
    if (payload.bytes < 4 || payload.bytes % 4 != 0) {
      refuse(fmt::format("{} is {}, must be a multiple of 4, at least 4", nameOf(i, "bytes"), payload.bytes));
    }
    bytes += payload.bytes;
    checkPointers(i, payload, call.tokens, args);
  }
  const std::int64_t most = std::min(room_.shape.sideBytesMax, kPayloadBytesMax);
  if (roundUp(bytes, sizeof(Quad)) > most) {
    refuse(
        fmt::format("args.payloads have {} bytes for a row, padded to a multiple of 16; they must be at most {} "
                    "(config.sideBytesMax, and {})",
                    bytes, most, kPayloadBytesMax));
  }
}

PayloadArgs Handle::payloadArgs(const Call& call, const moeDispatchArgs_t& args) const {
  checkPayloads(call, args);
  PayloadArgs out{};
  out.count = args.payloadCount;
  int words = 0, byRows = 0;
  for (int i = 0; i < kPayloadsMax; ++i) {
    PayloadWords& payload = out.payload[i];
    payload.first = payload.end = INT_MAX;
    if (i >= args.payloadCount) continue;
    const moePayload_t& given = args.payloads[i];
    const int own = given.bytes / static_cast<int>(kWordBytes);
    payload.in = static_cast<const std::uint32_t*>(given.in);
    payload.inRowStride = strideOf(i, "inRowStride", given.inRowStride, own);
    payload.inWordStride = strideOf(i, "inWordStride", given.inWordStride, 1);
    payload.out = static_cast<std::uint32_t*>(given.out);
    payload.grid = payloadGrid(call, args, i);
    payload.first = words;
    payload.end = words += own;
    if (payload.grid.blocked != 0 || payload.grid.rowStride < payload.grid.wordStride) byRows += own;
  }
  out.byRows = 2 * byRows > words ? 1 : 0;
  return out;
}

ScaleGrid Handle::payloadGrid(const Call& call, const moeDispatchArgs_t& args, int i) const {
  const moePayload_t& payload = args.payloads[i];
  const int words = payload.bytes / static_cast<int>(kWordBytes);
  if (payload.outLayout < moeScalesRowMajor || payload.outLayout > moeScales128x4) {
    refuse(fmt::format("{} is {}, must be a moeScales value", nameOf(i, "outLayout"), payload.outLayout));
  }
  if (payload.outLayout == moeScales128x4) {
    if (payload.outRowStride != 0 || payload.outWordStride != 0) {
      refuse(fmt::format("{} is {} and outWordStride {}, but outLayout is moeScales128x4, which has its own",
                         nameOf(i, "outRowStride"), payload.outRowStride, payload.outWordStride));
    }
    return blockedGrid(call, words);
  }
  ScaleGrid grid = wordGrid(call, args.outRowsMax, payload.outLayout, words);
  grid.rowStride = strideOf(i, "outRowStride", payload.outRowStride, grid.rowStride);
  grid.wordStride = strideOf(i, "outWordStride", payload.outWordStride, grid.wordStride);
  if (grid.groupStride != 0) grid.groupStride = words * grid.wordStride;
  const std::int64_t rows = std::min<std::int64_t>(grid.group, args.outRowsMax);
  const bool apart =
      grid.rowStride > lastWord(1, 0, words, grid.wordStride) || grid.wordStride > lastWord(rows, grid.rowStride, 1, 0);
  if (rows > 1 && words > 1 && !apart) {
    refuse(fmt::format("{} of {} bytes and outWordStride of {}: words of {} rows of {} bytes share memory",
                       nameOf(i, "outRowStride"), grid.rowStride * kWordBytes, grid.wordStride * kWordBytes, rows,
                       payload.bytes));
  }
  return grid;
}

std::int64_t Handle::payloadOutBytes(const Call& call, const moeDispatchArgs_t& args, int i) const {
  const std::int64_t rows = std::min<std::int64_t>(args.outRowsMax, INT32_MAX);
  if (rows == 0) return 0;
  const ScaleGrid grid = payloadGrid(call, args, i);
  const std::int64_t words = args.payloads[i].bytes / kWordBytes;
  if (grid.blocked != 0) return blockedBytes(call, rows, words * kWordBytes);
  const std::int64_t inGroup = std::min<std::int64_t>(grid.group, rows);
  const std::int64_t groups = grid.groupStride == 0 ? 1 : shape_.map.count(room_.view.rank);
  return ((groups - 1) * grid.groupStride + lastWord(inGroup, grid.rowStride, words, grid.wordStride) + 1) * kWordBytes;
}

// On the wire, payloads are side payload. Without a cast, a row's codes are the row.
void Handle::placePayloads(const moeDispatchArgs_t& args, DispatchArgs* out) const {
  out->sideBytes = static_cast<std::uint32_t>(roundUp(out->payloads.words() * kWordBytes, sizeof(Quad)));
  for (int i = 0; i < out->payloads.count; ++i) {
    const PayloadWords& payload = out->payloads.payload[i];
    if (payload.grid.blocked != 0 && payload.out != nullptr) out->padding |= kPadScales;
  }
  if (out->cast.type == kNoCast) out->cast.codeBytes = out->rowBytes;
  out->cast.outScaleBlockOffsets = args.outScaleBlockOffsets;
}

// In LL a payload alone whose rows are one piece on both sides is an array, which goes faster. Peers see no difference:
// in slots both are side payload. In HT they would, where they store words to this rank's output.
void Handle::takePayloadAsArray(DispatchArgs* out) const {
  if (!lowLatency() || out->payloads.count != 1) return;
  const PayloadWords& payload = out->payloads.payload[0];
  const ScaleGrid& grid = payload.grid;
  const int words = payload.end;
  const bool inPieces = payload.inRowStride == words && payload.inWordStride == 1;
  const bool outPieces = grid.blocked == 0 && grid.groupStride == 0 && grid.rowStride == words && grid.wordStride == 1;
  const auto places = reinterpret_cast<std::uintptr_t>(payload.in) | reinterpret_cast<std::uintptr_t>(payload.out);
  if (!inPieces || !outPieces || words % kQuadWords != 0 || places % kRowAlignment != 0) return;
  out->side = reinterpret_cast<const std::uint8_t*>(payload.in);
  out->outSide = reinterpret_cast<std::uint8_t*>(payload.out);
  out->payloads = {};
}

Handle::PayloadExtents Handle::payloadInputs(const Call& call, const moeDispatchArgs_t& args) const {
  PayloadExtents inputs{};
  for (int i = 0; i < args.payloadCount; ++i) {
    const moePayload_t& payload = args.payloads[i];
    const std::int64_t words = payload.bytes / kWordBytes;
    const std::int64_t last = lastWord(call.tokens, strideOf(i, "inRowStride", payload.inRowStride, words), words,
                                       strideOf(i, "inWordStride", payload.inWordStride, 1));
    inputs[static_cast<std::size_t>(i)] = {kPayloadInputs[i], payload.in,
                                           call.tokens > 0 ? (last + 1) * kWordBytes : 0};
  }
  return inputs;
}

Handle::PayloadExtents Handle::payloadOutputs(const Call& call, const moeDispatchArgs_t& args) const {
  PayloadExtents outputs{};
  for (int i = 0; i < args.payloadCount; ++i) {
    outputs[static_cast<std::size_t>(i)] = {kPayloadOutputs[i], args.payloads[i].out, payloadOutBytes(call, args, i)};
  }
  return outputs;
}

}  // namespace moe
