// How the window is registered with an adapter: the ways that are tried, and the sentence when all are refused. The
// test replaces libibverbs and the CUDA driver function by function.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/error.h"
#include "topology/gpus.h"
#include "transport/rdma/adapter.h"

namespace moe::test {
namespace {

using namespace moe::verbs;

constexpr std::size_t kPage = 4096;
constexpr std::uint64_t kDmaBufKernelError = 801;  // CUDA_ERROR_NOT_SUPPORTED

// The behaviour of the made-up libraries, and the calls that they got.
struct Made {
  int regMrError = 0, regDmaBufError = 0, exportError = 0, pointerError = 0, order = 200;
  bool orderKnown = true;
  std::vector<std::string> calls;
  std::uint64_t exportBegin = 0, exportBytes = 0, offset = 0, iova = 0, pointer = 0;
  std::size_t bytes = 0;
  int access = 0, attribute = 0, contexts = 0;
  unsigned value = 0;
  int fd = -1;
  ibv_mr region{};
};
Made made;

ibv_device onlyDevice{};
ibv_device* devices[] = {&onlyDevice, nullptr};
ibv_context context{};
ibv_pd domain{};

ibv_mr* answer(const char* call, int error, std::size_t bytes, int access) {
  made.calls.emplace_back(call);
  made.bytes = bytes;
  made.access = access;
  if (error == 0) return &made.region;
  errno = error;
  return nullptr;
}

std::shared_ptr<Library> makeLibrary() {
  auto library = std::make_shared<Library>("libc.so.6");
  std::strcpy(onlyDevice.name, "mlx5_0");
  made.region.lkey = 0x11;
  made.region.rkey = 0x22;
  library->getDeviceList = [](int* count) {
    *count = 1;
    return devices;
  };
  library->freeDeviceList = [](ibv_device**) {};
  library->openDevice = [](ibv_device*) { return &context; };
  library->closeDevice = [](ibv_context*) { return 0; };
  library->allocPd = [](ibv_context*) { return &domain; };
  library->deallocPd = [](ibv_pd*) { return 0; };
  library->queryDevice = [](ibv_context*, ibv_device_attr*) { return 0; };
  library->queryPortOfOld = [](ibv_context*, std::uint8_t, _compat_ibv_port_attr*) { return 0; };
  library->regMr = [](ibv_pd*, void*, std::size_t bytes, int access) {
    return answer("ibv_reg_mr", made.regMrError, bytes, access);
  };
  library->regDmaBufMr = [](ibv_pd*, std::uint64_t offset, std::size_t bytes, std::uint64_t iova, int, int access) {
    made.offset = offset;
    made.iova = iova;
    return answer("ibv_reg_dmabuf_mr", made.regDmaBufError, bytes, access);
  };
  library->deregMr = [](ibv_mr*) {
    made.calls.emplace_back("ibv_dereg_mr");
    return 0;
  };
  return library;
}

GpuDriver makeDriver() {
  GpuDriver driver("libc.so.6");
  driver.device = [](int* number, int ordinal) {
    *number = ordinal;
    return 0;
  };
  driver.attribute = [](int* value, int, int) {
    *value = made.order;
    return made.orderKnown ? 0 : 1;
  };
  driver.retainContext = [](void** to, int) {
    *to = &context;
    ++made.contexts;
    return 0;
  };
  driver.releaseContext = [](int) {
    --made.contexts;
    return 0;
  };
  driver.pushContext = [](void*) {
    made.contexts += 10;
    return 0;
  };
  driver.popContext = [](void**) {
    made.contexts -= 10;
    return 0;
  };
  driver.setPointerAttribute = [](const void* value, int attribute, unsigned long long address) {
    made.attribute = attribute;
    made.pointer = address;
    std::memcpy(&made.value, value, sizeof made.value);
    return made.pointerError;
  };
  driver.handleOf = [](void* handle, unsigned long long begin, std::size_t bytes, int, unsigned long long) {
    made.exportBegin = begin;
    made.exportBytes = bytes;
    if (made.exportError == 0) made.fd = ::dup(2);
    std::memcpy(handle, &made.fd, sizeof made.fd);
    return made.exportError;
  };
  return driver;
}

class WindowRegistration : public testing::Test {
 protected:
  void SetUp() override { made = {}; }

  RemoteSetup setup() { return {0, 2, {1}, window(), 3 * kPage, *backend_, log_, orders_, "", {}, {}}; }
  // The window begins within a page.
  std::uint8_t* window() { return pages_.data() + 640; }

  WindowRegion registerGpu() {
    const RemoteSetup mine = setup();
    topology::RdmaPlan plan;
    plan.port = {"mlx5_0", 1};
    adapter_ = std::make_unique<Adapter>(library_ = makeLibrary(), plan);
    if (noDmaBuf_) library_->regDmaBufMr = nullptr;
    return registerGpuWindow(*adapter_, mine, driver_);
  }
  std::string refusal() {
    try {
      registerGpu();
    } catch (const Error& error) {
      EXPECT_EQ(error.result(), moeUnsupported);
      return error.what();
    }
    return "not refused";
  }
  static std::uint64_t pageOf(const void* at) { return reinterpret_cast<std::uint64_t>(at) / kPage * kPage; }

  std::unique_ptr<Backend> backend_ = makeHostBackend();
  const WaitOrders orders_{0, 30'000'000'000};
  Log log_{{moeLogInfo, "", [](void* to, std::int32_t, const char* line) { *static_cast<std::string*>(to) += line; },
            &said_},
           0,
           2};
  std::string said_;
  std::vector<std::uint8_t> pages_ = std::vector<std::uint8_t>(8 * kPage);
  bool noDmaBuf_ = false;
  std::shared_ptr<Library> library_;
  GpuDriver driver_ = makeDriver();
  std::unique_ptr<Adapter> adapter_;
};

TEST_F(WindowRegistration, GpuMemoryIsADmaBufOfWholePages) {
  {
    const WindowRegion region = registerGpu();
    EXPECT_EQ(region.how, "dma-buf");
    EXPECT_EQ(region.keys.local, 0x11U);
    EXPECT_EQ(region.keys.data, 0x22U);
    EXPECT_EQ(region.keys.word, 0x22U);
  }
  EXPECT_EQ(made.calls, (std::vector<std::string>{"ibv_reg_dmabuf_mr", "ibv_dereg_mr"}));
  EXPECT_EQ(made.exportBegin, pageOf(window()));
  EXPECT_EQ(made.exportBytes % kPage, 0U);
  EXPECT_GE(made.exportBegin + made.exportBytes, reinterpret_cast<std::uint64_t>(window()) + 3 * kPage);
  EXPECT_EQ(made.offset, reinterpret_cast<std::uint64_t>(window()) - made.exportBegin);
  EXPECT_EQ(made.iova, reinterpret_cast<std::uint64_t>(window()));
  EXPECT_EQ(made.bytes, 3 * kPage);
  EXPECT_EQ(made.access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);  // strictly ordered
  EXPECT_EQ(::fcntl(made.fd, F_GETFD), -1);  // closed: the registration keeps the memory
  EXPECT_EQ(made.contexts, 0);
}

TEST_F(WindowRegistration, GpuMemoryIsPeerMemoryWhereTheDriverExportsNone) {
  made.exportError = kDmaBufKernelError;
  EXPECT_EQ(registerGpu().how, "peer memory");
  EXPECT_EQ(made.calls.front(), "ibv_reg_mr");
  EXPECT_EQ(made.contexts, 0);
}

TEST_F(WindowRegistration, GpuMemoryIsPeerMemoryWhereTheKernelTakesNoDmaBuf) {
  made.regDmaBufError = EOPNOTSUPP;
  EXPECT_EQ(registerGpu().how, "peer memory");
  EXPECT_EQ(made.calls, (std::vector<std::string>{"ibv_reg_dmabuf_mr", "ibv_reg_mr", "ibv_dereg_mr"}));
  EXPECT_EQ(::fcntl(made.fd, F_GETFD), -1);
}

TEST_F(WindowRegistration, GpuMemoryIsPeerMemoryWithOldLibraries) {
  noDmaBuf_ = true;
  EXPECT_EQ(registerGpu().how, "peer memory");
  noDmaBuf_ = false;
  driver_.handleOf = nullptr;
  EXPECT_EQ(registerGpu().how, "peer memory");
}

TEST_F(WindowRegistration, SaysWhatIsMissingWhereBothAreRefused) {
  made.regMrError = EFAULT;
  made.exportError = kDmaBufKernelError;
  const std::string tail =
      "), nor as peer memory (ibv_reg_mr: Bad address); load nvidia_peermem, or use a driver and a kernel (5.12) with "
      "dma-buf";
  const std::string head = "RDMA: mlx5_0 cannot reach the memory of GPU -1: not as a dma-buf (";
  EXPECT_EQ(refusal(), head + "cuMemGetHandleForAddressRange failed with 801" + tail);
  made.exportError = 0;
  made.regDmaBufError = EOPNOTSUPP;
  EXPECT_EQ(refusal(), head + "ibv_reg_dmabuf_mr: Operation not supported" + tail);
  noDmaBuf_ = true;
  EXPECT_EQ(refusal(), head + "libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34 has)" + tail);
  noDmaBuf_ = false;
  driver_.handleOf = nullptr;
  EXPECT_EQ(refusal(), head + "the NVIDIA driver has no cuMemGetHandleForAddressRange" + tail);
  driver_.retainContext = [](void**, int) { return 2; };
  driver_.handleOf = [](void*, unsigned long long, std::size_t, int, unsigned long long) { return 0; };
  EXPECT_EQ(refusal(), head + "cuMemGetHandleForAddressRange failed with 2" + tail);
}

TEST_F(WindowRegistration, AGpuThatDoesNotKeepTheOrderIsRefused) {
  made.order = 0;
  EXPECT_EQ(refusal(),
            "RDMA: GPU -1 does not keep the order of an adapter's writes, so flags are unreliable; use "
            "MOECOMM_TRANSPORT=tcp");
  EXPECT_TRUE(made.calls.empty());
}

// An adapter must see what a cudaMemcpy has written.
TEST_F(WindowRegistration, CopiesToTheWindowAreMadeToFinishInTime) {
  registerGpu();
  EXPECT_EQ(made.attribute, 6);  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  EXPECT_EQ(made.value, 1U);
  EXPECT_EQ(made.pointer, reinterpret_cast<std::uint64_t>(window()));
  EXPECT_EQ(said_, "");
  made.pointerError = 1;  // memory that lacks the attribute is registered all the same
  EXPECT_EQ(registerGpu().how, "dma-buf");
  EXPECT_NE(said_.find("GPU -1 cannot set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS for the window"), std::string::npos);
}

TEST_F(WindowRegistration, HostMemoryIsRegisteredByItsAddress) {
  const RemoteSetup mine = setup();
  topology::RdmaPlan plan;
  plan.port = {"mlx5_0", 1};
  const Adapter adapter(makeLibrary(), plan);
  EXPECT_EQ(registerWindow(adapter, mine).how, "host memory");
  EXPECT_EQ(made.calls.front(), "ibv_reg_mr");
  made.regMrError = ENOMEM;
  try {
    registerWindow(adapter, mine);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeSystemError);
    EXPECT_STREQ(error.what(),
                 "RDMA: mlx5_0: cannot register the window, 12288 bytes (is ulimit -l high enough?): Cannot allocate "
                 "memory");
  }
}

TEST(GpuDriver, SaysWhatIsMissingWithoutADriver) {
  try {
    GpuDriver::load("libnone.so.1");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeUnsupported);
    EXPECT_STREQ(error.what(), "RDMA: libnone.so.1 is missing, too old, or shows no GPU");
  }
}

}  // namespace
}  // namespace moe::test
