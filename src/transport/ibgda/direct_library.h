// libmlx5, loaded at run time. It gives the addresses of the queues that it has made for libibverbs.
#pragma once

#include <memory>
#include <string>

#include <infiniband/mlx5dv.h>

#include "topology/dynamic_library.h"

namespace moe::ibgda {

struct DirectLibrary {
  // Throws moeUnsupported if the library or one of its functions is missing.
  static std::shared_ptr<const DirectLibrary> load(const std::string& name = "libmlx5.so.1");

  explicit DirectLibrary(const std::string& name) : file(name.c_str()) {}

  topology::DynamicLibrary file;
  decltype(&::mlx5dv_is_supported) isSupported = nullptr;
  decltype(&::mlx5dv_init_obj) initObject = nullptr;
};

}  // namespace moe::ibgda
