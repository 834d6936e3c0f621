// The command line of moe_perf. Fields have the names of their options and of the JSON report.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perf/moe_perf/report_file.h"
#include "perf/moe_perf/routing_file.h"
#include "perf/payload/payload.h"
#include "perf/payload/work.h"

namespace moe::perf {

// How the scales of fp8 rows travel: as one array of side payload, or as a payload of rows or of columns.
enum class Side : int { array, rows, columns };

enum class Routing : int { uniform, zipf, groupLimited, oneRank, empty, file };

// The field in which --compare lets old and new cases differ.
enum class Across : int { none, mode, layout, sms, format, wire };

struct Options {
  std::int32_t backend = 0;  // moeBackend value
  std::int32_t mode = 0;     // moeMode value
  std::int32_t layout = 0;   // moeLayout value
  Format format = Format::bf16;
  Side side = Side::array;
  Cast cast = Cast::none;
  Wire wire = Wire::row;
  std::int32_t scales = 0;  // moeScales value: where a cast's scales go
  Routing routing = Routing::uniform;
  std::string routingPath;                         // --routing-file
  std::shared_ptr<const RoutingFile> routingFile;  // Routing::file
  std::string weights = "auto";  // apply or applied; auto is apply where the layout has one row per expert
  std::vector<int> tokens = {128};
  int hidden = 7168;
  int topk = 8;
  int experts = 256;
  int groups = 8;          // groups of experts, for group-limited routing
  int groupsPerToken = 4;  // at most this many for a token
  int sms = 0;
  int iters = 20;
  int timed = 0;  // iterations of each timed pass; 0: as many as are verified
  int chain = 1;
  int warmup = 5;
  int window = 1;
  int describe = 1;
  int verifyEvery = 1;
  int soak = 0;         // iterations; 0: no soak
  int faultsOneIn = 0;  // of a soak's iterations, one in so many has a fault; 0: none has
  int timeoutMs = 0;
  int domainSize = 0;          // 0: the library's choice
  std::int32_t transport = 0;  // moeTransport value between domains; 0: the library's choice
  int threads = 0;             // --ranks-as-threads; 0: one rank, from the launcher's environment
  std::uint64_t seed = 1;
  bool graph = false;
  bool interleave = false;
  bool sendOnly = false;
  bool ceiling = false;
  bool transportTest = false;
  bool plantWrong = false;
  bool verbose = false;
  bool perRank = false;
  std::string json;  // report files; empty: none; or kStandardOutput
  std::string csv;
  std::string plot;
  std::string tune;               // the tuning file to write; empty: none
  std::string command;            // the whole command line
  std::vector<std::string> from;  // reports to plot or compare instead of a run
  std::string compare;            // an older report
  double compareLimit = -1;       // percent; below 0: no limit
  Across across = Across::none;   // what old and new cases may differ in

  bool expertMajor() const;  // a row per expert rather than per token
  ExpertStyle style() const;
  RowShape rowShape() const;
  int timedIterations() const { return timed > 0 ? timed : iters; }
  std::int32_t sideBytes() const { return rowShape().sideFloats * 4; }
  std::int32_t rowBytes() const { return hidden * elementBytes(format); }
  std::int32_t combineRowBytes() const { return hidden * elementBytes(combineFormat(format)); }
  int reportsOnStandardOutput() const;  // how many of json, csv and plot go there
  bool staysInSlots() const;            // rows stay in the handle's own memory (moeHandleGetView)
  int tokensMax() const;
  // With a cast: words of a row's scales, bytes of its codes, and of the row as it arrives in its slot, with its
  // scales.
  int scaleWords() const;
  int codeBytes() const { return castPacksTwo(cast) ? hidden / 2 : hidden; }
  int castRowBytes() const;
  // Bytes of a row on the wire.
  std::int32_t travellingRowBytes() const { return cast == Cast::none ? rowBytes() : castRowBytes(); }
  // Bytes of a row in the output.
  std::int32_t outRowBytes() const { return cast == Cast::none ? rowBytes() : codeBytes(); }
  // The same for a combine.
  int combineTravellingBytes() const;
  int sessions() const { return interleave ? 2 : 1; }

  // As written on the command line.
  std::string backendName() const;
  std::string modeName() const;
  std::string layoutName() const;
  std::string formatName() const;
  std::string castName() const;
  std::string castText() const;  // the cast, with the order of its scales if that is not the usual one
  std::string scalesName() const;
  std::string wireName() const;
  std::string routingName() const;
  std::string routingText() const;  // the distribution of experts, with its groups
  std::string weightsName() const;
};

// Returns nothing if there is nothing to run: either help was requested and printed (*status 0), or an option is wrong
// and was reported (*status 2).
std::optional<Options> parseOptions(int argc, const char* const* argv, int* status);

}  // namespace moe::perf
