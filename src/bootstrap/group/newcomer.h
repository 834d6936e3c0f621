// How a new process gets the number of a lost rank (decision 0125): a survivor, the sponsor, issues an id and waits for
// the newcomer at a listener of its own. The newcomer tells its addresses and its card, which the sponsor checks at
// once, and waits. Within a recovery all survivors learn of it, and the sponsor sends it the state of the group.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "bootstrap/group/failure.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/lobby.h"
#include "bootstrap/net/wire.h"
#include "moecomm.h"

namespace moe::bootstrap {

// A newcomer that waits, as survivors tell each other.
struct Newcomer {
  int rank = 0;  // the number that it takes
  Incarnation incarnation = 0;
  std::vector<Address> addresses;  // of its listener
  std::vector<std::uint8_t> card;  // what the communicator tells of itself
  std::uint32_t visit = 0;         // which of the processes that have come to the sponsor
  int sponsor = -1;                // the survivor at which it waits; not written

  void write(Writer& out) const;
  static std::optional<Newcomer> read(Reader& in);  // nothing: malformed
};

// Throws Error with the reason why a newcomer with this card cannot take the number. Called in the node's rounds.
using CheckNewcomer = std::function<void(std::span<const std::uint8_t> card)>;

// Waits for the newcomer of one rank, as a source of the sponsor's node. It throws nothing in rounds.
class NewcomerServer : public Source {
 public:
  NewcomerServer(int rank, int nranks, std::vector<Fd> listeners, const Key& groupKey, CheckNewcomer check);

  int rank() const { return rank_; }
  // The process that waits; nothing: none does.
  std::optional<Newcomer> waiting(Incarnation incarnation) const;
  // Ends its wait: it gets the state of the group, or a reason. Nothing if it does not wait any more.
  void send(std::uint32_t visit, const std::vector<std::uint8_t>& table);
  void refuse(std::uint32_t visit, moeResult_t result, const std::string& sentence);

  void arm(PollSet& set) override;
  void serve(const PollSet& set) override;
  int waitMsMax() const override { return lobby_.waitMsMax(); }

 private:
  void admit(std::unique_ptr<Link> guest);
  void tell(std::unique_ptr<Link> link, FrameType type, std::span<const std::uint8_t> payload);
  std::string objection(int rank, std::uint32_t nranks) const;

  int rank_, nranks_;
  Lobby lobby_;
  CheckNewcomer check_;
  std::unique_ptr<Link> link_;  // of the process that waits
  std::size_t index_ = 0;
  bool armed_ = false;
  std::vector<Address> addresses_;
  std::vector<std::uint8_t> card_;
  std::uint32_t visit_ = 0;
  std::vector<std::unique_ptr<Link>> told_;  // that have got an answer, until they close
};

}  // namespace moe::bootstrap
