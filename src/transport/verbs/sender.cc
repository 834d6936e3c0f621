#include "transport/verbs/sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace moe::verbs {
namespace {

constexpr int kCompletionsPerPoll = 32;

// A request's id: the queue in the upper bits, the number below.
constexpr int kNumberBits = 48;
constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kNumberBits) - 1;

// Whether [offset, offset + bytes) lies within `size`.
bool liesWithin(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
  return bytes <= size && offset <= size - bytes;
}

}  // namespace

SendFailure describeFailure(int rank, const char* status, const ibv_wc& completion) {
  if (completion.status == IBV_WC_WR_FLUSH_ERR) return refusedHere(rank, completion.qp_num);
  return {moeRemoteError,
          fmt::format("RDMA write to rank {} failed: {} (queue pair {:#x}, vendor error {:#x})", rank, status,
                      completion.qp_num, completion.vendor_err),
          rank};
}

Sender::Sender(const Adapter& adapter, SendSource source, ibv_cq* completions, int depth, int nranks, int connections)
    : adapter_(adapter),
      source_(source),
      completions_(completions),
      depth_(depth),
      connections_(connections),
      indexOf_(placeOf(nranks, 0, connections), -1) {}

void Sender::add(PeerQueue queue) {
  indexOf_[placeOf(queue.rank, queue.connection, connections_)] = static_cast<int>(queues_.size());
  queues_.push_back(std::move(queue));
  budgets_.emplace_back(depth_);
  chains_.emplace_back();
  touched_.reserve(std::min(queues_.size(), kChain));  // so that posting does not allocate
}

int Sender::rankOf(std::uint32_t queueNumber) const {
  const auto found = std::find_if(queues_.begin(), queues_.end(),
                                  [queueNumber](const auto& queue) { return queue.pair->qp_num == queueNumber; });
  return found == queues_.end() ? -1 : found->rank;
}

bool Sender::mayPost(const Put& put, std::size_t queue) const {
  const std::uint64_t bytes = put.bytes == 0 ? kWordBytes : put.bytes;
  return liesWithin(put.target, bytes, queues_[queue].windowBytes) &&
         (put.bytes == 0 || liesWithin(put.source, bytes, source_.bytes));
}

bool Sender::offer(Put* put) {
  const std::size_t place = placeOf(put->to, put->connection % connections_, connections_);
  const int index = place < indexOf_.size() ? indexOf_[place] : -1;
  const auto queue = static_cast<std::size_t>(index);
  if (index < 0 || !mayPost(*put, queue)) {
    fail({moeInternalError, fmt::format("a put of {} bytes to rank {} at {} is outside of that rank's window",
                                        put->bytes, put->to, put->target)});
    return true;
  }
  if (put->bytes == 0) {
    if (!hasRoom(queue)) return false;
    offerWord(queue, *put);
    return true;
  }
  while (put->bytes > 0) {
    if (!hasRoom(queue)) return false;
    offerPiece(queue, put);
  }
  return true;
}

void Sender::offerWord(std::size_t queue, const Put& put) {
  Request& request = append(queue);
  const PeerQueue& peer = queues_[queue];
  request.word = put.source;
  request.piece = {reinterpret_cast<std::uint64_t>(&request.word), kWordBytes, 0};
  request.work.sg_list = &request.piece;
  request.work.num_sge = 1;
  request.work.send_flags = IBV_SEND_INLINE;
  request.work.wr.rdma = {peer.window + put.target, peer.rail.wordKey};
  signal(queue, request);
}

// Offers as much of the put as one message carries.
void Sender::offerPiece(std::size_t queue, Put* put) {
  Request& request = append(queue);
  const PeerQueue& peer = queues_[queue];
  const std::uint32_t bytes = std::min(put->bytes, adapter_.limits().messageBytes);
  request.piece = {reinterpret_cast<std::uint64_t>(source_.window) + put->source, bytes, source_.key};
  request.work.sg_list = &request.piece;
  request.work.num_sge = 1;
  request.work.wr.rdma = {peer.window + put->target, peer.rail.dataKey};
  if (budgets_[queue].signalDue()) signal(queue, request);
  put->source += bytes;
  put->target += bytes;
  put->bytes -= bytes;
}

void Sender::probe(std::size_t queue) {
  Request& request = append(queue);
  const PeerQueue& peer = queues_[queue];
  request.work.wr.rdma = {peer.window, peer.rail.wordKey};
  signal(queue, request);
}

Sender::Request& Sender::append(std::size_t queue) {
  Request& request = requests_[count_++];
  request = {};
  request.work.wr_id = queue << kNumberBits | budgets_[queue].take();
  request.work.opcode = IBV_WR_RDMA_WRITE;
  Chain& chain = chains_[queue];
  if (chain.first == nullptr) {
    chain.first = &request;
    touched_.push_back(queue);
  } else {
    chain.last->work.next = &request.work;
  }
  chain.last = &request;
  return request;
}

void Sender::signal(std::size_t queue, Request& request) {
  request.work.send_flags |= IBV_SEND_SIGNALED;
  budgets_[queue].signalLast();
}

void Sender::flush() {
  for (const std::size_t queue : touched_) post(queue);
  touched_.clear();
  count_ = 0;
}

// Signals the last request of a chain, so that sooner or later everything posted is known to be done.
void Sender::post(std::size_t queue) {
  Chain& chain = chains_[queue];
  signal(queue, *chain.last);
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(queues_[queue].pair.get(), &chain.first->work, &bad);
  chain = {};
  if (error == 0) return;
  const int rank = queues_[queue].rank;
  fail({moeSystemError,
        fmt::format("cannot post RDMA writes to rank {}: {} (queue pair {:#x})", rank, std::strerror(error),
                    queues_[queue].pair->qp_num),
        rank});
}

bool Sender::poll() {
  std::array<ibv_wc, kCompletionsPerPoll> found;
  const int count = ibv_poll_cq(completions_, kCompletionsPerPoll, found.data());
  if (count < 0) fail({moeSystemError, adapter_.name() + ": the completion queue cannot be read"});
  for (int i = 0; i < count; ++i) complete(found[static_cast<std::size_t>(i)]);
  return count > 0;
}

void Sender::complete(const ibv_wc& completion) {
  const auto queue = static_cast<std::size_t>(completion.wr_id >> kNumberBits);
  budgets_[queue].complete(completion.wr_id & kNumberMask);
  if (completion.status == IBV_WC_SUCCESS) return;
  fail(describeFailure(queues_[queue].rank, adapter_.library().statusText(completion.status), completion));
}

int Sender::waitsFor() const {
  const auto busy = std::find_if(budgets_.begin(), budgets_.end(), [](const auto& budget) { return !budget.idle(); });
  return busy == budgets_.end() ? -1 : queues_[static_cast<std::size_t>(busy - budgets_.begin())].rank;
}

void Sender::fail(SendFailure failure) {
  if (!failure_) failure_ = std::move(failure);
}

}  // namespace moe::verbs
