// moerun starts N ranks of a program, on this machine or over ssh, and gives each its place in the group. It
// knows nothing of the library but the names of the environment variables.
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/fd.h"
#include "base/host_name.h"
#include "base/unix_socket.h"
#include "tools/command_line.h"
#include "tools/moerun_bind.h"
#include "tools/moerun_job.h"
#include "tools/moerun_plan.h"
#include "tools/moerun_process.h"
#include "tools/moerun_supervisor.h"
#include "tools/moerun_watcher.h"
#include "tools/program_text.h"
#include "tools/watch_folder.h"

namespace moe::tools {
namespace {

const std::map<std::string, Bind> kBinds = {{"none", Bind::none}, {"core", Bind::core}, {"share", Bind::share}};

struct Arguments {
  int nranks = 1;
  std::string hosts;
  double timeoutSeconds = 0;
  double graceSeconds = 10;
  bool tag = true;
  Bind bind = Bind::none;
  bool watch = true;
  std::string rootHost;
  std::string ssh = "ssh -o BatchMode=yes";
  std::vector<std::string> exports;
  std::vector<std::string> command;
};

std::array<std::uint8_t, 16> randomBytes() {
  std::array<std::uint8_t, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw systemError("cannot get random bytes");
  }
  return bytes;
}

std::string makeSecret() {
  std::string secret;
  for (const std::uint8_t byte : randomBytes()) secret += fmt::format("{:02x}", byte);
  return secret;
}

// The errno of binding a socket to these; 0 if that works. Throws if there can be no socket.
int bindError(int family, const sockaddr* address, socklen_t bytes) {
  const Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket && errno == EAFNOSUPPORT) return errno;
  if (!socket) throw Error(moeSystemError, "cannot look for a free port: " + errorText(errno));
  const int alone = 1;  // IPv6 without IPv4
  if (family == AF_INET6) (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &alone, sizeof alone);
  return ::bind(socket.get(), address, bytes) == 0 ? 0 : errno;
}

int bindError4(in_addr_t where, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(where);
  return bindError(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

int bindError6(const in6_addr& where, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = where;
  return bindError(AF_INET6, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

// A host may lack one of the families.
bool portIsFree(std::uint16_t port) {
  return bindError4(INADDR_ANY, port) != EADDRINUSE && bindError6(in6addr_any, port) != EADDRINUSE;
}

// The loopback address for MOECOMM_ROOT: that of IPv4, unless this host has only that of IPv6.
const char* loopbackHost() {
  const bool onlyIpv6 = bindError4(INADDR_LOOPBACK, 0) != 0 && bindError6(in6addr_loopback, 0) == 0;
  return onlyIpv6 ? "[::1]" : "127.0.0.1";
}

// A port for rank 0, and an abstract socket whose name claims it. Until moerun ends, the claim keeps other moeruns of
// this machine from choosing the port before rank 0 listens there. Such names belong to one network, as ports do.
struct ClaimedPort {
  std::uint16_t number;
  Fd claim;  // none where there are no such sockets
};

// Nothing if another moerun has claimed the port.
std::optional<ClaimedPort> claimPort(std::uint16_t number) {
  ClaimedPort port{number, Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  if (!port.claim) return port;
  const UnixName name = UnixName::abstract(fmt::format("moerun-port-{}", number));
  if (::bind(port.claim.get(), name.get(), name.bytes()) == 0) return port;
  if (errno == EADDRINUSE) return std::nullopt;
  return ClaimedPort{number, Fd()};
}

// Chooses a port below the range that the system hands out by itself, so that no outgoing connection takes it
// meanwhile. The next port is free too, for programs that need their own meeting. Only this machine is checked.
ClaimedPort choosePort() {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const auto bytes = randomBytes();
    const auto number = static_cast<std::uint16_t>(20000 + ((bytes[0] << 8 | bytes[1]) % 6000) * 2);
    auto port = claimPort(number);
    if (port && portIsFree(number) && portIsFree(static_cast<std::uint16_t>(number + 1))) return std::move(*port);
  }
  throw Error(moeSystemError, "no free port found from 20000 to 31999");
}

// The address at which the ranks find rank 0. It is the loopback address only if no other host must reach it.
std::string rootHost(const std::vector<Placement>& placements, const std::string& thisHost) {
  bool anyRemote = false;
  for (const Placement& placement : placements) anyRemote = anyRemote || !placement.local;
  if (!anyRemote) return loopbackHost();
  const Placement& first = placements.front();
  const std::string host = first.local ? thisHost : first.host;
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

std::chrono::milliseconds toMs(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
}

CLI::Validator seconds() {
  const auto check = [](const std::string& text) -> std::string {
    constexpr double kMost = 1e9;
    double number = -1;
    const char* end = text.data() + text.size();
    const auto [after, error] = std::from_chars(text.data(), end, number);
    if (after == end && error == std::errc() && number >= 0 && number <= kMost) return "";
    return fmt::format("{} is not a number of seconds from 0 to {:.0f}", text, kMost);
  };
  return CLI::Validator(check, "");
}

// The caller has not decided where ranks offer their records.
bool choosesFolder(const Arguments& arguments) {
  return arguments.watch && ::getenv("MOECOMM_WATCH_FOLDER") == nullptr;
}

// Where the ranks of this machine offer their records. Empty if the caller has decided that, or if nobody can.
std::string watchFolder(const Arguments& arguments) {
  if (!choosesFolder(arguments)) return "";
  const std::string folder = defaultWatchFolder();
  return prepareWatchFolder(folder) ? folder : "";
}

ProgramNotes notes() {
  return {{{"0", "all ranks ended with 0"},
           {"1", "the job could not start, or output was lost"},
           {"2", "an option is invalid"},
           {"124", "the job took longer than --timeout"},
           {"128 + N", "signal N ended moerun, or the first rank that failed"},
           {"other", "the status of the first rank that failed"}},
          {{"MOECOMM_*", "passed to all ranks, also on other hosts"},
           {"MOECOMM_WATCH_FOLDER", "if set, even if empty, --watch has no effect"},
           {"MOECOMM_RANK, ...",
            "set for each rank: MOECOMM_RANK, MOECOMM_NRANKS, MOECOMM_LOCAL_RANK, MOECOMM_LOCAL_NRANKS, MOECOMM_ROOT "
            "and MOECOMM_SECRET"}},
          {"moerun -n 4 ./program", "moerun -n 4 --bind core moe_perf --backend host",
           "moerun -n 16 --hosts a:8,b:8 -x LD_LIBRARY_PATH ./program"}};
}

void declare(CLI::App& app, Arguments& arguments) {
  app.prefix_command();  // everything from the command on belongs to the command
  app.add_option("-n,--ranks", arguments.nranks, "number of ranks")->required()->check(wholeNumber(1, 65536));
  app.add_option("--hosts", arguments.hosts, "hosts, as a,b or with slots a:4,b:4; default: only this machine")
      ->type_name("LIST");
  app.add_option("--timeout", arguments.timeoutSeconds,
                 "seconds after which the whole job ends with status 124; 0: never")
      ->check(seconds())
      ->type_name("SECONDS");
  app.add_option("--grace", arguments.graceSeconds, "seconds for the other ranks to report after one has failed")
      ->check(seconds())
      ->type_name("SECONDS")
      ->capture_default_str();
  app.add_flag("--tag,!--no-tag", arguments.tag, "start every output line with [rank]; on unless --no-tag");
  addChoice(app, "--bind", arguments.bind, kBinds,
            "processors of each rank of this machine: its own core, an equal share, or all");
  app.add_flag("--watch,!--no-watch", arguments.watch,
               fmt::format("let moe_top see the ranks, by sockets in {} of each host; off with --no-watch, or if "
                           "MOECOMM_WATCH_FOLDER is set",
                           defaultWatchFolder()));
  app.add_option("--root-host", arguments.rootHost, "address at which the ranks reach rank 0; default: its host")
      ->type_name("HOST");
  app.add_option("--ssh", arguments.ssh, "program that runs a command on a host; moerun appends host and command")
      ->type_name("COMMAND")
      ->capture_default_str();
  app.add_option("-x,--export", arguments.exports, "variable to pass to ranks on other hosts; MOECOMM_* always are")
      ->type_name("VARIABLE")
      ->allow_extra_args(false);
}

// The arguments that the parser leaves over are the command. A leading "--" only ends our options.
void takeCommand(std::vector<std::string> words, Arguments& arguments) {
  const bool separated = !words.empty() && words.front() == "--";
  if (separated) words.erase(words.begin());
  if (words.empty()) throw CLI::RequiredError("COMMAND");
  if (!separated && words.front().rfind('-', 0) == 0) throw CLI::ExtrasError({words.front()});
  arguments.command = std::move(words);
}

void warnOfNames(const std::vector<Placement>& placements) {
  if (std::all_of(placements.begin(), placements.end(), [](const Placement& place) { return place.local; })) return;
  for (const std::string& name : namesLeftOut()) {
    fmt::print(stderr,
               "moerun: '{}' is not passed to other hosts: a shell does not accept it as the name of a variable\n",
               name);
  }
}

int launch(const Arguments& arguments) {
  checkExports(arguments.exports);
  const std::string thisHost = thisHostName();
  const auto hosts = arguments.hosts.empty() ? std::vector<HostSlots>{} : parseHosts(arguments.hosts);
  auto placements = placeRanks(arguments.nranks, hosts, thisHost);
  bindRanks(arguments.bind, &placements);
  const std::string root = arguments.rootHost.empty() ? rootHost(placements, thisHost) : arguments.rootHost;
  const ClaimedPort port = choosePort();
  const Job job{arguments.nranks,
                fmt::format("{}:{}", root, port.number),
                makeSecret(),
                arguments.command,
                splitWords(arguments.ssh),
                arguments.exports,
                watchFolder(arguments),
                choosesFolder(arguments)};
  SupervisorOptions options;
  options.grace = toMs(arguments.graceSeconds);
  options.timeout = toMs(arguments.timeoutSeconds);
  options.tag = arguments.tag;
  warnOfNames(placements);
  const Watcher watcher;
  Supervisor supervisor(takeSignals(), watcher, options);
  for (const Placement& placement : placements) supervisor.add(startRank(job, placement, watcher));
  return supervisor.run();
}

int run(int argc, char** argv) {
  CLI::App app("Starts N ranks of a program: moerun -n N [OPTIONS] COMMAND [ARGUMENTS]");
  prepareCommandLine(app, "moerun", notes());
  Arguments arguments;
  declare(app, arguments);
  try {
    app.parse(argc, argv);
    takeCommand(app.remaining(), arguments);
    return launch(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "moerun: {}\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace moe::tools

int main(int argc, char** argv) {
  return moe::tools::statusOfOutput("moerun", moe::tools::run(argc, argv));
}
