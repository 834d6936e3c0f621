#include "tools/command_line.h"

#include <charconv>
#include <memory>
#include <system_error>

#include "tools/program_text.h"

namespace moe::tools {
namespace {

constexpr std::size_t kNameColumns = 30;
constexpr std::size_t kTermColumns = 24;  // of notes, with the blanks around the term

class Help : public CLI::Formatter {
 public:
  Help() { column_width(kNameColumns); }

  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description(), kTerminalColumns - kNameColumns);
  }

  // Shows the value's kind and its default. Limits appear in the message when they are broken.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    std::string kind = option->get_type_name();
    kind = kind.substr(0, kind.find(':'));
    const std::string usual = option->get_default_str();
    return " " + kind + (usual.empty() ? "" : "=" + usual);
  }
};

std::vector<std::string> optionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Arguments that the parser did not expect: unknown options, or words if no such option exists.
std::string unexpected(const CLI::App& app) {
  const std::vector<std::string> known = optionNames(app);
  std::string sentence;
  for (const std::string& word : app.remaining()) {
    if (word.size() < 2 || word.front() != '-') continue;
    const std::string name = word.substr(0, word.find('='));
    sentence += fmt::format("{}unknown option {}{}", sentence.empty() ? "" : "; ", name, didYouMean(name, known));
  }
  if (!sentence.empty()) return sentence;
  return fmt::format("unexpected argument {}", fmt::join(app.remaining(), " "));
}

std::string notesText(const std::string& title, const std::vector<Note>& notes) {
  if (notes.empty()) return "";
  std::string text = fmt::format("\n{}:\n", title);
  for (const Note& note : notes) {
    std::string meaning = wrapped(note.text, kTerminalColumns - kTermColumns);
    for (std::size_t at = meaning.find('\n'); at != std::string::npos; at = meaning.find('\n', at + 1)) {
      meaning.insert(at + 1, kTermColumns, ' ');
    }
    text += fmt::format("  {:<{}}{}\n", note.term, kTermColumns - 2, meaning);
  }
  return text;
}

std::string footerText(const ProgramNotes& notes) {
  std::string text = notesText("Exit status", notes.exitStatus) + notesText("Environment", notes.environment);
  if (!notes.examples.empty()) text += "\nExamples:\n";
  for (const std::string& example : notes.examples) text += fmt::format("  {}\n", example);
  return text.empty() ? "" : text.substr(1, text.size() - 2);  // the formatter adds a line end on both sides
}

}  // namespace

CLI::Validator wholeNumber(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    std::int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [after, error] = std::from_chars(text.data(), end, number);
    if (after == end && error == std::errc() && number >= least && number <= most) return "";
    return fmt::format("{} is not a whole number from {} to {}", text, least, most);
  };
  return CLI::Validator(check, "");
}

CLI::Validator oneOf(const std::vector<std::string>& known) {
  const auto check = [known](const std::string& text) -> std::string {
    if (std::find(known.begin(), known.end(), text) != known.end()) return "";
    return fmt::format("{} is not one of {}{}", text, fmt::join(known, ", "), didYouMean(text, known));
  };
  return CLI::Validator(check, "");
}

void prepareCommandLine(CLI::App& app, const std::string& program, const ProgramNotes& notes) {
  app.name(program);
  app.footer(footerText(notes));
  app.description(wrapped(app.get_description(), kTerminalColumns));
  app.formatter(std::make_shared<Help>());
  app.set_version_flag("--version", versionText(program));
  app.failure_message([program](const CLI::App* failed, const CLI::Error& error) {
    const bool unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    return fmt::format("{}: {}\n{} --help lists the options\n", program, unknown ? unexpected(*failed) : error.what(),
                       program);
  });
}

}  // namespace moe::tools
