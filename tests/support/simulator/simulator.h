// Deterministic simulation of a program. Each warp of each rank is a fiber. One runs at a time, and virtual time, drawn
// from a seed, decides which. Stores of policy operations wait in a buffer of their warp and land later, in any order,
// piece by piece. A release makes them land first. So a missing release, acknowledgement or wait becomes a wrong
// result, and the same seed repeats it. sim_warp.h is the policy. This file knows no protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/base/rng.h"
#include "support/programs/program.h"
#include "support/simulator/fiber.h"

namespace moe::sim {

using test::Program;
using test::Rng;
using test::TestComm;

// The mishaps of a world.
struct Faults {
  int deadRank = -1;          // this rank stops for ever ...
  std::size_t deadTask = 0;   // ... in this task ...
  int deadPause = 0;          // ... at this pause of its warps
  std::uint64_t abortNs = 0;  // if not 0, the ranks are told to give up from this time on, one after another ...
  std::uint64_t abortSpreadNs = 100'000;  // ... until this much later
  int leaver = -1;                        // this rank leaves ...
  std::size_t leaveTask = 0;              // ... before this task
  int lateRank = -1;                      // this rank comes late ...
  std::uint64_t lateNs = 0;               // ... by so much to each of its tasks; nothing else is slow
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
  std::string defect;  // an error that no world may show, such as a rank that never ends or a flag that goes back; else
                       // empty
  std::vector<RankResult> ranks;
  std::uint64_t events = 0;
  // Of steps that follow their predecessor by themselves: the most look-ups of a warp before it announced something.
  std::map<Step, int> lookUps;
};

class Simulator {
 public:
  Simulator(TestComm& comm, Program& program, std::uint64_t seed, Faults faults, bool trace);
  ~Simulator();

  Outcome run();

  // ---- For SimWarp, on the fiber of the running warp
  void pause();                                                 // time passes; others may run
  void store(void* to, const void* from, std::uint32_t bytes);  // lands later
  void storeFlag(Flag* flag, Flag word);                        // the same for a flag, in one piece
  void addToFlag(Flag* flag, Flag share);                       // the same, added to the flag's value
  void storeLanding(std::uint32_t* word, std::uint32_t value);  // a landing word, which lands without a release
  void drain();                                                 // makes all stores of this warp land
  void ring(std::uint64_t doorbell);                            // an adapter will see the doorbell at some time
  void nap(int before);                                         // a pause that grows with the number of naps before
  void awaitRoute();                                            // the route that this warp's dispatch follows has ended
  std::uint64_t now() const { return now_; }
  // How a wait of this warp ends. The waiting policy reports `left` and `late`.
  enum class WaitEnd { reached, stopped, late, left };
  struct Purpose {
    Phase phase;
    std::function<int()> rankOf;  // the rank that the wait is for at this time
  };
  // If the wait ends late or left, flags[*missing] is the first that has not reached the epoch, and purpose.rankOf() is
  // its rank.
  // cameIn(i, ns): flags[i] has come so long after the wait began.
  using CameIn = std::function<void(int, std::uint64_t)>;
  WaitEnd wait(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, const Purpose& purpose, int* missing,
               const CameIn& cameIn);
  // The same for n consecutive landing words.
  WaitEnd waitLanding(const CommView& comm, const std::uint32_t* words, int n, const Purpose& purpose);
  void wakeStopped(const CommView& comm);                                 // ends the waits of this rank
  void note(const char* what, const void* address, std::uint64_t value);  // trace
  // A look-up is an operation behind which the lanes of a warp meet, because the step depends on what they loaded.
  void beginLookUps();  // the step begins to look up
  void countLookUp();
  void endLookUps();  // the warp announces something

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
    bool operator<(const Event& other) const {  // the heap has the earliest event on top
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  void push(std::uint64_t time, Kind kind, std::uint32_t index, std::uint32_t generation = 0);
  Event pop();
  Warp* nextWarp();  // performs events until a warp is to run; null: the main loop has an event
  void giveUp();     // suspends the running warp
  void land(std::uint32_t index);
  void storeEagerly(void* to, const void* from, std::uint32_t bytes);
  void wakeWaiters(const void* landed);
  WaitEnd waitFor(const CommView& comm, const void* begin, std::size_t bytes, const std::function<bool()>& reached,
                  const Purpose& purpose);
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
  void runWarp(Warp& warp);  // on the warp's fiber: one step, to the end
  void runStep(Warp& warp, Rank& rank);
  bool runsRoute(const Warp& warp, const Rank& rank) const;
  void endRouting(Rank& rank);
  void lookOn(Rank& rank);  // the same for the warp that watches
  void startTask(Rank& rank);
  void startWarps(Rank& rank, const test::Task& task, int first);
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
  int laziness_;    // one store in this many waits for a release
  bool slowWarps_;  // a warp may be far slower than the others of its rank
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
  std::map<Step, int> lookUps_;
  Fiber main_;
};

}  // namespace moe::sim
