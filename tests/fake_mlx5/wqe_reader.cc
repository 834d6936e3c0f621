#include "fake_mlx5/wqe_reader.h"

#include <cstring>

namespace moe::test {
namespace {

template <class Number>
Number numberAt(const std::uint8_t* at) {
  Number value = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) value = static_cast<Number>(value << 8 | at[i]);
  return value;
}

// Returns true for values that a field the adapter does not read may have.
bool isUnread(std::uint32_t field) {
  return field == 0 || field == kPoison;
}
bool isUnread(std::uint64_t field) {
  return field == 0 || field == (std::uint64_t{kPoison} << 32 | kPoison);
}

// The parts of readWqe. Each returns what is wrong, or nothing.

const char* readControl(const std::uint8_t* image, std::uint32_t queuePair, std::uint16_t index, Work* work) {
  const int flags = image[11], completion = flags >> 2 & 3;
  work->opcode = image[3];
  work->signalled = completion == 2;
  work->fenced = (flags & 0x80) != 0;
  work->slots = slotsOfWqe(image);
  std::memcpy(&work->immediate, image + 12, 4);
  if (numberAt<std::uint32_t>(image + 4) >> 8 != queuePair) return "the WQE names another queue pair";
  if (numberAt<std::uint16_t>(image + 1) != index) return "the WQE's index is not that of its slot";
  if (image[0] != 0) return "the opcode has a modifier";
  if (image[7] > 63) return "reserved bits beside the length are set";
  if (image[8] != 0 || image[9] != 0 || image[10] != 0) return "the signature or the stream is set";
  if ((flags & ~0x8e) != 0) return "a flag is set that is not for use";
  if (completion != 0 && completion != 2) return "there is no such way of completing";
  if (!isUnread(work->immediate) && !work->hasImmediate()) return "there is an immediate that nobody gets";
  return nullptr;
}

const char* readRemote(const std::uint8_t* image, Work* work) {
  work->remoteAddress = numberAt<std::uint64_t>(image + 16);
  work->rkey = numberAt<std::uint32_t>(image + 24);
  return numberAt<std::uint32_t>(image + 28) != 0 ? "the reserved word behind the remote key is set" : nullptr;
}

const char* readData(const std::uint8_t* segment, Work* work) {
  work->bytes = numberAt<std::uint32_t>(segment);
  work->lkey = numberAt<std::uint32_t>(segment + 4);
  work->localAddress = numberAt<std::uint64_t>(segment + 8);
  return work->bytes == 0 || work->bytes >> 31 != 0 ? "the number of bytes is not one" : nullptr;
}

// The data start at segment `at`.
const char* readInline(const std::uint8_t* image, int at, Work* work) {
  const std::uint8_t* segment = image + at * 16;
  const std::uint32_t bytes = numberAt<std::uint32_t>(segment) & 0x7fffffff;
  if (bytes == 0 || bytes > 60) return "inline data of a length that is not for use";
  if (image[7] != at + (4 + static_cast<int>(bytes) + 15) / 16) return "the length does not fit the inline data";
  work->bytes = bytes;
  work->inlined.assign(segment + 4, segment + 4 + bytes);
  return nullptr;
}

// Reads the data of a write, read or send: one segment, or inline. There is none beside an immediate, or in a write
// that only checks whether the peer answers.
const char* readAnyData(const std::uint8_t* image, int at, Work* work) {
  const std::uint8_t* segment = image + at * 16;
  if (image[7] == at && (work->hasImmediate() || work->isWrite())) return nullptr;
  if ((segment[0] & 0x80) != 0 && !work->isRead()) return readInline(image, at, work);
  return image[7] != at + 1 ? "a wrong length for one piece of data" : readData(segment, work);
}

const char* readOperation(const std::uint8_t* image, Work* work) {
  const int segments = image[7];
  if (work->isAtomic()) {
    if (segments != 4) return "an atomic of a wrong length";
    work->operand[0] = numberAt<std::uint64_t>(image + 32);
    work->operand[1] = numberAt<std::uint64_t>(image + 40);
    if (work->opcode == 0x12 && !isUnread(work->operand[1])) return "a second operand that nobody reads";
    if (work->remoteAddress % 8 != 0) return "an atomic at an address that is not aligned";
    const char* wrong = readData(image + 48, work);
    return wrong == nullptr && work->bytes != 8 ? "an atomic of other than 8 bytes" : wrong;
  }
  if (work->isSend()) return readAnyData(image, 1, work);
  if (work->opcode != 0x08 && work->opcode != 0x09 && !work->isRead()) return "an opcode that is not for use";
  return readAnyData(image, 2, work);
}

}  // namespace

std::uint64_t slotsOfWqe(const std::uint8_t* image) {
  return (image[7] & 63) > 4 ? 2 : 1;
}

ReadWqe readWqe(const std::uint8_t* image, std::uint32_t queuePair, std::uint16_t index) {
  ReadWqe read;
  const char* wrong = readControl(image, queuePair, index, &read.work);
  if (wrong == nullptr && !read.work.isSend()) wrong = readRemote(image, &read.work);
  if (wrong == nullptr) wrong = readOperation(image, &read.work);
  if (wrong != nullptr) read.complaint = wrong;
  return read;
}

}  // namespace moe::test
