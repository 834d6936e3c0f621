// A shared library that is loaded at run time, so that moecomm also loads on machines without it. It stays loaded,
// because drivers may not survive unloading.
#pragma once

#include <dlfcn.h>

#include <string>

namespace moe::topology {

class DynamicLibrary {
 public:
  // Check found() afterwards.
  explicit DynamicLibrary(const char* name) : handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}

  bool found() const { return handle_ != nullptr; }

  // Fills `function`, a function pointer. Returns whether the library has it.
  template <class Function>
  bool find(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(address(symbol));
    return function != nullptr;
  }

 private:
  void* address(const char* symbol) const { return handle_ == nullptr ? nullptr : ::dlsym(handle_, symbol); }

  void* handle_;
};

}  // namespace moe::topology
