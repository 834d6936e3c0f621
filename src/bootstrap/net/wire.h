// Little-endian fields in byte strings, for frames and the unique id. A Reader never reads past its end: it returns
// zeros and remembers that.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moe::bootstrap {

class Writer {
 public:
  void u8(std::uint8_t value) { put(value, 1); }
  void u16(std::uint16_t value) { put(value, 2); }
  void u32(std::uint32_t value) { put(value, 4); }
  void u64(std::uint64_t value) { put(value, 8); }
  void bytes(std::span<const std::uint8_t> value) { append(value.data(), value.size()); }
  void text(std::string_view value) { append(value.data(), value.size()); }

  std::span<const std::uint8_t> view() const { return data_; }
  std::vector<std::uint8_t> take() { return std::move(data_); }

 private:
  void put(std::uint64_t value, int byteCount) {
    std::uint8_t little[8];
    for (int i = 0; i < byteCount; ++i) little[i] = static_cast<std::uint8_t>(value >> (8 * i));
    append(little, static_cast<std::size_t>(byteCount));
  }
  // Never inlined, because GCC 12 falsely warns about a vector's inlined growth at -O3.
  [[gnu::noinline]] void append(const void* from, std::size_t count) {
    if (count == 0) return;
    const std::size_t end = data_.size();
    data_.resize(end + count);
    std::memcpy(data_.data() + end, from, count);
  }

  std::vector<std::uint8_t> data_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> data) : data_(data) {}

  std::uint8_t u8() { return static_cast<std::uint8_t>(get(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(get(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(get(4)); }
  std::uint64_t u64() { return get(8); }

  void bytes(std::span<std::uint8_t> out) {
    const auto from = take(out.size());
    std::copy(from.begin(), from.end(), out.begin());
  }

  std::span<const std::uint8_t> rest() { return take(data_.size()); }
  std::size_t left() const { return data_.size(); }
  bool ok() const { return ok_; }  // nothing was read past the end

 private:
  std::span<const std::uint8_t> take(std::size_t count) {
    if (count > data_.size()) {
      ok_ = false;
      data_ = {};
      return {};
    }
    const auto taken = data_.first(count);
    data_ = data_.subspan(count);
    return taken;
  }

  std::uint64_t get(std::size_t byteCount) {
    std::uint64_t value = 0;
    const auto from = take(byteCount);
    for (std::size_t i = 0; i < from.size(); ++i) value |= std::uint64_t{from[i]} << (8 * i);
    return value;
  }

  std::span<const std::uint8_t> data_;
  bool ok_ = true;
};

}  // namespace moe::bootstrap
