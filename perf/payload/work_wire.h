// Checks sums of rows that travelled in a wire format. See payload/work.h.
#pragma once

#include "perf/payload/work_combine.h"

namespace moe::perf {

// Columns that an NVFP4 scale covers: they are checked together.
inline constexpr int kWireColumns = 16;

// A sum without a wire format, and how far it may be from that.
struct WireSums {
  float value[kWireColumns];
  float slack[kWireColumns];
  float magnitude[kWireColumns];  // the sum of the magnitudes of the terms
};

// Compares each element of combine's result with the sum of its rows, within the errors of the formats. An e4m3 code is
// off by at most 1/16 of its value, or half of the least code. An E2M1 code is off by half of the distance between
// codes, whose unit is a sixth of the block's largest magnitude. A LogFMT-10 code is off by half a step of at most
// 2^(32/510); 32 octaves below the largest magnitude it is off by its whole value. Other scales, and small blocks of
// large rows, cost a little more. kLargest, the largest magnitude in a row, bounds this.
struct VerifyWire {
  VerifyCombine sums;
  Wire wire;

  MOE_PERF_BOTH std::int64_t rowCount() const { return sums.rowCount(); }
  MOE_PERF_BOTH void operator()(std::int64_t token, int first, int step) const {
    const std::uint64_t key = sums.payloadOf.key(sums.source, static_cast<int>(token));
    const int begin = sampleBegin(sums.payloadOf, static_cast<int>(token), sums.stride);
    unsigned long long wrong = 0;
    double worst = 0;
    for (int block = begin + first * sums.stride; block < sums.shape.hidden / kWireColumns;
         block += step * sums.stride) {
      wrong += check(token, key, block, &worst);
    }
    addTo(&sums.findings->wrongCombines, wrong);
    raiseTo(&sums.findings->maxRelErrorBits, worst);
  }

 private:
  static constexpr float kLargest = 32.0F * 255.0F;  // of 32 experts with weights of at most 1, in a row

  MOE_PERF_BOTH static float magnitudeOf(float value) { return value < 0 ? -value : value; }

  MOE_PERF_BOTH unsigned long long check(std::int64_t token, std::uint64_t key, int block, double* worst) const {
    const Format format = combineFormat(sums.shape.format);
    const void* row = static_cast<const char*>(sums.out) + token * sums.shape.hidden * elementBytes(format);
    float x[kWireColumns], actual[kWireColumns];
    for (int group = 0; group < kWireColumns / kGroup; ++group) {
      const int at = block * kWireColumns / kGroup + group;
      const float scale = sums.shape.sideFloats == 0 ? 1.0F : scaleOf(key, at * kGroup / kScaleColumns);
      const GroupValues own = payload(key, at), came = loadGroup(format, row, at);
      for (int i = 0; i < kGroup; ++i) {
        x[group * kGroup + i] = own.value[i] * scale;
        actual[group * kGroup + i] = came.value[i];
      }
    }
    WireSums total{};
    addRanks(total, true, token, x);
    addRanks(total, false, token, x);
    unsigned long long wrong = 0;
    const float rounding = format == Format::fp32 ? 0x1p-20F : format == Format::fp16 ? 0x1p-11F : 0x1p-8F;
    for (int i = 0; i < kWireColumns; ++i) {
      const float slack = total.slack[i] + (magnitudeOf(total.value[i]) + total.slack[i]) * rounding;
      const float difference = magnitudeOf(actual[i] - total.value[i]);
      wrong += difference <= slack ? 0 : 1;  // a NaN is wrong
      const double error = static_cast<double>(difference) / static_cast<double>(total.magnitude[i]);
      if (total.magnitude[i] > 0 && !(error <= *worst)) *worst = error;
    }
    return wrong;
  }

  // As VerifyCombine::addRanks.
  MOE_PERF_BOTH void addRanks(WireSums& total, bool own, std::int64_t token, const float (&x)[kWireColumns]) const {
    const Format format = combineFormat(sums.shape.format);
    WireSums ofRank{}, ofDomain{};
    const int end = sums.entryOffsets[token + 1];
    for (int i = sums.entryOffsets[token]; i < end; ++i) {
      const Entry entry = sums.entries[i];
      if ((sums.domainOf(entry.rank) == sums.domainOf(sums.source)) != own) continue;
      const std::int32_t next = i + 1 == end ? -1 : sums.entries[i + 1].rank;
      for (int e = 0; e < kWireColumns; ++e) {
        const float term = expertTerm(sums.style, format, entry, x[e]);
        ofRank.value[e] += term;
        ofRank.magnitude[e] += magnitudeOf(term);
      }
      if (next == entry.rank) continue;
      // Rows that stand for several experts are rounded where they are made.
      for (int e = 0; e < kWireColumns && sums.style == ExpertStyle::summed; ++e) {
        ofRank.value[e] = rounded(format, ofRank.value[e]);
      }
      travel(ofRank);
      const bool rails = !own && sums.domainSums;
      add(rails ? ofDomain : total, ofRank);
      ofRank = {};
      if (!rails || (next >= 0 && sums.domainOf(next) == sums.domainOf(entry.rank))) continue;
      travel(ofDomain);
      add(total, ofDomain);
      ofDomain = {};
    }
  }
  MOE_PERF_BOTH static void add(WireSums& to, const WireSums& from) {
    for (int i = 0; i < kWireColumns; ++i) {
      to.value[i] += from.value[i];
      to.slack[i] += from.slack[i];
      to.magnitude[i] += from.magnitude[i];
    }
  }

  MOE_PERF_BOTH void travel(WireSums& of) const {
    float amax = 0;
    for (int i = 0; i < kWireColumns; ++i) {
      const float most = magnitudeOf(of.value[i]) + of.slack[i];
      amax = most > amax ? most : amax;
    }
    for (int i = 0; i < kWireColumns; ++i) {
      if (wire == Wire::fp8 && magnitudeOf(of.value[i]) > 448) of.value[i] = of.value[i] < 0 ? -448.0F : 448.0F;
      of.slack[i] += lossOf(magnitudeOf(of.value[i]) + of.slack[i], amax);
    }
  }
  // The error of an element of at most this magnitude, in a block whose largest magnitude is `amax`.
  MOE_PERF_BOTH float lossOf(float magnitude, float amax) const {
    if (wire == Wire::logfmt10) return magnitude * 0.0223F + kLargest * 0x1p-32F;
    if (wire != Wire::nvfp4) {
      const float least = wire == Wire::fp8 ? 0x1p-10F : kLargest / 448 * 0x1p-10F;
      return magnitude / 16 * 1.001F + least;
    }
    const float unit = amax / 6 * 1.07F;  // the scale is e4m3, off by up to 1/16
    const float step = magnitude > unit * 3.7F ? 1.0F : magnitude > unit * 1.8F ? 0.5F : 0.25F;
    const float saturated = magnitude > amax * 0.93F ? amax / 15 : 0.0F;
    const float half = unit * step;
    return (half > saturated ? half : saturated) + kLargest / 2688 * 6 * 0x1p-9F;
  }
};

}  // namespace moe::perf
