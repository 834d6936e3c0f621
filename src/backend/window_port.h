// How threads of a transport reach this rank's window, which may be GPU memory. Each reader and each writer belongs to
// one thread. If the window is host memory, nothing is copied, and the bytes are used in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moe {

class WindowReader {
 public:
  virtual ~WindowReader() = default;

  // The first call of the thread that makes all others. The thread is one of the library's own.
  virtual void enter() = 0;
  // Forgets all earlier fetches.
  virtual void begin() = 0;
  // Where bytes [offset, +n) of the window will be after settle(), until begin(). Returns fewer bytes than n, or none,
  // if there is no room for more. The first fetch after begin() always returns some.
  virtual std::span<const std::uint8_t> fetch(std::uint64_t offset, std::size_t n) = 0;
  virtual void settle() = 0;
};

class WindowWriter {
 public:
  virtual ~WindowWriter() = default;

  virtual void enter() = 0;  // see WindowReader
  // Where to put bytes for [offset, +n) of the window. There is room for at least one byte and at most n.
  virtual std::span<std::uint8_t> stage(std::uint64_t offset, std::size_t n) = 0;
  // The first n bytes of the last stage() are now there.
  virtual void commit(std::uint64_t offset, std::size_t n) = 0;
  // A release: steps that see the word see everything that was committed before.
  virtual void writeWord(std::uint64_t offset, std::uint64_t word) = 0;
  // Returns when everything is in the window.
  virtual void settle() = 0;
};

}  // namespace moe
