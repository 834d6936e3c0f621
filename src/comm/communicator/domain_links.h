// The transport of a communicator that has several domains: how it is chosen, made and connected, and how steps see it.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator/comm.h"

namespace moe {

class DomainLinks {
 public:
  DomainLinks(Comm& comm, bootstrap::Bootstrap& group) : comm_(comm), group_(group) {}

  // Collective: makes the first of `kinds` (moeTransport values) that every rank can make, connects it to the ranks of
  // other domains, and shows it to steps.
  void connect(const std::vector<int>& kinds);

 private:
  RemoteSetup setup() const;
  void connectTo(const std::vector<CardBytes>& cards);
  std::vector<std::string> gatherTexts(const std::string& mine);
  void show();

  Comm& comm_;
  bootstrap::Bootstrap& group_;
};

}  // namespace moe
