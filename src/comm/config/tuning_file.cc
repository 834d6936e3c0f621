#include "comm/config/tuning_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/printable.h"
#include "comm/config/config.h"
#include "comm/config/parse.h"

namespace moe {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 16;

// What one rank sends at most in an LL dispatch.
constexpr std::int64_t kBytesMax = std::int64_t{Limits::kLlTokens} * kRanksOfToken * Limits::kRowBytes;

// Sentences travel to all ranks and into logs, so they show little of a file that is no text.
std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 60;
  return printableAscii(std::string(text.substr(0, kShown))) + (text.size() > kShown ? "..." : "");
}

std::vector<std::string_view> wordsOf(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r";
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; (begin = line.find_first_not_of(kBlanks, begin)) != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

std::size_t indexIn(std::span<const char* const> names, const std::string& what, std::string_view word) {
  const auto found = std::find(names.begin(), names.end(), word);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw badVariable(what, shown(word), fmt::format("it must be one of {}", fmt::join(names, ", ")));
}

// Reads a file line by line.
class TuningLines {
 public:
  explicit TuningLines(std::string_view name) : name_(name) {}

  void take(std::string_view line) {
    ++number_;
    const std::vector<std::string_view> words = wordsOf(line);
    if (words.empty()) return;
    const std::string place = fmt::format("{} line {}", name_, number_);
    if (fmt::format("{}", fmt::join(words, " ")) == kTuningVersion) {
      hasVersion_ = true;
    } else if (!hasVersion_) {
      throw badVariable(place, shown(line), fmt::format("the first line must be {}", kTuningVersion));
    } else {
      takeLimit(place, line, words);
    }
  }

  ModeLimits end() const {
    if (hasVersion_) return limits_;
    throw Error(moeInvalidArgument, fmt::format("{} is empty; its first line must be {}", name_, kTuningVersion));
  }

 private:
  void takeLimit(const std::string& place, std::string_view line, const std::vector<std::string_view>& words) {
    if (words.size() != 3) throw badVariable(place, shown(line), "it must have a setup, a layout and bytes");
    const std::size_t setup = indexIn(kSetupNames, place + ": setup", words[0]);
    const std::size_t layout = indexIn(kLayoutNames, place + ": layout", words[1]);
    std::int64_t& limit = limits_[setup][layout];
    if (limit != kNotTuned) throw badVariable(place, shown(line), "an earlier line has this setup and layout");
    limit = parseInteger(place + ": bytes", shown(words[2]), 0, kBytesMax);
  }

  std::string_view name_;
  int number_ = 0;
  bool hasVersion_ = false;
  ModeLimits limits_ = untuned();
};

}  // namespace

std::string tuningLine(ModeSetup setup, Layout layout, std::int64_t bytes) {
  return fmt::format("{} {} {}", nameOf(setup), nameOf(layout), bytes);
}

ModeLimits parseTuning(std::string_view name, std::string_view text) {
  TuningLines lines(name);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines.end();
}

ModeLimits readTuningFile(const std::string& path) {
  const auto refusal = [&](const std::string& why) {
    return Error(moeInvalidArgument, fmt::format("MOECOMM_TUNING is {}, {}", path, why));
  };
  const auto unreadable = [&] { return refusal(fmt::format("which cannot be read: {}", std::strerror(errno))); };
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0) throw unreadable();
  if (!S_ISREG(found.st_mode)) throw refusal("which is not a regular file");
  std::string text(kFileBytesMax + 1, '\0');
  std::size_t size = 0;
  for (ssize_t taken = 1; taken > 0 && size < text.size(); size += static_cast<std::size_t>(taken)) {
    taken = ::read(file.get(), text.data() + size, text.size() - size);
    if (taken < 0) throw unreadable();
  }
  if (size > kFileBytesMax) throw refusal(fmt::format("which has more than {} bytes", kFileBytesMax));
  text.resize(size);
  return parseTuning(path, text);
}

}  // namespace moe
