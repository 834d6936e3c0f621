#include "backend/cuda_driver.h"

namespace moe {
namespace {

constexpr int kLazyLoading = 2;  // CU_MODULE_LAZY_LOADING

}  // namespace

std::uint8_t* allocationOf(std::uint8_t* pointer) {
  auto* addressRange =
      driverFunction<int(unsigned long long*, std::size_t*, unsigned long long)>("cuMemGetAddressRange", 12000);
  if (addressRange == nullptr) throw Error(moeCudaError, "cannot find cuMemGetAddressRange in the driver");
  unsigned long long base = 0;
  std::size_t bytes = 0;
  const int error = addressRange(&base, &bytes, reinterpret_cast<unsigned long long>(pointer));
  if (error != 0) {
    throw Error(moeCudaError,
                "cuMemGetAddressRange failed with " + std::to_string(error) + ": the window must come from cudaMalloc");
  }
  return reinterpret_cast<std::uint8_t*>(base);
}

bool loadsKernelsLazily() noexcept {
  auto* loadingMode = driverFunction<int(int*)>("cuModuleGetLoadingMode", 11070);
  int mode = 0;
  return loadingMode != nullptr && loadingMode(&mode) == 0 && mode == kLazyLoading;
}

}  // namespace moe
