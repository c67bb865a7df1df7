// The device's exact sum, run on the host: a team of 128 threads is a loop over 128 values.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cuda/tile_sum.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "cpu/metric.h"

namespace psnrhvs {
namespace {

constexpr int kTileTerms = kTileBlocks * kBlockTerms;

class HostTeam {
 public:
  template <typename T>
  struct PerThread {
    std::array<T, kTileBlocks> values{};
    T& operator()(int t) { return values[t]; }
  };

  HostTeam(const std::vector<float>& terms, const std::vector<TileRecord>& records)
      : terms_(terms), records_(records) {}

  template <typename F>
  void ForEach(F f) {
    for (int t = 0; t < kTileBlocks; ++t) f(t);
  }
  void Scan(PerThread<SumMap>& maps) {
    for (int t = 1; t < kTileBlocks; ++t) maps(t) = Compose(maps(t - 1), maps(t));
  }
  int Leading(PerThread<bool>& flags, PerThread<uint32_t>& values, uint32_t* last) {
    int count = 0;
    while (count < kTileBlocks && flags(count)) *last = values(count++);
    for (int t = count; t < kTileBlocks; ++t) EXPECT_FALSE(flags(t)) << "a device only counts the flags";
    return count;
  }
  template <typename T>
  T Broadcast(PerThread<T>& values, int t) {
    return values(t);
  }
  void LoadTerms(int tile, int) {
    tile_ = tile;
    ++loads;
  }
  MapPair BlockMaps(int t, uint32_t exponent) {
    return {MapTerms(exponent, Block(t), kBlockTerms), MapTerms(exponent + 1, Block(t), kBlockTerms)};
  }
  MapPair KeptMaps(int t, int stored) {
    tile_ = stored;
    ++kept;
    return BlockMaps(t, records_[stored].exponent);
  }
  float AddBlock(int t, int stored, float sum) {
    if (stored >= 0) {
      EXPECT_EQ(stored, tile_);
    }
    ++serial_blocks;
    return AddSerially(sum, Block(t), kBlockTerms);
  }
  void ReadRecords(int tile, int end, TileRecord* records) {
    for (int i = 0; i < kRecordsAThread; ++i) {
      records[i] = TileRecord{};
      records[i].map_count = kAllZero;
      if (tile + i < end) records[i] = UnpackRecord(PackRecord(records_[tile + i], 77));
    }
  }

  int loads = 0;
  int kept = 0;  // threads that used kept maps
  int serial_blocks = 0;

 private:
  const float* Block(int t) const { return &terms_[static_cast<size_t>(tile_) * kTileTerms + t * kBlockTerms]; }

  const std::vector<float>& terms_;
  const std::vector<TileRecord>& records_;
  int tile_ = 0;
};

struct Guess {
  double scale = 1;        // of the estimated prefix
  int exponent_error = 0;  // of the predicted range
  bool keeps = true;       // the terms of tiles near a binade's end
};

// What the device does with a plane, segment after segment. Returns the loads that were needed.
int ExpectSerialSum(const std::vector<float>& terms, Guess guess) {
  const int tiles = static_cast<int>(terms.size()) / kTileTerms;
  std::vector<TileRecord> records(tiles);
  HostTeam team(terms, records);
  float prefix = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    float sum = 0;
    for (int k = kTileTerms - 1; k >= 0; --k) sum += terms[static_cast<size_t>(tile) * kTileTerms + k];
    TileRecord& record = records[tile];
    record = TileRecord{};
    record.stored = -1;
    if (sum == 0) {
      record.map_count = kAllZero;
      continue;
    }
    const ExponentRange range = PredictExponents(static_cast<float>(prefix * guess.scale),
                                                 static_cast<float>(prefix * guess.scale), sum, guess.exponent_error);
    record.exponent = range.low;
    record.map_count = MapsFor(range);
    record.stored = guess.keeps && range.low != range.high ? tile : -1;
    team.LoadTerms(tile, -1);
    for (int m = 0; m < record.map_count; ++m) {
      HostTeam::PerThread<SumMap> maps;
      team.ForEach([&](int t) { maps(t) = team.BlockMaps(t, range.low + static_cast<uint32_t>(m)).low; });
      record.maps[m] = TileMap(team, maps);
    }
    prefix += record.map_count > 0 ? IncrementValue(range.low, record.maps[0]) : sum;
  }
  team.loads = 0;
  uint32_t bits = 0;
  int first = 0;
  for (int end = 4; first < tiles; end *= 4) {
    if (end > tiles) end = tiles;
    bits = ResolveTiles(team, first, end, [bits] { return bits; });
    first = end;
  }
  const float expected = AddSerially(0.0f, terms.data(), static_cast<int>(terms.size()));
  EXPECT_EQ(bits, FloatBits(expected)) << BitsFloat(bits) << " instead of " << expected;
  return team.loads + team.kept / kTileBlocks;
}

struct Stream {
  const char* name;
  std::function<float(std::mt19937&, size_t)> term;
};

std::vector<Stream> Streams() {
  const auto unit = [](std::mt19937& random) { return std::ldexp(static_cast<float>(random() >> 8), -24); };
  return {
      {"natural: mostly zero, long-tailed",
       [=](std::mt19937& random, size_t) { return random() % 10 ? 0.0f : std::exp(8 * unit(random)); }},
      {"uniform", [=](std::mt19937& random, size_t) { return 100 * unit(random); }},
      {"log-uniform over 40 binades",
       [=](std::mt19937& random, size_t) {
         return std::ldexp(1 + unit(random), static_cast<int>(random() % 40) - 20);
       }},
      {"halves, ties after 2^23", [](std::mt19937&, size_t) { return 0.5f; }},
      {"ones", [](std::mt19937&, size_t) { return 1.0f; }},
      {"equal, rounded away at the end", [](std::mt19937&, size_t n) { return n < 64 ? 1e6f : 0.0625f; }},
      {"ties at the running sum's unit",
       [](std::mt19937& random, size_t n) { return n == 0 ? 8388608.0f : (random() % 2 ? 0.5f : 1.5f); }},
      {"powers of two", [](std::mt19937& random, size_t) { return std::ldexp(1.0f, static_cast<int>(random() % 24)); }},
      {"growing", [](std::mt19937&, size_t n) { return std::ldexp(1.0f, static_cast<int>(n / 3000)); }},
      {"subnormal", [](std::mt19937& random, size_t) { return BitsFloat(random() % 5000); }},
      {"one huge term in the middle",
       [=](std::mt19937& random, size_t n) { return n == 100000 ? 1e30f : 100 * unit(random); }},
      {"zero up to the last term", [](std::mt19937&, size_t n) { return n == 40 * kTileTerms - 1 ? 3.0f : 0.0f; }},
      {"all zero", [](std::mt19937&, size_t) { return 0.0f; }},
      {"to infinity", [](std::mt19937&, size_t n) { return n < 200000 ? 1e33f : 1.0f; }},
  };
}

std::vector<float> Terms(const Stream& stream, int tiles, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> terms(static_cast<size_t>(tiles) * kTileTerms);
  for (size_t n = 0; n < terms.size(); ++n) terms[n] = stream.term(random, n);
  return terms;
}

TEST(TileSum, EqualsTheSerialSumWhateverIsGuessed) {
  const Guess guesses[] = {{1, 0},   {0.7, 0},  {1.5, 0}, {5, 0},        {1, 1},         {1, -1},
                           {1, 200}, {1, -300}, {0, 0},   {1, 0, false}, {0.7, 0, false}};
  for (const Stream& stream : Streams()) {
    for (int tiles : {1, 3, 40, 97}) {
      const std::vector<float> terms = Terms(stream, tiles, static_cast<unsigned>(tiles));
      for (const Guess& guess : guesses) {
        SCOPED_TRACE(std::string(stream.name) + ", " + std::to_string(tiles) + " tiles, scale " +
                     std::to_string(guess.scale) + ", exponent error " + std::to_string(guess.exponent_error) +
                     (guess.keeps ? "" : ", nothing kept"));
        ExpectSerialSum(terms, guess);
      }
    }
  }
}

TEST(TileSum, FetchesOnlyTilesThatLeaveABinadeWhenTheGuessIsRight) {
  const std::vector<float> terms = Terms(Streams()[0], 1200, 7);
  EXPECT_LE(ExpectSerialSum(terms, Guess{}), 16);
}

TEST(TileSum, FetchesEveryTileWhenTheGuessIsWrong) {
  const std::vector<float> terms = Terms(Streams()[0], 150, 8);
  EXPECT_EQ(ExpectSerialSum(terms, Guess{1, 40}), 150);
}

TEST(TileSum, ARecordHasNoMapOutsideItsBinades) {
  TileRecord record{};
  record.exponent = 130;
  record.map_count = 1;
  record.maps[0].even = record.maps[0].odd = 5;
  uint32_t sum = 130u << 23;
  EXPECT_TRUE(Apply(RecordMap(record, 130), &sum));
  EXPECT_EQ(sum, (130u << 23) + 5);
  sum = 131u << 23;
  EXPECT_FALSE(Apply(RecordMap(record, 131), &sum));
  sum = 129u << 23;
  EXPECT_FALSE(Apply(RecordMap(record, 129), &sum));
}

TEST(TileSum, APackedRecordKeepsEveryValueAndItsLaunch) {
  for (int32_t map_count : {static_cast<int32_t>(kAllZero), 0, 1, 2}) {
    for (int32_t stored : {-1, 0, 70000}) {
      for (uint32_t increment : {0u, 1u, kMapLimit}) {
        TileRecord record{};
        record.maps[0].even = increment;
        record.maps[0].odd = 5;
        record.maps[1].even = 6;
        record.maps[1].odd = increment;
        record.exponent = 253;
        record.map_count = map_count;
        record.stored = stored;
        const PackedRecord packed = PackRecord(record, 0x12345);
        for (uint64_t word : packed.words) {
          EXPECT_TRUE(IsOfEpoch(word, 0x12345));
          EXPECT_FALSE(IsOfEpoch(word, 0x12344));
        }
        const TileRecord back = UnpackRecord(packed);
        EXPECT_EQ(back.maps[0].even, increment);
        EXPECT_EQ(back.maps[0].odd, 5u);
        EXPECT_EQ(back.maps[1].even, 6u);
        EXPECT_EQ(back.maps[1].odd, increment);
        EXPECT_EQ(back.exponent, 253u);
        EXPECT_EQ(back.map_count, map_count);
        EXPECT_EQ(back.stored, stored);
      }
    }
  }
}

}  // namespace
}  // namespace psnrhvs
