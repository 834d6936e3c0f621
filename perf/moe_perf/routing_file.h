// Expert ids that an engine recorded: an array that numpy.save wrote, of int32 or int64, [steps][ranks][tokens][topk]
// or [ranks][tokens][topk]. -1 is an unused entry.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moe::perf {

struct RoutingFile {
  std::string path;
  int steps = 0, ranks = 0, tokens = 0, topk = 0;
  std::vector<std::int32_t> experts;

  // Throws std::runtime_error, with the path, if the file cannot be read or holds no such array.
  static RoutingFile read(const std::string& path);

  // Throws std::runtime_error unless a run with these sizes can take its routes from here. Each token has a row of `k`.
  void require(int nranks, int tokensMax, int k, int expertsMax) const;

  // The top-k of a token. Steps repeat.
  std::vector<std::int32_t> of(std::uint64_t step, int rank, int token) const;
};

}  // namespace moe::perf
