// Texts of others, such as peers, hosts and callers, as they may be shown: characters that would act on a terminal or
// end a line become '?'.
#pragma once

#include <algorithm>
#include <string>

namespace moe {

// Keeps all that is no control character.
inline std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

// Keeps ASCII only.
inline std::string printableAscii(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace moe
