// moe_trace makes one trace of the dumps of all ranks of a job, which Perfetto and chrome://tracing open, and a picture
// of which rank waited for which.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/command_line.h"
#include "tools/program_text.h"
#include "tools/trace_output.h"

namespace moe::tools {
namespace {

struct Options {
  std::vector<std::string> inputs;
  std::string trace, heat, job;
};

std::string contentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && !file.eof()) throw std::runtime_error(path + ": cannot be read");
  return text;
}

// The dumps that a folder holds, or the file itself.
std::vector<std::string> filesOf(const std::string& input) {
  if (!std::filesystem::exists(input)) throw std::runtime_error(input + ": does not exist");
  if (!std::filesystem::is_directory(input)) return {input};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(input)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("moecomm-") && name.ends_with(".json")) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot be written");
}

void makeFiles(const Options& options) {
  std::vector<RankDump> dumps;
  for (const std::string& input : options.inputs) {
    for (const std::string& file : filesOf(input)) dumps.push_back(parseDump(contentOf(file), file));
  }
  dumps = ofOneJob(std::move(dumps), options.job);
  std::int64_t error = 0;
  std::size_t steps = 0;
  for (const RankDump& dump : dumps) {
    error = std::max(error, dump.clockError);
    steps += dump.steps.size();
  }
  fmt::print("job {}: {} of {} ranks, {} steps, clocks aligned to {:.1f} us\n", dumps[0].job, dumps.size(),
             dumps[0].nranks, steps, static_cast<double>(error) / 1000);
  for (const RankDump& dump : dumps) {
    if (dump.result != 0) fmt::print("rank {} failed: {}\n", dump.rank, dump.failure);
  }
  fmt::print("slowest: {}\n", slowestRank(dumps).sentence);
  if (!options.trace.empty()) write(options.trace, traceJson(dumps));
  if (!options.heat.empty())
    write(options.heat, heatMapSvg(waitsOf(dumps), "Waits of job " + dumps[0].job, slowestRank(dumps).sentence));
}

ProgramNotes notes() {
  return {{{"0", "the dumps were read and all files written"},
           {"1", "a dump is missing or invalid, or a file could not be written"},
           {"2", "an option is invalid"}},
          {},
          {"moe_trace dumps -o trace.json --heat waits.svg", "moe_trace --job f9911858be10934a dumps"}};
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Makes a trace and a heat map of the dumps of all ranks: moe_trace [OPTIONS] DUMP...");
  prepareCommandLine(app, "moe_trace", notes());
  app.add_option("dumps", options.inputs, "files of moeCommDump, or folders with such files")
      ->required()
      ->type_name("PATH");
  app.add_option("-o,--trace", options.trace, "write a trace for Perfetto or chrome://tracing")->type_name("FILE");
  app.add_option("--heat", options.heat, "write an SVG picture: rank by rank, who waited for whom")->type_name("FILE");
  app.add_option("--job", options.job, "take the dumps of this job, where there are several")->type_name("ID");
  const int status = parseCommandLine(app, argc, argv, [] {});
  if (status >= 0) return status;
  try {
    makeFiles(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "moe_trace: {}\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace moe::tools

int main(int argc, char** argv) {
  return moe::tools::statusOfOutput("moe_trace", moe::tools::run(argc, argv));
}
