// Posters that make mistakes through libibverbs and the queues of libmlx5. Each makes one mistake between two queue
// pairs of one process. The adapter reports it, and the program prints the status of completions.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "rdma/process_scenarios.h"

extern "C" {  // functions of the leak checker
void __lsan_disable() __attribute__((weak));
void __lsan_enable() __attribute__((weak));
}

namespace moe::test {
namespace {

constexpr std::uint32_t kPsn = 77;

constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct Registered {
  Registered(ibv_pd* pd, void* memory, std::size_t bytes, int access) : region(ibv_reg_mr(pd, memory, bytes, access)) {
    check(region != nullptr, "ibv_reg_mr");
  }
  ~Registered() { ibv_dereg_mr(region); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  ibv_mr* region;
};

// Mistakes in the setup, before anything is posted.
struct Setup {
  LinkSettings sender, receiver;
  std::uint32_t receiverPsn = kPsn;  // the first PSN that the sender is told to use
  union ibv_gid gid {};              // if not zero, replaces the device's address
  bool connected = true;
};

class Workbench {
 public:
  explicit Workbench(Setup setup)
      : sender_(device_.context, device_.pd, setup.sender), receiver_(device_.context, device_.pd, setup.receiver) {
    union ibv_gid gid = device_.gid;
    if (setup.gid.global.interface_id != 0) gid = setup.gid;
    if (!setup.connected) return;
    receiver_.connect(sender_.queuePair(), device_.gid, kPsn, setup.receiverPsn);
    sender_.connect(receiver_.queuePair(), gid, kPsn, kPsn);
  }

  Device& device() { return device_; }
  Link& sender() { return sender_; }
  const mlx5::SendQueue& queue() const { return sender_.queue(); }
  std::uint64_t* words() { return words_; }
  std::uint64_t wordAddress(int i) const { return reinterpret_cast<std::uintptr_t>(&words_[i]); }
  mlx5::LocalRange local() const { return {wordAddress(0), region_.region->lkey, 8}; }
  mlx5::RemoteAddress remote() const { return {wordAddress(1), region_.region->rkey}; }

  // The steps of send_queue.h by hand, in any order.
  void write(std::uint64_t index) { writeAs(index, mlx5::headAt(queue(), index, mlx5::kSignalled)); }
  void writeAs(std::uint64_t index, const mlx5::WqeHead& head) {
    mlx5::writeWqe(HostQueueMemory(), queue(), index, mlx5::inlineWrite(head, remote(), mlx5::inlineFlag(7)));
  }
  void record(std::uint64_t end, int word = mlx5::kSendRecord) {
    HostQueueMemory().storeRecord(queue().record + word, mlx5::sendRecord(end));
  }
  void ring(std::uint64_t end, std::uint32_t pair) {
    HostQueueMemory().ring(queue().doorbell, mlx5::doorbellValue(pair, end));
  }
  void tell(std::uint64_t end) { record(end), ring(end, queue().queuePair); }

  // Posts an operation and prints the status of its completion.
  void postAndPrint(const Operation& operation) {
    sender_.post(operation);
    std::printf("completes with %02x\n", static_cast<unsigned>(sender_.next().syndrome));
  }
  Operation writeOperation() const {
    Operation operation;
    operation.local = local();
    operation.remote = remote();
    return operation;
  }

 private:
  Device device_{0};
  alignas(64) std::uint64_t words_[64] = {};
  Registered region_{device_.pd, words_, sizeof(words_), kAccess};
  Link sender_, receiver_;
};

// Gives the adapter time to see what was done by hand.
void letAdapterLook() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// ---- By hand

void handDoorbellBeforeRecord(Workbench& bench) {
  bench.write(0);
  bench.ring(1, bench.queue().queuePair);
}
void handRecordOfTheReceiveQueue(Workbench& bench) {
  bench.write(0);
  bench.record(1, 0);
  bench.ring(1, bench.queue().queuePair);
}
void handOtherQueuePairInDoorbell(Workbench& bench) {
  bench.write(0);
  bench.record(1);
  bench.ring(1, 0x999);
}
void handWrongIndex(Workbench& bench) {
  bench.writeAs(0, mlx5::headAt(bench.queue(), 1, mlx5::kSignalled));
  bench.tell(1);
}
void handWrongQueuePair(Workbench& bench) {
  bench.writeAs(0, {bench.queue().queuePair ^ 1, 0, mlx5::kSignalled});
  bench.tell(1);
}
void handReservedWord(Workbench& bench) {
  bench.write(0);
  mlx5::segmentAt(bench.queue(), 0, 1)->w = 1;
  bench.tell(1);
}
// The second WQE is never written. Its slot still holds a WQE that was executed one round before.
void handDoorbellBeforeWqe(Workbench& bench) {
  for (std::uint64_t i = 0; i < bench.queue().slotCount; ++i) {
    bench.write(i);
    bench.tell(i + 1);
    bench.sender().next();
  }
  bench.tell(bench.queue().slotCount + 1);
}
void handTooMany(Workbench& bench) {
  for (std::uint64_t i = 0; i <= bench.queue().slotCount; ++i) bench.write(i);
  bench.tell(bench.queue().slotCount + 1);
}
void handUnsignalledTooMany(Workbench& bench) {
  for (std::uint64_t i = 0; i <= bench.queue().slotCount; ++i) {
    bench.writeAs(i, mlx5::headAt(bench.queue(), i, 0));
    bench.tell(i + 1);
    if (i % 16 == 0) letAdapterLook();
  }
}
// Plays a WQE whose last store arrives long after the others.
void handLateWrite(Workbench& bench) {
  Done done;
  for (std::uint64_t turn = 0; turn < 1000; ++turn) {
    bench.write(turn);
    bench.tell(turn + 1);
    for (std::uint32_t i = 0; !bench.sender().poll(&done); ++i) mlx5::segmentAt(bench.queue(), turn, 2)->y = i;
  }
}
void handCompletionsNotTaken(Workbench& bench) {
  for (std::uint64_t i = 0; i < 16; ++i) {
    bench.write(i);
    bench.tell(i + 1);
  }
}

Setup byHand() {
  Setup setup;
  setup.sender.byQueues = true;
  return setup;
}
Setup slowByHand() {
  Setup setup = byHand();
  setup.sender.completions = 7;
  return setup;
}
Setup notConnected() {
  Setup setup = byHand();
  setup.connected = false;
  return setup;
}

// ---- Wrong keys, ranges, rights and connections, which the adapter refuses

void postWrongLkey(Workbench& bench) {
  Operation operation = bench.writeOperation();
  operation.local.lkey ^= 0x100;
  bench.postAndPrint(operation);
}
void postWrongRkey(Workbench& bench) {
  Operation operation = bench.writeOperation();
  operation.remote.rkey ^= 0x100;
  bench.postAndPrint(operation);
}
void postBeyondTheRange(Workbench& bench) {
  Operation operation = bench.writeOperation();
  operation.remote.address += sizeof(std::uint64_t) * 64 - 8;
  bench.postAndPrint(operation);
}
void postLkeyOfAnotherDomain(Workbench& bench) {
  ibv_pd* pd = ibv_alloc_pd(bench.device().context);
  {
    const Registered other(pd, bench.words(), 64, IBV_ACCESS_LOCAL_WRITE);
    Operation operation = bench.writeOperation();
    operation.local.lkey = other.region->lkey;
    bench.postAndPrint(operation);
  }
  ibv_dealloc_pd(pd);
}
void postRkeyOfAnotherDomain(Workbench& bench) {
  ibv_pd* pd = ibv_alloc_pd(bench.device().context);
  {
    const Registered other(pd, bench.words(), 64, kAccess);
    Operation operation = bench.writeOperation();
    operation.remote.rkey = other.region->rkey;
    bench.postAndPrint(operation);
  }
  ibv_dealloc_pd(pd);
}
void postToReadOnlyMemory(Workbench& bench) {
  const Registered other(bench.device().pd, bench.words(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  Operation operation = bench.writeOperation();
  operation.remote.rkey = other.region->rkey;
  bench.postAndPrint(operation);
}
void postReadIntoReadOnlyMemory(Workbench& bench) {
  const Registered other(bench.device().pd, bench.words(), 64, 0);
  Operation operation = bench.writeOperation();
  operation.opcode = mlx5::Opcode::rdmaRead;
  operation.local.lkey = other.region->lkey;
  bench.postAndPrint(operation);
}
void postDeregisteredMemory(Workbench& bench) {
  Operation operation = bench.writeOperation();
  {
    const Registered other(bench.device().pd, bench.words(), 64, kAccess);
    operation.remote.rkey = other.region->rkey;
  }
  bench.postAndPrint(operation);
}
void postUnalignedAtomic(Workbench& bench) {
  Operation operation = bench.writeOperation();
  operation.opcode = mlx5::Opcode::fetchAdd;
  operation.remote.address += 4;
  bench.postAndPrint(operation);
}
void postWrite(Workbench& bench) {
  bench.postAndPrint(bench.writeOperation());
}
void postRead(Workbench& bench) {
  Operation operation = bench.writeOperation();
  operation.opcode = mlx5::Opcode::rdmaRead;
  bench.postAndPrint(operation);
}

Setup plain() {
  return {};
}
Setup impatient() {
  Setup setup;
  setup.sender.timeout = 10;
  setup.sender.retries = 2;
  return setup;
}
Setup receiverTakesNoWrites() {
  Setup setup;
  setup.receiver.access = IBV_ACCESS_REMOTE_READ;
  return setup;
}
Setup receiverTakesFewReads() {
  Setup setup;
  setup.receiver.readsOfPeer = 1;
  return setup;
}
Setup otherPsn() {
  Setup setup = impatient();
  setup.receiverPsn = kPsn + 5;
  return setup;
}
Setup otherAddress() {
  Setup setup = impatient();
  setup.gid.raw[15] = 9;
  return setup;
}

// This is no mistake. The child of a fork opens the device anew and has its own adapter, whatever the parent's adapter
// was doing at that moment.
void forkAndPost(Workbench& bench) {
  for (int i = 0; i < 16; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      {
        Workbench own(plain());
        postWrite(own);
      }
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    check(waitpid(child, &status, 0) == child && status == 0, "the child of the fork");
  }
  postWrite(bench);
}

// Closes a device before the objects that belong to it. Tells a leak checker, if there is one, to ignore them.
void leaveObjects(Workbench& bench) {
  static std::uint64_t words[8];
  if (__lsan_disable != nullptr) __lsan_disable();
  ibv_context* context = ibv_open_device(bench.device().context->device);
  check(context != nullptr, "ibv_open_device");
  ibv_pd* pd = ibv_alloc_pd(context);
  check(pd != nullptr, "ibv_alloc_pd");
  check(ibv_reg_mr(pd, words, sizeof(words), kAccess) != nullptr, "ibv_reg_mr");
  new Link(context, pd, LinkSettings{});
  check(ibv_dealloc_pd(pd) == EBUSY, "a protection domain that is in use must stay");
  check(ibv_close_device(context) == 0, "ibv_close_device");
  if (__lsan_enable != nullptr) __lsan_enable();
}

struct Mistake {
  const char* name;
  Setup (*setup)();
  void (*act)(Workbench&);
};
constexpr Mistake kMistakes[] = {
    {"none", byHand, postWrite},
    {"none-but-a-fork", byHand, forkAndPost},
    {"doorbell-before-record", byHand, handDoorbellBeforeRecord},
    {"record-of-the-receive-queue", byHand, handRecordOfTheReceiveQueue},
    {"other-queue-pair-in-doorbell", byHand, handOtherQueuePairInDoorbell},
    {"wrong-index", byHand, handWrongIndex},
    {"wrong-queue-pair", byHand, handWrongQueuePair},
    {"reserved-word", byHand, handReservedWord},
    {"doorbell-before-wqe", byHand, handDoorbellBeforeWqe},
    {"too-many", byHand, handTooMany},
    {"unsignalled-too-many", byHand, handUnsignalledTooMany},
    {"late-write", byHand, handLateWrite},
    {"completions-not-taken", slowByHand, handCompletionsNotTaken},
    {"not-connected", notConnected, [](Workbench& bench) { bench.write(0), bench.tell(1); }},
    {"wrong-lkey", plain, postWrongLkey},
    {"wrong-rkey", plain, postWrongRkey},
    {"beyond-the-range", plain, postBeyondTheRange},
    {"lkey-of-another-domain", plain, postLkeyOfAnotherDomain},
    {"rkey-of-another-domain", plain, postRkeyOfAnotherDomain},
    {"read-only-memory", plain, postToReadOnlyMemory},
    {"read-into-read-only-memory", plain, postReadIntoReadOnlyMemory},
    {"deregistered-memory", plain, postDeregisteredMemory},
    {"unaligned-atomic", plain, postUnalignedAtomic},
    {"no-writes", receiverTakesNoWrites, postWrite},
    {"too-many-reads", receiverTakesFewReads, postRead},
    {"objects-left", plain, leaveObjects},
    {"device-left-open", plain, [](Workbench&) { std::exit(0); }},
    {"other-psn", otherPsn, postWrite},
    {"other-address", otherAddress, postWrite},
};

}  // namespace

bool makeMistake(const std::string& name) {
  for (const Mistake& mistake : kMistakes) {
    if (name != mistake.name) continue;
    Workbench bench(mistake.setup());
    mistake.act(bench);
    letAdapterLook();
    return true;
  }
  return false;
}

}  // namespace moe::test
