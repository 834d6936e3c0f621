// Posts one request in the three ways that are compared: ibv_post_send, ibv_wr_*, and our encoder.
#include <stdexcept>
#include <utility>

#include "device/policy/host/queue_memory.h"
#include "device/queue/mlx5/send_queue.h"
#include "fake_mlx5/oracle.h"
#include "fake_mlx5/other_wqes.h"

namespace moe::test {
namespace {

void check(int error, const char* what) {
  if (error != 0) throw std::runtime_error(std::string(what) + " failed");
}

unsigned verbsFlags(const Request& request) {
  unsigned flags = 0;
  if (request.flags & mlx5::kSignalled) flags |= IBV_SEND_SIGNALED;
  if (request.flags & mlx5::kSolicited) flags |= IBV_SEND_SOLICITED;
  if (request.flags & mlx5::kFenced) flags |= IBV_SEND_FENCE;
  if (request.kind == Kind::inlineWrite) flags |= IBV_SEND_INLINE;
  return flags;
}

ibv_sge sourceOf(const Request& request) {
  if (request.kind != Kind::inlineWrite) return {request.local.address, request.local.bytes, request.local.lkey};
  return {reinterpret_cast<std::uintptr_t>(request.words.data()), static_cast<std::uint32_t>(4 * request.words.size()),
          0};
}

ibv_wr_opcode verbsOpcode(Kind kind) {
  switch (kind) {
    case Kind::write:
    case Kind::inlineWrite:
      return IBV_WR_RDMA_WRITE;
    case Kind::writeImm:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Kind::read:
      return IBV_WR_RDMA_READ;
    case Kind::fetchAdd:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case Kind::compareSwap:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
  }
  return IBV_WR_SEND;
}

ibv_send_wr workRequest(const Request& request, std::uint64_t id, ibv_sge* source) {
  ibv_send_wr work{};
  work.wr_id = id;
  work.sg_list = source;
  work.num_sge = 1;
  work.opcode = verbsOpcode(request.kind);
  work.send_flags = verbsFlags(request);
  work.imm_data = request.immediate;
  if (request.kind == Kind::fetchAdd || request.kind == Kind::compareSwap) {
    work.wr.atomic.remote_addr = request.remote.address;
    work.wr.atomic.rkey = request.remote.rkey;
    work.wr.atomic.compare_add = request.kind == Kind::fetchAdd ? request.add : request.compare;
    work.wr.atomic.swap = request.swap;
  } else {
    work.wr.rdma.remote_addr = request.remote.address;
    work.wr.rdma.rkey = request.remote.rkey;
  }
  return work;
}

void postSend(ibv_qp* qp, const std::vector<Request>& batch, std::uint64_t firstId) {
  std::vector<ibv_sge> sources(batch.size());
  std::vector<ibv_send_wr> work(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    sources[i] = sourceOf(batch[i]);
    work[i] = workRequest(batch[i], firstId + i, &sources[i]);
    work[i].next = i + 1 < batch.size() ? &work[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  check(ibv_post_send(qp, work.data(), &bad), "ibv_post_send");
}

void buildOperation(ibv_qp_ex* qp, const Request& request) {
  const auto& [address, rkey] = request.remote;
  switch (request.kind) {
    case Kind::write:
    case Kind::inlineWrite:
      ibv_wr_rdma_write(qp, rkey, address);
      break;
    case Kind::writeImm:
      ibv_wr_rdma_write_imm(qp, rkey, address, request.immediate);
      break;
    case Kind::read:
      ibv_wr_rdma_read(qp, rkey, address);
      break;
    case Kind::fetchAdd:
      ibv_wr_atomic_fetch_add(qp, rkey, address, request.add);
      break;
    case Kind::compareSwap:
      ibv_wr_atomic_cmp_swp(qp, rkey, address, request.compare, request.swap);
      break;
  }
  const ibv_sge source = sourceOf(request);
  if (request.kind == Kind::inlineWrite) {
    ibv_wr_set_inline_data(qp, reinterpret_cast<void*>(source.addr), source.length);
  } else {
    ibv_wr_set_sge(qp, source.lkey, source.addr, source.length);
  }
}

void postBuilder(ibv_qp* qp, const std::vector<Request>& batch, std::uint64_t firstId) {
  ibv_qp_ex* builder = ibv_qp_to_qp_ex(qp);
  ibv_wr_start(builder);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    builder->wr_id = firstId + i;
    builder->wr_flags = verbsFlags(batch[i]);
    buildOperation(builder, batch[i]);
  }
  check(ibv_wr_complete(builder), "ibv_wr_complete");
}

// Calls body with an InlineWords of this many words. The number is a template argument there.
template <class Body, int kCount = 1>
void withInlineWords(const std::vector<std::uint32_t>& words, Body body) {
  if constexpr (kCount <= mlx5::kInlineWordsMax) {
    if (words.size() != kCount) return withInlineWords<Body, kCount + 1>(words, body);
    mlx5::InlineWords<kCount> data{};
    for (std::size_t i = 0; i < kCount; ++i) data.word[i] = words[i];
    body(data);
  }
}

// Calls body with the WQE of our encoder.
template <class Body>
void withWqe(const mlx5::WqeHead& head, const Request& r, Body body) {
  switch (r.kind) {
    case Kind::write:
      return body(mlx5::rdmaWrite(head, r.remote, r.local));
    case Kind::writeImm:
      return body(mlx5::rdmaWriteImm(head, r.remote, r.local, r.immediate));
    case Kind::read:
      return body(mlx5::rdmaRead(head, r.remote, r.local));
    case Kind::fetchAdd:
      return body(mlx5::fetchAdd(head, r.remote, r.add, r.local.address, r.local.lkey));
    case Kind::compareSwap:
      return body(mlx5::compareSwap(head, r.remote, r.compare, r.swap, r.local.address, r.local.lkey));
    case Kind::inlineWrite:
      return withInlineWords(r.words, [&](const auto& data) { body(mlx5::inlineWrite(head, r.remote, data)); });
  }
}

}  // namespace

void Oracle::postVerbs(Interface interface, const std::vector<Request>& batch) {
  (interface == Interface::postSend ? postSend : postBuilder)(verbs_.qp(), batch, nextId_);
}

void Oracle::postOwn(const std::vector<Request>& batch) {
  std::uint32_t slots = 0;
  for (const Request& request : batch) {
    withWqe({}, request, [&](const auto& wqe) { slots += static_cast<std::uint32_t>(wqe.kSlots); });
  }
  const HostQueueMemory memory;
  const WaitOrders orders{0, 1'000'000'000};
  const WaitLimit limit = {memory.nanoseconds(), &orders};
  const bool posted = mlx5::submit(memory, queue_, slots, limit, [&](std::uint64_t index) {
    for (const Request& request : batch) {
      withWqe(mlx5::headAt(queue_, index, request.flags), request, [&](const auto& wqe) {
        mlx5::writeWqe(memory, queue_, index, wqe);
        index += static_cast<std::uint32_t>(wqe.kSlots);
      });
    }
  });
  check(posted ? 0 : 1, "submit");
}

}  // namespace moe::test
