// The suite for every transport, by verbs and by ibgda over the adapter in software, which must have reported no
// mistake.
#include "transport/transport_suite.h"

#include "rdma/rdma_world.h"

namespace moe::test {
namespace {

template <int kKind>
MemberOptions over() {
  return overRdma(nullptr, kKind);
}

INSTANTIATE_TEST_SUITE_P(Verbs, AnyTransport, testing::Values(TransportCase{"verbs", over<moeTransportVerbs>}));
INSTANTIATE_TEST_SUITE_P(Ibgda, AnyTransport, testing::Values(TransportCase{"ibgda", over<moeTransportIbgda>}));

}  // namespace
}  // namespace moe::test
