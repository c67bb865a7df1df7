// The plane sum in vectors: one block a lane. A group is as many neighbouring blocks as a vector has 16-bit
// lanes. Samples are rearranged into column vectors, transformed in 16-bit integers, and the float parts run in
// two halves of the group. A half is what InterleaveLower or InterleaveUpper makes of a 16-bit vector: the lower
// or upper four blocks of every eight (FloatLane).
//
// Every shortcut gives the scalar code's bits; tests/cpu/arithmetic_test.cpp proves those that rest on
// a range or a constant.
// SPDX-License-Identifier: LGPL-2.1-or-later

// Vectors whose length is unknown when compiling are left to the plain code.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/plane_sum_simd.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "cpu/block.h"
#include "cpu/metric.h"
#include "cpu/plane_sum.h"

#ifndef PSNRHVS_CPU_PLANE_SUM_SIMD_ONCE
#define PSNRHVS_CPU_PLANE_SUM_SIMD_ONCE
namespace psnrhvs {

// A coefficient's square added to the pattern of 2^-95 is the pattern of (2^23 + square) / 2^118, for squares below
// 2^23, which at 8 bits they are. One fused multiply-add takes the offset away, undoes the scale and weighs.
constexpr int kSquareOffsetRoot = 1 << 14;  // its square is the pattern of 2^-95
constexpr float kSquareUnscale = 0x1p118f;
constexpr float kSquareOffset = 0x1p23f;

// A coefficient as a float times 2^16 costs no sign extension; the weight is scaled to undo its square.
constexpr float kCoefficientUnscale = 0x1p-32f;

// Multiples of the tables of metric.h, to be broadcast from memory.
struct ScaledTables {
  float square_scale[3][kBlockTerms];        // for offset squares
  float square_offset[3][kBlockTerms];       // likewise
  float coefficient_weight[3][kBlockTerms];  // for squares of scaled coefficients
  uint32_t hiding_factors[3][kBlockTerms];   // two 16-bit lanes
};

constexpr ScaledTables MakeScaledTables() {
  ScaledTables tables{};
  for (int plane = 0; plane < 3; ++plane) {
    for (int k = 0; k < kBlockTerms; ++k) {
      const float weight = kMask.weight[plane][k];
      tables.square_scale[plane][k] = weight * kSquareUnscale;
      tables.square_offset[plane][k] = weight * kSquareOffset;
      tables.coefficient_weight[plane][k] = weight * kCoefficientUnscale;
      tables.hiding_factors[plane][k] = HidingFactor(plane, k) * 0x10001u;
    }
  }
  return tables;
}

inline constexpr ScaledTables kScaled = MakeScaledTables();

// Where a group's samples lie in the plane.
inline const uint8_t* SampleAddress(const PlaneView& view, int x, int y, size_t sample_bytes) {
  return view.Row(y) + static_cast<ptrdiff_t>(x) * view.step * static_cast<ptrdiff_t>(sample_bytes);
}

}  // namespace psnrhvs
#endif

HWY_BEFORE_NAMESPACE();
namespace psnrhvs {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// Plain code for processors without vectors: the group interface around block.h.
constexpr int kLanes = 8;

inline int FloatLane(int block) { return block; }

template <typename T>
void LoadBlock(const PlanePair& pair, const PlaneView& view, int x, int y, int32_t samples[kBlockTerms]) {
  for (int i = 0; i < kBlockSize; ++i) {
    for (int j = 0; j < kBlockSize; ++j) {
      samples[8 * i + j] = (LoadSample<T>(view.Row(y + i), static_cast<ptrdiff_t>(x + j) * view.step) >> view.shift) &
                           ((1 << pair.depth) - 1);
    }
  }
}

bool Prepare(const PlanePair& pair, int row, int group, bool /*follows*/, GroupScratch* scratch) {
  scratch->pair = &pair;
  scratch->live_terms = ~uint64_t{0};
  scratch->blocks = std::min(kLanes, pair.columns() - group * kLanes);
  const float* mask = kMask.weight[pair.plane];
  for (int block = 0; block < scratch->blocks; ++block) {
    const PlaneView* views[2] = {&pair.reference, &pair.distorted};
    float thresholds[2];
    for (int image = 0; image < 2; ++image) {
      const int x = (group * kLanes + block) * kBlockStep;
      int32_t samples[kBlockTerms];
      if (pair.depth > 8) {
        LoadBlock<uint16_t>(pair, *views[image], x, row * kBlockStep, samples);
      } else {
        LoadBlock<uint8_t>(pair, *views[image], x, row * kBlockStep, samples);
      }
      int32_t coefficients[kBlockTerms];
      TransformBlock(samples, coefficients);
      for (int k = 0; k < kBlockTerms; ++k) {
        scratch->coefficients[image][k * kLanes + block] = static_cast<int16_t>(coefficients[k]);
      }
      thresholds[image] = MaskingThreshold(MaskingEnergy(coefficients, mask), BlockActivity(samples));
    }
    scratch->threshold[block] = std::max(thresholds[0], thresholds[1]);
  }
  return true;
}

void BlockTermsOf(const GroupScratch& scratch, int block, float terms[kBlockTerms]);

void ChainBlocks(GroupScratch* scratch, uint32_t exponent, int first_block) {
  for (int block = 0; block < kLanes; ++block) {
    SumMap map;
    if (block >= first_block && block < scratch->blocks) {
      float terms[kBlockTerms];
      BlockTermsOf(*scratch, block, terms);
      map = MapTerms(exponent, terms, kBlockTerms);
    }
    scratch->even[block] = map.even;
    scratch->odd[block] = map.odd;
  }
}

#else

namespace hn = hwy::HWY_NAMESPACE;

using I16 = hn::ScalableTag<int16_t>;
using U16 = hn::RebindToUnsigned<I16>;
using I32 = hn::RepartitionToWide<I16>;
using U32 = hn::RebindToUnsigned<I32>;
using F32 = hn::RebindToFloat<I32>;
using VI16 = hn::Vec<I16>;
using VU16 = hn::Vec<U16>;
using VI32 = hn::Vec<I32>;
using VU32 = hn::Vec<U32>;
using VF32 = hn::Vec<F32>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(I16()));       // blocks in a group
constexpr int kFloatLanes = static_cast<int>(hn::MaxLanes(F32()));  // and in a half
static_assert(kLanes <= kMaxGroupBlocks, "the scratch is too small");

// Where a block is in the two halves' floats, one after the other.
constexpr int FloatLane(int block) { return (block % 8) / 4 * kFloatLanes + block / 8 * 4 + block % 4; }

struct FloatLaneBlocks {
  alignas(64) int32_t block[kLanes];
};
constexpr FloatLaneBlocks MakeFloatLaneBlocks() {
  FloatLaneBlocks blocks{};
  for (int block = 0; block < kLanes; ++block) blocks.block[FloatLane(block)] = block;
  return blocks;
}
constexpr FloatLaneBlocks kFloatLaneBlocks = MakeFloatLaneBlocks();

template <int kHalf, class D, class V>
HWY_INLINE V Interleave(D d, V a, V b) {
  return kHalf == 0 ? hn::InterleaveLower(d, a, b) : hn::InterleaveUpper(d, a, b);
}

// ---- Samples ---------------------------------------------------------------------------------------

// Turns the eight 16-bit values of eight vectors (in each 128-bit block) into eight vectors of columns.
template <class D, class V = hn::Vec<D> >
HWY_INLINE void Transpose8x8(D d, V v[8]) {
  for (int round = 0; round < 3; ++round) {
    V next[8];
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = hn::InterleaveLower(d, v[i], v[i + 4]);
      next[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + 4]);
    }
    for (int i = 0; i < 8; ++i) v[i] = next[i];
  }
}

using U8 = hn::ScalableTag<uint8_t>;
using VU8 = hn::Vec<U8>;

// 16 bytes from the start of blocks `first`, `first` + 8, ..., which lie `block_bytes` apart.
HWY_INLINE VU8 LoadBlocks(const uint8_t* row, int block_bytes, int first) {
  const hn::Full128<uint8_t> d;
  const uint8_t* at = row + first * block_bytes;
#if HWY_MAX_BYTES == 64
  const hn::Full256<uint8_t> half;
  return hn::Combine(U8(), hn::Combine(half, hn::LoadU(d, at + 24 * block_bytes), hn::LoadU(d, at + 16 * block_bytes)),
                     hn::Combine(half, hn::LoadU(d, at + 8 * block_bytes), hn::LoadU(d, at)));
#elif HWY_MAX_BYTES == 32
  return hn::Combine(U8(), hn::LoadU(d, at + 8 * block_bytes), hn::LoadU(d, at));
#else
  return hn::LoadU(d, at);
#endif
}

// A row of a group's samples: [column][image][lane].
constexpr int kColumnSamples = 2 * kLanes;
constexpr int kRowSamples = kBlockSize * kColumnSamples;

// Rearranges a part of a sample row of both images.
HWY_INLINE void RearrangeBytes(const uint8_t* const source[2], uint16_t* out) {
  const U8 d;
  const U16 d16;
  VU16 v[8];
  for (int i = 0; i < 8; ++i)
    v[i] = hn::BitCast(d16, hn::InterleaveLower(d, LoadBlocks(source[0], 7, i), LoadBlocks(source[1], 7, i)));
  Transpose8x8(d16, v);
  for (int j = 0; j < 8; ++j) {
    // Whole vectors are stored: a load of two stores' data would have to wait for both.
    hn::Store(hn::And(v[j], hn::Set(d16, 0xff)), d16, out + kColumnSamples * j);
    hn::Store(hn::ShiftRight<8>(v[j]), d16, out + kColumnSamples * j + kLanes);
  }
}

HWY_INLINE void RearrangeWords(const uint8_t* const source[2], const int shift[2], int sample_mask, uint16_t* out) {
  const U16 d16;
  const VU16 mask = hn::Set(d16, static_cast<uint16_t>(sample_mask));
  for (int image = 0; image < 2; ++image) {
    VU16 v[8];
    for (int i = 0; i < 8; ++i) {
      v[i] = hn::And(hn::ShiftRightSame(hn::BitCast(d16, LoadBlocks(source[image], 14, i)), shift[image]), mask);
    }
    Transpose8x8(d16, v);
    for (int j = 0; j < 8; ++j) hn::Store(v[j], d16, out + kColumnSamples * j + kLanes * image);
  }
}

HWY_INLINE bool RowsEqual(const uint16_t* row) {
  const U16 d;
  VU16 difference = hn::Zero(d);
  for (int j = 0; j < kBlockSize; ++j) {
    const uint16_t* column = row + kColumnSamples * j;
    difference = hn::Or(difference, hn::Xor(hn::Load(d, column), hn::Load(d, column + kLanes)));
  }
  return hn::AllTrue(d, hn::Eq(difference, hn::Zero(d)));
}

// `count` samples of a row, one after the other.
template <typename T>
void CopySamples(const uint8_t* from, int step, int count, uint8_t* to) {
  if (step == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  for (int i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<size_t>(i) * sizeof(T), from + static_cast<size_t>(i) * 2 * sizeof(T), sizeof(T));
  }
}

// The rows of the group at hand.
struct Rows {
  uint16_t* row[kBlockSize];
};

// Fills `rows`. True if both images are equal. The bottom row of a group is the top row of the group below: it stays
// in the scratch, in one of two places by turns.
template <typename T>
HWY_INLINE bool LoadGroup(const PlanePair& pair, int row, int group, bool follows, GroupScratch* scratch, Rows* rows) {
  const int x = group * kLanes * kBlockStep;
  const int y = row * kBlockStep;
  const int left = pair.reference.width - x;
  // The last block's load reads 16 bytes: but for a row's last group, those are in the row.
  const bool inside =
      left >= (kLanes - 1) * kBlockStep + 16 / static_cast<int>(sizeof(T)) && left > kLanes * kBlockStep;
  const int count = std::min(left, kLanes * kBlockStep + kBlockSize);
  const PlaneView* views[2] = {&pair.reference, &pair.distorted};
  const int shift[2] = {pair.reference.shift, pair.distorted.shift};
  const int sample_mask = (1 << pair.depth) - 1;
  rows->row[0] = scratch->edge[row % 2] + static_cast<size_t>(group) * kRowSamples;
  rows->row[7] = scratch->edge[(row + 1) % 2] + static_cast<size_t>(group) * kRowSamples;
  for (int i = 1; i < 7; ++i) rows->row[i] = scratch->samples + (i - 1) * kRowSamples;
  const bool copied[2] = {!inside || pair.reference.step != 1, !inside || pair.distorted.step != 1};
  const int first = follows ? 1 : 0;
  const uint8_t* at[2] = {SampleAddress(pair.reference, x, y + first, sizeof(T)),
                          SampleAddress(pair.distorted, x, y + first, sizeof(T))};
  bool equal = true;
  for (int i = first; i < kBlockSize; ++i) {
    const uint8_t* source[2];
    for (int image = 0; image < 2; ++image) {
      source[image] = copied[image] ? scratch->segment[image] : at[image];
      if (copied[image]) CopySamples<T>(at[image], views[image]->step, count, scratch->segment[image]);
      at[image] += views[image]->stride_bytes;
    }
    if (sizeof(T) == 1) {
      RearrangeBytes(source, rows->row[i]);
    } else {
      RearrangeWords(source, shift, sample_mask, rows->row[i]);
    }
    equal = equal && RowsEqual(rows->row[i]);
  }
  return equal && (!follows || RowsEqual(rows->row[0]));
}

// Asks for a row of the next group's samples.
struct NextGroup {
  const uint8_t* data[2];
  ptrdiff_t stride_bytes[2];
  int bytes;  // a row

  HWY_INLINE void PrefetchRow(int image, int row) const {
    const uintptr_t at = reinterpret_cast<uintptr_t>(data[image]) + static_cast<uintptr_t>(stride_bytes[image] * row);
    for (int b = 0; b < bytes; b += 64) hwy::Prefetch(reinterpret_cast<const uint8_t*>(at + b));
  }
};

template <typename T>
HWY_INLINE NextGroup FindNextGroup(const PlanePair& pair, int row, int group) {
  const bool below = (group + 1) * kLanes >= pair.columns();
  // Past the last row the current one is asked for again, for nothing.
  const int next_row = below && row + 1 < pair.rows() ? row + 1 : row;
  const int x = below ? 0 : (group + 1) * kLanes * kBlockStep;
  NextGroup next;
  const PlaneView* views[2] = {&pair.reference, &pair.distorted};
  for (int image = 0; image < 2; ++image) {
    next.data[image] = SampleAddress(*views[image], x, next_row * kBlockStep, sizeof(T));
    next.stride_bytes[image] = views[image]->stride_bytes;
  }
  const int samples = std::min(kLanes * kBlockStep, pair.reference.width - x);
  next.bytes = samples * pair.reference.step * static_cast<int>(sizeof(T));
  return next;
}

// ---- Transform -------------------------------------------------------------------------------------

// Vectors that go through the transform side by side, so that one's waits are the other's work.
#if HWY_MAX_BYTES == 64
constexpr int kTogether = 2;
#else
constexpr int kTogether = 1;
#endif

struct Pack {
  // Not left to the compiler: GCC compiles an implicit one for no target, and cannot inline it.
  HWY_INLINE Pack() {}  // NOLINT(modernize-use-equals-default)

  VI16 v[kTogether];
};

HWY_INLINE Pack operator+(const Pack& a, const Pack& b) {
  Pack sum;
  for (int i = 0; i < kTogether; ++i) sum.v[i] = hn::Add(a.v[i], b.v[i]);
  return sum;
}

HWY_INLINE Pack operator-(const Pack& a, const Pack& b) {
  Pack difference;
  for (int i = 0; i < kTogether; ++i) difference.v[i] = hn::Sub(a.v[i], b.v[i]);
  return difference;
}

HWY_INLINE Pack RoundingMultiply(const Pack& a, int factor) {
  const VI16 f = hn::Set(I16(), static_cast<int16_t>(factor));
  Pack product;
  for (int i = 0; i < kTogether; ++i) product.v[i] = hn::MulFixedPoint15(a.v[i], f);
  return product;
}

// Lift of block.h for a constant of `kShift` bits.
template <int kConstant, int kShift>
HWY_INLINE Pack LiftBy(const Pack& a) {
  constexpr int kScaled = kConstant << (15 - kShift);
  static_assert(kScaled < 32768, "the constant does not fit");
  return RoundingMultiply(a, kScaled);
}

// Half of block.h. The one multiplication is right from -16383 to 16385.
template <bool kNotNegative, bool kLarge>
HWY_INLINE Pack HalfOf(const Pack& a) {
  if (!kNotNegative && !kLarge) return RoundingMultiply(a, 16383);
  Pack half;
  for (int i = 0; i < kTogether; ++i) {
    const VI16 v = kNotNegative ? a.v[i] : hn::Sub(a.v[i], hn::ShiftRight<15>(a.v[i]));
    half.v[i] = hn::ShiftRight<1>(v);
  }
  return half;
}

// Transform8 of block.h. `kFirst`: on samples, which are not negative. `kWide`: deeper than 10 bits. The same steps,
// but the odd outputs' long chain comes as early as it can and the even outputs' short ones between its waits.
template <bool kFirst, bool kWide>
HWY_INLINE void TransformPacks(const Pack x[8], Pack y[8]) {
  constexpr bool kLarge = kWide && !kFirst;
  Pack t0 = x[0], t1 = x[7], t2 = x[2], t3 = x[5], t4 = x[1], t5 = x[6], t6 = x[3], t7 = x[4];
  t4 = t4 + t5;
  const Pack h4 = HalfOf<kFirst, kLarge>(t4);
  t3 = t2 - t3;
  const Pack h3 = HalfOf<false, kLarge>(t3);
  t1 = t0 - t1;
  const Pack h1 = HalfOf<false, kLarge>(t1);
  t5 = t5 - h4;
  t6 = t6 + t7;
  const Pack h6 = HalfOf<kFirst, kLarge>(t6);
  t3 = t3 + LiftBy<19195, 15>(t5);
  t2 = t2 - h3;
  t0 = t0 - h1;
  t7 = h6 - t7;
  t2 = h4 - t2;
  t0 = t0 + h6;
  t5 = t5 + LiftBy<11585, 14>(t3);
  t4 = t2 - t4;
  t6 = t0 - t6;
  t0 = t0 - LiftBy<13573, 15>(t4);
  t6 = t6 - LiftBy<21895, 15>(t2);
  t3 = t3 - LiftBy<7489, 13>(t5);
  t7 = HalfOf<false, kLarge>(t5) - t7;
  t4 = t4 + LiftBy<11585, 14>(t0);
  t2 = t2 + LiftBy<15137, 14>(t6);
  y[4] = t4;
  y[2] = t2;
  t3 = h1 - t3;
  t5 = t5 - t7;
  t1 = t1 - t3;
  t5 = t5 + LiftBy<2485, 13>(t3);
  t7 = t7 + LiftBy<3227, 15>(t1);
  y[0] = t0 - LiftBy<13573, 15>(t4);
  y[6] = t6 - LiftBy<21895, 15>(t2);
  t3 = t3 - LiftBy<18205, 15>(t5);
  t1 = t1 - LiftBy<6393, 15>(t7);
  y[3] = t3;
  y[1] = t1;
  y[5] = t5 + LiftBy<2485, 13>(t3);
  y[7] = t7 + LiftBy<3227, 15>(t1);
}

HWY_INLINE VI16 LoadSamples(const uint16_t* column) { return hn::BitCast(I16(), hn::Load(U16(), column)); }

// Transforms `kTogether` images' blocks from `image` on and sums their quadrants: rows 0 to 3 are quadrants 0 and 2.
// The second pass is done in place: a group's memory should stay in the first level cache.
template <bool kWide>
HWY_INLINE void TransformGroup(const Rows& rows, int image, const NextGroup& next, GroupScratch* scratch,
                               VU16 quadrant_sum[2][4]) {
  const I16 d;
  for (int right = 0; right < 2; ++right) {
    Pack top, low;
    for (int i = 0; i < kTogether; ++i) top.v[i] = low.v[i] = hn::Zero(d);
    for (int c = 4 * right; c < 4 * right + 4; ++c) {
      for (int i = 0; i < kTogether; ++i) next.PrefetchRow(image + i, c);
      Pack x[8], y[8];
      for (int k = 0; k < 8; ++k) {
        for (int i = 0; i < kTogether; ++i) x[k].v[i] = LoadSamples(rows.row[k] + (2 * c + image + i) * kLanes);
      }
      top = top + ((x[0] + x[1]) + (x[2] + x[3]));
      low = low + ((x[4] + x[5]) + (x[6] + x[7]));
      TransformPacks<true, kWide>(x, y);
      for (int k = 0; k < 8; ++k) {
        for (int i = 0; i < kTogether; ++i)
          hn::Store(y[k].v[i], d, scratch->coefficients[image + i] + (8 * k + c) * kLanes);
      }
    }
    for (int i = 0; i < kTogether; ++i) {
      quadrant_sum[image + i][2 * right] = hn::BitCast(U16(), top.v[i]);
      quadrant_sum[image + i][2 * right + 1] = hn::BitCast(U16(), low.v[i]);
    }
  }
  for (int k = 0; k < kBlockSize; ++k) {
    Pack x[8], y[8];
    for (int n = 0; n < 8; ++n) {
      for (int i = 0; i < kTogether; ++i)
        x[n].v[i] = hn::Load(d, scratch->coefficients[image + i] + (8 * k + n) * kLanes);
    }
    TransformPacks<false, kWide>(x, y);
    for (int n = 0; n < 8; ++n) {
      for (int i = 0; i < kTogether; ++i) {
        hn::Store(y[n].v[i], d, scratch->coefficients[image + i] + (8 * k + n) * kLanes);
      }
    }
  }
}

HWY_INLINE bool AcEqual(const GroupScratch& scratch) {
  const I16 d;
  const int16_t* reference = scratch.coefficients[0];
  const int16_t* distorted = scratch.coefficients[1];
  for (int row = 0; row < kBlockSize; ++row) {
    VI16 difference = hn::Zero(d);
    for (int k = 8 * row + (row == 0); k < 8 * row + 8; ++k) {
      difference =
          hn::Or(difference, hn::Xor(hn::Load(d, reference + k * kLanes), hn::Load(d, distorted + k * kLanes)));
    }
    if (!hn::AllTrue(d, hn::Eq(difference, hn::Zero(d)))) return false;
  }
  return true;
}

// ---- Activity --------------------------------------------------------------------------------------

// Samples as floats, shifted by an offset that their means share, so that deviations are right: up to 10
// bits deep, a sample (scaled by 64) or a mean (in 64ths) is the low half of the pattern of 2^17 + value.
constexpr uint16_t kOffsetPattern = 0x4800;
constexpr int kOffsetScaleBits = 6;

template <int kHalf, bool kWide>
HWY_INLINE VF32 SampleFloats(VI16 samples) {
  const U16 d;
  if (kWide) {
    return hn::ConvertTo(F32(), hn::BitCast(I32(), Interleave<kHalf>(I16(), samples, hn::Zero(I16()))));
  }
  return hn::BitCast(F32(), Interleave<kHalf>(d, hn::ShiftLeft<kOffsetScaleBits>(hn::BitCast(d, samples)),
                                              hn::Set(d, kOffsetPattern)));
}

// Mean of `1 << kCountBits` samples with that sum, likewise.
template <int kHalf, int kCountBits>
HWY_INLINE VF32 MeanFloats(VU16 sum) {
  const U16 d;
  static_assert(kCountBits <= kOffsetScaleBits, "the mean needs more bits");
  return hn::BitCast(
      F32(), Interleave<kHalf>(d, hn::ShiftLeft<kOffsetScaleBits - kCountBits>(sum), hn::Set(d, kOffsetPattern)));
}

template <int kHalf>
HWY_INLINE VI32 WideSum(VU16 sum) {
  return hn::BitCast(I32(), Interleave<kHalf>(U16(), sum, hn::Zero(U16())));
}

template <int kHalf, bool kWide>
HWY_INLINE void Means(const VU16 quadrant_sum[4], VF32* mean, VF32 quadrant_mean[4]) {
  const F32 d;
  if (kWide) {
    VI32 sum[4];
    for (int q = 0; q < 4; ++q) {
      sum[q] = WideSum<kHalf>(quadrant_sum[q]);
      quadrant_mean[q] = hn::Mul(hn::ConvertTo(d, sum[q]), hn::Set(d, 1.0f / 16));
    }
    const VI32 total = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
    *mean = hn::Mul(hn::ConvertTo(d, total), hn::Set(d, 1.0f / 64));
  } else {
    const VU16* sum = quadrant_sum;
    *mean = MeanFloats<kHalf, 6>(hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])));
    for (int q = 0; q < 4; ++q) quadrant_mean[q] = MeanFloats<kHalf, 4>(sum[q]);
  }
}

// Adds a sample's squared deviation.
HWY_INLINE void AddDeviation(VF32 sample, VF32 mean, VF32& variance) {
#if HWY_NATIVE_FMA
  // The same difference, by units that are less busy here.
  const VF32 deviation = hn::MulSub(sample, hn::Set(F32(), 1.0f), mean);
#else
  const VF32 deviation = hn::Sub(sample, mean);
#endif
  variance = hn::Add(variance, hn::Mul(deviation, deviation));
}

// Sums of `a`'s and `b`'s squares.
HWY_INLINE void AddSquares(VI16 a, VI16 b, VI32& lower, VI32& upper) {
  const I32 d;
#if HWY_ARCH_ARM
  lower = hn::ReorderWidenMulAccumulate(d, a, a, lower, upper);
  lower = hn::ReorderWidenMulAccumulate(d, b, b, lower, upper);
#else
  VI32 unused = hn::Zero(d);
  const VI16 lower_pairs = Interleave<0>(I16(), a, b);
  const VI16 upper_pairs = Interleave<1>(I16(), a, b);
  lower = hn::ReorderWidenMulAccumulate(d, lower_pairs, lower_pairs, lower, unused);
  upper = hn::ReorderWidenMulAccumulate(d, upper_pairs, upper_pairs, upper, unused);
#endif
}

// A quadrant's variance from its sum and its sum of squares, as exact as the chain of squared deviations is while the
// result is below kExactVariance: up to there, all that the chain adds are multiples of 1/256 below 2^16.
constexpr float kExactVariance = 65536.0f;

template <int kHalf>
HWY_INLINE VF32 VarianceOfSums(VU16 sum, VI32 squares) {
  const F32 d;
  const VF32 s = hn::ConvertTo(d, WideSum<kHalf>(sum));
  return hn::Sub(hn::ConvertTo(d, squares), hn::Mul(hn::Mul(s, s), hn::Set(d, 1.0f / 16)));
}

HWY_INLINE VF32 ActivityOf(VF32 variance, const VF32 quadrant_variance[4]) {
  const F32 d;
  const VF32 total = hn::Mul(variance, hn::Set(d, kVarianceScale64));
  const VF32 scale = hn::Set(d, kVarianceScale16);
  VF32 sum = hn::Add(hn::Mul(quadrant_variance[0], scale), hn::Mul(quadrant_variance[1], scale));
  sum = hn::Add(sum, hn::Mul(quadrant_variance[2], scale));
  sum = hn::Add(sum, hn::Mul(quadrant_variance[3], scale));
  return hn::IfThenElse(hn::Gt(total, hn::Zero(d)), hn::Div(sum, total), total);
}

// BlockActivity of block.h of both images' blocks, which take turns: a chain has to wait for itself. `kSums`: quadrants
// by VarianceOfSums, else by their chains. False if VarianceOfSums does not do for them.
template <bool kWide, bool kSums>
HWY_INLINE bool Activity(const Rows& rows, const VU16 quadrant_sum[2][4], VF32 activity[2][2]) {
  const F32 d;
  VF32 lower_mean[2], upper_mean[2], lower_quadrant_mean[2][4], upper_quadrant_mean[2][4];
  VF32 lower_variance[2], upper_variance[2], lower_quadrant[2][4], upper_quadrant[2][4];
  for (int image = 0; image < 2; ++image) {
    Means<0, kWide>(quadrant_sum[image], &lower_mean[image], lower_quadrant_mean[image]);
    Means<1, kWide>(quadrant_sum[image], &upper_mean[image], upper_quadrant_mean[image]);
    lower_variance[image] = upper_variance[image] = hn::Zero(d);
  }
  for (int bottom = 0; bottom < 2; ++bottom) {
    VF32 lower_chain[2][2], upper_chain[2][2];  // [image][right]
    VI32 lower_squares[2][2], upper_squares[2][2];
    for (int image = 0; image < 2; ++image) {
      for (int right = 0; right < 2; ++right) {
        lower_chain[image][right] = upper_chain[image][right] = hn::Zero(d);
        lower_squares[image][right] = upper_squares[image][right] = hn::Zero(I32());
      }
    }
    for (int i = 4 * bottom; i < 4 * bottom + 4; ++i) {
      const uint16_t* row = rows.row[i];
      for (int right = 0; right < 2; ++right) {
        const int q = bottom + 2 * right;
        for (int j = 4 * right; j < 4 * right + 4; j += 2) {
          for (int image = 0; image < 2; ++image) {
            const VI16 first = LoadSamples(row + j * kColumnSamples + image * kLanes);
            const VI16 second = LoadSamples(row + (j + 1) * kColumnSamples + image * kLanes);
            const VF32 lower_first = SampleFloats<0, kWide>(first), upper_first = SampleFloats<1, kWide>(first);
            const VF32 lower_second = SampleFloats<0, kWide>(second), upper_second = SampleFloats<1, kWide>(second);
            AddDeviation(lower_first, lower_mean[image], lower_variance[image]);
            AddDeviation(upper_first, upper_mean[image], upper_variance[image]);
            AddDeviation(lower_second, lower_mean[image], lower_variance[image]);
            AddDeviation(upper_second, upper_mean[image], upper_variance[image]);
            if (kSums) {
              AddSquares(first, second, lower_squares[image][right], upper_squares[image][right]);
            } else {
              AddDeviation(lower_first, lower_quadrant_mean[image][q], lower_chain[image][right]);
              AddDeviation(upper_first, upper_quadrant_mean[image][q], upper_chain[image][right]);
              AddDeviation(lower_second, lower_quadrant_mean[image][q], lower_chain[image][right]);
              AddDeviation(upper_second, upper_quadrant_mean[image][q], upper_chain[image][right]);
            }
          }
        }
      }
    }
    for (int image = 0; image < 2; ++image) {
      for (int right = 0; right < 2; ++right) {
        const int q = bottom + 2 * right;
        const VU16 sum = quadrant_sum[image][q];
        lower_quadrant[image][q] =
            kSums ? VarianceOfSums<0>(sum, lower_squares[image][right]) : lower_chain[image][right];
        upper_quadrant[image][q] =
            kSums ? VarianceOfSums<1>(sum, upper_squares[image][right]) : upper_chain[image][right];
      }
    }
  }
  VF32 largest = hn::Zero(d);
  for (int image = 0; image < 2; ++image) {
    for (int q = 0; q < 4; ++q) {
      largest = hn::Max(largest, hn::Max(lower_quadrant[image][q], upper_quadrant[image][q]));
    }
    activity[image][0] = ActivityOf(lower_variance[image], lower_quadrant[image]);
    activity[image][1] = ActivityOf(upper_variance[image], upper_quadrant[image]);
  }
  return hn::AllTrue(d, hn::Lt(largest, hn::Set(d, kExactVariance)));
}

// ---- Masking ---------------------------------------------------------------------------------------

template <int kHalf>
HWY_INLINE VF32 ScaledCoefficient(VI16 c) {
  return hn::ConvertTo(F32(), hn::BitCast(I32(), Interleave<kHalf>(I16(), hn::Zero(I16()), c)));
}

// Patterns of offset squares.
HWY_INLINE void OffsetSquares(VI16 c, VF32& lower, VF32& upper) {
  const I32 d;
#if HWY_ARCH_ARM
  VI32 upper_squares = hn::Set(d, kSquareOffsetRoot * kSquareOffsetRoot);
  const VI32 lower_squares = hn::ReorderWidenMulAccumulate(d, c, c, upper_squares, upper_squares);
#else
  VI32 unused = hn::Zero(d);
  const VI16 root = hn::Set(I16(), kSquareOffsetRoot);
  const VI16 lower_pairs = Interleave<0>(I16(), c, root);
  const VI16 upper_pairs = Interleave<1>(I16(), c, root);
  const VI32 lower_squares = hn::ReorderWidenMulAccumulate(d, lower_pairs, lower_pairs, hn::Zero(d), unused);
  const VI32 upper_squares = hn::ReorderWidenMulAccumulate(d, upper_pairs, upper_pairs, hn::Zero(d), unused);
#endif
  lower = hn::BitCast(F32(), lower_squares);
  upper = hn::BitCast(F32(), upper_squares);
}

// MaskingEnergy of block.h of both images.
template <typename T>
HWY_INLINE void Energy(const GroupScratch& scratch, VF32 energy[2][2]) {
  const F32 d;
  const int plane = scratch.pair->plane;
  VF32 sum[2][2] = {{hn::Zero(d), hn::Zero(d)}, {hn::Zero(d), hn::Zero(d)}};
  for (int k = 1; k < kBlockTerms; ++k) {
    for (int image = 0; image < 2; ++image) {
      const VI16 c = hn::Load(I16(), scratch.coefficients[image] + k * kLanes);
      VF32 lower, upper;
#if HWY_NATIVE_FMA
      if (sizeof(T) == 1) {
        OffsetSquares(c, lower, upper);
        const VF32 scale = hn::Set(d, kScaled.square_scale[plane][k]);
        const VF32 offset = hn::Set(d, kScaled.square_offset[plane][k]);
        lower = hn::MulSub(lower, scale, offset);
        upper = hn::MulSub(upper, scale, offset);
      } else
#endif
      {
        lower = ScaledCoefficient<0>(c);
        upper = ScaledCoefficient<1>(c);
        const VF32 weight = hn::Set(d, kScaled.coefficient_weight[plane][k]);
        lower = hn::Mul(hn::Mul(lower, lower), weight);
        upper = hn::Mul(hn::Mul(upper, upper), weight);
      }
      sum[image][0] = hn::Add(sum[image][0], lower);
      sum[image][1] = hn::Add(sum[image][1], upper);
    }
  }
  for (int image = 0; image < 2; ++image) {
    for (int half = 0; half < 2; ++half) energy[image][half] = sum[image][half];
  }
}

// Fills the scratch's thresholds.
template <typename T, bool kWide>
HWY_INLINE void Thresholds(const Rows& rows, const VU16 quadrant_sum[2][4], GroupScratch* scratch) {
  const F32 d;
  VF32 activity[2][2], energy[2][2];  // [image][half]
  if (sizeof(T) != 1 || scratch->large_variance || !Activity<kWide, true>(rows, quadrant_sum, activity)) {
    // What one group needs, the next is likely to need.
    scratch->large_variance = !Activity<kWide, false>(rows, quadrant_sum, activity);
  }
  Energy<T>(*scratch, energy);
  for (int half = 0; half < 2; ++half) {
    const VF32 reference = hn::Sqrt(hn::Mul(energy[0][half], activity[0][half]));
    const VF32 distorted = hn::Sqrt(hn::Mul(energy[1][half], activity[1][half]));
    const VF32 scale = hn::Set(d, static_cast<float>(1 / kThresholdDivisor));
    hn::Store(hn::Mul(hn::Max(reference, distorted), scale), d, scratch->threshold + half * kFloatLanes);
  }
}

template <bool kWide>
HWY_INLINE VU16 Difference(const GroupScratch& scratch, int k) {
  const I16 d;
  const VI16 reference = hn::Load(d, scratch.coefficients[0] + k * kLanes);
  const VI16 distorted = hn::Load(d, scratch.coefficients[1] + k * kLanes);
  // Above 10 bits a difference may need all 16 bits.
  const VI16 difference = kWide ? hn::Sub(hn::Max(reference, distorted), hn::Min(reference, distorted))
                                : hn::Abs(hn::Sub(reference, distorted));
  return hn::BitCast(U16(), difference);
}

// Most terms of high frequencies are zero, in all blocks of a group: their differences do not exceed what the threshold
// hides, not even a lower bound of it. That bound takes one 16-bit multiplication; a zero term changes no sum.
template <typename T, bool kWide>
HWY_INLINE void FindLiveTerms(GroupScratch* scratch) {
  const F32 d;
  const U16 d16;
  const int shift = scratch->pair->depth - 8;
  const uint32_t* factors = kScaled.hiding_factors[scratch->pair->plane];
  // In units of 2^-10 at 8 bits, larger ones above; rounded down, at most 32767.
  const VF32 scale = hn::Set(d, static_cast<float>(1 << (16 - kHidingBits)) / static_cast<float>(1 << shift));
  const VF32 most = hn::Set(d, 32767.0f);
  const VF32 lower = hn::Min(hn::Mul(hn::Load(d, scratch->threshold), scale), most);
  const VF32 upper = hn::Min(hn::Mul(hn::Load(d, scratch->threshold + kFloatLanes), scale), most);
  const VU16 threshold =
      hn::BitCast(d16, hn::ReorderDemote2To(I16(), hn::ConvertTo(I32(), lower), hn::ConvertTo(I32(), upper)));
  uint64_t live = 1;
#pragma GCC unroll 9
  for (int k = 1; k < kBlockTerms; ++k) {
    VU16 hidden = hn::MulHigh(threshold, hn::BitCast(d16, hn::Set(U32(), factors[k])));
    if (sizeof(T) > 1) hidden = hn::ShiftLeftSame(hidden, shift);
    const VU16 excess = hn::SaturatedSub(Difference<kWide>(*scratch, k), hidden);
    live |= static_cast<uint64_t>(!hn::AllTrue(d16, hn::Eq(excess, hn::Zero(d16)))) << k;
  }
  scratch->live_terms = live;
}

template <typename T, bool kWide>
HWY_INLINE bool PrepareGroup(const PlanePair& pair, int row, int group, bool follows, GroupScratch* scratch) {
  scratch->pair = &pair;
  scratch->blocks = std::min(kLanes, pair.columns() - group * kLanes);
  Rows rows;
  const bool equal = LoadGroup<T>(pair, row, group, follows, scratch, &rows);
  const NextGroup next = FindNextGroup<T>(pair, row, group);
  if (equal) {
    for (int i = 1; i < kBlockSize; ++i) {
      next.PrefetchRow(0, i);
      next.PrefetchRow(1, i);
    }
    return false;
  }
  VU16 quadrant_sum[2][4];
  for (int image = 0; image < 2; image += kTogether) {
    TransformGroup<kWide>(rows, image, next, scratch, quadrant_sum);
  }
  scratch->live_terms = 1;
  if (AcEqual(*scratch)) return true;
  Thresholds<T, kWide>(rows, quadrant_sum, scratch);
  FindLiveTerms<T, kWide>(scratch);
  return true;
}

bool Prepare(const PlanePair& pair, int row, int group, bool follows, GroupScratch* scratch) {
  if (pair.depth == 8) return PrepareGroup<uint8_t, false>(pair, row, group, follows, scratch);
  if (pair.depth <= 10) return PrepareGroup<uint16_t, false>(pair, row, group, follows, scratch);
  return PrepareGroup<uint16_t, true>(pair, row, group, follows, scratch);
}

// ---- Terms and their sum ---------------------------------------------------------------------------

// The term of coefficient `k` of block.h, in a half of the group.
template <int kHalf>
HWY_INLINE VF32 Term(VU16 difference, VF32 threshold, int k, int plane) {
  const F32 d;
  VF32 error = hn::ConvertTo(d, hn::BitCast(I32(), Interleave<kHalf>(U16(), difference, hn::Zero(U16()))));
  if (k > 0) {
#if HWY_NATIVE_FMA
    const VF32 hidden = hn::MulAdd(threshold, hn::Set(d, kInverseMask.high[plane][k]),
                                   hn::Mul(threshold, hn::Set(d, kInverseMask.low[plane][k])));
#else
    const VF32 hidden = hn::Div(threshold, hn::Set(d, kMask.weight[plane][k]));
#endif
    // The larger of it and 0, in the integer units: negative floats are negative integers.
    error = hn::BitCast(d, hn::Max(hn::BitCast(I32(), hn::Sub(error, hidden)), hn::Zero(I32())));
  }
  const VF32 weighted = hn::Mul(error, hn::Set(d, kCsf[plane][k]));
  return hn::Mul(weighted, weighted);
}

// Stores a half's increments, 0 for blocks that are not asked for.
template <int kHalf>
HWY_INLINE void StoreIncrements(GroupScratch* scratch, uint32_t exponent, int first_block, VF32 even, VF32 odd) {
  const U32 d;
  const VI32 block = hn::Load(I32(), kFloatLaneBlocks.block + kHalf * kFloatLanes);
  const auto wanted =
      hn::And(hn::Lt(block, hn::Set(I32(), scratch->blocks)), hn::Gt(block, hn::Set(I32(), first_block - 1)));
  const VU32 start = hn::Set(d, exponent << 23);
  const VU32 limit = hn::Set(d, kMapLimit);
  const VU32 even_increment = hn::Min(hn::Sub(hn::BitCast(d, even), start), limit);
  const VU32 odd_increment = hn::Min(hn::Sub(hn::BitCast(d, odd), hn::Or(start, hn::Set(d, 1))), limit);
  const auto keep = hn::RebindMask(d, wanted);
  hn::Store(hn::IfThenElseZero(keep, even_increment), d, scratch->even + kHalf * kFloatLanes);
  hn::Store(hn::IfThenElseZero(keep, odd_increment), d, scratch->odd + kHalf * kFloatLanes);
}

template <bool kWide>
HWY_INLINE void Chain(GroupScratch* scratch, uint32_t exponent, int first_block) {
  const F32 d;
  const int plane = scratch->pair->plane;
  const VF32 lower_threshold = hn::Load(d, scratch->threshold);
  const VF32 upper_threshold = hn::Load(d, scratch->threshold + kFloatLanes);
  VF32 lower_even = hn::Set(d, BitsFloat(exponent << 23));
  VF32 lower_odd = hn::Set(d, BitsFloat((exponent << 23) | 1));
  VF32 upper_even = lower_even;
  VF32 upper_odd = lower_odd;
  for (uint64_t live = scratch->live_terms; live != 0; live &= live - 1) {
    const int k = static_cast<int>(hwy::Num0BitsBelowLS1Bit_Nonzero64(live));
    const VU16 difference = Difference<kWide>(*scratch, k);
    const VF32 lower = Term<0>(difference, lower_threshold, k, plane);
    const VF32 upper = Term<1>(difference, upper_threshold, k, plane);
    lower_even = hn::Add(lower_even, lower);
    lower_odd = hn::Add(lower_odd, lower);
    upper_even = hn::Add(upper_even, upper);
    upper_odd = hn::Add(upper_odd, upper);
  }
  StoreIncrements<0>(scratch, exponent, first_block, lower_even, lower_odd);
  StoreIncrements<1>(scratch, exponent, first_block, upper_even, upper_odd);
}

void ChainBlocks(GroupScratch* scratch, uint32_t exponent, int first_block) {
  if (scratch->pair->depth <= 10) {
    Chain<false>(scratch, exponent, first_block);
  } else {
    Chain<true>(scratch, exponent, first_block);
  }
}

#endif  // plain code or vectors

SumMap Map(GroupScratch* scratch, uint32_t exponent, int first_block) {
  ChainBlocks(scratch, exponent, first_block);
  // Without ties parity does not matter, and the increments add up in any order.
  uint32_t sum = 0;
  uint32_t ties = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    sum += scratch->even[lane];
    ties |= scratch->even[lane] ^ scratch->odd[lane];
  }
  SumMap map;
  if (ties == 0) {
    map.even = map.odd = ClampIncrement(sum);
    return map;
  }
  for (int block = first_block; block < scratch->blocks; ++block) {
    const int lane = FloatLane(block);
    SumMap next;
    next.even = scratch->even[lane];
    next.odd = scratch->odd[lane];
    map = Compose(map, next);
  }
  return map;
}

SumMap BlockMap(const GroupScratch& scratch, int block) {
  const int lane = FloatLane(block);
  SumMap map;
  map.even = scratch.even[lane];
  map.odd = scratch.odd[lane];
  return map;
}

void BlockTermsOf(const GroupScratch& scratch, int block, float terms[kBlockTerms]) {
  const int plane = scratch.pair->plane;
  const float threshold = scratch.threshold[FloatLane(block)];
  for (int k = 0; k < kBlockTerms; ++k) {
    terms[k] = 0.0f;
    if ((scratch.live_terms >> k & 1) == 0) continue;
    const int32_t difference =
        scratch.coefficients[0][k * kLanes + block] - scratch.coefficients[1][k * kLanes + block];
    terms[k] = CoefficientTerm(k, difference, threshold, kCsf[plane][k], kMask.weight[plane][k]);
  }
}

GroupKernel Kernel() { return GroupKernel{hwy::TargetName(HWY_TARGET), kLanes, Prepare, Map, BlockMap, BlockTermsOf}; }

}  // namespace HWY_NAMESPACE
}  // namespace psnrhvs
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace psnrhvs {

GroupScratch::GroupScratch(int width) {
  std::memset(samples, 0, sizeof(samples));
  std::memset(segment, 0, sizeof(segment));
  constexpr size_t kAlignment = 64;
  // Whole groups of the largest kind, so that both rows are aligned.
  const size_t blocks =
      static_cast<size_t>(BlockCount(width) + kMaxGroupBlocks - 1) / kMaxGroupBlocks * kMaxGroupBlocks;
  const size_t row_samples = blocks * kBlockSize * 2;
  edge_memory = std::make_unique<uint16_t[]>(2 * row_samples + kAlignment);
  const uintptr_t at = reinterpret_cast<uintptr_t>(edge_memory.get());
  edge[0] = edge_memory.get() + (kAlignment - at % kAlignment) % kAlignment / sizeof(uint16_t);
  edge[1] = edge[0] + row_samples;
}

namespace {

HWY_EXPORT(Kernel);

std::vector<GroupKernel> MakeGroupKernels() {
  std::vector<GroupKernel> kernels;
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  kernels.push_back(HWY_STATIC_DISPATCH(Kernel)());
#else
  // Low bits are fast targets. The plain target is always there.
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::ChosenTarget chosen;
    chosen.Update(target);
    kernels.push_back(HWY_DISPATCH_TABLE(Kernel)[chosen.GetIndex()]());
  }
#endif
  return kernels;
}

// A prepared group as AddRun wants it.
class GroupRun {
 public:
  GroupRun(const GroupKernel& kernel, GroupScratch* scratch) : kernel_(kernel), scratch_(scratch) {}

  int blocks() const { return scratch_->blocks; }
  SumMap Map(uint32_t exponent, int first) { return kernel_.map(scratch_, exponent, first); }
  SumMap BlockMap(int block) const { return kernel_.block_map(*scratch_, block); }
  float AddBlock(float sum, int block) const {
    float terms[kBlockTerms];
    kernel_.terms(*scratch_, block, terms);
    return AddSerially(sum, terms, kBlockTerms);
  }

 private:
  const GroupKernel& kernel_;
  GroupScratch* scratch_;
};

}  // namespace

const std::vector<GroupKernel>& GroupKernels() {
  static const std::vector<GroupKernel> kernels = MakeGroupKernels();
  return kernels;
}

const GroupKernel* FindGroupKernel(const std::string& target) {
  for (const GroupKernel& kernel : GroupKernels()) {
    if (target.empty() || target == kernel.target) return &kernel;
  }
  return nullptr;
}

uint32_t AddGroup(const GroupKernel& kernel, const PlanePair& pair, int row, int group, bool follows,
                  GroupScratch* scratch, uint32_t bits) {
  if (!kernel.prepare(pair, row, group, follows, scratch)) return bits;
  return AddRun(bits, GroupRun(kernel, scratch));
}

float PlaneSumSimd(const PlaneView& reference, const PlaneView& distorted, int depth, int plane,
                   const GroupKernel& kernel) {
  PlanePair pair;
  pair.reference = reference;
  pair.distorted = distorted;
  pair.depth = depth;
  pair.plane = plane;
  const auto scratch = std::make_unique<GroupScratch>(reference.width);
  uint32_t bits = 0;
  for (int row = 0; row < pair.rows(); ++row) {
    for (int group = 0; group < kernel.groups(pair); ++group) {
      bits = AddGroup(kernel, pair, row, group, row > 0, scratch.get(), bits);
    }
  }
  return BitsFloat(bits);
}

}  // namespace psnrhvs
#endif  // HWY_ONCE
