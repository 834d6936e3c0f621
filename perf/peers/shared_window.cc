// The job by hand, for ranks of one host. Each rank stores rows straight to their places in the others' windows, raises
// one flag, and sums the rows where its peers have made them. There are no checks, timeouts or failures, so no exchange
// through shared memory can be faster. The program starts its ranks itself.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "job.h"

namespace {

constexpr int kRanksMax = 16;
constexpr std::size_t kTimesMax = 4096;
constexpr int kSpins = 1000;  // then yields the processor

// Memory that all ranks share. Epochs only grow.
struct Board {
  alignas(64) std::atomic<std::uint64_t> counted[kRanksMax], routed[kRanksMax], sent[kRanksMax], ready[kRanksMax],
      met[kRanksMax];
  int counts[2][kRanksMax][kRanksMax];  // [parity][from][to]
  double times[kRanksMax][kTimesMax];
};

std::uint8_t* mapShared(std::size_t bytes) {
  const int fd = ::memfd_create("moecomm_floor", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) std::exit(1);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) std::exit(1);
  return static_cast<std::uint8_t*>(memory);
}

// A window: arrived rows, rows that the experts have made, and the rows' experts and weights.
class Window {
 public:
  Window(std::size_t rows, std::size_t hidden, std::size_t topk)
      : hidden_(hidden),
        headBytes_(topk * 8),
        rows_(rows),
        memory_(mapShared(rows * (2 * hidden * sizeof(std::uint16_t) + headBytes_))) {}
  std::uint16_t* arrived(std::size_t row) const { return reinterpret_cast<std::uint16_t*>(memory_) + row * hidden_; }
  std::uint16_t* made(std::size_t row) const { return arrived(rows_ + row); }
  std::uint8_t* head(std::size_t row) const {
    return reinterpret_cast<std::uint8_t*>(arrived(2 * rows_)) + row * headBytes_;
  }

 private:
  std::size_t hidden_, headBytes_, rows_;
  std::uint8_t* memory_;
};

class SharedWindow {
 public:
  SharedWindow(Board& board, const std::vector<Window>& windows, int rank)
      : board_(board), windows_(windows), rank_(rank), nranks_(static_cast<int>(windows.size())), terms_(kRanksMax) {}

  void route(Job* job) {
    ::placeTokens(job);
    const std::uint64_t epoch = ++routes_;
    auto& counts = board_.counts[epoch % 2];
    std::memcpy(counts[rank_], job->counts, sizeof(int) * static_cast<std::size_t>(nranks_));
    tell(board_.counted, epoch);
    for (int to = 0; to < nranks_; ++to) {
      begin_[to] = 0;
      for (int from = 0; from < rank_; ++from) begin_[to] += static_cast<std::size_t>(counts[from][to]);
    }
    arrived_ = 0;
    for (int from = 0; from < nranks_; ++from) arrived_ += static_cast<std::size_t>(counts[from][rank_]);
    const auto topk = static_cast<std::size_t>(job->topk);
    forPlaces(job, [&](int token, int to, std::size_t place) {
      std::uint8_t* head = window(to).head(place);
      std::memcpy(head, job->experts_of + static_cast<std::size_t>(token) * topk, topk * 4);
      std::memcpy(head + topk * 4, job->weights + static_cast<std::size_t>(token) * topk, topk * 4);
    });
    tell(board_.routed, epoch);
  }

  void dispatch(const Job* job) {
    const auto hidden = static_cast<std::size_t>(job->hidden);
    forPlaces(job, [&](int token, int to, std::size_t place) {
      std::memcpy(window(to).arrived(place), job->rows + static_cast<std::size_t>(token) * hidden,
                  hidden * sizeof(std::uint16_t));
    });
    tell(board_.sent, ++dispatches_);
  }

  void expert(const Job* job) {
    ::doubleRows(window(rank_).made(0), window(rank_).arrived(0), arrived_ * static_cast<std::size_t>(job->hidden));
  }

  void combine(Job* job) {
    tell(board_.ready, ++combines_);
    const auto hidden = static_cast<std::size_t>(job->hidden);
    for (int token = 0; token < job->tokens; ++token) {
      int terms = 0;
      for (int to = 0; to < nranks_; ++to) {
        const int place = job->places[token * nranks_ + to];
        if (place < 0) continue;
        terms_[static_cast<std::size_t>(terms++)] = window(to).made(begin_[to] + static_cast<std::size_t>(place));
      }
      ::sumRows(job->sums + static_cast<std::size_t>(token) * hidden, terms_.data(), terms, job->hidden);
    }
  }

  void slowest(double* times, int n) {
    const auto count = static_cast<std::size_t>(n);
    std::memcpy(board_.times[rank_], times, count * sizeof(double));
    tell(board_.met, ++meetings_);
    for (int rank = 0; rank < nranks_; ++rank) {
      for (std::size_t i = 0; i < count; ++i) times[i] = std::max(times[i], board_.times[rank][i]);
    }
    tell(board_.met, ++meetings_);  // no rank writes the next counts before all have read these
  }

 private:
  const Window& window(int rank) const { return windows_[static_cast<std::size_t>(rank)]; }

  // Announces that this rank has come this far, and returns when all have.
  void tell(std::atomic<std::uint64_t>* words, std::uint64_t epoch) {
    words[rank_].store(epoch, std::memory_order_release);
    for (int rank = 0; rank < nranks_; ++rank) {
      for (int spins = 0; words[rank].load(std::memory_order_acquire) < epoch; ++spins) {
        if (spins > kSpins) ::sched_yield();
      }
    }
  }

  template <class Body>
  void forPlaces(const Job* job, Body body) const {
    for (int token = 0; token < job->tokens; ++token) {
      for (int to = 0; to < nranks_; ++to) {
        const int place = job->places[token * nranks_ + to];
        if (place >= 0) body(token, to, begin_[to] + static_cast<std::size_t>(place));
      }
    }
  }

  Board& board_;
  const std::vector<Window>& windows_;
  int rank_, nranks_;
  std::size_t begin_[kRanksMax] = {};
  std::size_t arrived_ = 0;
  std::vector<const std::uint16_t*> terms_;
  std::uint64_t routes_ = 0, dispatches_ = 0, combines_ = 0, meetings_ = 0;
};

SharedWindow& of(void* self) {
  return *static_cast<SharedWindow*>(self);
}

int runRank(const Plan& plan, Board& board, const std::vector<Window>& windows, int rank) {
  SharedWindow all(board, windows, rank);
  const Way way = {"floor",
                   &all,
                   [](void*, const Job*) {},
                   [](void* self, Job* job) { of(self).route(job); },
                   [](void* self, Job* job) { of(self).dispatch(job); },
                   [](void* self, Job* job) { of(self).combine(job); },
                   [](void* self, Job* job) { of(self).expert(job); },
                   [](void* self, double* times, int n) { of(self).slowest(times, n); },
                   [](void*) {}};
  return ::measureWay(&plan, rank, static_cast<int>(windows.size()), &way);
}

}  // namespace

int main(int argc, char** argv) {
  const int nranks = argc > 1 ? std::atoi(argv[1]) : 0;
  Plan plan;
  if (nranks < 1 || nranks > kRanksMax || ::readPlan(argc - 1, argv + 1, nranks, &plan) == 0 ||
      plan.iters > static_cast<int>(kTimesMax)) {
    (void)std::fprintf(stderr, "Usage: %s RANKS %s\n", argv[0], kPlanUsage);
    return 2;
  }
  const int tokens = *std::max_element(plan.tokens, plan.tokens + plan.cases);
  auto* board = new (mapShared(sizeof(Board))) Board();
  std::vector<Window> windows;
  for (int rank = 0; rank < nranks; ++rank) {
    windows.emplace_back(static_cast<std::size_t>(nranks) * static_cast<std::size_t>(tokens),
                         static_cast<std::size_t>(plan.hidden), static_cast<std::size_t>(plan.topk));
  }
  for (int rank = 1; rank < nranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) return 1;
    if (child == 0) return runRank(plan, *board, windows, rank);
  }
  int result = runRank(plan, *board, windows, 0);
  for (int rank = 1; rank < nranks; ++rank) {
    int status = 0;
    if (::wait(&status) < 0 || status != 0) result = 1;
  }
  return result;
}
