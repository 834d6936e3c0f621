// How tests draw and check the cast of a dispatch.
#pragma once

#include <string>

#include "support/guarded_bytes.h"
#include "support/reference.h"

namespace moe::test {

struct CastCase {
  int type = 0;  // a CastType
  bool exact = false;
  int rowType = kBf16;
  int elements = 0;
  bool tokenContiguous = false;

  explicit operator bool() const { return type != 0; }
  std::int64_t sourceBytes() const { return std::int64_t{elements} * elementBytes(rowType); }
  int words() const;
  int travellingBytes() const;
};

// Where the scales of one rank go, and what they are to be.
class CastOutput {
 public:
  CastOutput() = default;
  // For `rows` rows of the layout in an output that holds `capacity`.
  CastOutput(const CastCase& cast, const RouteConfig& route, std::int64_t rows, std::int64_t capacity);

  std::size_t bytes() const { return expected_.size(); }
  // What a step is told; `scales` has bytes() bytes of poison.
  CastArgs args(void* scales) const;
  // The scales of a layout row are to be these.
  void expect(std::int64_t layoutRow, const std::vector<std::uint32_t>& scales);
  // All that was expected is there, and nothing else was written.
  bool isRight(const std::uint8_t* scales) const;

 private:
  std::int64_t wordAt(std::int64_t layoutRow, int word) const;

  CastCase cast_;
  RouteConfig route_;
  std::int64_t capacity_ = 0;
  GuardedBytes expected_;
};

}  // namespace moe::test
