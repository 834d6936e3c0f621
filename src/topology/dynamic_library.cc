#include "topology/dynamic_library.h"

#include <dlfcn.h>

namespace moe::topology {

DynamicLibrary::DynamicLibrary(const char* name) : handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}

void* DynamicLibrary::address(const char* symbol) const {
  return handle_ == nullptr ? nullptr : ::dlsym(handle_, symbol);
}

}  // namespace moe::topology
