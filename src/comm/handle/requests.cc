#include "comm/handle/requests.h"

#include <fmt/format.h>

#include "base/sized_struct.h"
#include "comm/handle/call_checks.h"

namespace moe {
namespace {

constexpr const char* kPayloadNames[] = {"args.payloads[0]", "args.payloads[1]", "args.payloads[2]",
                                         "args.payloads[3]"};

template <class T>
void readOptional(const T* user, const char* name, T* own) {
  if (user != nullptr) *own = readStruct(user, name, *own);
}

// The caller's structs are as far apart as its version of the header has made them.
void readPayloads(const moeDispatchArgs_t& args, std::array<moePayload_t, kPayloadsMax>* own) {
  requireRange("args.payloadCount", args.payloadCount, 0, kPayloadsMax);
  if (args.payloadCount == 0) return;
  requirePointer(args.payloads, "args.payloads", "with args.payloadCount set");
  checkStructSize(args.payloads, kPayloadNames[0]);
  const std::size_t each = args.payloads->size;
  const auto* bytes = reinterpret_cast<const unsigned char*>(args.payloads);
  const moePayload_t defaults = MOE_PAYLOAD_INITIALIZER;
  for (std::size_t i = 0; i < static_cast<std::size_t>(args.payloadCount); ++i) {
    const auto* user = reinterpret_cast<const moePayload_t*>(bytes + i * each);
    if (user->size != each)
      refuse(fmt::format("{}.size is {}, must be that of the first payload, {}", kPayloadNames[i], user->size, each));
    (*own)[i] = readStruct(user, kPayloadNames[i], defaults);
  }
}

}  // namespace

DispatchRequest::DispatchRequest(const moeDispatchArgs_t* user)
    : args(readStruct(user, "args", moeDispatchArgs_t MOE_DISPATCH_ARGS_INITIALIZER)) {
  if ((args.flags & moeRefused) != 0) return;
  readOptional(args.cast, "args.cast", &cast);
  readOptional(args.describe, "args.describe", &describe);
  readPayloads(args, &payloads);
}

CombineRequest::CombineRequest(const moeCombineArgs_t* user)
    : args(readStruct(user, "args", moeCombineArgs_t MOE_COMBINE_ARGS_INITIALIZER)) {
  if ((args.flags & moeRefused) != 0) return;
  readOptional(args.grads, "args.grads", &grads);
  readOptional(args.ready, "args.ready", &ready);
}

}  // namespace moe
