// Parses a command that libibverbs has written to the device: the part that verbs defines for every device, and the
// part of mlx5.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <cstddef>
#include <cstring>

namespace moe::test {

struct Command {
  int context;  // descriptor of the opened device
  unsigned number;
  bool extended;
  const std::byte *request, *driverRequest;
  std::byte* response;
  std::size_t responseBytes;
  std::byte* driverResponse;
};

// The function that answers a command; a row of a table.
struct Answer {
  unsigned number;
  bool extended;
  int (*answer)(const Command&);
};

template <class Request>
Request requestOf(const Command& command) {
  Request request;
  std::memcpy(&request, command.request, sizeof(request));
  return request;
}
// The mlx5 part that follows the verbs part of type Request.
template <class Driver, class Request>
Driver driverRequestOf(const Command& command) {
  Driver driver;
  std::memcpy(&driver, command.extended ? command.driverRequest : command.request + sizeof(Request), sizeof(driver));
  return driver;
}

// Writes as much of the response as fits.
template <class Response>
void respond(const Command& command, const Response& response, std::size_t offset = 0) {
  if (offset >= command.responseBytes) return;
  const std::size_t room = command.responseBytes - offset;
  std::memcpy(command.response + offset, &response, sizeof(response) < room ? sizeof(response) : room);
}
// Writes the mlx5 part behind the verbs part.
template <class Response, class DriverResponse>
void respond(const Command& command, const Response& response, const DriverResponse& driver) {
  respond(command, response);
  respond(command, driver,
          command.extended ? static_cast<std::size_t>(command.driverResponse - command.response) : sizeof(response));
}

// Returns 0 or an errno value; EOPNOTSUPP if the command does not concern objects (fake_objects.cc).
int answerObjectCommand(const Command& command);

}  // namespace moe::test
