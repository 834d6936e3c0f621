// Links if src/base/fmt_code.cc contains all of fmt's code that formatting needs.
#include <fmt/format.h>

int main(int count, char** words) {
  return fmt::format("{} {:L} {:.3f} {:x}", words[0], count, 0.1 * count, count).empty() ? 1 : 0;
}
