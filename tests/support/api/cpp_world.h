// Ranks as threads of this process, through the C++ interface, on the host backend.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <moecomm.hpp>

namespace moe::test {

// A configuration with small buffers.
inline moecomm::Config cppConfig() {
  moecomm::Config config;
  config.backend = moeBackendHost;
  config.tokensMax = 32;
  config.llTokensMax = 16;
  config.rowBytesMax = 1024;
  config.sideBytesMax = 64;
  config.topkMax = 4;
  config.expertsMax = 32;
  config.heapBytes = 1 << 20;
  config.timeoutMs = 20000;
  return config;
}

// Runs body(communicator, rank) on every rank. The ranks leave together. An exception that a body throws is a failure
// of the test, and the rank leaves with the others.
template <class Body>
void cppWorld(int nranks, const moecomm::Config& config, Body body) {
  const moeUniqueId_t id = moecomm::makeUniqueId();
  std::barrier<> together(nranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      moecomm::Communicator comm;
      try {
        comm = moecomm::Communicator(nranks, rank, id, config);
        body(comm, rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        if (comm) comm.abort();
      }
      together.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Expects that `call` throws a moecomm::Error with this result, whose sentence has `part`.
template <class Call>
void expectError(moeResult_t result, const std::string& part, Call call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown, expected: " << part;
  } catch (const moecomm::Error& error) {
    EXPECT_EQ(error.result(), result) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nexpected: " << part;
  }
}

}  // namespace moe::test
