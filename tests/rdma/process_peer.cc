#include "rdma/process_peer.h"

#include <dlfcn.h>

namespace moe::test {
namespace {

constexpr int kWriteAndRead = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Never zero, and close enough to the end to wrap soon.
std::uint32_t firstPsn(int from, int to) {
  return 0xffff00 + static_cast<std::uint32_t>(from * 16 + to);
}

std::uint64_t addressOf(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace

Device::Device(int index) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  check(devices != nullptr, "ibv_get_device_list");
  const std::string name = "mlx5_" + std::to_string(index);
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(devices[i])) context = ibv_open_device(devices[i]);
  }
  ibv_free_device_list(devices);
  check(context != nullptr, ("opening " + name).c_str());
  pd = ibv_alloc_pd(context);
  check(pd != nullptr, "ibv_alloc_pd");
  check(ibv_query_gid(context, 1, 1, &gid) == 0, "ibv_query_gid");
}

Device::~Device() {
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
}

Peer::Peer(const BoardFile& board, const PeerSettings& settings)
    : board_(board), settings_(settings), device_(settings.device), words_(kWords) {
  allocateRows();
  const int relaxed = settings.relaxed ? IBV_ACCESS_RELAXED_ORDERING : 0;
  rowsRegion_ = ibv_reg_mr(device_.pd, registeredRows_, kRows * 8, kWriteAndRead | relaxed);
  wordsRegion_ = ibv_reg_mr(device_.pd, words_.data(), words_.size() * 8, kWriteAndRead | IBV_ACCESS_REMOTE_ATOMIC);
  check(rowsRegion_ != nullptr && wordsRegion_ != nullptr, "ibv_reg_mr");

  Offer& offer = board_->offer[rank()];
  offer.gid = device_.gid;
  offer.rows = addressOf(registeredRows_);
  offer.words = addressOf(words_.data());
  offer.rowsKey = rowsRegion_->rkey;
  offer.wordsKey = wordsRegion_->rkey;
  for (int other = 0; other < processes(); ++other) {
    links_.push_back(other == rank() ? nullptr : std::make_unique<Link>(device_.context, device_.pd, settings.link));
    if (other != rank()) offer.queuePair[other] = link(other).queuePair();
  }
  meet();
  for (int other = 0; other < processes(); ++other) {
    if (other == rank()) continue;
    link(other).connect(offerOf(other).queuePair[rank()], offerOf(other).gid, firstPsn(rank(), other),
                        firstPsn(other, rank()));
  }
  meet();
}

void Peer::allocateRows() {
  if (!settings_.gpu) {
    hostRows_.resize(kRows);
    rows_ = registeredRows_ = hostRows_.data();
    return;
  }
  void* driver = dlopen(MOECOMM_FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) throw std::runtime_error(dlerror());
  auto* allocate = reinterpret_cast<void* (*)(std::size_t, void**)>(dlsym(driver, "fake_cuda_allocate"));
  void* seen = nullptr;
  registeredRows_ = static_cast<std::uint64_t*>(allocate(kRows * 8, &seen));
  rows_ = static_cast<std::uint64_t*>(seen);
}

Peer::~Peer() {
  links_.clear();
  ibv_dereg_mr(rowsRegion_);
  ibv_dereg_mr(wordsRegion_);
}

mlx5::LocalRange Peer::ownRows(std::size_t first, std::size_t count) const {
  return {addressOf(registeredRows_ + first), rowsRegion_->lkey, static_cast<std::uint32_t>(count * 8)};
}
mlx5::LocalRange Peer::ownWord(std::size_t word) const {
  return {addressOf(&words_[word]), wordsRegion_->lkey, 8};
}
mlx5::RemoteAddress Peer::rowsOf(int other, std::size_t first) const {
  return {offerOf(other).rows + first * 8, offerOf(other).rowsKey};
}
mlx5::RemoteAddress Peer::wordOf(int other, std::size_t word) const {
  return {offerOf(other).words + word * 8, offerOf(other).wordsKey};
}

void Peer::postFlag(int other, std::size_t word, std::uint64_t value) {
  Operation flag;
  flag.remote = wordOf(other, word);
  flag.flag = value;
  link(other).post(flag);
}

void Peer::finishAll() {
  for (const auto& link : links_) {
    if (link != nullptr) link->finish();
  }
}

}  // namespace moe::test
