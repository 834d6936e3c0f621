#include "bootstrap/group/newcomer.h"

#include <fmt/format.h>

#include "bootstrap/group/rendezvous_server.h"

namespace moe::bootstrap {
namespace {

constexpr Lobby::Limits kLimits{16, std::chrono::milliseconds(5000), std::chrono::milliseconds(500)};
constexpr std::size_t kToldMax = 16;

}  // namespace

void Newcomer::write(Writer& out) const {
  out.u32(static_cast<std::uint32_t>(rank));
  out.u8(incarnation);
  writeAddresses(out, addresses);
  out.u32(static_cast<std::uint32_t>(card.size()));
  out.bytes(card);
  out.u32(visit);
}

std::optional<Newcomer> Newcomer::read(Reader& in) {
  Newcomer found;
  found.rank = static_cast<int>(in.u32());
  found.incarnation = in.u8();
  if (!readAddresses(in, found.addresses)) return std::nullopt;
  const std::size_t bytes = in.u32();
  if (!in.ok() || bytes > in.left()) return std::nullopt;
  found.card.resize(bytes);
  in.bytes(found.card);
  found.visit = in.u32();
  return in.ok() ? std::optional(std::move(found)) : std::nullopt;
}

NewcomerServer::NewcomerServer(int rank, int nranks, std::vector<Fd> listeners, const Key& groupKey,
                               CheckNewcomer check)
    : rank_(rank),
      nranks_(nranks),
      lobby_(std::move(listeners), rendezvousKey(groupKey), maskOf(FrameType::newcomer), kLimits),
      check_(std::move(check)) {}

std::optional<Newcomer> NewcomerServer::waiting(Incarnation incarnation) const {
  if (!link_ || link_->closed()) return std::nullopt;
  return Newcomer{rank_, incarnation, addresses_, card_, visit_};
}

void NewcomerServer::send(std::uint32_t visit, const std::vector<std::uint8_t>& table) {
  if (link_ && visit == visit_) tell(std::move(link_), FrameType::table, table);
}

void NewcomerServer::refuse(std::uint32_t visit, moeResult_t result, const std::string& sentence) {
  if (link_ && visit == visit_) tell(std::move(link_), FrameType::refusal, encodeReason(result, sentence));
}

void NewcomerServer::tell(std::unique_ptr<Link> link, FrameType type, std::span<const std::uint8_t> payload) {
  link->send(type, 0, payload);
  link->finishWriting();
  link->pump(POLLOUT);
  if (told_.size() >= kToldMax) told_.erase(told_.begin());
  told_.push_back(std::move(link));
}

void NewcomerServer::arm(PollSet& set) {
  lobby_.arm(set);
  armed_ = link_ != nullptr && !link_->closed();
  if (armed_) index_ = set.add(link_->fd(), link_->wanted());
}

void NewcomerServer::serve(const PollSet& set) {
  try {
    lobby_.serve(set);
    if (armed_ && link_) link_->pump(set.at(index_));
    if (link_ && link_->closed()) link_.reset();
    for (const auto& link : told_) link->pump(POLLIN | POLLOUT);
    std::erase_if(told_, [](const auto& link) { return link->closed(); });
    for (auto& guest : lobby_.takeGuests()) admit(std::move(guest));
  } catch (const std::exception&) {  // NOLINT: no memory; the guest sees that its connection closes
    link_.reset();
    told_.clear();
  }
}

std::string NewcomerServer::objection(int rank, std::uint32_t nranks) const {
  if (rank != rank_) return fmt::format("moeCommInit: rank is {}, but the id is for the place of rank {}", rank, rank_);
  if (nranks != static_cast<std::uint32_t>(nranks_))
    return fmt::format("moeCommInit: nranks is {}, but the id is for a group of {} ranks", nranks, nranks_);
  if (link_ && !link_->closed())
    return fmt::format("moeCommInit: another process waits for the place of rank {}", rank);
  return {};
}

void NewcomerServer::admit(std::unique_ptr<Link> guest) {
  const auto frame = guest->next();
  if (!frame || frame->type != FrameType::newcomer) return;
  Reader in(frame->payload);
  const std::uint32_t nranks = in.u32();
  std::vector<Address> addresses;
  if (!readAddresses(in, addresses)) return;
  const auto rest = in.rest();
  std::vector<std::uint8_t> card(rest.begin(), rest.end());
  try {
    if (const std::string why = objection(static_cast<int>(frame->rank), nranks); !why.empty())
      throw Error(moeInvalidUsage, why);
    check_(card);
  } catch (const Error& error) {
    return tell(std::move(guest), FrameType::refusal, encodeReason(error.result(), error.what()));
  }
  ++visit_;
  addresses_ = std::move(addresses);
  card_ = std::move(card);
  link_ = std::move(guest);
}

}  // namespace moe::bootstrap
