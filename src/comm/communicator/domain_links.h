// The transport of a communicator that has several domains: how it is made and connected, and how steps see it. It is
// made anew whenever the window's memory changes (decision 0136) and in every recovery (decision 0137). So an old one
// has no thread, connection or registration left that could touch the window.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator/comm.h"

namespace moe {

class DomainLinks {
 public:
  // `timeout`: that of the group's collectives.
  DomainLinks(Comm& comm, bootstrap::Bootstrap& group, std::chrono::milliseconds timeout)
      : comm_(comm), group_(group), timeout_(timeout) {}

  // Collective: makes the first of `kinds` (moeTransport values) that every rank can make, connects it to the ranks of
  // other domains, and shows it to steps. There is none when it is called, on any rank.
  void connect(const std::vector<int>& kinds);
  // The same with a transport of the kind that there was, if that can drop puts to the ranks that are lost. Steps go on
  // posting to these, because they have no list of the living.
  void connectAgain();
  // Collective, when no step runs on any rank: ends it when all puts have arrived. Throws moeTimeout if they do not.
  void finish();
  // Collective: ends it as it is, when no step runs on any rank. What is on its way does not arrive any more.
  void cut(const char* call);

 private:
  RemoteSetup setup() const;
  bool isLost(int rank) const;
  void clearGoodbyes();
  void connectTo(const std::vector<CardBytes>& cards);
  std::vector<std::string> gatherTexts(const std::string& mine);
  void show();

  Comm& comm_;
  bootstrap::Bootstrap& group_;
  std::chrono::milliseconds timeout_;
};

}  // namespace moe
