// The thread of a communicator that is watched from outside. It writes a dump when the communicator fails, and answers
// moe_top on a UNIX socket. It exists only if a folder was named for one of these. The job never waits for it: a client
// costs only this thread's time, a few descriptors and one answer.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "bootstrap/net/lobby.h"

namespace moe {

struct WatchPlan {
  std::string dumpPath;    // file for a failure's dump; empty: none
  std::string socketPath;  // empty: none
  bootstrap::Key key{};    // a client must know it
  int rank = 0;
};

class Watch {
 public:
  // The text for a client or for a dump. Both wait at most a few seconds, and may throw.
  struct Texts {
    std::function<std::string()> forClient, forFailure;
  };

  // Makes the socket, and beside it a file with the key; both belong to the user alone. Throws an Error naming the
  // path. `log` and `texts` outlive this object.
  Watch(const WatchPlan& plan, Texts texts, const Log& log);
  ~Watch() { finish(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // The communicator has failed: its dump is due. Any thread; never blocks.
  void failed() noexcept;

  // The communicator has recovered. Waits for a dump that is due, at most for two seconds. The next failure gets one
  // too, in the same file.
  void goOn() noexcept;

  // Writes a dump that is due, ends the thread and takes the socket away. Idempotent.
  void finish() noexcept;

 private:
  struct Guest {
    std::unique_ptr<bootstrap::Link> link;
    Deadline end;
    std::size_t index;
  };

  void offerSocket();
  void removeFiles() noexcept;
  void run();
  void look(bootstrap::PollSet& set);
  void answer(std::unique_ptr<bootstrap::Link> link);
  void dump() noexcept;
  void ring() noexcept;

  WatchPlan plan_;
  Texts texts_;
  const Log& log_;
  Fd bell_;
  std::unique_ptr<bootstrap::Lobby> lobby_;
  std::vector<Guest> guests_;
  std::atomic<bool> failed_ = false, dumped_ = false, over_ = false;
  std::thread thread_;
};

// A folder for dumps must be there, and this process may write in it. Throws moeInvalidArgument.
void requireWritableFolder(const std::string& setting, const std::string& folder);
// A folder for sockets must belong to this user alone to write. Throws moeInvalidArgument.
void requireOwnFolder(const std::string& setting, const std::string& folder);

}  // namespace moe
