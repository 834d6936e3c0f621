#include "topology/nics.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "topology/sysfs.h"

namespace moe::topology {
namespace {

// "4: ACTIVE" -> "ACTIVE"
std::string afterColon(const std::string& text) {
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

// A PCI device's directory is named by its address, "0000:17:00.0".
std::string busIdOf(const std::filesystem::path& device) {
  const std::string name = device.filename().string();
  return name.size() == 12 && name[4] == ':' && name[7] == ':' && name[10] == '.' ? name : "";
}

void describeInterface(const std::filesystem::path& interface, Nic& nic) {
  nic.speedMbps = std::max(nic.speedMbps, readNumber(interface / "speed").value_or(-1));
  nic.up = nic.up || readLine(interface / "operstate") == "up";
}

Nic describeRdma(const std::filesystem::path& sys, const std::string& name) {
  Nic nic;
  const std::filesystem::path directory = sys / "class/infiniband" / name;
  nic.name = name;
  nic.rdma = true;
  nic.device = resolve(directory / "device");
  nic.busId = busIdOf(nic.device);
  nic.numaNode = numaNodeOf(nic.device);
  for (const std::string& port : listNames(directory / "ports")) {
    const std::filesystem::path files = directory / "ports" / port;
    nic.ports.push_back({std::atoi(port.c_str()), afterColon(readLine(files / "state")), readLine(files / "rate"),
                         readLine(files / "link_layer"), readGidTable(sys, files)});
    nic.up = nic.up || nic.ports.back().state == "ACTIVE";
  }
  nic.interfaces = listNames(nic.device / "net");
  for (const std::string& interface : nic.interfaces) describeInterface(sys / "class/net" / interface, nic);
  return nic;
}

Nic describeEthernet(const std::filesystem::path& sys, const std::string& name) {
  Nic nic;
  nic.name = name;
  nic.interfaces = {name};
  nic.device = resolve(sys / "class/net" / name / "device");
  nic.busId = busIdOf(nic.device);
  nic.numaNode = numaNodeOf(nic.device);
  describeInterface(sys / "class/net" / name, nic);
  return nic;
}

}  // namespace

std::vector<Nic> findNics(const std::filesystem::path& sys) {
  std::vector<Nic> nics;
  std::set<std::string> covered;
  for (const std::string& name : listNames(sys / "class/infiniband")) {
    nics.push_back(describeRdma(sys, name));
    covered.insert(nics.back().interfaces.begin(), nics.back().interfaces.end());
  }
  for (const std::string& name : listNames(sys / "class/net")) {
    const bool physical = !resolve(sys / "class/net" / name / "device").empty();
    if (physical && covered.count(name) == 0) nics.push_back(describeEthernet(sys, name));
  }
  return nics;
}

}  // namespace moe::topology
