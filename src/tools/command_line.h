// The common part of the command lines of all programs: --version, help that fits a terminal and has notes, and
// messages about wrong options that name the option that was probably meant.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/nearest_name.h"

namespace moe::tools {

// A term and what it means.
struct Note {
  std::string term, text;
};

// Texts that help shows below the options, and the manual page in sections of the same names. Empty ones are left out.
struct ProgramNotes {
  std::vector<Note> exitStatus;
  std::vector<Note> environment;
  std::vector<std::string> examples;  // command lines
};

// Gives the program --version, and the help and messages described above.
void prepareCommandLine(CLI::App& app, const std::string& program, const ProgramNotes& notes = {});

// Parses and returns -1; or prints help, the version or an error, and returns the exit status: 0, or 2 for an error.
// `check` may throw CLI::ValidationError for options that do not go together.
template <class Check>
int parseCommandLine(CLI::App& app, int argc, const char* const* argv, const Check& check) {
  try {
    app.parse(argc, argv);
    check();
    return -1;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
}

// Accepts whole numbers in this range, and refuses anything else with a message. It has no text in the help.
CLI::Validator wholeNumber(std::int64_t least, std::int64_t most = std::numeric_limits<int>::max());

// Accepts one of these names, and refuses anything else with a message. It has no text in the help.
CLI::Validator oneOf(const std::vector<std::string>& known);

// For options whose value is one of a few names.
template <class Value>
CLI::Option* addChoice(CLI::App& app, const std::string& option, Value& value,
                       const std::map<std::string, Value>& names, const std::string& text) {
  std::vector<std::string> known;
  std::string usual;
  for (const auto& [name, meaning] : names) {
    known.push_back(name);
    if (meaning == value) usual = name;
  }
  return app
      .add_option_function<std::string>(
          option, [&value, &names](const std::string& name) { value = names.at(name); },
          fmt::format("{}: {}", text, fmt::join(known, ", ")))
      ->check(oneOf(known), "")
      ->type_name("NAME")
      ->default_str(usual);
}

}  // namespace moe::tools
