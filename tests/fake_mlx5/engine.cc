#include "fake_mlx5/engine.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace moe::test {
namespace {

constexpr long kSleepNs = 20'000;

// Where programs spin on all cores, a thread that has slept gets a core at once. A thread that spins as well does not.
int stepsBeforeSleep() {
  return std::thread::hardware_concurrency() >= 8 ? 4096 : 8;
}

// Sleeps until a packet comes, but only briefly, because a doorbell wakes nobody.
void rest(int descriptor) {
  pollfd packets{descriptor, POLLIN, 0};
  const timespec atMost{0, kSleepNs};
  ppoll(&packets, 1, &atMost, nullptr);
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::atomic<Engine*> current{nullptr};
std::mutex creation;

}  // namespace

Engine::Engine() : process_(getpid()) {}

Engine& Engine::instance() {
  Engine* engine = current.load();
  if (engine != nullptr && engine->process_ == getpid()) return *engine;
  static const int registered = pthread_atfork(beforeFork, afterFork, afterFork);  // 0, or out of memory
  static_cast<void>(registered);
  const std::lock_guard lock(creation);
  engine = current.load();
  if (engine == nullptr || engine->process_ != getpid()) {
    if (engine != nullptr) engine->forget();
    engine = new Engine;  // never freed: threads may still use it at exit
    current = engine;
  }
  return *engine;
}

void Engine::shutDown() {
  Engine* engine = current.load();
  if (engine == nullptr || engine->process_ != getpid()) return;
  engine->closeAll();
  engine->stop();
}

// Closes what a program left open at exit. A program that is killed does not reach this.
void Engine::closeAll() {
  with([&](Adapter& adapter) {
    for (const auto& [context, device] : devices_) {
      adapter.violations().note("a device is still open at the end of the program");
      adapter.closeContext(context);
    }
  });
}

// Stops the adapter during a fork. The child lacks the adapter's thread, so locks that the thread holds at that moment,
// such as one of a sanitizer's allocator, would stay locked in the child for ever.
void Engine::beforeFork() {
  creation.lock();
  Engine* engine = current.load();
  if (engine == nullptr) return;
  ++engine->visitors_;
  engine->mutex_.lock();
  --engine->visitors_;
}
void Engine::afterFork() {
  Engine* engine = current.load();
  if (engine != nullptr) engine->mutex_.unlock();
  creation.unlock();
}

// In the child of a fork the thread does not exist, and the socket belongs to the parent.
void Engine::forget() {
  if (adapter_ != nullptr && adapter_->executes()) ::close(adapter_->wire()->descriptor());
}

int Engine::open(int context, unsigned device) {
  ++visitors_;
  const std::lock_guard lock(mutex_);
  --visitors_;
  try {
    if (adapter_ == nullptr) start();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fake_mlx5: %s\n", error.what());
    return EINVAL;
  }
  devices_[context] = device;
  return 0;
}

unsigned Engine::deviceOf(int context) {
  const std::lock_guard lock(mutex_);
  const auto found = devices_.find(context);
  return found == devices_.end() ? 0 : found->second;
}

void Engine::close(int context) {
  bool isLast = false;
  with([&](Adapter& adapter) {
    adapter.closeContext(context);
    isLast = devices_.erase(context) != 0 && devices_.empty();
  });
  if (isLast) stop();
}

// Called under the lock. The thread blocks all signals, which are for the program's own threads. On return the thread
// is running and has made the allocations of its start, so none of them can fall into a fork (beforeFork).
void Engine::start() {
  const std::string report = environment("FAKE_MLX5_REPORT");
  adapter_ = std::make_unique<Adapter>(AdapterSettings{environment("FAKE_MLX5_DIR"), environment("FAKE_MLX5_FAULTS"),
                                                       report.empty() ? nullptr : report.c_str()});
  if (!adapter_->executes()) return;
  stop_ = hasBegun_ = false;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  hasBegun_.wait(false);
}

void Engine::stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  if (adapter_ == nullptr) return;
  if (adapter_->executes()) adapter_->sendRest();
  keepCounts();
  adapter_.reset();
  devices_.clear();
}

void Engine::run() {
  hasBegun_ = true;
  hasBegun_.notify_one();
  pthread_setname_np(pthread_self(), "fake_mlx5");
  prctl(PR_SET_TIMERSLACK, 1000);
  // A real adapter does not wait for a core, so this thread asks for a higher priority. On Linux the call affects this
  // thread alone.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -10);
  const int descriptor = adapter_->wire()->descriptor(), sleepAfter = stepsBeforeSleep();
  for (int idle = 0; !stop_; ++idle) {
    {
      const std::lock_guard lock(mutex_);
      for (int i = 0; i < 4; ++i) {
        if (adapter_->step()) idle = 0;
      }
    }
    if (visitors_ != 0) sched_yield();
    if (idle >= sleepAfter) rest(descriptor);
  }
}

// ---- Counts

void Engine::keepCounts() {
  pastViolations_ += adapter_->violations().count();
  for (const auto& [name, count] : adapter_->counts()) pastCounts_[name] += count;
  writeCounts();
}

// Writes "process 17: delay 3 drop 12 ..." in one call, because other processes write to the same file.
void Engine::writeCounts() const {
  const std::string path = environment("FAKE_MLX5_COUNTS");
  if (path.empty()) return;
  std::string line = "process " + std::to_string(adapter_->wire() == nullptr ? 0 : adapter_->wire()->process()) + ":";
  for (const auto& [name, count] : adapter_->counts()) line += " " + name + " " + std::to_string(count);
  line += "\n";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0 || ::write(file, line.data(), line.size()) < 0) std::perror("FAKE_MLX5_COUNTS");
  if (file >= 0) ::close(file);
}

std::uint64_t Engine::violations() {
  const std::lock_guard lock(mutex_);
  return pastViolations_ + (adapter_ == nullptr ? 0 : adapter_->violations().count());
}

std::uint64_t Engine::count(const char* name) {
  const std::lock_guard lock(mutex_);
  return pastCounts_[name] + (adapter_ == nullptr ? 0 : adapter_->counts()[name]);
}

}  // namespace moe::test
