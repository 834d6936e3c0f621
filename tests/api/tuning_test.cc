// A tuning file that rank 0 alone has. Ranks are threads with one environment, so the others join when rank 0 has read
// its variable and removed it.
#include <array>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/api/api_world.h"
#include "support/base/temporary_folder.h"

namespace moe::test {
namespace {

constexpr const char* kVariable = "MOECOMM_TUNING";
constexpr std::array kTunedSetups = {"gpu", "gpu-domains", "host", "host-full", "host-shared", "host-domains"};
constexpr std::array kTunedLayouts = {"flat", "expert-major", "expert-major-padded", "rank-major"};
constexpr int kTunedTokens = 16;

// Makes communicators of which rank 0 alone finds the variable set.
class OnRank0 {
 public:
  explicit OnRank0(const std::string& path) { ::setenv(kVariable, path.c_str(), 1); }

  moeResult_t join(moeComm_t* comm, int nranks, int rank, const moeUniqueId_t* id, const moeConfig_t* config) {
    moeConfig_t own = *config;
    if (rank == 0) {
      own.log = [](void* user, std::int32_t, const char* line) { static_cast<OnRank0*>(user)->take(line); };
      own.logUser = this;
      own.logLevel = moeLogInfo;
    } else {
      read_.wait();
    }
    return moeCommInit(comm, nranks, rank, id, &own);
  }

 private:
  // The line about the environment comes before the ranks meet.
  void take(std::string_view line) {
    if (line.find("from the environment: ") == std::string_view::npos) return;
    EXPECT_NE(line.find(kVariable), std::string_view::npos) << line;
    ::unsetenv(kVariable);
    read_.count_down();
  }

  std::latch read_{1};
};

class Tuning : public OnBackend {
 protected:
  // Writes a file with one threshold for each setup and layout.
  std::string write(const std::array<std::int64_t, 4>& bytes) const {
    std::ofstream file(path_);
    file << "moecomm-tuning 1\n";
    for (const char* setup : kTunedSetups) {
      for (std::size_t i = 0; i < bytes.size(); ++i)
        file << setup << ' ' << kTunedLayouts[i] << ' ' << bytes[i] << '\n';
    }
    return path_;
  }

  // No rank gets a communicator, and each hears `sentence`.
  void expectRefusal(const std::string& sentence) const {
    moeUniqueId_t id;
    ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
    OnRank0 file(path_);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        moeConfig_t own = config();
        own.device = own.backend == moeBackendCuda ? rank % cudaDeviceCount() : -1;
        moeComm_t comm = nullptr;
        EXPECT_EQ(file.join(&comm, 3, rank, &id, &own), moeInvalidArgument);
        EXPECT_EQ(moeGetLastError(nullptr), sentence);
        EXPECT_EQ(comm, nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.at("tuning");
};

using Modes = std::array<std::int32_t, 4>;

// The modes that a rank's handles take, by layout.
Modes modesOf(RankContext& context) {
  Modes modes{};
  for (std::int32_t layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
    moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
    config.experts = 8;
    config.topk = 2;
    config.layout = layout;
    config.tokensMax = kTunedTokens;
    moeHandle_t handle = nullptr;
    MOE_EXPECT_OK(moeHandleCreate(&handle, context.comm, &config), context);
    moeDeviceCounts_t counts = MOE_DEVICE_COUNTS_INITIALIZER;
    MOE_EXPECT_OK(moeHandleGetDeviceCounts(handle, &counts), context);
    modes[static_cast<std::size_t>(layout)] = counts.mode;
    EXPECT_EQ(moeHandleDestroy(handle), moeSuccess);
  }
  return modes;
}

TEST_P(Tuning, OfRank0FlipsTheModeOfAllRanks) {
  for (const int domainSize : {3, 1}) {
    moeConfig_t three = config();
    three.domainSize = domainSize;
    three.transport = domainSize == 1 ? moeTransportTcp : 0;
    Modes before{};
    world(3, three, [&](RankContext& context) {
      if (context.rank == 0) before = modesOf(context);
      context.meet();
    });
    std::array<std::int64_t, 4> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = before[i] == moeModeLl ? 0 : 1 << 20;
    OnRank0 file(write(bytes));
    const auto join = [&](auto... arguments) { return file.join(arguments...); };
    world(
        3, three,
        [&](RankContext& context) {
          const Modes after = modesOf(context);
          for (std::size_t i = 0; i < after.size(); ++i) {
            EXPECT_EQ(after[i], before[i] == moeModeLl ? moeModeHt : moeModeLl) << "rank " << context.rank << ", " << i;
          }
        },
        join);
  }
}

TEST_P(Tuning, CountsTheBytesOfARankExactly) {
  const std::int64_t bytes = std::int64_t{kTunedTokens} * 3 * config().rowBytesMax;
  OnRank0 file(write({bytes, bytes - 1, bytes, bytes - 1}));
  const auto join = [&](auto... arguments) { return file.join(arguments...); };
  const auto body = [](RankContext& context) {
    EXPECT_EQ(modesOf(context), (Modes{moeModeLl, moeModeHt, moeModeLl, moeModeHt})) << context.rank;
  };
  world(3, config(), body, join);
}

TEST_P(Tuning, ThatIsMalformedFailsOnAllRanks) {
  write({1, 1, 1, 1});
  std::ofstream(path_, std::ios::app) << "gpu flt 1\n";
  expectRefusal("rank 0: " + path_ +
                " line 26: layout is \"flt\"; it must be one of flat, expert-major, expert-major-padded, rank-major");
  world(3, config(), [](RankContext& context) { EXPECT_EQ(context.nranks, 3); });
}

TEST_P(Tuning, ThatDoesNotExistFailsOnAllRanks) {
  expectRefusal("rank 0: MOECOMM_TUNING is " + path_ + ", which cannot be read: No such file or directory");
}

MOE_INSTANTIATE_BACKENDS(Tuning);

}  // namespace
}  // namespace moe::test
