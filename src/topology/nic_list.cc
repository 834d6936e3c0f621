#include "topology/nic_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace moe::topology {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = 0; end != std::string_view::npos; text.remove_prefix(std::min(end + 1, text.size()))) {
    end = text.find(separator);
    parts.push_back(text.substr(0, end));
  }
  return parts;
}

std::optional<int> numberFrom(std::string_view text) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < 0) return std::nullopt;
  return number;
}

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  NicList parse() {
    if (text_.find('=') == std::string::npos) {
      names(text_);
      return list_;
    }
    for (const std::string_view part : split(text_, ';')) {
      const std::size_t equals = part.find('=');
      if (equals == std::string_view::npos) throw refusal();
      const auto gpu = numberFrom(part.substr(0, equals));
      if (!gpu || list_.ofGpus.count(*gpu) != 0) throw refusal();
      list_.ofGpus[*gpu] = names(part.substr(equals + 1));
    }
    return list_;
  }

 private:
  Error refusal() const {
    return Error(moeInvalidArgument,
                 fmt::format("MOECOMM_NICS is \"{}\"; expected adapters like mlx5_0,mlx5_1:2 (port 2), or adapters for "
                             "each GPU like 0=mlx5_0;1=mlx5_1, each GPU once",
                             text_));
  }

  NicName name(std::string_view text) const {
    const std::size_t colon = text.find(':');
    const auto port = colon == std::string_view::npos ? 1 : numberFrom(text.substr(colon + 1));
    const std::string nic(text.substr(0, colon));
    if (nic.empty() || !port || nic.find_first_of(" \t;") != std::string::npos) throw refusal();
    return {nic, *port};
  }

  std::vector<NicName> names(std::string_view text) {
    std::vector<NicName> found;
    for (const std::string_view part : split(text, ',')) {
      const NicName one = name(part);
      if (std::find(found.begin(), found.end(), one) != found.end()) throw refusal();
      found.push_back(one);
      if (std::find(list_.order.begin(), list_.order.end(), one) == list_.order.end()) list_.order.push_back(one);
    }
    return found;
  }

  const std::string& text_;
  NicList list_;
};

}  // namespace

std::string textOf(const NicName& name) {
  return name.port == 1 ? name.nic : fmt::format("{}:{}", name.nic, name.port);
}

NicList parseNicList(const std::string& text) {
  return text.empty() ? NicList{} : Parser(text).parse();
}

}  // namespace moe::topology
