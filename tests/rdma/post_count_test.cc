// Counts what steps post to an adapter: work elements and doorbells for each peer and operation. The adapter in
// software cannot count doorbells, because it sees several between two looks as one. So ranks are threads here, with a
// backend whose warps post over a memory that counts. Prints the table of docs/internals/rdma.md.
#include <fmt/format.h>

#include <map>
#include <set>

#include "comm/communicator/comm.h"
#include "comm/config/config.h"
#include "device/kernels/run_step.h"
#include "device/policy/host/warp.h"
#include "rdma/rdma_world.h"
#include "support/api/moe_step.h"
#include "unit/forwarding_backend.h"

namespace moe::test {
namespace {

struct Posted {
  std::uint64_t elements = 0, doorbells = 0;
};
using PostedByQueuePair = std::map<std::uint64_t, Posted>;

// A work element starts with a slot of 64 bytes and names its queue pair in the second word. So does a doorbell.
class CountingMemory : public HostQueueMemory {
 public:
  explicit CountingMemory(PostedByQueuePair* posted) : posted_(posted) {}

  void storeSegment(Quad* to, const Quad& segment) const {
    if (reinterpret_cast<std::uintptr_t>(to) % 64 == 0) ++(*posted_)[mlx5::bigEndian(segment.y) >> 8].elements;
    HostQueueMemory::storeSegment(to, segment);
  }
  void ring(std::uint64_t* to, std::uint64_t value) const {
    ++(*posted_)[mlx5::bigEndian(value) >> 8 & 0xffffff].doorbells;
    HostQueueMemory::ring(to, value);
  }

 private:
  PostedByQueuePair* posted_;
};

class CountingBackend final : public ForwardingBackend {
 public:
  moeResult_t launch(Step step, const StepParams& params, const LaunchShape&, moeStream_t,
                     std::string*) noexcept override {
    PostedByQueuePair byQueuePair;
    runNamedStep(HostWarpOver(CountingMemory(&byQueuePair)), step, params, WarpIndex{0, 1, 1});
    const CommView& comm = params.comm;
    const RemoteView& remote = comm.far->remote;
    posted_.assign(static_cast<std::size_t>(comm.nranks), {});
    for (int i = 0; i < comm.remoteRanks() * remote.connections; ++i) {
      const int to = comm.remoteRank(i / remote.connections);
      const int queue = to * remote.connections + i % remote.connections;
      const auto found = byQueuePair.extract(remote.queues[queue].send.queuePair);
      if (!found) continue;
      posted_[static_cast<std::size_t>(to)].elements += found.mapped().elements;
      posted_[static_cast<std::size_t>(to)].doorbells += found.mapped().doorbells;
    }
    EXPECT_TRUE(byQueuePair.empty()) << "posted to a queue pair that leads nowhere";
    return moeSuccess;
  }

  // Counts of the last launch.
  Posted to(int rank) const { return posted_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<Posted> posted_;
};

moeResult_t joinCounting(moeComm_t* comm, int nranks, int rank, const moeUniqueId_t* id, const moeConfig_t* config) {
  try {
    auto made = Comm::create(nranks, rank, *id, resolveConfig(config), -1, std::make_unique<CountingBackend>());
    *comm = reinterpret_cast<moeComm_t>(made.release());
    return moeSuccess;
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
    return error.result();
  }
}

// The least and the most over ranks, peers and iterations.
struct Extremes {
  std::uint64_t least = ~std::uint64_t{0}, most = 0;

  void add(std::uint64_t value) { least = std::min(least, value), most = std::max(most, value); }
  std::string text() const { return least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most); }
};

// Prints one row for each operation.
class Table {
 public:
  ~Table() {
    for (const auto& [operation, row] : rows_) {
      fmt::print("| {} | {} | {} | {} |\n", operation, row.rows.text(), row.others.text(), row.doorbells.text());
    }
  }
  // `rows` count as work elements too.
  void add(const std::string& operation, std::uint64_t rows, Posted posted) {
    const std::lock_guard lock(mutex_);
    Row& row = rows_[operation];
    row.rows.add(rows), row.others.add(posted.elements - rows), row.doorbells.add(posted.doorbells);
  }
  std::uint64_t mostRows(const std::string& operation) { return rows_[operation].rows.most; }

 private:
  struct Row {
    Extremes rows, others, doorbells;
  };
  std::mutex mutex_;
  std::map<std::string, Row> rows_;
};

// One rank's step, and its posts to each rank that the mode sends rows to.
class CountedStep {
 public:
  CountedStep(RankContext& context, const StepCase& c)
      : context_(context), case_(c), domainSize_(context.domainSize()), step_(context, c) {}

  template <class See>
  void dispatch(int iteration, See see) {
    step_.prepare(iteration);
    step_.route();
    step_.dispatch();
    forPeers(see);
    step_.checkDispatch();
  }
  template <class See>
  void combine(See see) {
    step_.runExperts();
    step_.combine();
    forPeers(see);
    step_.checkCombine();
  }

 private:
  template <class See>
  void forPeers(See see) const {
    const auto& backend = static_cast<CountingBackend&>(reinterpret_cast<Comm*>(context_.comm)->backend());
    for (int to = 0; to < context_.nranks; ++to) {
      const bool rail = to % domainSize_ == context_.rank % domainSize_;
      if (to / domainSize_ == context_.rank / domainSize_) continue;
      if (case_.mode == moeModeLl || rail) see(rowsTo(to), backend.to(to));
    }
  }
  // LL: one row for each token that goes to that rank. HT: one for each token that goes to its domain.
  std::uint64_t rowsTo(int to) const {
    const int ranks = case_.mode == moeModeHt ? domainSize_ : 1, first = to / ranks * ranks;
    std::set<int> tokens;
    for (int rank = first; rank < first + ranks; ++rank) {
      for (const ArrivedToken& token : step_.reference().arrivals[static_cast<std::size_t>(rank)].tokens) {
        if (token.source == context_.rank) tokens.insert(token.token);
      }
    }
    return tokens.size();
  }

  RankContext& context_;
  StepCase case_;
  int domainSize_;
  MoeStep step_;
};

constexpr int kTokens = 200;

moeConfig_t cut(int domainSize) {
  RdmaFolder::ofProcess();
  moeConfig_t config = testConfig(moeBackendHost);
  config.domainSize = domainSize;
  config.transport = moeTransportIbgda;
  config.tokensMax = config.llTokensMax = kTokens;
  return config;
}

StepCase rowsOnly(int mode) {
  StepCase c;
  c.mode = mode;
  c.layout = mode == moeModeLl ? moeLayoutRankMajor : moeLayoutFlat;
  c.tokensMax = kTokens;
  c.topk = 4;
  c.seed = 3;
  return c;
}

constexpr int kCuts[][2] = {{2, 1}, {4, 2}, {4, 1}};  // ranks, domain size

template <class Body>
void inEveryCut(const StepCase& c, Body body) {
  for (const auto& [nranks, domainSize] : kCuts) {
    SCOPED_TRACE(fmt::format("{} ranks in domains of {}", nranks, domainSize));
    const auto run = [&](RankContext& context) {
      CountedStep step(context, c);
      for (int i = 0; i < 8; ++i) body(step, i);
    };
    world(nranks, cut(domainSize), run, joinCounting);
  }
  EXPECT_EQ(RdmaFolder::ofProcess().violations(), "");
}

// The goal for each peer: at most 2 doorbells, one work element for each row, and the flags.
TEST(Posting, OfALowLatencyStepIsAnElementForEachRowAndAtMostTwoDoorbells) {
  Table table;
  inEveryCut(rowsOnly(moeModeLl), [&](CountedStep& step, int i) {
    step.dispatch(2 * i, [&](std::uint64_t rows, Posted posted) {
      table.add("LL dispatch", rows, posted);
      EXPECT_EQ(posted.elements, rows + 2);  // sizes and flag
      EXPECT_EQ(posted.doorbells, 1 + rows / mlx5::kPutsUnrung);
      EXPECT_LE(posted.doorbells, 2u);
    });
    step.dispatch(2 * i + 1, [&](std::uint64_t rows, Posted posted) {
      table.add("LL dispatch after a dispatch", rows, posted);
      EXPECT_EQ(posted.elements, rows + 3);  // and the word that frees slots, posted at once
      EXPECT_EQ(posted.doorbells, 2 + rows / mlx5::kPutsUnrung);
    });
    step.combine([&](std::uint64_t, Posted posted) {
      table.add("LL combine", 0, posted);
      EXPECT_LE(posted.elements, 2u);  // all rows in one element, and the flag
      EXPECT_EQ(posted.doorbells, 1u);
    });
  });
  EXPECT_GT(table.mostRows("LL dispatch"), kTokens / 2);
}

TEST(Posting, OfSidePayloadsAndGradientsIsAnElementForEachMore) {
  StepCase c = rowsOnly(moeModeLl);
  c.sideBytes = 16;
  c.weightGrads = true;
  Table table;
  inEveryCut(c, [&](CountedStep& step, int i) {
    step.dispatch(i, [&](std::uint64_t rows, Posted posted) {
      table.add("LL dispatch, rows and as many side payloads", 2 * rows, posted);
      EXPECT_EQ(posted.elements, 2 * rows + 2);
      EXPECT_LE(posted.doorbells, 1 + 2 * rows / mlx5::kPutsUnrung);
    });
    step.combine([&](std::uint64_t, Posted posted) {
      table.add("LL combine with gradients", 0, posted);
      EXPECT_LE(posted.elements, 3u);
      EXPECT_EQ(posted.doorbells, 1u);
    });
  });
}

// Counts posts to the rail peer of each domain. Each wave has its flag. Sizes go with the first wave, and a final word
// says that the rail is free again.
TEST(Posting, OfAHighThroughputStepIsAnElementForEachRowAndTwoWordsBesideTheWaves) {
  Table table;
  inEveryCut(rowsOnly(moeModeHt), [&](CountedStep& step, int i) {
    step.dispatch(i, [&](std::uint64_t rows, Posted posted) {
      table.add("HT dispatch", rows, posted);
      EXPECT_EQ(posted.elements, rows + kHtWaves + 2);
      EXPECT_EQ(posted.doorbells, kHtWaves + 2u);  // no wave has 128 rows
    });
    step.combine([&](std::uint64_t, Posted posted) {
      table.add("HT combine", 0, posted);
      EXPECT_LE(posted.elements, 2u * kHtWaves + 2);  // the sums of a wave are one element
      EXPECT_EQ(posted.doorbells, kHtWaves + 2u);
    });
  });
  EXPECT_GT(table.mostRows("HT dispatch"), kTokens / 2);
}

}  // namespace
}  // namespace moe::test
