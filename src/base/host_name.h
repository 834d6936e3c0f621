// The name of this host, as log lines, reports and launch plans show it.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace moe {

// Empty if the system does not tell it.
inline std::string thisHostName() {
  std::array<char, 256> name{};
  (void)!::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace moe
