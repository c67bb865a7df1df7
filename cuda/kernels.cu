// The kernels. One launch scores a pair: thread blocks of 128 threads each take a ticket and are then
// either a tile (one thread a block pair: terms, prediction, maps, record) or the team that takes a
// plane's sum through the tiles before it (cuda/tile_sum.h). The last team of a plane writes the plane's
// sum to the host.
//
// A thread computes a whole block pair in registers: the chains of float operations that the metric
// prescribes are private to a block, so nothing is shared and nothing diverges. The loop over the two
// images is one copy of the code (what limits it is instruction issue, then instruction fetch); the
// reference's coefficients wait in shared memory, where the terms take their place.
//
// Built with --fmad=false, IEEE division and root, and denormals: see cuda/meson.build.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/block.h"
#include "cpu/metric.h"
#include "cuda/float_transform.h"
#include "cuda/kernels.h"

namespace psnrhvs {
namespace {

constexpr int kWarps = kTileBlocks / 32;
constexpr int kSlots = kBlockTerms / 4;  // float4 a thread in shared memory, [slot][thread]
constexpr unsigned kAllLanes = 0xffffffffu;

// Coefficients are kept scaled by 2^-16, and what they are compared with and multiplied by is scaled to
// match: powers of two change no rounding here, and max(x, 0) becomes a saturating subtraction.
constexpr float kCoefficientScale = 1.0f / 65536;
constexpr float kEnergyScale = 65536.0f * 65536.0f;

// The metric's tables as one plane needs them, scaled. The quotient by a mask weight is two products:
// kInverseMask of cpu/metric.h. In shared memory, so that all planes run the same code: as immediate
// operands they made three copies of it, whose fetching cost a tenth of the time.
struct Weights {
  float4 energy[kSlots];
  float4 high[kSlots];
  float4 low[kSlots];
  float4 error[kSlots];
};

struct WeightTables {
  float values[kMaxPlanes][4][kBlockTerms];
};

constexpr WeightTables MakeWeights() {
  WeightTables tables{};
  for (int plane = 0; plane < kMaxPlanes; ++plane) {
    for (int k = 0; k < kBlockTerms; ++k) {
      tables.values[plane][0][k] = kMask.weight[plane][k] * kEnergyScale;
      tables.values[plane][1][k] = kInverseMask.high[plane][k];
      tables.values[plane][2][k] = kInverseMask.low[plane][k];
      tables.values[plane][3][k] = kCsf[plane][k] / kCoefficientScale;
    }
    tables.values[plane][0][0] = 0;  // DC has no energy, and nothing hides its error
    tables.values[plane][1][0] = tables.values[plane][2][0] = 0;
  }
  return tables;
}

__device__ constexpr WeightTables kWeights = MakeWeights();
static_assert(sizeof(WeightTables) == kMaxPlanes * sizeof(Weights), "the same in vectors");

struct TransformBiases {
  float values[kBlockSize];
};

constexpr TransformBiases MakeTransformBiases() {
  TransformBiases biases{};
  for (int n = 0; n < kBlockSize; ++n) {
    biases.values[n] = -kCoefficientScale * static_cast<float>(kCoefficientBias[n]);
  }
  return biases;
}

// To take away from the float transform's outputs. Indexed by constants only.
__device__ constexpr TransformBiases kTransformBiases = MakeTransformBiases();

// An 8x8 block of one image.
struct BlockSource {
  const uint8_t* first;  // its first sample
  const uint8_t* end;    // as in DevicePlane
  int stride;
  int step;
  int shift;
};

// Samples of a block, packed: 4 or 2 a word in rows of 2 or 4 words.
template <int kBytes>
struct Samples {
  static constexpr int kRowWords = 2 * kBytes;
  uint32_t words[kBlockSize * kRowWords];
};

// Sample by sample, any layout.
template <int kBytes>
__device__ void LoadSamplesSlowly(const BlockSource& source, Samples<kBytes>& samples) {
  constexpr int kRowWords = Samples<kBytes>::kRowWords;
  const int sample_bytes = source.step * kBytes;
#pragma unroll
  for (int row = 0; row < kBlockSize; ++row) {
    const uint8_t* at = source.first + row * source.stride;
#pragma unroll
    for (int i = 0; i < kRowWords; ++i) {
      uint32_t word = 0;
#pragma unroll
      for (int j = 0; j < 4 / kBytes; ++j) {
        uint32_t sample = at[0];
        if (kBytes == 2) sample |= static_cast<uint32_t>(at[1]) << 8;
        word |= sample << (8 * kBytes * j);
        at += sample_bytes;
      }
      samples.words[row * kRowWords + i] = word;
    }
  }
}

// Row by row in aligned words, shifted into place: kStep samples from one to the next.
template <int kBytes, int kStep>
__device__ void LoadSamplesByWords(const BlockSource& source, Samples<kBytes>& samples) {
  constexpr int kRowWords = Samples<kBytes>::kRowWords;
  constexpr int kLoads = kRowWords * kStep;  // and one more where the row is not aligned
  const unsigned offset = static_cast<unsigned>(reinterpret_cast<uintptr_t>(source.first) & 3);
  const unsigned last = (offset + (7 * kStep + 1) * kBytes - 1) / 4;  // word of the row's last byte
  const uint8_t* row_start = source.first - offset;
#pragma unroll
  for (int row = 0; row < kBlockSize; ++row) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(row_start + row * source.stride);
    uint32_t loaded[kLoads + 1];
#pragma unroll
    for (int i = 0; i < kLoads - 1; ++i) loaded[i] = __ldg(words + i);
    // The last two only as far as the row reaches: no word outside the plane is touched.
    loaded[kLoads - 1] = __ldg(words + (kStep == 1 ? kLoads - 1 : min(kLoads - 1u, last)));
    loaded[kLoads] = __ldg(words + last);
    uint32_t aligned[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) aligned[i] = __funnelshift_r(loaded[i], loaded[i + 1], 8 * offset);
#pragma unroll
    for (int i = 0; i < kRowWords; ++i) {
      samples.words[row * kRowWords + i] =
          kStep == 1 ? aligned[i] : __byte_perm(aligned[2 * i], aligned[2 * i + 1], kBytes == 1 ? 0x6420 : 0x5410);
    }
  }
}

template <int kBytes>
__device__ void LoadSamples(const BlockSource& source, uint32_t sample_mask, Samples<kBytes>& samples) {
  const uint8_t* highest_row = source.first + (source.stride > 0 ? 7 * source.stride : 0);
  const uintptr_t last_byte = reinterpret_cast<uintptr_t>(highest_row) + (7 * source.step + 1) * kBytes - 1;
  const bool by_words = source.stride % 4 == 0 && (last_byte | 3) < reinterpret_cast<uintptr_t>(source.end);
  if (!by_words) {
    LoadSamplesSlowly(source, samples);
  } else if (source.step == 1) {
    LoadSamplesByWords<kBytes, 1>(source, samples);
  } else {
    LoadSamplesByWords<kBytes, 2>(source, samples);
  }
  if (kBytes == 2) {
#pragma unroll
    for (uint32_t& word : samples.words) word = (word >> source.shift) & sample_mask;
  }
}

// 2^15 + sample, exactly: the sample in bits 8 and up of the float's mantissa.
template <int kBytes>
__device__ float PixelFloat(const Samples<kBytes>& samples, int row, int column) {
  constexpr int kPerWord = 4 / kBytes;
  const uint32_t word = samples.words[row * Samples<kBytes>::kRowWords + column / kPerWord];
  const int j = column % kPerWord;
  const uint32_t selector = kBytes == 1 ? 0x7404 + (j << 4) : (j == 0 ? 0x7104 : 0x7324);
  return __uint_as_float(__byte_perm(word, 0x47000000, selector));
}

// 2^15 + sum / 2^log2_count for sums of samples: one integer operation.
__device__ float MeanFloat(uint32_t sum, int log2_count) {
  return __uint_as_float(0x47000000u + (sum << (8 - log2_count)));
}

// BlockActivity of cpu/block.h. Deviations from the means are exact, as differences of two floats of 2^15.
template <int kBytes>
__device__ float Activity(const Samples<kBytes>& samples) {
  constexpr int kRowWords = Samples<kBytes>::kRowWords;
  uint32_t sums[4];
  uint32_t squares[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    uint32_t sum = 0;
    uint32_t square = 0;
#pragma unroll
    for (int row = 4 * (q & 1); row < 4 * (q & 1) + 4; ++row) {
#pragma unroll
      for (int i = 0; i < kRowWords / 2; ++i) {
        const uint32_t word = samples.words[row * kRowWords + (q >> 1) * (kRowWords / 2) + i];
        if (kBytes == 1) {
          sum = __dp4a(word, 0x01010101u, sum);
          square = __dp4a(word, word, square);
        } else {
          sum += word;  // 8 samples of at most 12 bits in each half
        }
      }
    }
    sums[q] = kBytes == 1 ? sum : (sum & 0xffff) + (sum >> 16);
    squares[q] = square;
  }

  const float mean = MeanFloat(sums[0] + sums[1] + sums[2] + sums[3], 6);
  float variance = 0;
#pragma unroll
  for (int row = 0; row < 8; ++row) {
#pragma unroll
    for (int column = 0; column < 8; ++column) {
      const float deviation = PixelFloat(samples, row, column) - mean;
      variance += deviation * deviation;
    }
  }
  variance *= kVarianceScale64;

  float quadrants[4];
  bool in_integers = kBytes == 1;
  if (kBytes == 1) {
    // 16 times the quadrant's sum of squared deviations. Multiples of 1/256 that add up to less than
    // 2^16 are exact in any order, so the integer is the float chain's value; else the chain has to run.
    // (Saves 4 to 7 %.)
    constexpr uint32_t kExactBelow = 1u << 20;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const uint32_t deviation = 16 * squares[q] - sums[q] * sums[q];
      in_integers = in_integers && deviation < kExactBelow;
      quadrants[q] = (__uint_as_float(0x4b000000u + deviation) - 8388608.0f) * (kVarianceScale16 / 16);
    }
  }
  if (!in_integers) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float quadrant_mean = MeanFloat(sums[q], 4);
      float sum = 0;
#pragma unroll
      for (int row = 4 * (q & 1); row < 4 * (q & 1) + 4; ++row) {
#pragma unroll
        for (int column = 4 * (q >> 1); column < 4 * (q >> 1) + 4; ++column) {
          const float deviation = PixelFloat(samples, row, column) - quadrant_mean;
          sum += deviation * deviation;
        }
      }
      quadrants[q] = sum * kVarianceScale16;
    }
  }
  if (variance > 0) {
    variance = __fdiv_rn(quadrants[0] + quadrants[1] + quadrants[2] + quadrants[3], variance);
  }
  return variance;
}

// Row k of an 8-bit block's coefficients, and all after it.
template <int k>
__device__ void TransformRows(float* values) {
  float* row = values + 8 * k;
  TransformCoefficients<kCoefficientBias[k]>(row, 1, row, 1);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    row[n] = __fmaf_rn(row[n], kCoefficientScale, kTransformBiases.values[n]);
  }
  if constexpr (k < 7) TransformRows<k + 1>(values);
}

// TransformBlock of cpu/block.h, times kCoefficientScale.
template <int kBytes>
__device__ void Transform(const Samples<kBytes>& samples, float values[kBlockTerms]) {
  if constexpr (kBytes == 1) {
#pragma unroll
    for (int i = 0; i < kBlockTerms; ++i) values[i] = PixelFloat(samples, i / 8, i % 8);
#pragma unroll
    for (int c = 0; c < 8; ++c) TransformPixels(values + c, 8, values + c, 8);
    TransformRows<0>(values);
  } else {
    int32_t integers[kBlockTerms];
#pragma unroll
    for (int i = 0; i < kBlockTerms; ++i) integers[i] = (samples.words[i / 2] >> (16 * (i & 1))) & 0xffff;
#pragma unroll
    for (int c = 0; c < 8; ++c) Transform8(integers + c, 8, integers + c, 8);
#pragma unroll
    for (int k = 0; k < 8; ++k) Transform8(integers + 8 * k, 1, integers + 8 * k, 1);
    constexpr float kBias = 12582912.0f;  // 1.5 * 2^23: an integer added to its pattern is added to it
#pragma unroll
    for (int i = 0; i < kBlockTerms; ++i) {
      values[i] = __fmaf_rn(__int_as_float(0x4b400000 + integers[i]), kCoefficientScale, -kCoefficientScale * kBias);
    }
  }
}

// About the sum of a plane's terms before a tile.
struct Prefix {
  float low;    // what is known
  float high;   // with a generous guess of what is not
  int missing;  // tiles
};

// What a thread block of 128 threads shares.
struct Shared {
  float4 slots[kSlots * kTileBlocks];
  Weights weights[kMaxPlanes];
  float warp_sums[kWarps];
  Prefix prefix[2];
  // Two of each, used in turn: between two uses of one there is the other's barrier.
  uint2 warp_maps[2][kWarps];  // even, odd
  int4 broadcast[2];
  uint2 leading[2][kWarps];  // count, value
  int segment;
  uint32_t ticket;
  int stored;
};

__shared__ Shared shared;

// The composition of the maps of threads 0 to the calling one. Not inlined: a team's code is fetched anew while tiles
// run, and this is a large part of it.
__device__ __noinline__ SumMap ScanMaps(SumMap map, uint2* warp_maps) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (__all_sync(kAllLanes, map.even == map.odd)) {
    // No ties anywhere: composing is adding.
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const uint32_t before = __shfl_up_sync(kAllLanes, map.even, distance);
      if (lane >= distance) map.even = ClampIncrement(before + map.even);
    }
    map.odd = map.even;
  } else {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      SumMap before;
      before.even = __shfl_up_sync(kAllLanes, map.even, distance);
      before.odd = __shfl_up_sync(kAllLanes, map.odd, distance);
      if (lane >= distance) map = Compose(before, map);
    }
  }
  if (lane == 31) warp_maps[warp] = make_uint2(map.even, map.odd);
  __syncthreads();
  SumMap warps;
  for (int w = 0; w < warp; ++w) {
    SumMap next;
    next.even = warp_maps[w].x;
    next.odd = warp_maps[w].y;
    warps = Compose(warps, next);
  }
  return Compose(warps, map);
}

// BlockTerms of cpu/block.h, into slots[0], slots[kTileBlocks], ... Returns about the terms' sum. Not
// inlined: tiles and teams that lack a tile's terms run the same copy.
template <int kBytes>
__device__ __noinline__ float ComputeTerms(BlockSource reference, BlockSource distorted, uint32_t sample_mask,
                                           int plane, float4* slots) {
  const Weights& weights = shared.weights[plane];
  float threshold = 0;
  float values[kBlockTerms];
#pragma unroll 1
  for (int image = 0; image < 2; ++image) {
    Samples<kBytes> samples;
    LoadSamples(image == 0 ? reference : distorted, sample_mask, samples);
    const float activity = Activity(samples);
    Transform(samples, values);
    float energy = 0;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const float4 weight = weights.energy[i];
      if (i > 0) energy += values[4 * i] * values[4 * i] * weight.x;
      energy += values[4 * i + 1] * values[4 * i + 1] * weight.y;
      energy += values[4 * i + 2] * values[4 * i + 2] * weight.z;
      energy += values[4 * i + 3] * values[4 * i + 3] * weight.w;
    }
    // The root of the double, over 32, to float is the float's root over 32: 53 >= 2 * 24 + 2 bits.
    const float scaled = __fsqrt_rn(energy * activity) * (kCoefficientScale / static_cast<float>(kThresholdDivisor));
    threshold = fmaxf(threshold, scaled);
    if (image == 0) {
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        slots[i * kTileBlocks] = make_float4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]);
      }
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const float4 parked = slots[i * kTileBlocks];
    const float4 high = weights.high[i], low = weights.low[i], error = weights.error[i];
    const auto term = [&](float a, float b, float high_weight, float low_weight, float error_weight) {
      const float hidden = __fmaf_rn(threshold, high_weight, threshold * low_weight);
      const float weighted = __saturatef(fabsf(a - b) - hidden) * error_weight;
      return weighted * weighted;
    };
    const float4 terms = make_float4(term(parked.x, values[4 * i], high.x, low.x, error.x),
                                     term(parked.y, values[4 * i + 1], high.y, low.y, error.y),
                                     term(parked.z, values[4 * i + 2], high.z, low.z, error.z),
                                     term(parked.w, values[4 * i + 3], high.w, low.w, error.w));
    sum += terms.x;
    sum += terms.y;
    sum += terms.z;
    sum += terms.w;
    slots[i * kTileBlocks] = terms;
  }
  return sum;
}

// The device's Team of cuda/tile_sum.h, and the thread block's other common work.
template <int kBytes>
class DeviceTeam {
 public:
  template <typename T>
  struct PerThread {
    T value;
    __device__ T& operator()(int) { return value; }
  };

  __device__ DeviceTeam(const KernelParams& params, int plane)
      : params_(params), plane_(plane), slots_(shared.slots + threadIdx.x) {}

  template <typename F>
  __device__ void ForEach(F f) {
    f(static_cast<int>(threadIdx.x));
  }

  __device__ void Scan(PerThread<SumMap>& maps) {
    maps.value = ScanMaps(maps.value, shared.warp_maps[scan_turn_ ^= 1]);
  }

  __device__ int Leading(PerThread<bool>& flags, PerThread<uint32_t>& values, uint32_t* last) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint2* leading = shared.leading[leading_turn_ ^= 1];
    const unsigned count = __popc(__ballot_sync(kAllLanes, flags.value));
    const uint32_t value = __shfl_sync(kAllLanes, values.value, static_cast<int>(count + 31) % 32);
    if (lane == 0) leading[warp] = make_uint2(count, value);
    __syncthreads();
    unsigned total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const uint2 of_warp = leading[w];
      if (of_warp.x > 0) *last = of_warp.y;
      total += of_warp.x;
    }
    return static_cast<int>(total);
  }

  template <typename T>
  __device__ T Broadcast(PerThread<T>& values, int t) {
    static_assert(sizeof(T) <= sizeof(int4), "does not fit");
    T* value = reinterpret_cast<T*>(shared.broadcast + (broadcast_turn_ ^= 1));
    if (static_cast<int>(threadIdx.x) == t) *value = values.value;
    __syncthreads();
    return *value;
  }

  // Adds up about all threads' values. Once in a thread block.
  __device__ float Sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
    if (threadIdx.x % 32 == 0) shared.warp_sums[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += shared.warp_sums[w];
    return sum;
  }

  // The tile's terms, from the samples. Returns about the calling thread's sum.
  __device__ float ComputeTile(int tile) {
    const DevicePlanePair& pair = params_.planes[plane_];
    const int block = tile * kTileBlocks + static_cast<int>(threadIdx.x);
    const int valid = min(block, pair.blocks - 1);
    const int y = valid / pair.blocks_wide, x = valid - y * pair.blocks_wide;
    const BlockSource reference = Source(pair.images[0], x, y), distorted = Source(pair.images[1], x, y);
    const float sum = ComputeTerms<kBytes>(reference, distorted, params_.sample_mask, plane_, slots_);
    if (block == valid) return sum;
    for (int i = 0; i < kSlots; ++i) slots_[i * kTileBlocks] = make_float4(0, 0, 0, 0);
    return 0;
  }

  __device__ void LoadTerms(int tile, int stored) {
    if (stored < 0) {
      ComputeTile(tile);
      return;
    }
    const float4* kept = KeptTerms(stored);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) slots_[i * kTileBlocks] = __ldcg(kept + i * kTileBlocks);
  }

  __device__ void KeepTerms(int stored, const MapPair& maps) {
    float4* kept = KeptTerms(stored);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) __stcg(kept + i * kTileBlocks, slots_[i * kTileBlocks]);
    __stcg(reinterpret_cast<uint4*>(kept + kSlots * kTileBlocks),
           make_uint4(maps.low.even, maps.low.odd, maps.high.even, maps.high.odd));
  }

  __device__ MapPair KeptMaps(int, int stored) {
    const uint4 kept = __ldcg(reinterpret_cast<const uint4*>(KeptTerms(stored) + kSlots * kTileBlocks));
    MapPair maps;
    maps.low.even = kept.x;
    maps.low.odd = kept.y;
    maps.high.even = kept.z;
    maps.high.odd = kept.w;
    return maps;
  }

  __device__ SumMap BlockMap(uint32_t exponent) {
    float even = BitsFloat(exponent << 23);
    float odd = BitsFloat((exponent << 23) | 1);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const float4 quad = slots_[i * kTileBlocks];
      even += quad.x, odd += quad.x;
      even += quad.y, odd += quad.y;
      even += quad.z, odd += quad.z;
      even += quad.w, odd += quad.w;
    }
    return MapFromChains(exponent, even, odd);
  }

  __device__ MapPair BlockMaps(int, uint32_t exponent) {
    float even[2], odd[2];
    for (int m = 0; m < 2; ++m) {
      even[m] = BitsFloat((exponent + m) << 23);
      odd[m] = BitsFloat(((exponent + m) << 23) | 1);
    }
#pragma unroll 4
    for (int i = 0; i < kSlots; ++i) {
      const float4 quad = slots_[i * kTileBlocks];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        even[m] += quad.x, odd[m] += quad.x;
        even[m] += quad.y, odd[m] += quad.y;
        even[m] += quad.z, odd[m] += quad.z;
        even[m] += quad.w, odd[m] += quad.w;
      }
    }
    return {MapFromChains(exponent, even[0], odd[0]), MapFromChains(exponent + 1, even[1], odd[1])};
  }

  __device__ float AddBlock(int, int stored, float sum) {
    const float4* kept = stored >= 0 ? KeptTerms(stored) : nullptr;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const float4 quad = kept ? __ldcg(kept + i * kTileBlocks) : slots_[i * kTileBlocks];
      sum += quad.x;
      sum += quad.y;
      sum += quad.z;
      sum += quad.w;
    }
    return sum;
  }

  __device__ void ReadRecords(int tile, int end, TileRecord (&records)[kRecordsAThread]) {
    const PackedRecord* source = params_.records + params_.planes[plane_].first_tile + tile;
    bool any_stored = false;
#pragma unroll
    for (int i = 0; i < kRecordsAThread; ++i) {
      records[i].map_count = kAllZero;
      if (tile + i >= end) continue;
      PackedRecord packed;
      for (;;) {
        bool there = true;
#pragma unroll
        for (int w = 0; w < 3; ++w) {
          packed.words[w] = *static_cast<const volatile uint64_t*>(source[i].words + w);
          there = there && IsOfEpoch(packed.words[w], params_.epoch);
        }
        if (there) break;
        __nanosleep(100);
      }
      records[i] = UnpackRecord(packed);
      any_stored = any_stored || records[i].stored >= 0;
    }
    if (any_stored) __threadfence();  // before the kept terms are read
  }

  // One thread only. Kept terms were written before a barrier.
  __device__ void Publish(int tile, const TileRecord& record) {
    if (record.stored >= 0) __threadfence();
    const PackedRecord packed = PackRecord(record, params_.epoch);
    PackedRecord* target = params_.records + params_.planes[plane_].first_tile + tile;
#pragma unroll
    for (int w = 0; w < 3; ++w) *static_cast<volatile uint64_t*>(target->words + w) = packed.words[w];
  }

  // About the sum of all terms before a tile of the plane, by one warp. Every tile publishes its own sum twice: in a
  // word of its own, whose upper half is the launch's epoch, and added to its group's word, whose upper half counts the
  // tiles. When its map is made it corrects both by what it really adds to the rounded sum. Nothing but guesses depends
  // on these words, so no fences are needed. Tickets are taken in order: whoever waits, waits for tiles that run.
  __device__ Prefix LookBack(int tile, float own_sum, bool wait) {
    constexpr int kWordsALane = 4;
    constexpr float kGenerous = 1.2f;
    if (threadIdx.x < 32) {
      const int lane = static_cast<int>(threadIdx.x);
      const int group = tile / kGroupTiles;
      const uint64_t* groups = GroupWords(params_.epoch);
      const uint64_t* tiles = params_.tile_sums + params_.planes[plane_].first_tile + group * kGroupTiles - group;
      const int words = group + tile % kGroupTiles;  // whole groups, then the tiles of the own one
      float sum = 0;
      float largest = own_sum;
      int missing = 0;
      for (int first = 0; first < words; first += 32 * kWordsALane) {
        uint64_t loaded[kWordsALane];
#pragma unroll
        for (int i = 0; i < kWordsALane; ++i) {
          const int index = first + 32 * i + lane;
          loaded[i] = index < words ? Load((index < group ? groups : tiles) + index) : 0;
        }
#pragma unroll
        for (int i = 0; i < kWordsALane; ++i) {
          const int index = first + 32 * i + lane;
          if (index >= words) continue;
          const bool of_group = index < group;
          const auto lacks = [&](uint64_t word) {
            const uint32_t tag = static_cast<uint32_t>(word >> 32);
            return of_group ? kGroupTiles - static_cast<int>(tag) : tag != params_.epoch;
          };
          int lacking = lacks(loaded[i]);
          while (wait && lacking > 0) {
            __nanosleep(20);
            loaded[i] = Load((of_group ? groups : tiles) + index);
            lacking = lacks(loaded[i]);
          }
          missing += lacking;
          if (!of_group && lacking > 0) continue;
          const float value = BitsFloat(static_cast<uint32_t>(loaded[i]));
          sum += value;
          largest = fmaxf(largest, of_group ? value / kGroupTiles : value);
        }
      }
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, distance);
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
        missing += __shfl_xor_sync(kAllLanes, missing, distance);
      }
      sum = fmaxf(sum, 0);  // corrections may leave less than nothing of small sums
      if (lane == 0) shared.prefix[wait] = {sum, sum + kGenerous * static_cast<float>(missing) * largest, missing};
    }
    __syncthreads();
    return shared.prefix[wait];
  }

  // One thread only.
  __device__ void PublishSum(int tile, float sum) {
    uint32_t* group = reinterpret_cast<uint32_t*>(GroupWords(params_.epoch) + tile / kGroupTiles);
    atomicAdd(reinterpret_cast<float*>(group), sum);
    atomicAdd(group + 1, 1u);
    SetTileSum(tile, sum);
  }
  __device__ void CorrectSum(int tile, float sum, float correct) {
    atomicAdd(reinterpret_cast<float*>(GroupWords(params_.epoch) + tile / kGroupTiles), correct - sum);
    SetTileSum(tile, correct);
  }

  // For the launch after this one; the one before is over.
  __device__ void ClearGroup(int tile) {
    if (tile % kGroupTiles == 0) GroupWords(params_.epoch + 1)[tile / kGroupTiles] = 0;
  }

  // Whether the sum may get to binade `exponent` within the tile.
  static __device__ bool MayLeaveBinade(const Prefix& prefix, int tile, float sum, uint32_t exponent) {
    if (prefix.missing == 0) return true;
    const float likely = prefix.low / static_cast<float>(tile - prefix.missing) * static_cast<float>(prefix.missing);
    const float needed = BitsFloat(exponent << 23) - prefix.low;  // of the missing tiles
    return needed > 0.6f * likely - 2 * sum && needed < 1.4f * likely + 2 * sum;
  }

  // A tile's whole part in the device's reduction.
  __device__ void RunTile(int tile) {
    const bool first_thread = threadIdx.x == 0;
    const float sum = Sum(ComputeTile(tile));
    if (first_thread) PublishSum(tile, sum);
    TileRecord record = {};
    record.stored = -1;
    if (sum == 0) {
      record.map_count = kAllZero;
      if (first_thread) Publish(tile, record);
      return;
    }
    // Two maps are right whatever the tiles before add, as a rule; waiting for those would leave the device idle.
    Prefix prefix = LookBack(tile, sum, false);
    ExponentRange range = PredictExponents(prefix.low, prefix.high, sum, params_.exponent_error);
    if (prefix.missing > 0 && range.high - range.low > 1) {
      prefix = LookBack(tile, sum, true);
      range = PredictExponents(prefix.low, prefix.high, sum, params_.exponent_error);
    }
    record.exponent = range.low;
    record.map_count = MapsFor(range);
    float adds = sum;
    MapPair own;
#pragma unroll 1
    for (int m = 0; m < record.map_count; ++m) {
      PerThread<SumMap> maps;
      maps.value = BlockMap(range.low + m);
      own.low = m == 0 ? maps.value : own.low;
      own.high = maps.value;
      const SumMap map = TileMap(*this, maps);
      if (m == 0) {
        record.maps[0] = map;
        adds = IncrementValue(range.low, map);
      } else {
        record.maps[1] = map;
      }
    }
    if (first_thread && adds != sum) CorrectSum(tile, sum, adds);
    if (params_.exponent_error != 0 || (range.low != range.high && MayLeaveBinade(prefix, tile, sum, range.high))) {
      if (first_thread) {
        const uint32_t stored = atomicAdd(params_.stored + (params_.epoch & 1), 1);
        shared.stored = stored < static_cast<uint32_t>(params_.max_kept) ? static_cast<int>(stored) : -1;
      }
      __syncthreads();
      record.stored = shared.stored;
      if (record.stored >= 0) KeepTerms(record.stored, own);
      __syncthreads();
    }
    if (first_thread) Publish(tile, record);
  }

  // A tile's whole part in the host's reduction: its non-zero terms, in order.
  __device__ void CompactTile(int tile) {
    ComputeTile(tile);
    uint32_t count = 0;
    for (int i = 0; i < kSlots; ++i) {
      const float4 quad = slots_[i * kTileBlocks];
      count += (quad.x != 0) + (quad.y != 0) + (quad.z != 0) + (quad.w != 0);
    }
    PerThread<SumMap> counts;  // composing even increments adds them
    counts.value.even = counts.value.odd = 2 * count;
    Scan(counts);
    const int index = params_.planes[plane_].first_tile + tile;
    float* target =
        params_.tile_terms + static_cast<size_t>(index) * kTileBlocks * kBlockTerms + counts.value.even / 2 - count;
    for (int i = 0; i < kSlots; ++i) {
      const float4 quad = slots_[i * kTileBlocks];
      if (quad.x != 0) *target++ = quad.x;
      if (quad.y != 0) *target++ = quad.y;
      if (quad.z != 0) *target++ = quad.z;
      if (quad.w != 0) *target++ = quad.w;
    }
    if (threadIdx.x == kTileBlocks - 1) params_.tile_counts[index] = counts.value.even / 2;
  }

 private:
  static __device__ uint64_t Load(const uint64_t* word) { return *static_cast<const volatile uint64_t*>(word); }
  __device__ uint64_t* GroupWords(uint32_t epoch) const {
    return params_.group_sums + (epoch & 1 ? 0 : params_.groups) + params_.planes[plane_].first_group;
  }
  __device__ void SetTileSum(int tile, float sum) {
    uint64_t* word = params_.tile_sums + params_.planes[plane_].first_tile + tile;
    *static_cast<volatile uint64_t*>(word) = static_cast<uint64_t>(params_.epoch) << 32 | FloatBits(sum);
  }
  static __device__ BlockSource Source(const DevicePlane& plane, int x, int y) {
    return {plane.data + static_cast<int64_t>(y) * kBlockStep * plane.stride + x * kBlockStep * plane.step * kBytes,
            plane.end, plane.stride, plane.step, plane.shift};
  }
  __device__ float4* KeptTerms(int stored) {
    return reinterpret_cast<float4*>(params_.kept_terms) +
           static_cast<size_t>(stored) * (kKeptTileBytes / sizeof(float4)) + threadIdx.x;
  }

  const KernelParams& params_;
  const int plane_;
  float4* const slots_;  // this thread's
  int scan_turn_ = 0;
  int broadcast_turn_ = 0;
  int leading_turn_ = 0;
};

// A team's whole part: its segment's tiles, from where the team before it stopped. Not inlined, so that its
// registers do not weigh on the tiles'.
template <int kBytes>
__device__ __noinline__ void RunTeam(const KernelParams& params, int index) {
  const Segment& segment = params.segments[index];
  DeviceTeam<kBytes> team(params, segment.plane);
  const uint32_t sum_bits = ResolveTiles(team, segment.first_tile, segment.end_tile, [&]() -> uint32_t {
    if (segment.first_tile == 0) return 0;
    uint64_t word;
    while (word = *static_cast<const volatile uint64_t*>(params.team_sums + segment.previous),
           static_cast<uint32_t>(word >> 32) != params.epoch) {
      __nanosleep(50);
    }
    return static_cast<uint32_t>(word);
  });
  if (threadIdx.x != 0) return;
  uint64_t* target = segment.last ? params.results + segment.plane : params.team_sums + index;
  *static_cast<volatile uint64_t*>(target) = static_cast<uint64_t>(params.epoch) << 32 | sum_bits;
}

template <int kBytes>
__device__ void Score(const KernelParams& params) {
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(WeightTables) / sizeof(float4));
       i += kTileBlocks) {
    reinterpret_cast<float4*>(shared.weights)[i] = __ldg(reinterpret_cast<const float4*>(&kWeights) + i);
  }
  if (threadIdx.x == 0) {
    const uint32_t ticket = atomicAdd(params.tickets, 1) - params.ticket_base;
    int segment = 0;
    while (ticket >= static_cast<uint32_t>(params.segments[segment].end_ticket)) ++segment;
    shared.ticket = ticket;
    shared.segment = segment;
    // The launch before is over, and this one counts in the other counter.
    if (ticket == 0) params.stored[(params.epoch + 1) & 1] = 0;
  }
  __syncthreads();
  const int segment = shared.segment;
  const int first_ticket = segment == 0 ? 0 : params.segments[segment - 1].end_ticket;
  const int tile = params.segments[segment].first_tile + static_cast<int>(shared.ticket) - first_ticket;
  DeviceTeam<kBytes> team(params, params.segments[segment].plane);
  if (tile < params.segments[segment].end_tile) {
    if (threadIdx.x == 0) team.ClearGroup(tile);
    if (params.tile_terms != nullptr) {
      team.CompactTile(tile);
    } else if (params.terms_only) {
      team.ComputeTile(tile);
    } else {
      team.RunTile(tile);
    }
  } else if (params.tile_terms == nullptr && !params.terms_only) {
    RunTeam<kBytes>(params, segment);
  }
}

}  // namespace

// 5 thread blocks a multiprocessor: at most 102 registers a thread.
extern "C" __global__ void __launch_bounds__(kTileBlocks, 5) psnrhvs_score_8(const __grid_constant__ KernelParams p) {
  Score<1>(p);
}

extern "C" __global__ void __launch_bounds__(kTileBlocks, 4) psnrhvs_score_16(const __grid_constant__ KernelParams p) {
  Score<2>(p);
}

// A thread block a tile.
extern "C" __global__ void __launch_bounds__(kTileBlocks) psnrhvs_gather_terms(const __grid_constant__ GatherParams p) {
  __shared__ uint32_t warp_sums[2][kWarps];
  const int tile = static_cast<int>(blockIdx.x);
  int plane = 0;
  while (tile >= p.first_tiles[plane + 1]) ++plane;
  uint32_t before = 0;        // terms of all tiles before
  uint32_t before_plane = 0;  // of those, terms of planes before
  for (int i = static_cast<int>(threadIdx.x); i < tile; i += kTileBlocks) {
    const uint32_t count = p.tile_counts[i];
    before += count;
    if (i < p.first_tiles[plane]) before_plane += count;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    before += __shfl_xor_sync(kAllLanes, before, distance);
    before_plane += __shfl_xor_sync(kAllLanes, before_plane, distance);
  }
  if (threadIdx.x % 32 == 0) {
    warp_sums[0][threadIdx.x / 32] = before;
    warp_sums[1][threadIdx.x / 32] = before_plane;
  }
  __syncthreads();
  before = before_plane = 0;
  for (int w = 0; w < kWarps; ++w) {
    before += warp_sums[0][w];
    before_plane += warp_sums[1][w];
  }
  const uint32_t count = p.tile_counts[tile];
  const float* source = p.tile_terms + static_cast<size_t>(tile) * kTileBlocks * kBlockTerms;
  for (uint32_t i = threadIdx.x; i < count; i += kTileBlocks) p.terms[before + i] = source[i];
  if (tile == p.first_tiles[plane + 1] - 1 && threadIdx.x == 0) p.counts[plane] = before + count - before_plane;
}

}  // namespace psnrhvs
