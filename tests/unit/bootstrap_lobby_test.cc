// Which connections the lobby lets in while strangers take all its places.
#include <poll.h>
#include <sys/socket.h>

#include "bootstrap/net/dialer.h"
#include "bootstrap/net/lobby.h"
#include "bootstrap/net/socket.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using namespace bootstrap;

// A rank's listener, which counts the connections that it has let in.
class Door {
 public:
  explicit Door(const Key& key) : Door(key, listenTcp({Address::any(AF_INET, 0)}, 0)) {}
  ~Door() {
    stop_ = true;
    thread_.join();
  }
  Address address() const {
    Address address = Address::any(AF_INET, port_);
    address.ip = {127, 0, 0, 1};
    return address;
  }
  int letIn() const { return letIn_; }

 private:
  Door(const Key& key, Listener listener)
      : port_(listener.port),
        lobby_(std::move(listener.sockets), key, maskOf(FrameType::attach), Lobby::Limits{}),
        thread_([this] { run(); }) {}
  void run() {
    PollSet set;
    while (!stop_) {
      set.clear();
      lobby_.arm(set);
      set.wait(std::min(10, lobby_.waitMsMax()));
      lobby_.serve(set);
      letIn_ += static_cast<int>(lobby_.takeGuests().size());
    }
  }

  std::uint16_t port_;
  Lobby lobby_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> letIn_ = 0;
  std::thread thread_;
};

// `count` connections that send `words` and nothing more. A connection that is thrown out reconnects at once.
class Strangers {
 public:
  Strangers(int count, const Address& door, std::vector<std::uint8_t> words) : door_(door), words_(std::move(words)) {
    for (int i = 0; i < count; ++i) sockets_.push_back(come());
    thread_ = std::thread([this] { run(); });
  }
  ~Strangers() {
    stop_ = true;
    thread_.join();
  }

 private:
  Fd come() const {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketName name = door_.socketName();
    EXPECT_EQ(::connect(fd.get(), name.get(), name.length), 0);
    (void)!::send(fd.get(), words_.data(), words_.size(), MSG_NOSIGNAL);
    return fd;
  }
  void run() {
    while (!stop_) {
      std::vector<pollfd> polled;
      for (const Fd& socket : sockets_) polled.push_back({socket.get(), POLLRDHUP, 0});
      if (::poll(polled.data(), polled.size(), 20) <= 0) continue;
      for (std::size_t i = 0; i < polled.size(); ++i) {
        if (polled[i].revents != 0) sockets_[i] = come();
      }
    }
  }

  Address door_;
  std::vector<std::uint8_t> words_;
  std::vector<Fd> sockets_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// True if a rank gets in. Like all ranks, it tries again when it is thrown out. Its patience is long, because
// sanitizers and other tests slow strangers and rank alike.
bool comesIn(const Key& key, const Door& door) {
  constexpr auto patience = 40s;
  const Deadline deadline = Deadline::after(patience);
  std::unique_ptr<Link> link;
  while (door.letIn() == 0 && !deadline.expired()) {
    Dialer dialer({door.address()}, key, maskOf(FrameType::state), patience);
    PollSet set;
    while (dialer.state() == Dialer::State::trying && !deadline.expired()) {
      set.clear();
      dialer.arm(set);
      set.wait(20);
      dialer.serve(set);
    }
    if (dialer.state() != Dialer::State::connected) continue;
    link = dialer.take();
    link->send(FrameType::attach, 1, std::vector<std::uint8_t>(4));
    while (!link->closed() && door.letIn() == 0 && !deadline.expired()) {
      set.clear();
      const std::size_t index = set.add(link->fd(), link->wanted());
      set.wait(10);
      link->pump(set.at(index));
    }
  }
  return door.letIn() > 0;
}

TEST(Lobby, ManySilentConnectionsKeepNobodyOut) {
  allowManyDescriptors();
  const Key key = randomKey();
  const Door door(key);
  const Strangers strangers(3000, door.address(), {});
  EXPECT_TRUE(comesIn(key, door));
}

TEST(Lobby, NorDoThoseThatBeginTheHandshake) {
  allowManyDescriptors();
  const Key key = randomKey();
  const Door door(key);
  const Strangers strangers(3000, door.address(), Handshake(Handshake::Side::client, Key{}, Key{}).start());
  EXPECT_TRUE(comesIn(key, door));
}

}  // namespace
}  // namespace moe::test
