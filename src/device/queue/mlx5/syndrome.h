// Why an operation failed, according to an error completion.
#pragma once

#include <cstdint>

namespace moe::mlx5 {

enum class Syndrome : std::uint8_t {
  none = 0x00,
  localLength = 0x01,
  localOperation = 0x02,
  localProtection = 0x04,
  flushed = 0x05,
  windowBind = 0x06,
  badResponse = 0x10,
  localAccess = 0x11,
  remoteInvalidRequest = 0x12,
  remoteAccess = 0x13,
  remoteOperation = 0x14,
  retriesExceeded = 0x15,
  receiverNotReady = 0x16,
  remoteAborted = 0x22,
};

// For sentences like "the write failed: <text>".
constexpr const char* syndromeText(Syndrome syndrome) {
  switch (syndrome) {
    case Syndrome::none:
      return "no error";
    case Syndrome::localLength:
      return "the data is longer than the buffer or than the port can send";
    case Syndrome::localOperation:
      return "the work-queue element is malformed";
    case Syndrome::localProtection:
      return "the local key does not cover the local memory";
    case Syndrome::flushed:
      return "not tried, as an earlier operation of the queue pair has failed";
    case Syndrome::windowBind:
      return "a memory window could not be bound";
    case Syndrome::badResponse:
      return "the peer's adapter gave an unexpected answer";
    case Syndrome::localAccess:
      return "the local memory may not be written";
    case Syndrome::remoteInvalidRequest:
      return "the peer's adapter refused the request as invalid";
    case Syndrome::remoteAccess:
      return "the remote key does not cover the remote memory, or not for this operation";
    case Syndrome::remoteOperation:
      return "the peer's adapter could not carry it out";
    case Syndrome::retriesExceeded:
      return "the peer's adapter does not answer";
    case Syndrome::receiverNotReady:
      return "the peer has no receive buffer ready";
    case Syndrome::remoteAborted:
      return "the peer aborted it";
  }
  return "a syndrome that mlx5dv.h does not name";
}

}  // namespace moe::mlx5
