// Whose memory a GPU reaches: other GPUs of its host, unless NVML says that they have no access to each other, and GPUs
// of its clique on the NVLink fabric. What the driver says of the fabric is believed when an export and an import have
// worked (decision 0130).
#include <fmt/format.h>

#include "backend/cuda_memory.h"
#include "backend/cuda_raii.h"
#include "transport/reach.h"

namespace moe {
namespace {

class CudaReach final : public Reach {
 public:
  CudaReach(int device, WindowSharing sharing, bool callersMemory)
      : device_(device), sharing_(sharing), nvml_(topology::Nvml::open()) {
    const DeviceScope scope(device);
    if (!cudaOk(cudaDeviceGetPCIBusId(place_.gpu.data(), static_cast<int>(place_.gpu.size()), device))) place_.gpu = {};
    place_.host = bootstrap::HostIdentity::current();
    if (sharing == WindowSharing::automatic || sharing == WindowSharing::fabric) joinFabric(callersMemory);
  }

  PlaceCard place() override { return place_; }
  std::string whyOutsideFabric() const override { return why_; }

  bool reaches(const PlaceCard& peer, std::string* why) override {
    if (place_.host.sameHost(peer.host)) {
      const bool apart = nvml_ && peer.gpu != place_.gpu && nvml_->cannotAccess(place_.gpu.data(), peer.gpu.data());
      if (!apart) return true;
      *why = fmt::format("NVML says that GPU {} has no access to GPU {}", place_.gpu.data(), peer.gpu.data());
    }
    if (peer.inFabric == 0 || place_.inFabric == 0 || peer.clique != place_.clique) return false;
    *why = whyNotImported(peer.sample, device_);
    return why->empty();
  }

  std::unique_ptr<Window> makeWindow(std::size_t bytes, const Allocator& allocator, WindowSharing sharing) override {
    if (sharing == WindowSharing::fabric && !sample_)
      throw Error(moeUnsupported, "MOECOMM_WINDOW is fabric, but " + why_);
    return makeCudaWindow(bytes, allocator, device_, sharing, sample_ != nullptr);
  }

 private:
  // On one host a GPU without a clique may try, too.
  void joinFabric(bool callersMemory) {
    const auto clique = nvml_ ? nvml_->fabricClique(place_.gpu.data()) : std::nullopt;
    if (!clique && sharing_ != WindowSharing::fabric) return;
    if (callersMemory) {
      why_ = "the caller allocates the window";
      return;
    }
    sample_ = makeFabricSample(device_, &why_);
    if (!sample_) return;
    place_.sample = *sample_;
    if (!clique) return;
    place_.inFabric = 1;
    place_.clique = *clique;
  }

  int device_;
  WindowSharing sharing_;
  std::unique_ptr<topology::Nvml> nvml_;
  PlaceCard place_;
  std::shared_ptr<const FabricHandle> sample_;
  std::string why_;  // why there is none, although there should be
};

}  // namespace

std::unique_ptr<Reach> makeCudaReach(int device, WindowSharing sharing, bool callersMemory) {
  return std::make_unique<CudaReach>(device, sharing, callersMemory);
}

}  // namespace moe
