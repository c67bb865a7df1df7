// The order-preserving parallel sum: the bits of "one float takes non-negative terms one after the
// other", without the serial chain. Compiles for the host and for CUDA devices.
//
// Inside one binade (exponent field E) a float's bit pattern is linear, and adding a term adds an
// integer that depends only on the term, on E, and on the parity of the pattern. So a run of terms is
// summed twice from wrong starts, the even pattern E<<23 and the odd one above it; the two increments
// are the run's map. Maps compose associatively, and Apply tells exactly whether one holds for a
// given sum; where it does not, the sum leaves the binade inside the run and the run is added serially.
// Needs round-to-nearest-even and denormals. docs/metric.md carries the proof.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/host_device.h"

namespace psnrhvs {

PSNRHVS_HOST_DEVICE inline uint32_t FloatBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

PSNRHVS_HOST_DEVICE inline float BitsFloat(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// Exponent field of a non-negative float's pattern. 255 is infinity or NaN: no map holds there.
PSNRHVS_HOST_DEVICE inline uint32_t ExponentField(uint32_t bits) { return bits >> 23; }

// What a run of terms adds to the pattern of a sum in a given binade. An increment of kMapLimit or
// more can never be applied, so increments are clamped there and sums of 255 of them fit 32 bits.
struct SumMap {
  uint32_t even = 0;  // to an even pattern
  uint32_t odd = 0;   // to an odd pattern
};
constexpr uint32_t kMapLimit = 0x800000;

PSNRHVS_HOST_DEVICE inline uint32_t ClampIncrement(uint32_t increment) {
  return increment < kMapLimit ? increment : kMapLimit;
}

// The map of two chains that started at the even and at the odd pattern of binade `exponent` and
// ended at `even_end` and `odd_end`.
PSNRHVS_HOST_DEVICE inline SumMap MapFromChains(uint32_t exponent, float even_end, float odd_end) {
  SumMap map;
  map.even = ClampIncrement(FloatBits(even_end) - (exponent << 23));
  map.odd = ClampIncrement(FloatBits(odd_end) - ((exponent << 23) | 1));
  return map;
}

// The map of `count` terms for sums in binade `exponent` (0 to 254).
PSNRHVS_HOST_DEVICE inline SumMap MapTerms(uint32_t exponent, const float* terms, int count) {
  float even = BitsFloat(exponent << 23);
  float odd = BitsFloat((exponent << 23) | 1);
  for (int k = 0; k < count; ++k) {
    even += terms[k];
    odd += terms[k];
  }
  return MapFromChains(exponent, even, odd);
}

// `first`, then `second`, both of the same binade. If the result can be applied, so can every prefix.
PSNRHVS_HOST_DEVICE inline SumMap Compose(SumMap first, SumMap second) {
  SumMap map;
  map.even = ClampIncrement(first.even + ((first.even & 1) ? second.odd : second.even));
  map.odd = ClampIncrement(first.odd + ((first.odd & 1) ? second.even : second.odd));
  return map;
}

// Adds a map of the binade of `*bits` to the sum with that pattern. False, and nothing done, if the
// sum would leave the binade: then, and only then, the run must be added serially.
PSNRHVS_HOST_DEVICE inline bool Apply(SumMap map, uint32_t* bits) {
  const uint32_t next = *bits + ((*bits & 1) ? map.odd : map.even);
  if (ExponentField(next) != ExponentField(*bits)) return false;
  *bits = next;
  return true;
}

// The serial chain that all of the above equals.
PSNRHVS_HOST_DEVICE inline float AddSerially(float sum, const float* terms, int count) {
  for (int k = 0; k < count; ++k) sum += terms[k];
  return sum;
}

// Adds a run of blocks to the sum with pattern `bits` and returns the new pattern. `Run` has
//   int blocks() const;
//   SumMap Map(uint32_t exponent, int first);  // of the blocks from `first` on, in binade `exponent`
//   SumMap BlockMap(int block);                // of one block of the last Map
//   float AddBlock(float sum, int block);      // serially
// At most one block a binade is added serially.
template <typename Run>
uint32_t AddRun(uint32_t bits, Run&& run) {
  constexpr uint32_t kInfiniteExponent = 255;
  for (int block = 0; block < run.blocks(); ++block) {
    if (ExponentField(bits) < kInfiniteExponent) {
      if (Apply(run.Map(ExponentField(bits), block), &bits)) return bits;
      // The whole leaves the binade, so one of the blocks does: stop there.
      while (Apply(run.BlockMap(block), &bits)) ++block;
    }
    bits = FloatBits(run.AddBlock(BitsFloat(bits), block));
  }
  return bits;
}

}  // namespace psnrhvs
