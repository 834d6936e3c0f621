// How moe_top asks the ranks of running jobs.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "base/fd.h"
#include "base/unix_socket.h"
#include "bootstrap/net/link.h"
#include "bootstrap/net/poll_set.h"
#include "tools/moe_top.h"

namespace moe::tools {
namespace {

using bootstrap::FrameType;
using bootstrap::Key;
using bootstrap::Link;

// The key beside a socket. Throws if another user owns the file or may read it.
Key keyOf(const std::string& socket) {
  const std::string path = socket + ".key";
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) throw systemError(path);
  if (found.st_uid != ::geteuid() || (found.st_mode & 077) != 0) {
    throw Error(moeInvalidUsage, path + ": others may read it");
  }
  std::string text;
  std::ifstream(path) >> text;
  Key key{};
  if (text.size() != 2 * key.size()) throw Error(moeInvalidUsage, path + ": it is not a key");
  for (std::size_t i = 0; i < key.size(); ++i) {
    const char* digits = text.data() + 2 * i;
    if (std::from_chars(digits, digits + 2, key[i], 16).ptr != digits + 2) {
      throw Error(moeInvalidUsage, path + ": it is not a key");
    }
  }
  return key;
}

// Empty if nobody listens there.
std::optional<Fd> connectTo(const std::string& path) {
  const std::optional<UnixName> name = UnixName::ofFile(path);
  if (!name) throw Error(moeInvalidUsage, "its path is too long for a socket");
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw systemError("socket");
  if (::connect(fd.get(), name->get(), name->bytes()) != 0) {
    if (errno == ECONNREFUSED || errno == ENOENT) return std::nullopt;
    throw systemError("cannot connect");
  }
  if (!isOwnUser(fd.get())) throw Error(moeInvalidUsage, "it belongs to another user");
  return fd;
}

// One question, as part of a poll loop.
class Question {
 public:
  Question(const std::string& socket, Fd fd, const Key& key)
      : answer_{socket, "", ""},
        link_(std::move(fd), bootstrap::Handshake::Side::client, key, maskOf(FrameType::dumpReply)) {}

  bool open() const { return answer_.text.empty() && !link_.closed(); }
  void arm(bootstrap::PollSet& set) { index_ = set.add(link_.fd(), link_.wanted()); }
  void serve(const bootstrap::PollSet& set) {
    link_.pump(set.at(index_));
    if (link_.open() && !asked_) {
      link_.send(FrameType::dumpRequest, 0);
      link_.pump(POLLOUT);
      asked_ = true;
    }
    if (const auto frame = link_.next()) {
      answer_.text.assign(reinterpret_cast<const char*>(frame->payload.data()), frame->payload.size());
    }
  }
  Answer take() {
    if (answer_.text.empty()) {
      const bool late = !link_.closed();
      answer_.problem = late                     ? "it did not answer in time"
                        : link_.reason().empty() ? "it closed the connection"
                                                 : link_.reason();
    }
    return std::move(answer_);
  }

 private:
  Answer answer_;
  Link link_;
  std::size_t index_ = 0;
  bool asked_ = false;
};

std::vector<std::string> socketsIn(const std::string& folder) {
  std::vector<std::string> sockets;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("moecomm-") && name.ends_with(".sock")) sockets.push_back(entry.path().string());
  }
  if (problem) throw Error(moeSystemError, folder + ": " + problem.message());
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

}  // namespace

std::vector<Answer> askAll(const std::string& folder, Deadline end) {
  std::vector<std::unique_ptr<Question>> questions;
  std::vector<Answer> answers;
  for (const std::string& socket : socketsIn(folder)) {
    try {
      if (auto fd = connectTo(socket))
        questions.push_back(std::make_unique<Question>(socket, std::move(*fd), keyOf(socket)));
    } catch (const Error& error) {
      answers.push_back({socket, "", error.what()});
    }
  }
  bootstrap::PollSet set;
  for (;;) {
    set.clear();
    std::vector<Question*> armed;
    for (const auto& question : questions) {
      if (question->open()) armed.push_back(question.get());
    }
    if (armed.empty() || end.expired()) break;
    for (Question* question : armed) question->arm(set);
    set.wait(end.leftMs());
    for (Question* question : armed) question->serve(set);
  }
  for (const auto& question : questions) answers.push_back(question->take());
  return answers;
}

}  // namespace moe::tools
