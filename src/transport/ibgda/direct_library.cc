#include "transport/ibgda/direct_library.h"

#include <fmt/format.h>

#include "base/error.h"

namespace moe::ibgda {

std::shared_ptr<const DirectLibrary> DirectLibrary::load(const std::string& name) {
  auto library = std::make_shared<DirectLibrary>(name);
  if (!library->file.found()) {
    throw Error(moeUnsupported,
                fmt::format("IBGDA: {} cannot be loaded; install it (Debian, Ubuntu: ibverbs-providers)", name));
  }
  const auto need = [&](const char* symbol, auto& function) {
    if (library->file.find(symbol, function)) return;
    throw Error(moeUnsupported, fmt::format("IBGDA: {} has no {}: it is too old", name, symbol));
  };
  need("mlx5dv_is_supported", library->isSupported);
  need("mlx5dv_init_obj", library->initObject);
  return library;
}

}  // namespace moe::ibgda
