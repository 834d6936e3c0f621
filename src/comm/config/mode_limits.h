// The thresholds of moeModeAuto: up to how many bytes that one rank sends in a dispatch a handle takes LL. The choice
// itself is in comm/handle/mode_choice.h.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>

namespace moe {

enum class Layout : std::int32_t;  // device/view/views.h

// What a communicator runs on, as far as its thresholds depend on it.
enum class ModeSetup {
  gpu,          // GPUs of one domain
  gpuDomains,   // GPUs of several domains
  host,         // host backend, one domain, and each host has more processors than ranks
  hostFull,     // the same with as many processors as ranks: any other program takes one away
  hostShared,   // the same with fewer processors than ranks
  hostDomains,  // host backend, several domains
};
inline constexpr std::size_t kSetupCount = 6, kLayoutCount = 4;

// Their names in tuning files, in the order of the enumerators.
inline constexpr std::array<const char*, kSetupCount> kSetupNames = {"gpu",       "gpu-domains", "host",
                                                                     "host-full", "host-shared", "host-domains"};
inline constexpr std::array<const char*, kLayoutCount> kLayoutNames = {"flat", "expert-major", "expert-major-padded",
                                                                       "rank-major"};

constexpr const char* nameOf(ModeSetup setup) {
  return kSetupNames[static_cast<std::size_t>(setup)];
}
constexpr const char* nameOf(Layout layout) {
  return kLayoutNames[static_cast<std::size_t>(layout)];
}

// A token rarely goes to more ranks. An estimate of what a rank sends counts no more.
inline constexpr int kRanksOfToken = 8;

// Bytes, [setup][layout].
using ModeLimits = std::array<std::array<std::int64_t, kLayoutCount>, kSetupCount>;

// LL is taken if one rank sends at most this many bytes in a dispatch. On GPUs LL pays for every byte: it has no bulk
// copies, and rows that do not stay in their slots are copied once more. HT pays for the exchange of outputs before the
// first byte.
//
// GPUs, 2 ranks of one domain, rows of 14336 bytes, us of a step, LL / HT (2 x H200, 2026-11-30):
//   FLAT          72.5 / 84.5 at 512 tokens, 133.6 / 135.8 at 1024, 273.6 / 222.8 at 2048
//   RANK_MAJOR    57.0 / 84.4 at 512, 162.3 / 136.0 at 1024, 245.2 / 223.1 at 2048, in its slots
//   EXPERT_MAJOR  95.2 / 150.9 at 512, 183.7 / 231.2 at 1024, 367.9 / 370.2 at 2048
// At 4 ranks, LL RANK_MAJOR took 43.6 and 136.7 us at 128 and 512, and HT FLAT 1000 at 4096, in older versions. So LL
// is taken up to 512 tokens of 4 ranks or 1024 of 2 (28 MiB), but in RANK_MAJOR up to 512 of any (kRankMajorTokens).
//
// Host backend: a copy costs as much as crossing, and LL makes one more. Where a token has one row, HT wins from the
// first token on. HT of rows per expert goes in waves, which cost more than they hide while there are few rows. Rows of
// 4096 bytes, 16 processors, us of a pair, HT / LL:
//   FLAT, 2 ranks          4.6 / 6.8 at 1 token, 12.1 / 27.4 at 8, 131 / 308 at 128
//   FLAT, 4 ranks          6.5 / 9.8, 17.6 / 40.0, 128 / 332
//   EXPERT_MAJOR, 2 ranks  12.6 / 8.2 at 1 token, 66.5 / 62.4 at 16, 134 / 142 at 32
//   EXPERT_MAJOR, 4 ranks  19.4 / 12.0 at 1 token, 55.6 / 54.6 at 8, 93.3 / 100.6 at 16
//   FLAT over TCP          100 / 60 at 32, 250 / 245 at 128, 1000 / 1090 at 512 (2 ranks, rows of 2048 bytes)
//                          432 / 448 at 64, 860 / 910 at 128, 1870 / 2845 at 256 (rows of 8192 bytes)
//
// Host backend with few processors: a wait for a rank without a processor costs a nap or a time slice, and HT has more
// waits than LL. So the load by other programs matters. Rows of 2048 bytes, 2 processors, us of a pair, LL / HT,
// alone and beside two programs that compute:
//   FLAT, 4 ranks          20 / 27, 155 / 291 at 1 token; 71 / 59, 197 / 300 at 16; 287 / 119, 425 / 370 at 64
//   RANK_MAJOR, 4 ranks    20 / 40, 144 / 342 at 1 token; 63 / 45, 179 / 304 at 16; 225 / 126, 243 / 367 at 64
//   EXPERT_MAJOR, 4 ranks  30 / 63, 166 / 737 at 1 token; 166 / 160, 275 / 772 at 16; 1231 / 1248, 1770 / 2133 at 128
//   FLAT, 2 ranks          5.0 / 4.3, 13 / 24 at 1 token; 31 / 11, 35 / 37 at 16; 176 / 91, 209 / 152 at 128
// At 16 tokens of 4 ranks neither is right in both cases. Ranks that share processors rarely run alone, since their
// experts compute, so LL is taken there.
inline constexpr std::int64_t kKibibyte = 1 << 10, kMebibyte = 1 << 20;
inline constexpr ModeLimits kBuiltInLimits = {{
    // FLAT, EXPERT_MAJOR, EXPERT_MAJOR_PADDED, RANK_MAJOR
    {32 * kMebibyte, 32 * kMebibyte, 32 * kMebibyte, 32 * kMebibyte},  // gpu
    {16 * kMebibyte, 16 * kMebibyte, 16 * kMebibyte, 16 * kMebibyte},  // gpuDomains
    {0, 128 * kKibibyte, 128 * kKibibyte, 0},                          // host: 0 is always HT
    {4 * kKibibyte, 128 * kKibibyte, 128 * kKibibyte, 4 * kKibibyte},  // hostFull
    {128 * kKibibyte, kMebibyte, kMebibyte, 128 * kKibibyte},          // hostShared
    {kMebibyte, 2 * kMebibyte, 2 * kMebibyte, kMebibyte},              // hostDomains
}};

// On GPUs LL is taken for no more tokens than this in RANK_MAJOR, unless a tuning file says so.
inline constexpr int kRankMajorTokens = 512;

// The thresholds of a tuning file. Those that it does not have are kNotTuned, and the built-in ones count.
inline constexpr std::int64_t kNotTuned = -1;
constexpr ModeLimits untuned() {
  ModeLimits limits{};
  for (auto& ofSetup : limits) ofSetup.fill(kNotTuned);
  return limits;
}

struct ModeLimit {
  std::int64_t bytes;
  bool tuned;
  int tokens;  // LL is taken for no more
};
constexpr ModeLimit modeLimit(const ModeLimits& tuned, ModeSetup setup, Layout layout) {
  const auto i = static_cast<std::size_t>(setup), k = static_cast<std::size_t>(layout);
  const bool isTuned = tuned[i][k] != kNotTuned;
  const bool few = !isTuned && setup == ModeSetup::gpu && k + 1 == kLayoutCount;  // RANK_MAJOR is the last layout
  return {isTuned ? tuned[i][k] : kBuiltInLimits[i][k], isTuned, few ? kRankMajorTokens : INT_MAX};
}

}  // namespace moe
