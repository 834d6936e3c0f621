// The transport whose puts steps post themselves, without an adapter: what it refuses, and with which sentence.
// tests/rdma tests it with the adapter in software.
#include <gtest/gtest.h>

#include "base/error.h"
#include "transport/ibgda/queues.h"

namespace moe::test {
namespace {

std::string refusalOf(const std::string& library) {
  try {
    ibgda::DirectLibrary::load(library);
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeUnsupported);
    return error.what();
  }
  return "not refused";
}

TEST(IbgdaLibrary, SaysWhatToInstallWhereThereIsNone) {
  EXPECT_EQ(refusalOf("libnone.so.1"),
            "IBGDA: libnone.so.1 cannot be loaded; install it (Debian, Ubuntu: ibverbs-providers)");
}

TEST(IbgdaLibrary, SaysWhichFunctionIsMissing) {
  EXPECT_EQ(refusalOf("libm.so.6"), "IBGDA: libm.so.6 has no mlx5dv_is_supported: it is too old");
}

}  // namespace
}  // namespace moe::test
