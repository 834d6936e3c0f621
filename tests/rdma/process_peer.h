// One of several processes of a test. It opens a device, registers memory, and is connected with all others.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "rdma/process_board.h"
#include "rdma/verbs_link.h"

namespace moe::test {

struct PeerSettings {
  LinkSettings link;
  int rank = 0, processes = 1;
  int device = 0;        // index on this machine
  bool relaxed = false;  // whether rows may land after what is written later
  bool gpu = false;      // whether rows lie in what plays GPU memory (fake_cuda.cc)
};

struct Device {
  explicit Device(int index);  // throws std::runtime_error
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  union ibv_gid gid {};
};

class Peer {
 public:
  Peer(const BoardFile& board, const PeerSettings& settings);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  int rank() const { return settings_.rank; }
  int processes() const { return settings_.processes; }
  Link& link(int other) { return *links_[static_cast<std::size_t>(other)]; }
  Device& device() { return device_; }
  void meet() { board_->meet(settings_.processes); }

  // Memory of this process: rows for bulk data, words for flags and counters.
  static constexpr std::size_t kRows = 1 << 16, kWords = 1 << 12;
  std::uint64_t* rows() { return rows_; }  // at this process's addresses
  std::uint64_t load(std::size_t word) { return HostQueueMemory().load(&words_[word]); }
  void store(std::size_t word, std::uint64_t value) { HostQueueMemory().publish(&words_[word], value); }

  // Ranges for operations.
  mlx5::LocalRange ownRows(std::size_t first, std::size_t count) const;
  mlx5::LocalRange ownWord(std::size_t word) const;
  mlx5::RemoteAddress rowsOf(int other, std::size_t first) const;
  mlx5::RemoteAddress wordOf(int other, std::size_t word) const;

  void postFlag(int other, std::size_t word, std::uint64_t value);
  void finishAll();

 private:
  void allocateRows();
  const Offer& offerOf(int other) const { return board_->offer[other]; }

  const BoardFile& board_;
  PeerSettings settings_;
  Device device_;
  std::vector<std::uint64_t> hostRows_, words_;
  std::uint64_t *rows_, *registeredRows_;  // at this process's and at the adapter's addresses
  ibv_mr *rowsRegion_ = nullptr, *wordsRegion_ = nullptr;
  std::vector<std::unique_ptr<Link>> links_;  // none to itself
};

}  // namespace moe::test
