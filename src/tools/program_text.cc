#include "tools/program_text.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "moecomm.h"

namespace moe::tools {

std::string wrapped(const std::string& text, std::size_t columns) {
  std::string lines, word;
  std::size_t used = 0;
  for (std::istringstream words(text); words >> word; used += word.size()) {
    if (used > 0 && used + 1 + word.size() > columns) {
      lines += '\n';
      used = 0;
    } else if (used > 0) {
      lines += ' ';
      used += 1;
    }
    lines += word;
  }
  return lines;
}

std::vector<std::string> splitWords(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(word);
      word.clear();
    }
  }
  return words;
}

std::string versionText(const std::string& program) {
  const std::string commit = buildCommit();
  return fmt::format("{} {}.{}.{}{}", program, MOE_VERSION_MAJOR, MOE_VERSION_MINOR, MOE_VERSION_PATCH,
                     commit.empty() ? "" : ", commit " + commit);
}

int statusOfOutput(const char* program, int status) {
  const bool failedBefore = std::ferror(stdout) != 0;
  errno = 0;
  if ((std::fflush(stdout) == 0 && !failedBefore) || status != 0) return status;
  const char* why = errno != 0 ? std::strerror(errno) : "it could not be written";
  fmt::print(stderr, "{}: standard output: {}; its output is lost\n", program, why);
  return 1;
}

}  // namespace moe::tools
