// Hosts of one rack, on this machine: processes of MOECOMM_RACK ranks each take themselves for a host of their own, and
// all hosts for one clique of an NVLink fabric. Linked into a program, this replaces HostReach where that variable is
// set, so that the program's tests run in a domain of several hosts. A handle of this fabric names a process and its
// descriptor, which others open by /proc. MOECOMM_RACK_IMPORTS=off: importing memory by such a handle fails.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "transport/host_window.h"
#include "transport/reach.h"

namespace moe {
namespace {

struct Named {
  std::int32_t process, fd;
};

FabricHandle fabricHandleOf(int fd) {
  const Named named{::getpid(), fd};
  FabricHandle handle{};
  std::memcpy(handle.data(), &named, sizeof named);
  return handle;
}

Fd import(const FabricHandle& handle, const std::string& whose) {
  Named named{};
  std::memcpy(&named, handle.data(), sizeof named);
  Fd fd(::open(fmt::format("/proc/{}/fd/{}", named.process, named.fd).c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) throw systemError("cannot import " + whose);
  return fd;
}

int numberOf(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : 0;
}

bool importsFail() {
  const char* text = std::getenv("MOECOMM_RACK_IMPORTS");
  return text != nullptr && std::string_view(text) == "off";
}

class RackRange final : public HostRange {
 public:
  RackRange(std::size_t bytes, const std::string& whose) : HostRange(bytes, whose), whose_(whose) {}

  void map(const MemoryHandle& handle) override {
    const auto* fabric = std::get_if<FabricHandle>(&handle);
    if (fabric == nullptr) return HostRange::map(handle);
    mapFile(import(*fabric, whose_).get());
  }

 private:
  std::string whose_;
};

class RackWindow final : public HostWindow {
 public:
  using HostWindow::HostWindow;

  void describe(WindowCard* card) const override {
    HostWindow::describe(card);
    card->inFabric = 1;
    card->fabricHandle = fabricHandleOf(fd());
  }

 protected:
  std::shared_ptr<AddressRange> rangeFor(std::size_t bytes, const std::string& whose) const override {
    return std::make_shared<RackRange>(bytes, whose);
  }
};

class RackReach final : public HostReach {
 public:
  explicit RackReach(int ranksPerHost) : host_(numberOf("MOECOMM_RANK") / ranksPerHost) {}

  PlaceCard place() override {
    PlaceCard card = HostReach::place();
    const std::string name = fmt::format("rack-{}", host_);
    card.host.hostName = {};
    card.host.bootId = {};
    std::memcpy(card.host.hostName.data(), name.data(), name.size());
    std::memcpy(card.host.bootId.data(), name.data(), name.size());
    card.inFabric = 1;
    card.clique = {{1}, 7};
    card.sample = fabricHandleOf(sample_.get());
    mine_ = card;
    return card;
  }

  bool reaches(const PlaceCard& peer, std::string* why) override {
    if (mine_.host.sameHost(peer.host)) return true;
    if (peer.inFabric == 0 || peer.clique != mine_.clique) return false;
    if (importsFail()) {
      *why = "imports fail on this rack";
      return false;
    }
    import(peer.sample, "the sample");
    return true;
  }

  std::unique_ptr<Window> makeWindow(std::size_t bytes, const Allocator& allocator, WindowSharing sharing) override {
    if (allocator) return HostReach::makeWindow(bytes, allocator, sharing);
    return std::make_unique<RackWindow>(bytes, allocator);
  }

 private:
  int host_;
  Fd sample_{::memfd_create("moecomm-sample", MFD_CLOEXEC)};
  PlaceCard mine_;
};

}  // namespace

std::unique_ptr<Reach> makeHostReach() {
  const int ranksPerHost = numberOf("MOECOMM_RACK");
  if (ranksPerHost > 0) return std::make_unique<RackReach>(ranksPerHost);
  return std::make_unique<HostReach>();
}

}  // namespace moe
