#include "perf/moe_perf/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "tools/program_text.h"

namespace moe::perf {
namespace {

std::string sentence(const std::string& text) {
  return tools::wrapped(text, tools::kTerminalColumns) + "\n";
}

std::vector<std::string> differing(const Cases& a, const Cases& b, const std::vector<std::string>& fields) {
  std::vector<std::string> names;
  std::copy_if(fields.begin(), fields.end(), std::back_inserter(names),
               [&](const std::string& field) { return fieldText(a, field) != fieldText(b, field); });
  return names;
}

struct AcrossField {
  Across across;
  std::string field;
  std::vector<std::string> follow;  // fields whose usual value depends on it
};

// NULL without --across.
const AcrossField* fieldOf(Across across) {
  static const std::vector<AcrossField> fields = {{Across::mode, "mode", {}},
                                                  {Across::layout, "layout", {"weights"}},
                                                  {Across::sms, "sms", {}},
                                                  {Across::format, "format", {"cast", "scales"}},
                                                  {Across::wire, "wire", {}}};
  const auto found =
      std::find_if(fields.begin(), fields.end(), [across](const AcrossField& one) { return one.across == across; });
  return found == fields.end() ? nullptr : &*found;
}

// The fields without those that may differ.
std::vector<std::string> without(std::vector<std::string> fields, const AcrossField* across) {
  if (across == nullptr) return fields;
  std::erase_if(fields, [across](const std::string& field) {
    return field == across->field ||
           std::find(across->follow.begin(), across->follow.end(), field) != across->follow.end();
  });
  return fields;
}

// Among the old cases with as many tokens, the one that is most like `now` in the fields of `work`; in a tie the last
// one. With `across`, a case that differs in that field comes first. NULL if there is none.
const Cases* mostAlike(const Cases& old, const Cases& now, const std::vector<std::string>& work,
                       const AcrossField* across) {
  const Cases* best = nullptr;
  std::size_t fewest = 2 * (work.size() + 1);
  for (const Cases& one : old) {
    if (one["tokens"] != now["tokens"]) continue;
    const bool same = across != nullptr && fieldText(one, across->field) == fieldText(now, across->field);
    const std::size_t count = 2 * differing(one, now, work).size() + (same ? 1 : 0);
    if (count > fewest) continue;
    best = &one;
    fewest = count;
  }
  return best;
}

class Writer {
 public:
  explicit Writer(const ComparisonSettings& settings)
      : settings_(settings),
        across_(fieldOf(settings.across)),
        work_(without(fieldsOfWork(), across_)),
        operations_(settings.verbose ? std::vector<std::string>{"dispatch", "combine", "pair", "step"}
                                     : std::vector<std::string>{"pair", "step"}) {}

  void add(const Cases& allOld, const Cases& now) {
    const Cases* old = mostAlike(allOld, now, work_, across_);
    const int tokens = now["tokens"];
    if (old == nullptr)
      return addRefusal(tokens, fmt::format("{} has no case with this number of tokens", settings_.oldName));
    const std::vector<std::string> fields = differing(*old, now, work_);
    if (!fields.empty()) return addRefusal(tokens, "not the same work: " + changes(*old, now, fields));
    addTimes(*old, now);
    checkLimit(*old, now);
    noteDifferences(*old, now);
  }

  ReportComparison finish(const Cases& old) const {
    std::string text = sentence(fmt::format("compared with {} of {}, commit {}", settings_.oldName,
                                            fieldText(old[0], "date"), fieldText(old[0], "commit")));
    for (const std::string& note : notes_) text += sentence(note);
    if (!rows_.empty()) text += titles() + rows_;
    for (const auto& [why, tokens] : refusals_) {
      text += sentence(fmt::format("not compared: {} tokens: {}", fmt::join(tokens, ", "), why));
    }
    if (overlaps_) text += sentence("~: the middle 80 % of the old and of the new times overlap");
    text += exceeded_;
    const bool bad = settings_.limitPercent >= 0 && (!exceeded_.empty() || !refusals_.empty());
    return {text, bad};
  }

 private:
  static std::string changes(const Cases& old, const Cases& now, const std::vector<std::string>& fields) {
    std::vector<std::string> texts;
    for (const std::string& field : fields) {
      texts.push_back(fmt::format("{} was {} and is {}", field, fieldText(old, field), fieldText(now, field)));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  void addRefusal(int tokens, const std::string& why) { refusals_[why].push_back(tokens); }

  void addTimes(const Cases& old, const Cases& now) {
    rows_ += fmt::format("{:>7}", now["tokens"].get<int>());
    for (const std::string& operation : operations_) {
      const double before = medianOf(old, operation), after = medianOf(now, operation);
      const bool overlap = overlapping(old[operation + "_us"], now[operation + "_us"]);
      rows_ += fmt::format(" {:>9.1f} {:>9.1f} {:>7.3f}{}", before, after, after / before, overlap ? '~' : ' ');
      overlaps_ = overlaps_ || overlap;
    }
    if (across_ != nullptr) {
      rows_ += fmt::format(" {} -> {}", fieldText(old, across_->field), fieldText(now, across_->field));
    }
    rows_.resize(rows_.find_last_not_of(' ') + 1);
    rows_ += "\n";
  }

  // False for reports that lack the percentiles.
  static bool overlapping(const Cases& a, const Cases& b) {
    for (const Cases* times : {&a, &b}) {
      for (const char* which : {"p10", "p90"}) {
        if (!times->contains(which) || !(*times)[which].is_number()) return false;
      }
    }
    return a["p10"] <= b["p90"] && b["p10"] <= a["p90"];
  }

  void checkLimit(const Cases& old, const Cases& now) {
    for (const char* operation : {"pair", "step"}) {
      const double more = 100 * (medianOf(now, operation) / medianOf(old, operation) - 1);
      if (settings_.limitPercent < 0 || more <= settings_.limitPercent) continue;
      exceeded_ += sentence(fmt::format("SLOWER: {} tokens: the {} takes {:.1f} % longer, of at most {} %",
                                        now["tokens"].get<int>(), operation, more, settings_.limitPercent));
    }
  }

  // Says once what differs between cases that were compared.
  void noteDifferences(const Cases& old, const Cases& now) {
    addNote("another machine: ", old, now, fieldsOfMachine());
    addNote("other settings: ", old, now, without(fieldsOfSettings(), across_));
  }

  void addNote(const char* what, const Cases& old, const Cases& now, const std::vector<std::string>& all) {
    const std::vector<std::string> fields = differing(old, now, all);
    if (fields.empty()) return;
    const std::string note = what + changes(old, now, fields);
    if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
  }

  static double medianOf(const Cases& one, const std::string& operation) { return one[operation + "_us"]["median"]; }

  std::string titles() const {
    std::string first = fmt::format("{:>7}", ""), second = fmt::format("{:>7}", "tokens");
    for (const std::string& operation : operations_) {
      first += fmt::format(" {:>27} ", operation + ", median us");
      second += fmt::format(" {:>9} {:>9} {:>7} ", "old", "new", "ratio");
    }
    first.pop_back();
    second.pop_back();
    if (across_ != nullptr) second += "  " + across_->field;
    return first + "\n" + second + "\n";
  }

  const ComparisonSettings& settings_;
  const AcrossField* across_;
  std::vector<std::string> work_;  // fields that must be the same
  std::vector<std::string> operations_;
  std::vector<std::string> notes_;
  std::map<std::string, std::vector<int>> refusals_;  // token counts, by reason
  std::string rows_, exceeded_;
  bool overlaps_ = false;
};

}  // namespace

ReportComparison compare(const Cases& old, const Cases& now, const ComparisonSettings& settings) {
  Writer writer(settings);
  for (const Cases& one : now) writer.add(old, one);
  return writer.finish(old);
}

}  // namespace moe::perf
