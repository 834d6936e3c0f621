// The software adapters of a process: the objects that programs have made on them, and the steps that they run. This
// class has no threads and no locks; engine.h has them. fake_kernel.h translates the program's commands into calls of
// this class.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <map>
#include <memory>
#include <string>

#include "fake_mlx5/doorbells.h"
#include "fake_mlx5/queue_pair.h"

namespace moe::test {

struct AdapterSettings {
  std::string folder;  // folder of the sockets; empty: the adapter executes nothing
  std::string faults;
  const char* report = nullptr;
};

class Adapter {
 public:
  explicit Adapter(const AdapterSettings& settings);  // throws std::runtime_error

  std::uint32_t newHandle() { return ++handle_; }
  Doorbells& doorbells() { return doorbells_; }
  Violations& violations() { return violations_; }
  // Counts of each mishap, of messages that were sent again ("resent"), of work elements ("wqes"; for one device
  // "wqes_0"), and of doorbells taken ("doorbells"). Two doorbells that ring between two looks of the adapter count as
  // one.
  std::map<std::string, std::uint64_t> counts() const;
  Wire* wire() { return wire_.get(); }
  bool executes() const { return wire_ != nullptr; }

  // ---- Objects. Functions that return int return 0 or an errno value.

  void closeContext(int context);  // frees and reports what still belongs to it

  std::uint32_t allocatePd(int context);
  int freePd(std::uint32_t handle);

  std::uint32_t registerMemory(Region region);  // returns the key
  void deregisterMemory(std::uint32_t handle);

  struct CompletionLayout {
    int context;
    std::uint32_t handle, number, count;
    std::uint64_t buffer, record;
  };
  void createCq(const CompletionLayout& layout);
  int destroyCq(std::uint32_t handle);

  // The numbers of the queue pair and of its doorbell register.
  struct NewPair {
    std::uint32_t number, doorbell;
  };
  int createPair(PairLayout layout, std::uint32_t sendCq, std::uint32_t receiveCq, NewPair* made);
  int modify(const ib_uverbs_modify_qp& request);
  int query(std::uint32_t handle, ib_uverbs_query_qp_resp* answer);
  int destroyPair(std::uint32_t handle);

  // ---- Steps

  bool step();      // true if there was something to do
  void sendRest();  // sends what peers are owed, for a moment

 private:
  struct Cq {
    CompletionLayout layout;
    CompletionRing ring;
  };
  QueuePair* findPair(std::uint32_t handle);
  bool takeDoorbells();
  void ring(int context, std::uint64_t value, const std::vector<std::uint32_t>& sharers);
  bool takePackets();
  void route(const Packet& packet);
  bool stepPair(QueuePair& pair);
  void removePair(std::map<std::uint32_t, QueuePair>::iterator pair);
  std::uint32_t process() const { return wire_ == nullptr ? 0x10 : wire_->process(); }

  std::unique_ptr<Wire> wire_;
  Violations violations_;
  FaultPlan faults_;
  Station station_{faults_, violations_, {}, Landing(faults_), nullptr, 0, 0, {}};
  Doorbells doorbells_;
  std::uint64_t doorbellsTaken_ = 0;
  std::uint32_t handle_ = 0, pairsMade_ = 2, keysMade_ = 0;
  std::map<std::uint32_t, int> pds_;          // handle to context
  std::map<std::uint32_t, Cq> cqs_;           // by handle
  std::map<std::uint32_t, QueuePair> pairs_;  // by number
};

}  // namespace moe::test
