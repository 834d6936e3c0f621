#include "transport/rdma/event_watch.h"

#include <fcntl.h>
#include <fmt/format.h>

namespace moe::verbs {
namespace {

bool isOfQueuePair(ibv_event_type type) {
  return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR;
}

}  // namespace

bool endsTheTransport(ibv_event_type type) {
  return isOfQueuePair(type) || type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_DEVICE_FATAL ||
         type == IBV_EVENT_CQ_ERR;
}

EventWatch::EventWatch(const Adapter& adapter, RankOf rankOf, int port)
    : adapter_(adapter), rankOf_(std::move(rankOf)), port_(port) {
  const int fd = adapter.context()->async_fd;
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
    throw adapter.failure("cannot watch the adapter's events");
  }
}

std::optional<SendFailure> EventWatch::poll() const {
  std::optional<SendFailure> first;
  ibv_async_event event{};
  while (adapter_.library().getAsyncEvent(adapter_.context(), &event) == 0) {
    if (!first) first = judge(event);
    adapter_.library().ackAsyncEvent(&event);  // otherwise its queue pair could not be destroyed
  }
  return first;
}

std::optional<SendFailure> EventWatch::judge(const ibv_async_event& event) const {
  if (!endsTheTransport(event.event_type)) return {};
  const char* text = adapter_.library().eventText(event.event_type);
  if (isOfQueuePair(event.event_type)) {
    const std::uint32_t number = event.element.qp->qp_num;
    const int rank = rankOf_(number);
    return SendFailure{moeRemoteError,
                       fmt::format("the connection with rank {} broke: {} (queue pair {:#x})", rank, text, number),
                       rank};
  }
  if (event.event_type == IBV_EVENT_PORT_ERR && event.element.port_num != port_) return {};
  return SendFailure{moeSystemError, fmt::format("the adapter {} reports: {}", adapter_.name(), text)};
}

}  // namespace moe::verbs
