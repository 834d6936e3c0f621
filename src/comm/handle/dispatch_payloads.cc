// The payloads of a dispatch: checks their arguments, and says where their words are.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <string>

#include "comm/handle/call_checks.h"
#include "comm/handle/dispatch_call.h"
#include "device/rows/cast_type.h"
#include "device/rows/row_math.h"
#include "device/view/terms.h"

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
    refuse(fmt::format("{} spans {} bytes, must be at most {}", nameOf(payload, field), words * kWordBytes,
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
  if (args.outRows != nullptr && args.outRowsMax > 0) requirePointer(payload.out, out, "with args.outRowsMax above 0");
  if (args.outRows == nullptr && payload.out != nullptr)
    refuse(fmt::format("{} is {}, but args.outRows is NULL", out, payload.out));
  requireAligned(payload.in, in, kWordBytes);
  requireAligned(payload.out, out, kWordBytes);
  if (payload.bytes < 4 || payload.bytes % 4 != 0) {
    refuse(fmt::format("{} is {}, must be a multiple of 4, at least 4", nameOf(i, "bytes"), payload.bytes));
  }
}

void checkArray(int i, const moePayload_t& payload, int count) {
  if (payload.outLayout != moePayloadArray) return;
  const std::string name = fmt::format("{} is {} (moePayloadArray), but ", nameOf(i, "outLayout"), payload.outLayout);
  if (count != 1) refuse(fmt::format("{}args.payloadCount is {}, must be 1 with moePayloadArray", name, count));
  if ((payload.inRowStride | payload.inWordStride | payload.outRowStride | payload.outWordStride) != 0)
    refuse(name + "a stride is not 0");
  if (payload.bytes % kRowAlignment != 0)
    refuse(fmt::format("{}its rows have {} bytes, must be a multiple of {}", name, payload.bytes, kRowAlignment));
  requireAligned(payload.in, kPayloadInputs[i], kRowAlignment);
  requireAligned(payload.out, kPayloadOutputs[i], kRowAlignment);
}

// Where the words of payload `i` are in the output.
ScaleGrid outputGrid(int i, const moePayload_t& payload, const OutputGrid& output) {
  const int words = payload.bytes / static_cast<int>(kWordBytes);
  if (payload.outLayout < moeScalesRowMajor || payload.outLayout > moePayloadArray) {
    refuse(fmt::format("{} is {}, must be a moeScales value or moePayloadArray", nameOf(i, "outLayout"),
                       payload.outLayout));
  }
  if (payload.outLayout == moePayloadArray) return output.ofWords(moeScalesRowMajor, words);
  if (payload.outLayout == moeScales128x4) {
    if (payload.outRowStride != 0 || payload.outWordStride != 0) {
      refuse(fmt::format("{} is {} and outWordStride {}, but outLayout moeScales128x4 takes no strides",
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
    refuse(fmt::format("{} is {} bytes and outWordStride {}, so words of {} rows of {} bytes share memory",
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

bool DispatchPayloads::areWords(const DispatchRequest& asked) {
  return asked.args.payloadCount != 0 && asked.payloads[0].outLayout != moePayloadArray;
}

DispatchPayloads::DispatchPayloads(const Handle& handle, const DispatchRequest& asked, const OutputGrid& grid,
                                   int tokens)
    : words_(areWords(asked)), array_(!words_) {
  for (PayloadWords& payload : args_.payload) payload.first = payload.end = INT_MAX;
  args_.count = asked.args.payloadCount;
  if (args_.count == 0) return;
  for (int i = 0; i < args_.count; ++i) {
    const moePayload_t& given = asked.payloads[static_cast<std::size_t>(i)];
    checkPointers(i, given, tokens, asked.args);
    checkArray(i, given, args_.count);
    take(i, given, grid, tokens);
  }
  args_.byRows = 2 * byRows_ > args_.words() ? 1 : 0;
  if (words_) array_ = handle.lowLatency() && isArrayInSlots();
  checkBytes(handle);
}

// Whether a payload is alone, and its rows are one piece on both sides. An array goes faster.
bool DispatchPayloads::isArrayInSlots() const {
  const PayloadWords& only = args_.payload[0];
  const int words = args_.words();
  const bool inPieces = only.inRowStride == words && only.inWordStride == 1;
  const bool outPieces =
      only.grid.blocked == 0 && only.grid.groupStride == 0 && only.grid.rowStride == words && only.grid.wordStride == 1;
  const auto places = reinterpret_cast<std::uintptr_t>(only.in) | reinterpret_cast<std::uintptr_t>(only.out);
  return args_.count == 1 && inPieces && outPieces && words % kQuadWords == 0 && places % kRowAlignment == 0;
}

void DispatchPayloads::checkBytes(const Handle& handle) const {
  std::int64_t bytes = 0;
  for (int i = 0; i < args_.count; ++i)
    bytes += std::int64_t{args_.payload[i].end - args_.payload[i].first} * kWordBytes;
  const int allowed = handle.room().shape.sideBytesMax;
  const std::int64_t most = array_ ? allowed : std::min(allowed, kPayloadBytesMax);
  if (roundUp(bytes, sizeof(Quad)) <= most) return;
  refuse(
      fmt::format("args.payloads have {} bytes for a row, padded to a multiple of 16; they must be at most {} "
                  "(config.sideBytesMax{})",
                  bytes, most, array_ ? "" : fmt::format(", and {}", kPayloadBytesMax)));
}

int DispatchPayloads::fingerprint() const {
  return words_ ? payloadFingerprint(args_) : 0;
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
void DispatchPayloads::place(std::int32_t* blockOffsets, DispatchArgs* out) const {
  if (args_.count == 0) return;
  out->sideBytes = static_cast<std::uint32_t>(roundUp(args_.words() * kWordBytes, sizeof(Quad)));
  if (array_) {
    out->side = reinterpret_cast<const std::uint8_t*>(args_.payload[0].in);
    out->outSide = reinterpret_cast<std::uint8_t*>(args_.payload[0].out);
    return;
  }
  out->payloads = args_;
  for (int i = 0; i < args_.count; ++i) {
    const PayloadWords& payload = args_.payload[i];
    if (payload.grid.blocked != 0 && payload.out != nullptr) out->padding |= kPadScales;
  }
  if (out->cast.type == kNoCast) out->cast.codeBytes = out->rowBytes;
  out->cast.outBlockOffsets = blockOffsets;
}

}  // namespace moe
