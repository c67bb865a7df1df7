// The exact sum of a plane on a device: tiles of 128 blocks guess the binade of the running sum and make
// their maps for it side by side; a team of 128 threads then goes through the tiles in order with the true
// sum, takes every map that holds and adds the few other tiles block by block. A wrong guess costs time,
// never a bit. cpu/exact_sum.h has the maps; docs/metric.md the proof.
//
// Compiles for the host and for CUDA devices, so that all of it can be tested without a device. Code for
// a team is written once against a `Team`:
//   PerThread<T>            one T a thread; value(t) is thread t's
//   ForEach(f)              f(t) in every thread t
//   Scan(PerThread<SumMap>) thread t gets the composition of the maps of threads 0 to t
//   CountLeading(flags)     number of true flags before the first false one; no true one may follow
//   Broadcast(values, t)    thread t's value, in every thread
//   LoadTerms(tile)         makes the tile's terms available to the next two
//   BlockMap(t, exponent)   MapTerms of block t
//   AddBlock(t, sum)        AddSerially of block t
//   Record(tile)            the tile's record, once it is there
// On a device `ForEach` runs the calling thread's part only and the rest are barriers: every thread of the
// team must get there with the same arguments.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cstdint>

#include "cpu/exact_sum.h"
#include "cpu/host_device.h"

namespace psnrhvs {

constexpr int kTileBlocks = 128;

// What a tile hands to the resolving team. 32 bytes.
struct TileRecord {
  SumMap maps[2];     // for sums in binade `exponent`, and in the one above
  uint32_t exponent;  // of the first map
  int32_t map_count;  // 0 to 2, or kAllZero: the tile changes no sum
  int32_t stored;     // where the terms are kept, or -1
  uint32_t epoch;     // of the launch that wrote it
};
static_assert(sizeof(TileRecord) == 32, "read by devices as two vectors");
constexpr int32_t kAllZero = -1;

// The binades in which the sum may be at the start and at the end of a tile.
struct ExponentRange {
  uint32_t low;
  uint32_t high;
};

// For a tile of terms that add up to about `sum`, after terms that add up to about `prefix`. `error` is
// added to both ends, for tests. The margin was chosen on the device: it must cover the difference
// between a rounded and an unrounded sum of the tiles in flight (well below 1 % even for noise), and a
// larger one stores more tiles' terms in vain.
PSNRHVS_HOST_DEVICE inline ExponentRange PredictExponents(float prefix, float sum, int error) {
  constexpr float kMargin = 1.0f / 64;
  const int low = static_cast<int>(ExponentField(FloatBits(prefix * (1 - kMargin)))) + error;
  const int high = static_cast<int>(ExponentField(FloatBits((prefix + sum) * (1 + kMargin)))) + error;
  const auto clamp = [](int exponent) {
    return static_cast<uint32_t>(exponent < 0 ? 0 : exponent > 253 ? 253 : exponent);
  };
  return {clamp(low), clamp(high)};
}

// How many maps a tile needs to be right in the whole range: if it spans more than two binades (at a
// plane's start), none would be.
PSNRHVS_HOST_DEVICE inline int MapsFor(ExponentRange range) {
  return range.high - range.low > 1 ? 0 : static_cast<int>(range.high - range.low) + 1;
}

// A sum at the start of binade `exponent`, and what the map's increment adds to it: about what a tile
// adds to the rounded sum.
PSNRHVS_HOST_DEVICE inline float IncrementValue(uint32_t exponent, SumMap map) {
  return BitsFloat((exponent << 23) + map.even) - BitsFloat(exponent << 23);
}

// The record's map for sums in binade `exponent`; one that never holds if it has none.
PSNRHVS_HOST_DEVICE inline SumMap RecordMap(const TileRecord& record, uint32_t exponent) {
  if (record.map_count == kAllZero) return SumMap{};
  const uint32_t index = exponent - record.exponent;
  SumMap map;
  map.even = map.odd = kMapLimit;
  if (index < static_cast<uint32_t>(record.map_count)) map = index == 0 ? record.maps[0] : record.maps[1];
  return map;
}

// The map of the tile whose terms are loaded.
template <typename Team>
PSNRHVS_HOST_DEVICE inline SumMap TileMap(Team& team, uint32_t exponent) {
  typename Team::template PerThread<SumMap> prefix;
  team.ForEach([&](int t) { prefix(t) = team.BlockMap(t, exponent); });
  team.Scan(prefix);
  return team.Broadcast(prefix, kTileBlocks - 1);
}

// Applies the threads' maps, composed in order, as far as they hold. Returns for how many threads that
// was, and updates the sum with those.
template <typename Team>
PSNRHVS_HOST_DEVICE inline int ApplyLeading(Team& team, typename Team::template PerThread<SumMap>& maps,
                                            uint32_t* sum_bits) {
  team.Scan(maps);
  typename Team::template PerThread<uint32_t> after;
  typename Team::template PerThread<bool> holds;
  team.ForEach([&](int t) {
    after(t) = *sum_bits;
    holds(t) = Apply(maps(t), &after(t));
  });
  const int count = team.CountLeading(holds);
  if (count > 0) *sum_bits = team.Broadcast(after, count - 1);
  return count;
}

// Adds the terms of a tile whose map did not hold: all blocks' maps for the true binade, taken up to the
// first block that leaves it; that block serially; and on behind it.
template <typename Team>
PSNRHVS_HOST_DEVICE inline uint32_t AddTile(Team& team, uint32_t sum_bits, int tile) {
  team.LoadTerms(tile);
  int added = 0;
  for (;;) {
    const uint32_t exponent = ExponentField(sum_bits);
    typename Team::template PerThread<SumMap> maps;
    team.ForEach([&](int t) { maps(t) = t < added ? SumMap{} : team.BlockMap(t, exponent); });
    const int leading = ApplyLeading(team, maps, &sum_bits);
    if (leading == kTileBlocks) return sum_bits;
    typename Team::template PerThread<uint32_t> after;
    team.ForEach([&](int t) {
      if (t == leading) after(t) = FloatBits(team.AddBlock(t, BitsFloat(sum_bits)));
    });
    sum_bits = team.Broadcast(after, leading);
    added = leading + 1;
  }
}

// Takes the sum through tiles `tile` to `end` - 1. A round of the loop composes the records of as many
// tiles as the team takes at once: few at a plane's start, where binades are left often.
template <typename Team>
PSNRHVS_HOST_DEVICE inline uint32_t ResolveTiles(Team& team, uint32_t sum_bits, int tile, int end) {
  constexpr int kStart = 64;          // tiles
  constexpr int kRecordsAThread = 8;  // after the start
  while (tile < end) {
    const uint32_t exponent = ExponentField(sum_bits);
    const int per_thread = tile < kStart ? 1 : kRecordsAThread;
    typename Team::template PerThread<SumMap> maps;
    team.ForEach([&](int t) {
      SumMap map;
      const int first = tile + t * per_thread;
      for (int i = first; i < first + per_thread && i < end; ++i) {
        map = Compose(map, RecordMap(team.Record(i), exponent));
      }
      maps(t) = map;
    });
    const int leading = ApplyLeading(team, maps, &sum_bits);
    tile += leading * per_thread;
    if (leading == kTileBlocks || tile >= end) continue;
    // One of this thread's tiles has no map that holds.
    while (Apply(RecordMap(team.Record(tile), exponent), &sum_bits)) ++tile;
    sum_bits = AddTile(team, sum_bits, tile);
    ++tile;
  }
  return sum_bits;
}

}  // namespace psnrhvs
