// Whose memory a rank reaches by loads and stores. The ranks find it out together before they choose domains: each
// tells where it is, and then asks about every other one.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "topology/nvml.h"
#include "transport/window.h"

namespace moe {

// Where a rank is, as bytes.
struct PlaceCard {
  bootstrap::HostIdentity host{};
  std::array<char, 32> gpu{};  // bus id; empty: the rank has none
  // The rank's clique on the NVLink fabric, if its memory has handles there.
  std::int32_t inFabric = 0;
  topology::FabricClique clique{};
  FabricHandle sample{};  // of some memory, for trying whether it can be imported
};

class Reach {
 public:
  virtual ~Reach() = default;

  // The sample in it lives as long as this object.
  virtual PlaceCard place() = 0;
  // Why this rank's memory has no handle of the fabric, although its GPU is in a clique; empty: it has, or is not.
  virtual std::string whyOutsideFabric() const { return ""; }
  // Whether this rank reaches memory of a rank at `peer`. If it does not, and a user may wonder, `why` is the reason.
  virtual bool reaches(const PlaceCard& peer, std::string* why) = 0;
  // A window that all ranks map which reach it.
  virtual std::unique_ptr<Window> makeWindow(std::size_t bytes, const Allocator& allocator, WindowSharing sharing) = 0;
};

// What holds for ranks with host memory: the processes of a host reach each other.
class HostReach : public Reach {
 public:
  PlaceCard place() override;
  bool reaches(const PlaceCard& peer, std::string* why) override;
  std::unique_ptr<Window> makeWindow(std::size_t bytes, const Allocator& allocator, WindowSharing sharing) override;

 private:
  bootstrap::HostIdentity self_ = bootstrap::HostIdentity::current();
};

// `sharing` is the user's choice. Memory of the caller's allocator has no handle of the fabric.
std::unique_ptr<Reach> makeCudaReach(int device, WindowSharing sharing, bool callersMemory);
// A test puts hosts of its own in its place (tests/support/api/rack.cc).
std::unique_ptr<Reach> makeHostReach();

}  // namespace moe
