// What the tests of moeCommDisconnect and moeCommReconnect share.
#pragma once

#include "support/api/meeting.h"
#include "support/api/sleep_world.h"

namespace moe::test {

inline void fallAsleep(RankContext& context) {
  MOE_ASSERT_OK(moeCommSuspend(context.comm), context);
  MOE_ASSERT_OK(moeCommDisconnect(context.comm), context);
}
inline void wakeUp(RankContext& context) {
  const moeUniqueId_t id = newId(context);
  MOE_ASSERT_OK(moeCommReconnect(context.comm, &id), context);
  MOE_ASSERT_OK(moeCommResume(context.comm), context);
}

}  // namespace moe::test
