// Replaces libcuda.so.1 where there is no GPU, for the functions that gpu_memory.cc uses. As with a GPU, the CPU cannot
// touch "GPU memory" at its address. Copies can, and a test can through a second mapping. The fake ends the process if
// the adapter's thread calls a function that may wait for a kernel.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define MOE_FAKED extern "C" __attribute__((visibility("default")))

namespace {

std::uint8_t *onGpu = nullptr, *seen = nullptr;  // two mappings of the same memory
std::size_t memoryBytes = 0;
unsigned long copies = 0;

bool covers(std::uint64_t address, std::size_t bytes) {
  const std::uint64_t offset = address - reinterpret_cast<std::uintptr_t>(onGpu);
  return onGpu != nullptr && offset <= memoryBytes && bytes <= memoryBytes - offset;
}
std::uint8_t* seenAt(std::uint64_t address) {
  return seen + (address - reinterpret_cast<std::uintptr_t>(onGpu));
}

void refuseToAdapter(const char* what) {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  if (std::strcmp(name, "fake_mlx5") != 0) return;
  std::fprintf(stderr, "the adapter calls %s, which may wait for a kernel\n", what);
  std::abort();
}

}  // namespace

// For tests: allocates "GPU memory" and returns the second mapping too.
MOE_FAKED void* fake_cuda_allocate(std::size_t bytes, void** seenByTest) {
  seen = static_cast<std::uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  onGpu = static_cast<std::uint8_t*>(mremap(seen, 0, bytes, MREMAP_MAYMOVE));
  mprotect(onGpu, bytes, PROT_NONE);
  memoryBytes = bytes;
  *seenByTest = seen;
  return onGpu;
}
MOE_FAKED unsigned long fake_cuda_copies() {
  return copies;
}

// Signatures and constants are those of cuda.h.
MOE_FAKED int cuPointerGetAttribute(void* value, int attribute, std::uint64_t address) {
  constexpr int kContext = 1, kMemoryType = 2, kInvalidValue = 1;
  if (!covers(address, 1)) return kInvalidValue;
  if (attribute == kContext) *static_cast<void**>(value) = &memoryBytes;
  if (attribute == kMemoryType) *static_cast<unsigned*>(value) = 2;
  return 0;
}
MOE_FAKED int cuCtxGetCurrent(void** context) {
  *context = nullptr;
  return 0;
}
MOE_FAKED int cuCtxSetCurrent(void*) {
  return 0;
}
MOE_FAKED int cuStreamCreate(void** stream, unsigned flags) {
  refuseToAdapter("cuStreamCreate");
  *stream = &copies;
  return flags == 1 ? 0 : 1;
}
MOE_FAKED int cuStreamDestroy_v2(void*) {
  return 0;
}
MOE_FAKED int cuStreamSynchronize(void*) {
  return 0;
}
MOE_FAKED int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  refuseToAdapter("cuMemHostAlloc");
  *memory = std::malloc(bytes);
  return 0;
}
MOE_FAKED int cuMemFreeHost(void* memory) {
  refuseToAdapter("cuMemFreeHost");
  std::free(memory);
  return 0;
}
MOE_FAKED int cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes, void*) {
  if (!covers(from, bytes)) return 1;
  ++copies;
  std::memcpy(to, seenAt(from), bytes);
  return 0;
}
MOE_FAKED int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void*) {
  if (!covers(to, bytes)) return 1;
  ++copies;
  std::memcpy(seenAt(to), from, bytes);
  return 0;
}
