// Cases of the JSON reports of moe_perf (--json), from this run or from a file. --plot and --compare work on both
// alike.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace moe::perf {

using Cases = nlohmann::ordered_json;  // an array of objects, one per case

// Reads the cases of a report. `option` named the file. Throws std::runtime_error if the file cannot be read, if it is
// not such a report, or if it is one of a soak or a transport test, which have no cases.
Cases readCases(const std::string& option, const std::string& path);

// Fields that make two cases the same work. `tokens` is one too, and not in this list.
const std::vector<std::string>& fieldsOfWork();
// Fields that may change the times of the same work: settings, and those of the machine.
const std::vector<std::string>& fieldsOfSettings();
const std::vector<std::string>& fieldsOfMachine();

// A field as text: strings without quotes, and "unknown" where the case has none.
std::string fieldText(const Cases& oneCase, const std::string& field);

}  // namespace moe::perf
