#include "perf/moe_perf/routing_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <limits>
#include <regex>
#include <stdexcept>

namespace moe::perf {
namespace {

// The header of a file of numpy.save: the magic, a version, a length of two or four bytes, and a dictionary as text
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
struct ArrayHeader {
  std::string type;
  std::vector<std::int64_t> shape;
  bool fortran = false;
};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw std::runtime_error(fmt::format("--routing-file {}: {}", path, why));
}

std::string readBytes(std::ifstream& file, std::size_t count, const std::string& path) {
  std::string bytes(count, '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(count))) refuse(path, "it ends too early");
  return bytes;
}

std::string readHeaderText(std::ifstream& file, const std::string& path) {
  constexpr std::size_t kMagicBytes = 6, kHeaderMax = 1 << 16;
  const std::string begin = readBytes(file, kMagicBytes + 2, path);
  if (begin.compare(0, kMagicBytes, "\x93NUMPY", kMagicBytes) != 0) {
    refuse(path, "it is no array that numpy.save wrote");
  }
  std::size_t length = 0;
  const std::string digits = readBytes(file, begin[kMagicBytes] == 1 ? 2 : 4, path);
  for (std::size_t i = digits.size(); i > 0; --i) length = length << 8 | static_cast<unsigned char>(digits[i - 1]);
  if (length > kHeaderMax) refuse(path, fmt::format("its header has {} bytes", length));
  return readBytes(file, length, path);
}

ArrayHeader parseHeader(const std::string& text, const std::string& path) {
  static const std::regex kType("'descr': *'([^']*)'"), kOrder("'fortran_order': *True");
  static const std::regex kShape("'shape': *\\(([^)]*)\\)"), kNumber("[0-9]{1,10}");
  std::smatch type, shape;
  if (!std::regex_search(text, type, kType) || !std::regex_search(text, shape, kShape)) {
    refuse(path, "its header names no type or no shape");
  }
  ArrayHeader header;
  header.type = type[1];
  header.fortran = std::regex_search(text, kOrder);
  const std::string sizes = shape[1];
  for (auto at = std::sregex_iterator(sizes.begin(), sizes.end(), kNumber); at != std::sregex_iterator(); ++at) {
    header.shape.push_back(std::stoll(at->str()));
  }
  return header;
}

template <class Id>
std::vector<std::int32_t> readIds(std::ifstream& file, std::size_t count, const std::string& path) {
  const std::string bytes = readBytes(file, count * sizeof(Id), path);
  std::vector<std::int32_t> ids;
  ids.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    Id id = 0;
    std::memcpy(&id, bytes.data() + i * sizeof(Id), sizeof(Id));
    if (id < -1 || id > std::numeric_limits<std::int32_t>::max()) {
      refuse(path, fmt::format("element {} is {}, which is no expert and not -1", i, id));
    }
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

}  // namespace

RoutingFile RoutingFile::read(const std::string& path) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(path, std::strerror(errno));
  ArrayHeader header = parseHeader(readHeaderText(file, path), path);
  if (header.shape.size() == 3) header.shape.insert(header.shape.begin(), 1);
  if (header.shape.size() != 4) {
    refuse(path, "its array is neither [steps, ranks, tokens, topk] nor [ranks, tokens, topk]");
  }
  if (header.fortran) refuse(path, "its array is in Fortran's order; save numpy.ascontiguousarray of it");
  std::int64_t count = 1;
  for (const std::int64_t size : header.shape) {
    if (size < 1 || size > kMost / count) refuse(path, "its array is empty, or has more than 2^30 elements");
    count *= size;
  }
  RoutingFile routing;
  routing.path = path;
  routing.steps = static_cast<int>(header.shape[0]);
  routing.ranks = static_cast<int>(header.shape[1]);
  routing.tokens = static_cast<int>(header.shape[2]);
  routing.topk = static_cast<int>(header.shape[3]);
  const auto elements = static_cast<std::size_t>(count);
  if (header.type == "<i4") {
    routing.experts = readIds<std::int32_t>(file, elements, path);
  } else if (header.type == "<i8") {
    routing.experts = readIds<std::int64_t>(file, elements, path);
  } else {
    refuse(path, fmt::format("its elements are of type {}, not <i4 or <i8", header.type));
  }
  return routing;
}

void RoutingFile::require(int nranks, int tokensMax, int k, int expertsMax) const {
  if (ranks != nranks) refuse(path, fmt::format("it has routes of {} ranks, but there are {}", ranks, nranks));
  if (tokens < tokensMax) refuse(path, fmt::format("it has {} tokens per rank, but --tokens is {}", tokens, tokensMax));
  if (topk != k) refuse(path, fmt::format("its tokens have {} experts, but --topk is {}", topk, k));
  const std::int32_t most = *std::max_element(experts.begin(), experts.end());
  if (most >= expertsMax) refuse(path, fmt::format("it names expert {}, but --experts is {}", most, expertsMax));
}

std::vector<std::int32_t> RoutingFile::of(std::uint64_t step, int rank, int token) const {
  const auto index = static_cast<std::size_t>(step % static_cast<std::uint64_t>(steps));
  const std::size_t row =
      (index * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(rank)) * static_cast<std::size_t>(tokens) +
      static_cast<std::size_t>(token);
  const std::int32_t* first = experts.data() + row * static_cast<std::size_t>(topk);
  return {first, first + topk};
}

}  // namespace moe::perf
