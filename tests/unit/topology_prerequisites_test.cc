// The lines of moe_info about each prerequisite, on made-up machines.
#include <gtest/gtest.h>

#include "support/base/fake_root.h"
#include "topology/prerequisites.h"

namespace moe::test {
namespace {

using namespace moe::topology;

// A machine that has everything. Each test takes something away.
class Doctor : public FakeRoot {
 protected:
  Doctor() {
    addGid(addRdma("mlx5_0", "0000:00:01.0", "eth1", "Ethernet"), 0, "0000:0000:0000:0000:0000:ffff:0a01:0001",
           "RoCE v2", "eth1");
    write(dev() / "infiniband/uverbs0", "");
    write(proc() / "self/limits", "Max open files   1024  1024  files\nMax locked memory  unlimited  unlimited  bytes");
    write(proc() / "self/status", "Name:\tx\nCapEff:\t0000000000000000");
    write(proc() / "sys/kernel/osrelease", "6.1.0-56-amd64");
    write(proc() / "driver/nvidia/params",
          "EnableMSI: 1\nEnableStreamMemOPs: 1\nRegistryDwords: \"PeerMappingOverride=1;\"");
    std::filesystem::create_directories(sys() / "module/nvidia_peermem");
    setDriver("mlx5_core");
    topology_.gpus.gpus.resize(1);
    topology_.pci.gpus = {{"0000:00:04.0", {{"0000:00", "0000:00:00.1"}, 0, 0}}};
    topology_.pci.nics = {{"mlx5_0", {{"0000:00", "0000:00:00.1"}, 0, 0}}};
  }

  std::vector<Prerequisite> all(const std::string& library, const std::string& mlx5) {
    topology_.nics = findNics(sys());
    return checkPrerequisites(topology_, planRdma(topology_, {}, 30000), {sys(), proc(), dev(), library, mlx5});
  }
  // The line about one prerequisite: "present: ..."
  std::string about(const std::string& name, const std::string& library = "libc.so.6",
                    const std::string& mlx5 = "libc.so.6") {
    for (const Prerequisite& one : all(library, mlx5)) {
      EXPECT_TRUE(one.presence != Presence::missing || !one.advice.empty()) << one.name;
      EXPECT_TRUE(one.presence != Presence::present || one.advice.empty()) << one.name;
      if (one.name == name) return std::string(nameOf(one.presence)) + ": " + one.found;
    }
    return "not checked";
  }

  std::string betweenHosts(const std::string& library = "libc.so.6", const std::string& mlx5 = "libc.so.6") {
    return transportBetweenHosts(all(library, mlx5), !topology_.gpus.gpus.empty());
  }
  // Sets the adapter's driver, as sysfs names it.
  void setDriver(const std::string& driver) {
    const std::filesystem::path link = sys() / "devices/pci0000:00/0000:00:01.0/driver";
    std::filesystem::remove(link);
    std::filesystem::create_directories(sys() / "bus/pci/drivers" / driver);
    std::filesystem::create_directory_symlink(sys() / "bus/pci/drivers" / driver, link);
  }

  Topology topology_;
};

TEST_F(Doctor, FindsEverythingPresent) {
  EXPECT_EQ(about("verbs library"), "present: libc.so.6");
  EXPECT_EQ(about("device nodes"), "present: uverbs0");
  EXPECT_EQ(about("locked memory"), "present: unlimited");
  EXPECT_EQ(about("GPU memory for adapters"), "present: nvidia_peermem");
  EXPECT_EQ(about("doorbells by the GPU"), "present: PeerMappingOverride=1");
  EXPECT_EQ(about("active ports"), "present: mlx5_0");
  EXPECT_EQ(about("addresses"), "present: mlx5_0: 10.1.0.1");
  EXPECT_EQ(about("adapters near the GPUs"), "present: same switch");
  EXPECT_EQ(about("mlx5 library"), "present: libc.so.6");
  EXPECT_EQ(about("mlx5 adapters"), "present: mlx5_0");
  EXPECT_EQ(about("stream memory operations"), "present: EnableStreamMemOPs: 1");
  EXPECT_EQ(about("IOMMU"), "present: out of the way (mlx5_0: none)");
  EXPECT_EQ(about("ACS"), "not checkable here: only root can read the registers of PCIe bridges");
}

TEST_F(Doctor, MissesWhatIbgdaNeedsOfTheAdapter) {
  EXPECT_EQ(about("mlx5 library", "libc.so.6", "libnone.so"), "missing: libnone.so cannot be loaded");
  setDriver("bnxt_en");
  EXPECT_EQ(about("mlx5 adapters"), "missing: mlx5_0 has the driver bnxt_en");
  std::filesystem::remove(sys() / "devices/pci0000:00/0000:00:01.0/driver");
  EXPECT_EQ(about("mlx5 adapters"), "missing: mlx5_0 has no visible driver");
  std::filesystem::remove_all(sys() / "class/infiniband");
  EXPECT_EQ(about("mlx5 adapters").substr(0, 19), "not checkable here:");
}

TEST_F(Doctor, KnowsWhetherTheIommuTranslates) {
  const std::filesystem::path type = sys() / "devices/pci0000:00/0000:00:01.0/iommu_group/type";
  write(type, "identity");
  EXPECT_EQ(about("IOMMU"), "present: out of the way (mlx5_0: identity)");
  write(type, "DMA-FQ");
  EXPECT_EQ(about("IOMMU"), "missing: translates what adapters write (mlx5_0: DMA-FQ)");
}

TEST_F(Doctor, SaysWhichTransportThereWouldBeAndWhyNoneBetter) {
  topology_.gpus.gpus[0].ordersWrites = true;
  EXPECT_EQ(betweenHosts(), "IBGDA, the GPU rings");
  write(proc() / "driver/nvidia/params", "RegistryDwords: \"\"");
  EXPECT_EQ(
      betweenHosts(),
      "IBGDA, but a thread rings for the GPU: doorbells by the GPU: the NVIDIA driver's PeerMappingOverride is not "
      "set");
  std::filesystem::remove_all(proc() / "driver");
  EXPECT_EQ(betweenHosts(), "IBGDA, the GPU rings (if these are there: doorbells by the GPU)");
  setDriver("bnxt_en");
  EXPECT_EQ(
      betweenHosts(),
      "verbs, not IBGDA: mlx5 adapters: mlx5_0 has the driver bnxt_en (if these are there: doorbells by the GPU)");
  setDriver("mlx5_core");
  EXPECT_EQ(betweenHosts("libc.so.6", "libnone.so").substr(0, 66),
            "verbs, not IBGDA: mlx5 library: libnone.so cannot be loaded (if th");
  std::filesystem::remove(sys() / "module/nvidia_peermem");
  EXPECT_EQ(betweenHosts(),
            "TCP, not RDMA: GPU memory for adapters: no nvidia_peermem, and the driver offers no dma-buf");
  EXPECT_EQ(betweenHosts("libnone.so"), "TCP, not RDMA: verbs library: libnone.so cannot be loaded");
  topology_.gpus = {{}, {}, 0, "no driver"};
  EXPECT_EQ(betweenHosts(), "verbs, not IBGDA: there is no GPU, and on the host a thread is as good");
  std::filesystem::remove_all(sys() / "class/infiniband");
  EXPECT_EQ(betweenHosts(), "TCP, not RDMA: active ports: this machine shows no RDMA adapter");
}

TEST_F(Doctor, MissesTheLibrary) {
  EXPECT_EQ(about("verbs library", "libnone.so"), "missing: libnone.so cannot be loaded");
}

TEST_F(Doctor, MissesTheDeviceNodes) {
  std::filesystem::remove(dev() / "infiniband/uverbs0");
  write(dev() / "infiniband/rdma_cm", "");
  EXPECT_EQ(about("device nodes"), "missing: there is no " + (dev() / "infiniband").string() + "/uverbs*");
}

TEST_F(Doctor, KnowsWhenLockedMemoryIsLimited) {
  write(proc() / "self/limits", "Max locked memory         65536                65536                bytes     ");
  EXPECT_EQ(about("locked memory"), "missing: at most 65536 bytes");
  write(proc() / "self/status", "CapEff:\t000001ffffffffff");
  EXPECT_EQ(about("locked memory"), "present: limited, but this process has CAP_IPC_LOCK");
  std::filesystem::remove(proc() / "self/limits");
  EXPECT_EQ(about("locked memory").substr(0, 19), "not checkable here:");
}

TEST_F(Doctor, TakesDmaBufInsteadOfTheModule) {
  std::filesystem::remove(sys() / "module/nvidia_peermem");
  EXPECT_EQ(about("GPU memory for adapters"), "missing: no nvidia_peermem, and the driver offers no dma-buf");
  topology_.gpus.gpus[0].dmaBuf = true;
  EXPECT_EQ(about("GPU memory for adapters"), "present: dma-buf");
  write(proc() / "sys/kernel/osrelease", "5.4.0-100-generic");
  EXPECT_EQ(about("GPU memory for adapters"), "missing: no nvidia_peermem, and the kernel is too old for dma-buf");
  topology_.gpus = {{}, {}, 0, "no driver"};
  EXPECT_EQ(about("GPU memory for adapters"), "not checkable here: no driver");
}

TEST_F(Doctor, WantsGpusThatKeepTheOrderOfWrites) {
  EXPECT_EQ(about("order of adapters' writes"), "missing: GPU 0 does not keep it");
  topology_.gpus.gpus[0].ordersWrites = true;
  EXPECT_EQ(about("order of adapters' writes"), "present: the GPUs keep it");
  topology_.gpus = {{}, {}, 0, "no driver"};
  EXPECT_EQ(about("order of adapters' writes"), "not checkable here: no driver");
}

TEST_F(Doctor, ReadsTheDriversParameters) {
  write(proc() / "driver/nvidia/params", "RegistryDwords: \"\"\nRegistryDwordsPerDevice: \"PeerMappingOverride=1\"");
  EXPECT_EQ(about("doorbells by the GPU"), "missing: the NVIDIA driver's PeerMappingOverride is not set");
  std::filesystem::remove_all(proc() / "driver");
  EXPECT_EQ(about("doorbells by the GPU").substr(0, 19), "not checkable here:");
}

TEST_F(Doctor, LooksAtPortsAndAddresses) {
  addRdma("mlx5_1", "0000:00:02.0", "eth2", "Ethernet");
  write(sys() / "class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  EXPECT_EQ(about("active ports"), "present: mlx5_0; mlx5_1 is DOWN");
  write(sys() / "class/infiniband/mlx5_0/ports/1/state", "2: INIT");
  EXPECT_EQ(about("active ports"), "missing: mlx5_0 is INIT, mlx5_1 is DOWN");
  EXPECT_EQ(about("addresses").substr(0, 45), "not checkable here: no RDMA port can be used:");
  std::filesystem::remove_all(sys() / "class/infiniband");
  EXPECT_EQ(about("active ports"), "missing: this machine shows no RDMA adapter");
}

TEST_F(Doctor, SeesAddressesThatCannotMeet) {
  topology_.pci.nics["mlx5_1"] = topology_.pci.nics["mlx5_0"];
  addGid(addRdma("mlx5_1", "0000:00:02.0", "eth2", "Ethernet"), 0, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2",
         "eth2");
  EXPECT_EQ(about("addresses").substr(0, 52), "missing: adapters cannot meet: 10.1.0.1 is IPv4, fe8");
}

TEST_F(Doctor, NamesGpusWithoutANearAdapter) {
  topology_.pci.gpus[0].place = {{"0000:80"}, 1, 1};
  EXPECT_EQ(about("adapters near the GPUs"), "missing: GPU 0 and mlx5_0: same machine");
  topology_.pci.gpus.clear();
  EXPECT_EQ(about("adapters near the GPUs"), "not checkable here: no GPU is shown");
}

}  // namespace
}  // namespace moe::test
