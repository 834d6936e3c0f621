// A file that is replaced as a whole: others read the old text or the new one, never a part of it.
#pragma once

#include <string>

namespace moe::perf {

// Tries whether replaceFile could write `path`, and leaves it as it is. `option` is the option that named the file.
// These throw std::runtime_error.
void requireReplaceable(const std::string& option, const std::string& path);

void replaceFile(const std::string& option, const std::string& path, const std::string& text);

}  // namespace moe::perf
