#include "fake_mlx5/pair_transition.h"

#include <cerrno>
#include <cstring>

namespace moe::test {
namespace {

// Bits of attr_mask, as in verbs.
constexpr std::uint32_t kState = 1 << 0, kAccess = 1 << 3, kPkey = 1 << 4, kPort = 1 << 5, kAddress = 1 << 7,
                        kMtu = 1 << 8, kTimeout = 1 << 9, kRetries = 1 << 10, kNotReadyRetries = 1 << 11,
                        kReceivePsn = 1 << 12, kReads = 1 << 13, kNotReadyTimer = 1 << 15, kSendPsn = 1 << 16,
                        kReadsOfPeer = 1 << 17, kPeer = 1 << 20;
constexpr unsigned kReadsMax = 16;

struct Step {
  PairState from, to;
  std::uint32_t required;
};
constexpr Step kSteps[] = {
    {PairState::reset, PairState::init, kPkey | kPort | kAccess},
    {PairState::init, PairState::init, 0},
    {PairState::init, PairState::readyToReceive, kAddress | kMtu | kPeer | kReceivePsn | kReadsOfPeer | kNotReadyTimer},
    {PairState::readyToReceive, PairState::readyToSend, kTimeout | kRetries | kNotReadyRetries | kSendPsn | kReads},
    {PairState::readyToSend, PairState::readyToSend, 0},
};

bool isAllowed(PairState from, PairState to, std::uint32_t mask) {
  if (to == PairState::reset || to == PairState::error) return true;
  for (const Step& step : kSteps) {
    if (step.from == from && step.to == to) return (mask & step.required) == step.required;
  }
  return false;
}

// How long the peer must wait when a receiver is not ready, by the code of the attribute, in units of 10 us.
constexpr std::uint32_t kNotReadyUnits[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                              48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                              2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

void keep(PairPath& path, const ib_uverbs_modify_qp& request) {
  const auto given = [&](std::uint32_t bit) { return (request.attr_mask & bit) != 0; };
  if (given(kAccess)) path.access = request.qp_access_flags;
  if (given(kPeer)) path.peer = request.dest_qp_num;
  if (given(kReceivePsn)) path.receivePsn = request.rq_psn & kPsnMask;
  if (given(kSendPsn)) path.sendPsn = request.sq_psn & kPsnMask;
  if (given(kReads)) path.reads = request.max_rd_atomic;
  if (given(kReadsOfPeer)) path.readsOfPeer = request.max_dest_rd_atomic;
  if (given(kRetries)) path.retries = request.retry_cnt;
  if (given(kNotReadyRetries)) path.notReadyRetries = request.rnr_retry;
  if (given(kNotReadyTimer)) path.retryNs = std::uint64_t{kNotReadyUnits[request.min_rnr_timer & 31]} * 10'000;
  if (given(kTimeout)) {
    path.timeoutCode = request.timeout;
    path.timeoutNs = request.timeout == 0 ? 0 : std::uint64_t{4096} << (request.timeout & 31);
  }
  if (given(kAddress)) {
    std::memcpy(path.peerGid.data(), request.dest.dgid, sizeof(request.dest.dgid));
    path.gidIndex = request.dest.sgid_index;
  }
}

}  // namespace

int modifyPair(QueuePair& pair, const ib_uverbs_modify_qp& request, Violations& violations) {
  const auto to = (request.attr_mask & kState) != 0 ? static_cast<PairState>(request.qp_state) : pair.state;
  if (!isAllowed(pair.state, to, request.attr_mask)) return EINVAL;
  // RoCE addresses always have the global part. A port of this adapter has two addresses (GIDs).
  if ((request.attr_mask & kAddress) != 0 && (request.dest.is_global == 0 || request.dest.sgid_index > 1))
    return EINVAL;
  if (request.max_rd_atomic > kReadsMax || request.max_dest_rd_atomic > kReadsMax) return EINVAL;
  if (to == PairState::reset) {
    pair.renew(violations);
    return 0;
  }
  keep(pair.path, request);
  if (to == PairState::readyToReceive && pair.state == PairState::init) pair.responder.expected = pair.path.receivePsn;
  if (to == PairState::readyToSend && !pair.maySend()) pair.requester.nextPsn = pair.path.sendPsn;
  pair.state = to;
  return 0;
}

ib_uverbs_query_qp_resp describePair(const QueuePair& pair) {
  ib_uverbs_query_qp_resp answer{};
  const PairPath& path = pair.path;
  answer.qp_state = answer.cur_qp_state = static_cast<__u8>(pair.state);
  answer.dest_qp_num = path.peer;
  answer.rq_psn = path.receivePsn;
  answer.sq_psn = path.sendPsn;
  answer.qp_access_flags = path.access;
  answer.max_rd_atomic = static_cast<__u8>(path.reads);
  answer.max_dest_rd_atomic = static_cast<__u8>(path.readsOfPeer);
  answer.timeout = static_cast<__u8>(path.timeoutCode);
  answer.retry_cnt = static_cast<__u8>(path.retries);
  answer.rnr_retry = static_cast<__u8>(path.notReadyRetries);
  answer.port_num = 1;
  answer.path_mtu = 5;
  std::memcpy(answer.dest.dgid, path.peerGid.data(), sizeof(answer.dest.dgid));
  answer.dest.sgid_index = static_cast<__u8>(path.gidIndex);
  answer.dest.is_global = 1;
  answer.dest.port_num = 1;
  return answer;
}

}  // namespace moe::test
