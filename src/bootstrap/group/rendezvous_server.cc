#include "bootstrap/group/rendezvous_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/deadline.h"
#include "base/error.h"
#include "base/quiet_thread.h"
#include "bootstrap/group/failure.h"
#include "bootstrap/net/socket.h"

namespace moe::bootstrap {
namespace {

using std::chrono::milliseconds;
constexpr Lobby::Limits kLimits{1024, milliseconds(5000), milliseconds(500)};
constexpr milliseconds kAfterFailure{10000};  // late ranks are told the reason for this long
constexpr milliseconds kTell{500};            // at most, until the others know that this process gives up
constexpr milliseconds kOutlives{5000};  // its end never ends the ranks' waits before they know which ranks are missing

// Ranks get an answer a little before they would give up by themselves, so that they learn which ranks are missing.
Deadline patienceOf(const JoinRequest& request) {
  const std::uint32_t margin = std::min(request.leftMs / 10, 250U);
  return Deadline::after(milliseconds(request.leftMs - margin));
}

}  // namespace

Key rendezvousKey(const Key& secret) {
  return deriveKey(secret, "rendezvous");
}

std::vector<std::uint8_t> JoinRequest::encode() const {
  Writer out;
  out.u32(nranks);
  out.u32(timeoutMs);
  out.u32(leftMs);
  writeAddresses(out, addresses);
  return out.take();
}

std::optional<JoinRequest> JoinRequest::decode(std::span<const std::uint8_t> payload) {
  Reader in(payload);
  JoinRequest request;
  request.nranks = in.u32();
  request.timeoutMs = in.u32();
  request.leftMs = in.u32();
  if (!readAddresses(in, request.addresses) || in.left() != 0) return std::nullopt;
  if (request.nranks == 0 || request.nranks > kRankCountMax) return std::nullopt;
  return request;
}

RendezvousServer::RendezvousServer(std::vector<Fd> listeners, const Key& secret, milliseconds timeout, int rank)
    : lobby_(std::move(listeners), rendezvousKey(secret),
             maskOf(FrameType::join, FrameType::joined, FrameType::refusal), kLimits),
      rank_(rank),
      shortageMax_(shortagePatience(timeout)),
      lifetime_(Deadline::after(timeout)) {}

void RendezvousServer::run() {
  PollSet set;
  while (!finished()) {
    set.clear();
    lobby_.arm(set);
    owner_.arm(set);
    for (Member& member : members_) {
      if (!member.done) member.index = set.add(member.link->fd(), member.link->wanted());
    }
    set.wait(waitMs());
    lobby_.serve(set);
    owner_.serve(set);
    hearOwner();
    for (Member& member : members_) {
      if (member.done) continue;
      member.link->pump(set.at(member.index));
      listen(member);
    }
    for (auto& guest : lobby_.takeGuests()) admit(std::move(guest));
    refuseIfShort();
    checkPatience();
    if (!refusal_.empty() && allDone()) told_.store(true);
  }
}

std::string RendezvousServer::self() const {
  return rank_ < 0 ? "the process that serves the unique id" : fmt::format("rank {}", rank_);
}

void RendezvousServer::ownerGivesUp(const Error& error, Deadline deadline) {
  owner_.post({rank_, error.result(), error.what()});
  pollUntil(
      deadline, [&] { return told_.load() || over_.load(); }, [] { return false; });
}

void RendezvousServer::hearOwner() {
  for (const Failure& failure : owner_.take()) {
    if (refusal_.empty()) refuseAll(failure.result, failure.sentence);
  }
}

// Ranks whose connections cannot be accepted would count as missing. When those that are here have been refused, they
// leave room for the others.
void RendezvousServer::refuseIfShort() {
  if (tableSent_ || !refusal_.empty()) return;
  const auto why = lobby_.shortage(shortageMax_);
  if (!why) return;
  lack_ = Error(why->result(), fmt::format("{}: {}", self(), why->what()));
  short_.store(true);
  refuseAll(lack_->result(), lack_->what());
}

int RendezvousServer::waitMs() const {
  int wait = std::min(lobby_.waitMsMax(), 1000);
  const bool waiting = !tableSent_ && refusal_.empty();
  if (!waiting || members_.empty()) return std::min(wait, lifetime_.leftMs());
  for (const Member& member : members_) wait = std::min(wait, member.patience.leftMs());
  return wait;
}

bool RendezvousServer::allDone() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.done; });
}

bool RendezvousServer::finished() const {
  const bool decided = tableSent_ || !refusal_.empty();
  if (lifetime_.expired() && (decided || members_.empty())) return true;
  return decided && !members_.empty() && allDone() && members_.size() >= members_.front().request.nranks;
}

// Returns a reason why this rank cannot be in the group, or nothing.
std::string RendezvousServer::objection(int rank, const JoinRequest& request, const Address& from) const {
  for (const Member& other : members_) {
    if (other.request.nranks != request.nranks) {
      return fmt::format("ranks disagree on nranks: rank {} ({}) says {}, rank {} ({}) says {}", other.rank,
                         other.from.text(), other.request.nranks, rank, from.text(), request.nranks);
    }
    if (other.rank == rank) {
      return fmt::format("rank {} joined twice: from {} and from {}", rank, other.from.text(), from.text());
    }
  }
  if (static_cast<std::uint32_t>(rank) < request.nranks) return {};
  return fmt::format("rank {} ({}) joined a group of {} ranks", rank, from.text(), request.nranks);
}

void RendezvousServer::admit(std::unique_ptr<Link> guest) {
  const auto frame = guest->next();
  if (!frame || frame->type != FrameType::join) return;
  auto request = JoinRequest::decode(frame->payload);
  if (!request) return;
  const int rank = static_cast<int>(frame->rank);
  const Address from = peerAddress(guest->fd());
  const std::string why = objection(rank, *request, from);
  const Deadline patience = patienceOf(*request);
  members_.push_back({rank, std::move(*request), std::move(guest), from, patience});
  if (!why.empty() && tableSent_) {
    // The group has met; only the newcomer is wrong.
    members_.back().link->send(FrameType::refusal, 0, encodeReason(moeInvalidUsage, why));
    members_.back().refused = true;
  } else if (!why.empty() && refusal_.empty()) {
    refuseAll(moeInvalidUsage, why);
  } else if (!refusal_.empty()) {
    refuse(members_.back());
  } else if (members_.size() == members_.front().request.nranks) {
    sendTable();
  }
  members_.back().link->pump(POLLOUT);
}

void RendezvousServer::sendTable() {
  std::vector<const Member*> byRank(members_.size());
  for (const Member& member : members_) byRank[static_cast<std::size_t>(member.rank)] = &member;
  Writer payload;
  payload.bytes(randomKey());  // distinguishes this meeting from any other one with the same secret
  for (const Member* member : byRank) writeAddresses(payload, member->request.addresses);
  const auto bytes =
      std::make_shared<const std::vector<std::uint8_t>>(encodeFrame(FrameType::table, 0, payload.view()));
  for (Member& member : members_) {
    member.link->send(bytes);
    member.link->pump(POLLOUT);
  }
  tableSent_ = true;
  for (const Member& member : members_) {
    const Deadline end = Deadline::after(milliseconds(member.patience.leftMs()) + kOutlives);
    if (end.at() > lifetime_.at()) lifetime_ = end;
  }
}

void RendezvousServer::refuseAll(moeResult_t result, const std::string& sentence) {
  refusal_ = encodeReason(result, sentence);
  lifetime_ = Deadline::after(kAfterFailure);
  for (Member& member : members_) refuse(member);
}

void RendezvousServer::giveUp(moeResult_t result, const std::string& sentence) {
  if (refusal_.empty()) refuseAll(result, fmt::format("{}: {}", self(), sentence));
}

void RendezvousServer::refuse(Member& member) {
  if (member.done) return;
  member.link->send(FrameType::refusal, 0, refusal_);
  member.link->pump(POLLOUT);
}

// Reads the frames that a member sends after its Join: either that it is done, or none until it closes.
void RendezvousServer::listen(Member& member) {
  while (const auto frame = member.link->next()) {
    if (frame->type == FrameType::joined) member.done = true;
    if (frame->type == FrameType::refusal && refusal_.empty()) {
      const Failure reason = decodeReason(member.rank, frame->payload);  // why it gives up; rarely its own fault
      refuseAll(reason.result, reason.sentence);
    }
  }
  if (member.done) return member.link->close("");
  if (!member.link->closed()) return;
  member.done = true;
  if (!refusal_.empty() || member.refused) return;
  const std::string why = member.link->reason().empty() ? "" : ": " + member.link->reason();
  refuseAll(moeRemoteError,
            fmt::format("rank {} ({}) died or gave up while joining{}", member.rank, member.from.text(), why));
}

void RendezvousServer::checkPatience() {
  if (tableSent_ || !refusal_.empty()) return;
  const auto tired =
      std::find_if(members_.begin(), members_.end(), [](const Member& m) { return m.patience.expired(); });
  if (tired == members_.end()) return;
  std::vector<bool> here(tired->request.nranks);
  for (const Member& member : members_) here[static_cast<std::size_t>(member.rank)] = true;
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    if (!here[rank]) missing.push_back(static_cast<int>(rank));
  }
  std::string sentence = fmt::format("{} did not join within {} ms", describeRanks(missing), tired->request.timeoutMs);
  if (const std::string& other = lobby_.otherVersion(); !other.empty()) {
    sentence += fmt::format(" (another version of moecomm has connected: {})", other);
  }
  refuseAll(moeTimeout, sentence);
}

ServedMeeting::ServedMeeting(std::vector<Fd> listeners, const Key& secret, milliseconds timeout, int rank)
    : server_(std::make_shared<RendezvousServer>(std::move(listeners), secret, timeout, rank)) {
  startQuietThread([server = server_] {
    try {
      server->run();
    } catch (...) {  // NOLINT: it is reported
      reportCurrentError([&](moeResult_t result, const std::string& sentence) { server->giveUp(result, sentence); });
    }
    server->end();
  }).detach();
}

std::optional<Error> ServedMeeting::giveUp(const Error& error) const noexcept {
  try {
    server_->ownerGivesUp(error, Deadline::after(kTell));
  } catch (const std::exception&) {  // NOLINT: no memory for the sentence; the others see that this process ends
  }
  return server_->lack();
}

}  // namespace moe::bootstrap
