// A queue pair and a completion queue that libmlx5 made on the first device, and their addresses in memory.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <infiniband/mlx5dv.h>

namespace moe::test {

class VerbsQueue {
 public:
  VerbsQueue();  // throws std::runtime_error

  ibv_qp* qp() const { return qp_.get(); }
  ibv_cq* cq() const { return cq_.get(); }
  const mlx5dv_qp& send() const { return send_; }
  const mlx5dv_cq& completions() const { return completions_; }
  std::uint8_t* memory() { return memory_.data(); }
  std::size_t memoryBytes() const { return memory_.size(); }
  std::uint32_t lkey() const { return region_->lkey; }

 private:
  template <class Object, int (*kDestroy)(Object*)>
  struct Destroy {
    void operator()(Object* object) const { kDestroy(object); }
  };
  template <class Object, int (*kDestroy)(Object*)>
  using Owner = std::unique_ptr<Object, Destroy<Object, kDestroy>>;

  void createQueuePair();
  void makeReadyToSend();

  std::vector<std::uint8_t> memory_;
  Owner<ibv_context, ibv_close_device> context_;
  Owner<ibv_pd, ibv_dealloc_pd> pd_;
  Owner<ibv_mr, ibv_dereg_mr> region_;
  Owner<ibv_cq, ibv_destroy_cq> cq_;
  Owner<ibv_qp, ibv_destroy_qp> qp_;
  mlx5dv_qp send_{};
  mlx5dv_cq completions_{};
};

}  // namespace moe::test
