// A build without the headers of libibverbs refuses the verbs transport and says what the build lacks.
#include <gtest/gtest.h>

#include "base/error.h"
#include "transport/transports.h"

namespace moe::test {
namespace {

TEST(VerbsAbsent, SaysWhatTheBuildLacks) {
  const std::unique_ptr<Backend> backend = makeHostBackend();
  const Log log;
  const WaitOrders orders{0, 30'000'000'000};
  try {
    makeVerbsTransport({0, 2, {1}, nullptr, 0, *backend, log, orders, "", {}, {}});
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeUnsupported);
    EXPECT_NE(std::string(error.what()).find("install libibverbs-dev"), std::string::npos);
  }
}

}  // namespace
}  // namespace moe::test
