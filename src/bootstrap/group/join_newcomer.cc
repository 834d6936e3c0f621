// Brings a newcomer into a group that exists, under the number of a lost rank: joinAsNewcomer of node.h. It waits at
// its sponsor until that sends the state of the group. Then it is a node like those of the others, without a parent
// yet.
#include <fmt/format.h>

#include "base/error.h"
#include "bootstrap/group/node.h"
#include "bootstrap/group/reach.h"
#include "bootstrap/net/socket.h"
#include "bootstrap/net/wire.h"

namespace moe::bootstrap {
namespace {

constexpr std::uint8_t kLost = 1, kLeft = 2;  // of a rank, in the table

// The connection to the sponsor, until its answer comes.
class Wait : public Source {
 public:
  explicit Wait(std::unique_ptr<Link> link) : link_(std::move(link)) {}

  void send(int rank, std::span<const std::uint8_t> payload) {
    link_->send(FrameType::newcomer, rank, payload);
    link_->pump(POLLOUT);
  }
  void arm(PollSet& set) override { index_ = set.add(link_->fd(), link_->wanted()); }
  void serve(const PollSet& set) override {
    link_->pump(set.at(index_));
    while (const auto frame = link_->next()) {
      if (frame->type == FrameType::refusal) {
        const Failure reason = decodeReason(0, frame->payload);
        throw Error(reason.result, reason.sentence);
      }
      table_.assign(frame->payload.begin(), frame->payload.end());
    }
  }
  bool ended() const { return !table_.empty() || link_->closed(); }
  const std::vector<std::uint8_t>& table() const { return table_; }  // empty: it has not come

 private:
  std::unique_ptr<Link> link_;
  std::size_t index_ = 0;
  std::vector<std::uint8_t> table_;
};

std::vector<std::uint8_t> awaitTable(const IdContents& contents, const Options& options,
                                     const std::vector<Address>& addresses, std::span<const std::uint8_t> card) {
  const Deadline deadline = Deadline::after(options.timeout);
  Wait wait(reachRendezvous(contents, options, deadline));
  Writer request;
  request.u32(static_cast<std::uint32_t>(options.nranks));
  writeAddresses(request, addresses);
  request.bytes(card);
  wait.send(options.rank, request.view());
  while (!wait.ended() && !deadline.expired()) pollOnce(wait, deadline);
  if (!wait.table().empty()) return wait.table();
  if (wait.ended()) {
    throw Error(moeRemoteError,
                fmt::format("rank {}: the rank that issued the id, at {}, has closed the connection: it has ended, or "
                            "has issued another id for this place",
                            options.rank, describe(contents.addresses)));
  }
  throw Error(moeTimeout,
              fmt::format("rank {}: the group has not taken this process in within {} ms: its ranks do that "
                          "in moeCommRecover",
                          options.rank, options.timeout.count()));
}

struct Table {
  Generation generation = 0;
  std::vector<Node::Standing> ranks;
  std::vector<std::vector<Address>> addresses;
  std::vector<std::uint8_t> rest;
};

Table readTable(const std::vector<std::uint8_t>& bytes, int nranks) {
  Table table;
  Reader in(bytes);
  table.generation = in.u8();
  for (int rank = 0; rank < nranks; ++rank) {
    const std::uint8_t state = in.u8();
    const Incarnation incarnation = in.u8();
    table.ranks.push_back({(state & kLost) != 0, (state & kLeft) != 0, incarnation});
    if (!readAddresses(in, table.addresses.emplace_back())) {
      throw Error(moeInternalError, "the sponsor of this process sent a malformed table of ranks");
    }
  }
  const auto rest = in.rest();
  table.rest.assign(rest.begin(), rest.end());
  return table;
}

}  // namespace

std::vector<std::uint8_t> tableFor(const Node& node, std::span<const std::uint8_t> table) {
  Writer out;
  out.u8(node.generation());
  for (int rank = 0; rank < node.group().nranks; ++rank) {
    const unsigned lost = node.lost(rank) ? kLost : 0, left = node.left(rank) ? kLeft : 0;
    out.u8(static_cast<std::uint8_t>(lost | left));
    out.u8(node.incarnation(rank));
    writeAddresses(out, node.group().addresses[static_cast<std::size_t>(rank)]);
  }
  out.bytes(table);
  return out.take();
}

std::unique_ptr<Node> joinAsNewcomer(const moeUniqueId_t& id, const Options& options,
                                     std::span<const std::uint8_t> card, std::vector<std::uint8_t>* table) {
  try {
    const IdContents contents = decodeUniqueId(id);
    Listener listener = listenTcp(ownAddresses(contents, options), 0);
    const Table found = readTable(awaitTable(contents, options, listener.addresses, card), options.nranks);
    Group group{options.rank, options.nranks, contents.secret, found.addresses, options.timeout, options.log};
    auto node = std::make_unique<Node>(std::move(group), std::move(listener.sockets));
    node->beginAs(found.generation, found.ranks);
    node->seekParents();
    *table = found.rest;
    return node;
  } catch (...) {
    throw currentErrorOf(options.rank);
  }
}

}  // namespace moe::bootstrap
