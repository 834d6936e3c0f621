// A C++17 program that uses the installed library. It makes a group of one rank and leaves it.
#include <moecomm.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace {

void check(moeResult_t result, const std::string& call) {
  if (result == moeSuccess) return;
  throw std::runtime_error(call + ": " + moeGetErrorString(result) + ": " + moeGetLastError(nullptr));
}

void useLibrary() {
  std::int32_t version = 0;
  check(moeGetVersion(&version), "moeGetVersion");
  if (version != MOE_VERSION_CODE) throw std::runtime_error("header and library differ");

  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  config.backend = moeBackendHost;
  config.tokensMax = 64;
  moeUniqueId_t id;
  check(moeGetUniqueId(&id), "moeGetUniqueId");
  moeComm_t comm = nullptr;
  check(moeCommInit(&comm, 1, 0, &id, &config), "moeCommInit");
  check(moeCommDestroy(comm), "moeCommDestroy");
}

}  // namespace

int main() {
  try {
    useLibrary();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
