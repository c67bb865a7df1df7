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
//   Leading(flags, values, last)  number of true flags before the first false one, which no true one may
//                           follow; sets `last` to the value of the last true one, if there is one
//   Broadcast(values, t)    thread t's value, in every thread
//   ReadRecords(tile, end, records)
//                           kRecordsAThread records from `tile` on, once they are there; from tile `end` on
//                           all-zero ones
//   LoadTerms(tile, stored) fetches or computes the tile's terms
//   BlockMaps(t, exponent)  MapTerms of block t for `exponent` and for the binade above; terms are loaded
//   KeptMaps(t, stored)     the same for the tile's own exponent, kept with its terms
//   AddBlock(t, stored, sum)  AddSerially of block t, whose terms are loaded or kept
// On a device `ForEach` runs the calling thread's part only and the rest are barriers: every thread of the
// team must get there with the same arguments.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cstdint>

#include "cpu/exact_sum.h"
#include "cpu/host_device.h"

namespace psnrhvs {

constexpr int kTileBlocks = 128;

// What a tile hands to the resolving team.
struct TileRecord {
  SumMap maps[2];     // for sums in binade `exponent`, and in the one above
  uint32_t exponent;  // of the first map
  int32_t map_count;  // 0 to 2, or kAllZero: the tile changes no sum
  int32_t stored;     // where the terms, and the blocks' maps if there are two, are kept, or -1
};
constexpr int32_t kAllZero = -1;

// A record as it lies in memory: each word tells by its tag whether it is of this launch, so that no order
// of writes is needed. A tag is the low 16 bits of the launch's number: every launch writes every record,
// so an older word is always of the launch before.
struct PackedRecord {
  uint64_t words[3];
};

PSNRHVS_HOST_DEVICE inline PackedRecord PackRecord(const TileRecord& record, uint32_t epoch) {
  const uint64_t tag = static_cast<uint64_t>(epoch & 0xffff) << 48;
  PackedRecord packed;
  for (int m = 0; m < 2; ++m) {
    packed.words[m] = tag | static_cast<uint64_t>(record.maps[m].odd) << 24 | record.maps[m].even;
  }
  packed.words[2] = tag | static_cast<uint64_t>(record.exponent) << 40 |
                    static_cast<uint64_t>(record.map_count - kAllZero) << 32 | static_cast<uint32_t>(record.stored);
  return packed;
}

PSNRHVS_HOST_DEVICE inline bool IsOfEpoch(uint64_t word, uint32_t epoch) { return word >> 48 == (epoch & 0xffff); }

PSNRHVS_HOST_DEVICE inline TileRecord UnpackRecord(const PackedRecord& packed) {
  TileRecord record;
  for (int m = 0; m < 2; ++m) {
    record.maps[m].even = static_cast<uint32_t>(packed.words[m]) & 0xffffff;
    record.maps[m].odd = static_cast<uint32_t>(packed.words[m] >> 24) & 0xffffff;
  }
  record.exponent = static_cast<uint32_t>(packed.words[2] >> 40) & 0xff;
  record.map_count = static_cast<int32_t>(packed.words[2] >> 32 & 0xff) + kAllZero;
  record.stored = static_cast<int32_t>(static_cast<uint32_t>(packed.words[2]));
  return record;
}

// The binades in which the sum may be at the start and at the end of a tile.
struct ExponentRange {
  uint32_t low;
  uint32_t high;
};

// For a tile of terms that add up to about `sum`, after terms that add up to about `prefix_low` to
// `prefix_high`. `error` is added to both ends, for tests. The margin covers the difference between rounded
// and unrounded sums of the tiles in flight (well below 1 % even for noise); a larger one stores more tiles'
// terms in vain.
PSNRHVS_HOST_DEVICE inline ExponentRange PredictExponents(float prefix_low, float prefix_high, float sum, int error) {
  constexpr float kMargin = 1.0f / 64;
  const int low = static_cast<int>(ExponentField(FloatBits(prefix_low * (1 - kMargin)))) + error;
  const int high = static_cast<int>(ExponentField(FloatBits((prefix_high + sum) * (1 + kMargin)))) + error;
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

// The maps of a block for two neighbouring binades.
struct MapPair {
  SumMap low;
  SumMap high;
};

// The map of a tile from its blocks'.
template <typename Team>
PSNRHVS_HOST_DEVICE inline SumMap TileMap(Team& team, typename Team::template PerThread<SumMap>& block_maps) {
  team.Scan(block_maps);
  return team.Broadcast(block_maps, kTileBlocks - 1);
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
  return team.Leading(holds, after, sum_bits);
}

// A tile whose map does not hold, and the sum before it.
struct FailingTile {
  uint32_t sum_bits;
  int32_t index;          // in the window
  int32_t stored;         // as in its record
  int32_t kept_exponent;  // of the first of its blocks' kept maps, or -1
};

// Adds the terms of a tile whose map did not hold: all blocks' maps for the true binade, taken up to the
// first block that leaves it; that block serially; and on behind it, mostly in the binade above.
template <typename Team>
PSNRHVS_HOST_DEVICE inline uint32_t AddTile(Team& team, const FailingTile& failing, int tile) {
  uint32_t sum_bits = failing.sum_bits;
  int32_t stored = failing.stored;  // -1 once the terms are loaded
  const bool maps_are_kept = stored >= 0 && failing.kept_exponent >= 0;
  bool loaded = false;
  typename Team::template PerThread<MapPair> pairs;
  uint32_t low = 0;  // the pairs' binade
  if (maps_are_kept) {
    low = static_cast<uint32_t>(failing.kept_exponent);
    team.ForEach([&](int t) { pairs(t) = team.KeptMaps(t, stored); });
  }
  int added = 0;
  for (;;) {
    const uint32_t exponent = ExponentField(sum_bits);
    if ((!maps_are_kept && !loaded) || exponent - low > 1) {
      if (!loaded) team.LoadTerms(tile, stored);
      loaded = true;
      stored = -1;
      low = exponent;
      team.ForEach([&](int t) { pairs(t) = team.BlockMaps(t, low); });
    }
    typename Team::template PerThread<SumMap> maps;
    team.ForEach([&](int t) { maps(t) = t < added ? SumMap{} : exponent == low ? pairs(t).low : pairs(t).high; });
    const int leading = ApplyLeading(team, maps, &sum_bits);
    if (leading == kTileBlocks) return sum_bits;
    typename Team::template PerThread<uint32_t> after;
    team.ForEach(
        [&](int t) { after(t) = t == leading ? FloatBits(team.AddBlock(t, stored, BitsFloat(sum_bits))) : 0; });
    sum_bits = team.Broadcast(after, leading);
    added = leading + 1;
  }
}

// Records that a thread holds at a time. More make fewer windows and longer code: one was fastest on an H200.
constexpr int kRecordsAThread = 1;
constexpr int kWindowTiles = kTileBlocks * kRecordsAThread;

struct ThreadRecords {
  TileRecord records[kRecordsAThread];
};

// Takes the sum through tiles `first` to `end` - 1. `sum_before()` gives the sum before them, and may wait for it: it
// is asked for when the first records are there.
template <typename Team, typename SumBefore>
PSNRHVS_HOST_DEVICE inline uint32_t ResolveTiles(Team& team, int first, int end, SumBefore sum_before) {
  uint32_t sum_bits = 0;
  for (int window = first; window < end; window += kWindowTiles) {
    typename Team::template PerThread<ThreadRecords> held;
    team.ForEach([&](int t) { team.ReadRecords(window + t * kRecordsAThread, end, held(t).records); });
    if (window == first) sum_bits = sum_before();
    int added = 0;  // tiles of the window
    for (;;) {
      const uint32_t exponent = ExponentField(sum_bits);
      typename Team::template PerThread<SumMap> maps;
      team.ForEach([&](int t) {
        SumMap map;
        PSNRHVS_UNROLL
        for (int i = 0; i < kRecordsAThread; ++i) {
          if (t * kRecordsAThread + i >= added) map = Compose(map, RecordMap(held(t).records[i], exponent));
        }
        maps(t) = map;
      });
      const int leading = ApplyLeading(team, maps, &sum_bits);
      if (leading == kTileBlocks) break;
      typename Team::template PerThread<FailingTile> failing;
      team.ForEach([&](int t) {
        FailingTile tile{sum_bits, -1, -1, -1};
        PSNRHVS_UNROLL
        for (int i = 0; i < kRecordsAThread; ++i) {
          const int index = t * kRecordsAThread + i;
          if (t != leading || tile.index >= 0 || index < added) continue;
          const TileRecord& record = held(t).records[i];
          if (Apply(RecordMap(record, exponent), &tile.sum_bits)) continue;
          tile.index = index;
          tile.stored = record.stored;
          if (record.map_count == 2 && exponent - record.exponent <= 1)
            tile.kept_exponent = static_cast<int32_t>(record.exponent);
        }
        failing(t) = tile;
      });
      const FailingTile tile = team.Broadcast(failing, leading);
      sum_bits = AddTile(team, tile, window + tile.index);
      added = tile.index + 1;
    }
  }
  return sum_bits;
}

}  // namespace psnrhvs
