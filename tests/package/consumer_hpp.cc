// A C++17 program that uses the installed moecomm.hpp. It makes a group of one rank, runs a step and leaves.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include <moecomm.hpp>

namespace {

bool isRight() {
  moecomm::Config config;
  config.backend = moeBackendHost;
  config.tokensMax = 64;
  const moecomm::Communicator comm(1, 0, moecomm::makeUniqueId(), config);
  moecomm::Handle handle(comm, moecomm::HandleConfig(2, 1));
  const std::vector<std::int32_t> experts = {1, 0};
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> arrived(rows.size()), sums(rows.size());
  handle.route({experts});
  handle.dispatch({rows, arrived, 4});
  handle.combine({arrived, sums, 4});
  return sums == rows && moecomm::version() == MOE_VERSION_CODE;
}

}  // namespace

int main() {
  try {
    return isRight() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
