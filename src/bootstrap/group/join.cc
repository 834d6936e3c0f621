// Brings one rank into its group: joinGroup of node.h.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "bootstrap/group/failure.h"
#include "bootstrap/group/node.h"
#include "bootstrap/group/reach.h"
#include "bootstrap/group/rendezvous_server.h"
#include "bootstrap/group/unique_id.h"
#include "bootstrap/net/dialer.h"
#include "bootstrap/net/socket.h"

namespace moe::bootstrap {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kFarewell{200};
constexpr const char* kWhat = "the join";  // as in "rank 2 did not complete the join within 30000 ms"

// The connection to the rendezvous while this rank joins. It takes part in the node's rounds, so that a refusal ends
// them.
class Meeting : public Source {
 public:
  Meeting(std::unique_ptr<Link> link, std::string where) : link_(std::move(link)), where_(std::move(where)) {}

  void hearFirst(const Node& node) { node_ = &node; }  // news of the group replaces "connection closed" in sentences

  void arm(PollSet& set) override { index_ = set.add(link_->fd(), link_->wanted()); }
  void serve(const PollSet& set) override {
    link_->pump(set.at(index_));
    while (const auto frame = link_->next()) handle(*frame);
    if (!link_->closed()) return;
    if (node_ != nullptr) node_->throwIfBroken(kWhat);
    throw Error(moeRemoteError, fmt::format("the rendezvous at {} closed the connection before all ranks had joined: "
                                            "the process that serves the unique id has ended{}{}",
                                            where_, link_->reason().empty() ? "" : ", ", link_->reason()));
  }

  void send(FrameType type, int rank, std::span<const std::uint8_t> payload = {}) {
    link_->send(type, rank, payload);
    link_->pump(POLLOUT);
  }
  bool drained() const { return link_->drained(); }
  const std::vector<std::uint8_t>& table() const { return table_; }  // empty: not arrived yet

 private:
  void handle(const Frame& frame) {
    if (frame.type == FrameType::table) {
      table_.assign(frame.payload.begin(), frame.payload.end());
      return;
    }
    const Failure reason = decodeReason(0, frame.payload);
    throw Error(reason.result, reason.sentence);
  }

  std::unique_ptr<Link> link_;
  std::string where_;
  std::size_t index_ = 0;
  const Node* node_ = nullptr;
  std::vector<std::uint8_t> table_;
};

Group readTable(const std::vector<std::uint8_t>& table, const Key& secret, const Options& options) {
  Group group{options.rank, options.nranks, {}, {}, options.timeout, options.log};
  Reader in(table);
  Key session{};
  in.bytes(session);
  group.key = deriveKey(secret, "session", session);
  group.addresses.resize(static_cast<std::size_t>(options.nranks));
  for (auto& addresses : group.addresses) {
    if (!readAddresses(in, addresses)) throw Error(moeInternalError, "the rendezvous sent a malformed table of ranks");
  }
  return group;
}

void connectToParent(Node& node, const Options& options, Deadline deadline) {
  const int parent = parentOf(options.rank);
  const auto& addresses = node.group().addresses[static_cast<std::size_t>(parent)];
  std::string problem;
  while (!deadline.expired()) {
    Dialer dialer(addresses, node.group().key, Node::kPeerFrames, perAddress(options));
    node.addSource(dialer);
    const auto remove = [&](Dialer* d) { node.removeSource(*d); };
    const std::unique_ptr<Dialer, decltype(remove)> registered(&dialer, remove);
    while (dialer.state() == Dialer::State::trying && !deadline.expired()) node.round(deadline.leftMs());
    if (dialer.state() == Dialer::State::connected) node.attachTo(parent, dialer.take());
    refuseShortage(dialer, fmt::format("rank {}", parent));
    while (node.parentState() == Node::ParentState::asked && !deadline.expired()) node.round(deadline.leftMs());
    if (node.parentState() == Node::ParentState::attached) return;
    node.throwIfBroken(kWhat);
    problem = dialer.problem();
    node.round(std::min(50, deadline.leftMs()));
  }
  throw Error(moeTimeout,
              fmt::format("rank {} could not connect to rank {} at {} within {} ms{}{}", options.rank, parent,
                          describe(addresses), options.timeout.count(), problem.empty() ? "" : ": ", problem));
}

void checkOptions(const Options& options) {
  if (options.nranks < 1 || options.nranks > static_cast<int>(kRankCountMax)) {
    throw Error(moeInvalidArgument, fmt::format("nranks is {}, not in 1..{}", options.nranks, kRankCountMax));
  }
  if (options.rank < 0 || options.rank >= options.nranks) {
    throw Error(moeInvalidArgument, fmt::format("rank is {}, not in 0..{}", options.rank, options.nranks - 1));
  }
}

void takePlace(Node& node, Meeting& meeting, const Options& options, Deadline deadline) {
  node.addSource(meeting);
  meeting.hearFirst(node);
  if (options.rank > 0) connectToParent(node, options, deadline);
  node.allGather({}, kWhat, deadline);
  node.removeSource(meeting);
  meeting.send(FrameType::joined, options.rank);
}

std::unique_ptr<Node> meetAndJoin(const moeUniqueId_t& id, const Options& options) {
  const Deadline deadline = Deadline::after(options.timeout);
  const IdContents contents = decodeUniqueId(id);
  JoinRequest request;
  Listener listener = listenTcp(ownAddresses(contents, options), 0);
  request.addresses = listener.addresses;

  Meeting meeting(reachRendezvous(contents, options, deadline), describe(contents.addresses) + serverOf(options));
  request.nranks = static_cast<std::uint32_t>(options.nranks);
  request.timeoutMs = static_cast<std::uint32_t>(std::max<std::int64_t>(0, options.timeout.count()));
  request.leftMs = static_cast<std::uint32_t>(deadline.leftMs());
  meeting.send(FrameType::join, options.rank, request.encode());
  // The server knows which ranks are missing. Its answer may come late on a busy machine.
  const milliseconds grace = std::min<milliseconds>(std::chrono::seconds(1), options.timeout / 4);
  const Deadline answer = Deadline::after(milliseconds(deadline.leftMs()) + grace);
  while (meeting.table().empty() && !answer.expired()) pollOnce(meeting, answer);
  if (meeting.table().empty()) {
    throw Error(moeTimeout, fmt::format("rank {}: the rendezvous at {} did not answer within {} ms", options.rank,
                                        describe(contents.addresses) + serverOf(options), options.timeout.count()));
  }

  if (options.nranks == 1) listener.sockets.clear();  // others dial a rank to repair the tree, and to see if it lives
  std::unique_ptr<Node> node;
  try {
    node = std::make_unique<Node>(readTable(meeting.table(), contents.secret, options), std::move(listener.sockets));
    takePlace(*node, meeting, options, deadline);
  } catch (...) {
    // Tells the others the cause first. Otherwise they might notice that this rank goes before they learn why.
    const Error error = currentErrorOf(options.rank);
    if (node) {
      node->removeSource(meeting);
      node->announce({options.rank, error.result(), error.what()});
    }
    meeting.send(FrameType::refusal, options.rank, encodeReason(error.result(), error.what()));
    if (node) node->sayGoodbye(Deadline::after(kFarewell));
    throw Error(error);
  }
  return node;
}

}  // namespace

std::unique_ptr<Node> joinGroup(const moeUniqueId_t& id, const Options& options) {
  checkOptions(options);
  try {
    return meetAndJoin(id, options);
  } catch (...) {
    throw currentErrorOf(options.rank);
  }
}

}  // namespace moe::bootstrap
