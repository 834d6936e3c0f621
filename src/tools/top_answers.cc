// The answers of a host's ranks as one text, by which moe_top of another host learns them.
#include "tools/top_answers.h"

#include <fmt/format.h>

#include <stdexcept>

#include <nlohmann/json.hpp>

namespace moe::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kAnswersFormat = "moecomm answers";
constexpr int kAnswersVersion = 1;

// A shell of the other host may have printed lines before.
std::string lineOfAnswers(const std::string& output) {
  const std::string begin = fmt::format("{{\"format\":\"{}\"", kAnswersFormat);
  for (std::size_t at = output.find(begin); at != std::string::npos; at = output.find(begin, at + 1)) {
    if (at == 0 || output[at - 1] == '\n') return output.substr(at, output.find('\n', at) - at);
  }
  throw std::runtime_error("its output is not that of moe_top");
}

}  // namespace

std::string answersText(const std::vector<Answer>& answers) {
  OrderedJson all = OrderedJson::array();
  for (const Answer& answer : answers) {
    all.push_back({{"socket", answer.socket}, {"text", answer.text}, {"problem", answer.problem}});
  }
  const OrderedJson json = {{"format", kAnswersFormat}, {"version", kAnswersVersion}, {"answers", all}};
  return json.dump(-1, ' ', true, OrderedJson::error_handler_t::replace) + "\n";
}

std::vector<Answer> parseAnswers(const std::string& output) {
  const std::string line = lineOfAnswers(output);
  try {
    const OrderedJson json = OrderedJson::parse(line);
    if (json.at("version") != kAnswersVersion) {
      throw std::runtime_error(fmt::format("its moe_top writes version {} of its answers, but only version {} is known",
                                           json.at("version").dump(), kAnswersVersion));
    }
    std::vector<Answer> answers;
    for (const OrderedJson& one : json.at("answers")) {
      answers.push_back({one.at("socket").get<std::string>(), one.at("text").get<std::string>(),
                         one.at("problem").get<std::string>()});
    }
    return answers;
  } catch (const OrderedJson::exception& error) {
    throw std::runtime_error(fmt::format("its answers cannot be read: {}", error.what()));
  }
}

}  // namespace moe::tools
