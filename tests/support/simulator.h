// Deterministic simulation of a program. Each warp of each rank is a fiber, one runs at a time, and virtual time, drawn
// from a seed, decides which. Stores of policy operations wait in a buffer of their warp and land later, in any order,
// piece by piece. A release lets them land first. So a missing release, acknowledgement or wait becomes a wrong result,
// and the same seed repeats it. sim_warp.h is the policy; this file knows no protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/fiber.h"
#include "support/program.h"
#include "support/rng.h"

namespace moe::sim {

using test::Program;
using test::Rng;
using test::TestComm;

// What goes wrong in a world.
struct Faults {
  int deadRank = -1;          // stops for ever ...
  std::size_t deadTask = 0;   // ... in this task ...
  int deadPause = 0;          // ... at this pause of its warps
  std::uint64_t abortNs = 0;  // not 0: from this time on the ranks are told to give up, one after another
  int leaver = -1;            // leaves ...
  std::size_t leaveTask = 0;  // ... before this task
};

struct RankResult {
  bool finished = false;  // ran its whole program without a failure
  bool died = false;
  bool stopped = false;  // by the abort word
  bool left = false;     // before its program's end
  std::uint64_t endNs = 0;
  Failure failure{};
};

struct Outcome {
  std::string defect;  // empty, or what no world may show: a rank that never ends, a flag that goes back
  std::vector<RankResult> ranks;
  std::uint64_t events = 0;
};

class Simulator {
 public:
  Simulator(TestComm& comm, Program& program, std::uint64_t seed, Faults faults, bool trace);
  ~Simulator();

  Outcome run();

  // ---- For SimWarp, on the fiber of the running warp.
  void pause();                                                 // time passes; others may run
  void store(void* to, const void* from, std::uint32_t bytes);  // lands later
  void storeFlag(Flag* flag, Flag word);                        // the same, in one piece
  void addToFlag(Flag* flag, Flag share);                       // the same, added to what is there then
  void storeLanding(std::uint32_t* word, std::uint32_t value);  // a landing word: no release has to push it
  void drain();                                                 // all stores of this warp have landed
  void ring(std::uint64_t doorbell);                            // an adapter learns of it at some time
  void nap(int before);                                         // a longer pause, the more there were before
  std::uint64_t now() const { return now_; }
  // How a wait of this warp ends: `left` and `late` are told by who waits.
  enum class WaitEnd { reached, stopped, late, left };
  using RankOf = std::function<int()>;  // who is awaited at this time
  // If it is late or left, `*missing` is the first that has not reached the epoch: that of rank rankOf().
  WaitEnd wait(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, const RankOf& rankOf, int* missing);
  // The same for n consecutive landing words.
  WaitEnd waitLanding(const CommView& comm, const std::uint32_t* words, int n, const RankOf& rankOf);
  void wakeStopped(const CommView& comm);                                 // waits of this rank end
  void note(const char* what, const void* address, std::uint64_t value);  // trace

 private:
  struct Warp;
  struct Rank;
  struct Store;
  struct Queue;
  struct Parcel;
  enum class Kind : std::uint8_t { resume, land, deadline, startTask, abort, look, carry, complete, depart };
  struct Event {
    std::uint64_t time, order;
    Kind kind;
    std::uint32_t index, generation;
    bool operator<(const Event& other) const {  // for a heap with the earliest on top
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  void push(std::uint64_t time, Kind kind, std::uint32_t index, std::uint32_t generation = 0);
  Event pop();
  Warp* nextWarp();  // performs events until a warp is to run; null: the main loop has something to do
  void giveUp();     // the running warp lets others run
  void land(std::uint32_t index);
  void storeEagerly(void* to, const void* from, std::uint32_t bytes);
  void wakeWaiters(const void* landed);
  WaitEnd waitFor(const CommView& comm, const void* begin, std::size_t bytes, const std::function<bool()>& reached,
                  const RankOf& rankOf);
  void sleepUntil(std::uint64_t time);
  void makeQueues();
  bool adapterIsGone(const Queue& queue) const;
  void look(std::uint32_t queue);
  void execute(Queue& queue, std::uint64_t index);
  void addParcel(Queue& queue, const Put& put, std::uint64_t index, std::uint32_t begin, std::uint64_t time);
  void carry(std::uint32_t index);
  void finish(Queue& queue, std::uint64_t index);
  void complete(std::uint32_t queue);
  void checkGrowth(const Store& store);
  void runWarp(Warp& warp);  // on its fiber: one step, to the end
  void lookOn(Rank& rank);   // the same, of who looks on
  void startTask(Rank& rank);
  void endTask(Rank& rank);
  void endRank(Rank& rank);
  void kill(Rank& rank);
  void depart(int rank);
  bool hasPutsUnderWay(int rank) const;
  bool mayDie(Rank& rank);
  std::uint64_t pauseNs(const Warp& warp);
  std::uint64_t landingNs();

  TestComm& comm_;
  Program& program_;
  Rng rng_;
  Faults faults_;
  bool trace_;
  std::uint64_t now_ = 0, order_ = 0, events_ = 0;
  int laziness_;    // how often a store waits for a release
  bool slowWarps_;  // a warp may be far behind the others of its rank
  std::vector<Event> heap_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Store> stores_;
  std::vector<std::uint32_t> freeStores_;
  std::vector<Parcel> parcels_;
  std::vector<std::uint32_t> freeParcels_;
  std::vector<Queue> queues_;           // [from][to][connection]
  std::vector<mlx5::PutQueue> posted_;  // the same, as posters see them
  Event mainEvent_{};
  bool mainHasEvent_ = false;
  Warp* current_ = nullptr;
  bool someHaveLeft_ = false;
  std::string defect_;
  Fiber main_;
};

}  // namespace moe::sim
