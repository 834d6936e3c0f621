// The output of moe_model: tables in the form of docs/internals/scaling.md, and the same as JSON.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "perf/model/machine.h"

namespace moe::model {

// One machine and workload, at several numbers of ranks.
struct Study {
  Machine machine;
  Workload workload;
  std::vector<int> ranks;
};

// The cases of docs/internals/scaling.md.
Study nodesStudy(int tokens);
Study fabricsStudy(int tokens);

std::string destinationsTable(const Study& study);
std::string llTable(const Study& study);
std::string htTable(const Study& study);
std::string memoryTable(const Study& ll, const Study& ht);
std::string publishedTable();

// The tables of docs/internals/scaling.md, named after their place there.
struct NamedTable {
  std::string name, title, text;
};
std::vector<NamedTable> documentTables();

nlohmann::ordered_json toJson(const Study& ll, const Study& ht);
nlohmann::ordered_json documentJson();

}  // namespace moe::model
