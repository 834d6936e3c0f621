#include "tools/moerun_bind.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fstream>
#include <tuple>

#include "base/error.h"

namespace moe::tools {
namespace {

constexpr int kWordBits = CHAR_BIT * sizeof(unsigned long);

// The first number of a file such as "3\n" or "0-1,4\n".
int readNumber(const std::string& path, int otherwise) {
  std::ifstream file(path);
  int number = 0;
  return file >> number ? number : otherwise;
}

std::vector<int> allowedNumbers() {
  std::vector<unsigned long> mask(16);
  // The system refuses a mask shorter than its own.
  while (::sched_getaffinity(0, mask.size() * sizeof mask[0], reinterpret_cast<cpu_set_t*>(mask.data())) != 0) {
    if (errno != EINVAL || mask.size() > 65536) throw systemError("cannot tell which processors may be used");
    mask.resize(2 * mask.size());
  }
  std::vector<int> numbers;
  for (std::size_t i = 0; i < mask.size() * kWordBits; ++i) {
    if ((mask[i / kWordBits] >> (i % kWordBits) & 1) != 0) numbers.push_back(static_cast<int>(i));
  }
  return numbers;
}

// The i-th of `count` parts of [0, size), as even as possible.
std::pair<std::size_t, std::size_t> part(std::size_t size, int i, int count) {
  const auto index = static_cast<std::size_t>(i);
  const auto parts = static_cast<std::size_t>(count);
  return {size * index / parts, size * (index + 1) / parts};
}

[[noreturn]] void refuse(Bind bind, int ranks, std::size_t there, const char* what) {
  throw Error(moeInvalidArgument, fmt::format("--bind {}: {} ranks on this host, but moerun may use only {} {}",
                                              bind == Bind::core ? "core" : "share", ranks, there, what));
}

}  // namespace

std::vector<Processor> usableProcessors(const std::string& sys) {
  std::vector<Processor> processors;
  for (const int number : allowedNumbers()) {
    const std::string topology = fmt::format("{}/devices/system/cpu/cpu{}/topology/", sys, number);
    processors.push_back({number, readNumber(topology + "physical_package_id", 0),
                          readNumber(topology + "thread_siblings_list", number)});
  }
  std::sort(processors.begin(), processors.end(), [](const Processor& a, const Processor& b) {
    return std::tie(a.package, a.core, a.number) < std::tie(b.package, b.core, b.number);
  });
  return processors;
}

std::vector<std::vector<int>> shareProcessors(const std::vector<Processor>& processors, Bind bind, int ranks) {
  std::vector<std::vector<int>> cores;
  for (std::size_t i = 0; i < processors.size(); ++i) {
    const bool first = i == 0 || processors[i].core != processors[i - 1].core;
    if (first) cores.emplace_back();
    cores.back().push_back(processors[i].number);
  }
  const auto wanted = static_cast<std::size_t>(ranks);
  if (bind == Bind::core) {
    if (cores.size() < wanted) refuse(bind, ranks, cores.size(), "cores");
    cores.resize(wanted);
    return cores;
  }
  if (processors.size() < wanted) refuse(bind, ranks, processors.size(), "processors");
  if (cores.size() < wanted) {  // ranks may share cores, but not processors
    cores.clear();
    for (const Processor& processor : processors) cores.push_back({processor.number});
  }
  std::vector<std::vector<int>> shares(wanted);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto [begin, end] = part(cores.size(), rank, ranks);
    std::vector<int>& share = shares[static_cast<std::size_t>(rank)];
    for (std::size_t i = begin; i < end; ++i) share.insert(share.end(), cores[i].begin(), cores[i].end());
  }
  return shares;
}

void bindRanks(Bind bind, std::vector<Placement>* placements) {
  if (bind == Bind::none) return;
  for (const Placement& place : *placements) {
    if (place.local) continue;
    throw Error(moeInvalidArgument, fmt::format("--bind is for ranks of this machine, but rank {} is to run on {}; let "
                                                "the command bind itself there, with taskset for example",
                                                place.rank, place.host));
  }
  const auto shares = shareProcessors(usableProcessors(), bind, static_cast<int>(placements->size()));
  for (std::size_t i = 0; i < shares.size(); ++i) (*placements)[i].processors = shares[i];
}

std::vector<unsigned long> affinityMask(const std::vector<int>& processors) {
  std::vector<unsigned long> mask;
  for (const int processor : processors) {
    const auto word = static_cast<std::size_t>(processor / kWordBits);
    if (mask.size() <= word) mask.resize(word + 1);
    mask[word] |= 1UL << (processor % kWordBits);
  }
  return mask;
}

}  // namespace moe::tools
