#include "comm/handle/dispatch_payloads.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <string>

#include "comm/handle/call_checks.h"
#include "device/rows/cast_type.h"

namespace moe {
namespace {

constexpr std::int64_t kWordBytes = sizeof(std::uint32_t);
constexpr int kPayloadBytesMax = 16384;  // so that items of all rows are counted in 31 bits
constexpr const char* kPayloadInputs[] = {"args.payloads[0].in", "args.payloads[1].in", "args.payloads[2].in",
                                          "args.payloads[3].in"};
constexpr const char* kPayloadOutputs[] = {"args.payloads[0].out", "args.payloads[1].out", "args.payloads[2].out",
                                           "args.payloads[3].out"};

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

void checkSize(int i, const moePayload_t& payload) {
  if (payload.size != sizeof(moePayload_t)) {
    refuse(fmt::format("{} is {}, must be {} (MOE_PAYLOAD_INITIALIZER)", nameOf(i, "size"), payload.size,
                       sizeof(moePayload_t)));
  }
  if (payload.bytes < 4 || payload.bytes % 4 != 0) {
    refuse(fmt::format("{} is {}, must be a multiple of 4, at least 4", nameOf(i, "bytes"), payload.bytes));
  }
}

void checkPayloads(const moeDispatchArgs_t& args, int tokens, int sideBytesMax) {
  requireRange("args.payloadCount", args.payloadCount, 0, kPayloadsMax);
  if (args.payloadCount == 0) return;
  requirePointer(args.payloads, "args.payloads", "with args.payloadCount set");
  if (args.sideBytes != 0) {
    refuse(fmt::format("args.sideBytes is {}, but args.payloadCount {}: side payload is one or the other",
                       args.sideBytes, args.payloadCount));
  }
  std::int64_t bytes = 0;
  for (int i = 0; i < args.payloadCount; ++i) {
    checkSize(i, args.payloads[i]);
    bytes += args.payloads[i].bytes;
    checkPointers(i, args.payloads[i], tokens, args);
  }
  const std::int64_t most = std::min(sideBytesMax, kPayloadBytesMax);
  if (roundUp(bytes, sizeof(Quad)) > most) {
    refuse(
        fmt::format("args.payloads have {} bytes for a row, padded to a multiple of 16; they must be at most {} "
                    "(config.sideBytesMax, and {})",
                    bytes, most, kPayloadBytesMax));
  }
}

// Where the words of payload `i` are in the output.
ScaleGrid outputGrid(int i, const moePayload_t& payload, const OutputGrid& output) {
  const int words = payload.bytes / static_cast<int>(kWordBytes);
  if (payload.outLayout < moeScalesRowMajor || payload.outLayout > moeScales128x4) {
    refuse(fmt::format("{} is {}, must be a moeScales value", nameOf(i, "outLayout"), payload.outLayout));
  }
  if (payload.outLayout == moeScales128x4) {
    if (payload.outRowStride != 0 || payload.outWordStride != 0) {
      refuse(fmt::format("{} is {} and outWordStride {}, but outLayout is moeScales128x4, which has its own",
                         nameOf(i, "outRowStride"), payload.outRowStride, payload.outWordStride));
    }
    return output.blocked(words);
  }
  ScaleGrid grid = output.ofWords(payload.outLayout, words);
  grid.rowStride = strideOf(i, "outRowStride", payload.outRowStride, grid.rowStride);
  grid.wordStride = strideOf(i, "outWordStride", payload.outWordStride, grid.wordStride);
  if (grid.groupStride != 0) grid.groupStride = words * grid.wordStride;
  const std::int64_t rows = std::min<std::int64_t>(grid.group, output.rowsMax());
  const bool apart =
      grid.rowStride > lastWord(1, 0, words, grid.wordStride) || grid.wordStride > lastWord(rows, grid.rowStride, 1, 0);
  if (rows > 1 && words > 1 && !apart) {
    refuse(fmt::format("{} of {} bytes and outWordStride of {}: words of {} rows of {} bytes share memory",
                       nameOf(i, "outRowStride"), grid.rowStride * kWordBytes, grid.wordStride * kWordBytes, rows,
                       payload.bytes));
  }
  return grid;
}

std::int64_t outputBytes(const ScaleGrid& grid, std::int64_t words, const OutputGrid& output) {
  const std::int64_t rows = output.rows();
  if (rows == 0) return 0;
  if (grid.blocked != 0) return output.blockedBytes(words * kWordBytes);
  const std::int64_t inGroup = std::min<std::int64_t>(grid.group, rows);
  const std::int64_t groups = grid.groupStride == 0 ? 1 : output.experts();
  return ((groups - 1) * grid.groupStride + lastWord(inGroup, grid.rowStride, words, grid.wordStride) + 1) * kWordBytes;
}

}  // namespace

DispatchPayloads::DispatchPayloads(const moeDispatchArgs_t& args, const OutputGrid& grid, int tokens,
                                   int sideBytesMax) {
  checkPayloads(args, tokens, sideBytesMax);
  for (PayloadWords& payload : args_.payload) payload.first = payload.end = INT_MAX;
  args_.count = args.payloadCount;
  if (args_.count == 0) return;
  for (int i = 0; i < args_.count; ++i) take(i, args.payloads[i], grid, tokens);
  args_.byRows = 2 * byRows_ > args_.words() ? 1 : 0;
}

void DispatchPayloads::take(int i, const moePayload_t& given, const OutputGrid& grid, int tokens) {
  const int words = given.bytes / static_cast<int>(kWordBytes);
  const std::size_t at = static_cast<std::size_t>(i);
  PayloadWords& payload = args_.payload[i];
  payload.in = static_cast<const std::uint32_t*>(given.in);
  payload.inRowStride = strideOf(i, "inRowStride", given.inRowStride, words);
  payload.inWordStride = strideOf(i, "inWordStride", given.inWordStride, 1);
  payload.out = static_cast<std::uint32_t*>(given.out);
  payload.grid = outputGrid(i, given, grid);
  payload.first = i == 0 ? 0 : args_.payload[i - 1].end;
  payload.end = payload.first + words;
  if (payload.grid.blocked != 0 || payload.grid.rowStride < payload.grid.wordStride) byRows_ += words;
  const std::int64_t last = lastWord(tokens, payload.inRowStride, words, payload.inWordStride);
  inputs_[at] = {kPayloadInputs[i], given.in, tokens > 0 ? (last + 1) * kWordBytes : 0};
  outputs_[at] = {kPayloadOutputs[i], given.out, outputBytes(payload.grid, words, grid)};
}

// Without a cast, a row's codes are the row.
void placePayloads(const moeDispatchArgs_t& args, DispatchArgs* out) {
  out->sideBytes = static_cast<std::uint32_t>(roundUp(out->payloads.words() * kWordBytes, sizeof(Quad)));
  for (int i = 0; i < out->payloads.count; ++i) {
    const PayloadWords& payload = out->payloads.payload[i];
    if (payload.grid.blocked != 0 && payload.out != nullptr) out->padding |= kPadScales;
  }
  if (out->cast.type == kNoCast) out->cast.codeBytes = out->rowBytes;
  out->cast.outScaleBlockOffsets = args.outScaleBlockOffsets;
}

void takePayloadAsArray(DispatchArgs* out) {
  if (out->payloads.count != 1) return;
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

}  // namespace moe
