#include <fmt/format.h>

#include <algorithm>

#include "comm/handle/call_checks.h"
#include "comm/handle/combine_call.h"
#include "device/rows/row_math.h"
#include "device/rows/wire_row.h"
#include "device/view/ll_slots.h"

namespace moe {

static_assert(int{kWireRow} == int{moeWireRow} && int{kWireFp8} == int{moeWireFp8} &&
              int{kWireFp8Blocks} == int{moeWireFp8Block} && int{kWireNvfp4} == int{moeWireNvfp4} &&
              int{kWireLogfmt10} == int{moeWireLogfmt10});

void checkWire(const Handle& handle, const moeCombineArgs_t& args) {
  requireRange("args.wire", args.wire, moeWireRow, moeWireLogfmt10);
  if (args.wire == moeWireRow) return;
  if (args.hidden % kWireUnit != 0) {
    refuse(fmt::format("args.hidden is {}, must be a multiple of {} with args.wire", args.hidden, kWireUnit));
  }
  if (!handle.lowLatency() || args.rows == nullptr) return;
  const CommView& c = handle.room().view;
  const auto* slots = handle.room().base() + llSetOffset(c, handle.view(), c.at.llCombineRows, c.rowBytesMax);
  const auto* rows = static_cast<const std::uint8_t*>(args.rows);
  if (rows < slots || rows >= slots + std::int64_t{c.nranks} * c.llTokensMax * c.rowBytesMax) return;
  refuse(fmt::format("args.rows is {}, in moeHandleGetView's combineRows, but args.wire codes rows into that memory",
                     args.rows));
}

Parts wireParts(const Parts& parts, const CombineArgs& a) {
  const WireRow wire{a.wire, a.elements};
  const int units = a.elements / kWireUnit, most = wire.hasFactor() ? std::min(units, kWireFactors) : units;
  const int count = std::clamp(parts.count, 1, most), each = (units + count - 1) / count;
  const int elementSize = static_cast<int>(a.rowBytes) / a.elements;
  return {(units + each - 1) / each, static_cast<std::uint32_t>(each * kWireUnit * elementSize)};
}

}  // namespace moe
