// The plane sum in vectors: one block a lane. A group is as many neighbouring blocks as a vector has 16-bit
// lanes. Samples are rearranged into column vectors, transformed in 16-bit integers, and the float parts run
// in two halves of the group. A half is what InterleaveLower or InterleaveUpper makes of a 16-bit vector, so
// its lanes are the lower or upper four blocks of every eight (VectorLane, BlockOfLane).
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

inline int VectorLane(int block) { return block; }

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
  scratch->dc_only = false;
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

inline int VectorLane(int block) {
  const int in_eight = block % 8;
  return (in_eight / 4) * kFloatLanes + (block / 8) * 4 + in_eight % 4;
}

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

using Bytes = hn::CappedTag<uint8_t, 32>;
constexpr int kLoads = static_cast<int>(hn::MaxLanes(Bytes())) / 16;  // 16-byte loads in a vector

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
HWY_INLINE hn::Vec<Bytes> LoadPair(const uint8_t* lower, const uint8_t* upper) {
  const hn::Full128<uint8_t> d;
  return hn::Combine(Bytes(), hn::LoadU(d, upper), hn::LoadU(d, lower));
}
#else
HWY_INLINE hn::Vec<Bytes> LoadPair(const uint8_t* lower, const uint8_t*) { return hn::LoadU(Bytes(), lower); }
#endif

// Rearranges a part of a sample row of both images: out[column][image][lane].
HWY_INLINE void RearrangeRow(const uint8_t* const source[2], const int /*shift*/[2], int /*sample_mask*/,
                             uint8_t* out) {
  // A load holds two blocks, bytes 0 to 7 and 7 to 14.
  constexpr int kLoadsPerImage = kLanes / 2;
  const Bytes d;
  const hn::Repartition<uint16_t, Bytes> d16;
  alignas(16) static constexpr uint8_t kPairs[16] = {0, 7, 1, 8, 2, 9, 3, 10, 4, 11, 5, 12, 6, 13, 7, 14};
  const auto pairs = hn::LoadDup128(d, kPairs);
  for (int t = 0; t < 2 * kLoadsPerImage; t += 8 * kLoads) {
    hn::Vec<decltype(d16)> v[8];
    for (int i = 0; i < 8; ++i) {
      const int lower = t + i;
      const int upper = lower + 8 * (kLoads - 1);
      const auto loaded = LoadPair(source[lower / kLoadsPerImage] + 14 * (lower % kLoadsPerImage),
                                   source[upper / kLoadsPerImage] + 14 * (upper % kLoadsPerImage));
      v[i] = hn::BitCast(d16, hn::TableLookupBytes(loaded, pairs));
    }
    Transpose8x8(d16, v);
    for (int j = 0; j < 8; ++j) hn::Store(hn::BitCast(d, v[j]), d, out + 2 * kLanes * j + 2 * t);
  }
}

HWY_INLINE void RearrangeRow(const uint8_t* const source[2], const int shift[2], int sample_mask, uint16_t* out) {
  // A load holds one block.
  const Bytes d;
  const hn::Repartition<uint16_t, Bytes> d16;
  const auto mask = hn::Set(d16, static_cast<uint16_t>(sample_mask));
  for (int t = 0; t < 2 * kLanes; t += 8 * kLoads) {
    const int image = t / kLanes;
    const uint8_t* from = source[image] + 14 * (t % kLanes);
    hn::Vec<decltype(d16)> v[8];
    for (int i = 0; i < 8; ++i) {
      const auto loaded = hn::BitCast(d16, LoadPair(from + 14 * i, from + 14 * (i + 8)));
      v[i] = hn::And(hn::ShiftRightSame(loaded, shift[image]), mask);
    }
    Transpose8x8(d16, v);
    for (int j = 0; j < 8; ++j) hn::Store(v[j], d16, out + 2 * kLanes * j + t);
  }
}

template <typename T>
HWY_INLINE bool RowsEqual(const T* row) {
  const hn::Rebind<T, I16> d;
  auto difference = hn::Zero(d);
  for (int j = 0; j < 8; ++j) {
    const T* column = row + 2 * kLanes * j;
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

HWY_INLINE VI16 LoadSamples(const uint8_t* column) {
  return hn::PromoteTo(I16(), hn::Load(hn::Rebind<uint8_t, I16>(), column));
}
HWY_INLINE VI16 LoadSamples(const uint16_t* column) { return hn::BitCast(I16(), hn::Load(U16(), column)); }

// Fills the scratch's samples. True if both images are equal.
template <typename T>
HWY_INLINE bool LoadGroup(const PlanePair& pair, int row, int group, bool follows, GroupScratch* scratch) {
  constexpr int kRowSamples = kBlockSize * 2 * kLanes;  // [column][image][lane]
  const int x = group * kLanes * kBlockStep;
  const int y = row * kBlockStep;
  const int left = pair.reference.width - x;
  // What the loads read is in the row but for a row's last group.
  const bool inside = left > kLanes * kBlockStep + kBlockStep;
  const int count = std::min(left, kLanes * kBlockStep + kBlockSize);
  const PlaneView* views[2] = {&pair.reference, &pair.distorted};
  const int shift[2] = {pair.reference.shift, pair.distorted.shift};
  const int sample_mask = (1 << pair.depth) - 1;
  T* samples = reinterpret_cast<T*>(scratch->samples);
  T* bottom = reinterpret_cast<T*>(scratch->bottom) + static_cast<size_t>(group) * kRowSamples;
  if (follows) std::memcpy(samples, bottom, kRowSamples * sizeof(T));
  bool equal = true;
  for (int i = follows ? 1 : 0; i < kBlockSize; ++i) {
    const uint8_t* source[2];
    for (int image = 0; image < 2; ++image) {
      source[image] = SampleAddress(*views[image], x, y + i, sizeof(T));
      if (!inside || views[image]->step != 1) {
        CopySamples<T>(source[image], views[image]->step, count, scratch->segment[image]);
        source[image] = scratch->segment[image];
      }
    }
    RearrangeRow(source, shift, sample_mask, samples + i * kRowSamples);
    equal = equal && RowsEqual(samples + i * kRowSamples);
  }
  std::memcpy(bottom, samples + 7 * kRowSamples, kRowSamples * sizeof(T));
  return equal && (!follows || RowsEqual(samples));
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

// Lift of block.h for a constant of `kShift` bits.
template <int kConstant, int kShift>
HWY_INLINE VI16 LiftBy(VI16 v) {
  constexpr int kScaled = kConstant << (15 - kShift);
  static_assert(kScaled < 32768, "the constant does not fit");
  return hn::MulFixedPoint15(v, hn::Set(I16(), static_cast<int16_t>(kScaled)));
}

// Half of block.h. The one multiplication is right from -16383 to 16385.
template <bool kLarge>
HWY_INLINE VI16 HalfOf(VI16 v) {
  if (kLarge) return hn::ShiftRight<1>(hn::Sub(v, hn::ShiftRight<15>(v)));
  return hn::MulFixedPoint15(v, hn::Set(I16(), 16383));
}

// Transform8 of block.h. `kFirst`: on samples, which are not negative. `kWide`: deeper than 10 bits.
template <bool kFirst, bool kWide>
HWY_INLINE void TransformVectors(VI16 x0, VI16 x1, VI16 x2, VI16 x3, VI16 x4, VI16 x5, VI16 x6, VI16 x7, VI16 y[8]) {
  using hn::Add;
  using hn::Sub;
  constexpr bool kLarge = kWide && !kFirst;
  VI16 t0 = x0, t1 = x7, t2 = x2, t3 = x5, t4 = x1, t5 = x6, t6 = x3, t7 = x4;
  t1 = Sub(t0, t1);
  const VI16 h1 = HalfOf<kLarge>(t1);
  t0 = Sub(t0, h1);
  t4 = Add(t4, t5);
  const VI16 h4 = kFirst ? hn::ShiftRight<1>(t4) : HalfOf<kLarge>(t4);
  t5 = Sub(t5, h4);
  t3 = Sub(t2, t3);
  t2 = Sub(t2, HalfOf<kLarge>(t3));
  t6 = Add(t6, t7);
  const VI16 h6 = kFirst ? hn::ShiftRight<1>(t6) : HalfOf<kLarge>(t6);
  t7 = Sub(h6, t7);
  t0 = Add(t0, h6);
  t6 = Sub(t0, t6);
  t2 = Sub(h4, t2);
  t4 = Sub(t2, t4);
  t0 = Sub(t0, LiftBy<13573, 15>(t4));
  t4 = Add(t4, LiftBy<11585, 14>(t0));
  t0 = Sub(t0, LiftBy<13573, 15>(t4));
  t6 = Sub(t6, LiftBy<21895, 15>(t2));
  t2 = Add(t2, LiftBy<15137, 14>(t6));
  t6 = Sub(t6, LiftBy<21895, 15>(t2));
  t3 = Add(t3, LiftBy<19195, 15>(t5));
  t5 = Add(t5, LiftBy<11585, 14>(t3));
  t3 = Sub(t3, LiftBy<7489, 13>(t5));
  t7 = Sub(HalfOf<kLarge>(t5), t7);
  t5 = Sub(t5, t7);
  t3 = Sub(h1, t3);
  t1 = Sub(t1, t3);
  t7 = Add(t7, LiftBy<3227, 15>(t1));
  t1 = Sub(t1, LiftBy<6393, 15>(t7));
  t7 = Add(t7, LiftBy<3227, 15>(t1));
  t5 = Add(t5, LiftBy<2485, 13>(t3));
  t3 = Sub(t3, LiftBy<18205, 15>(t5));
  t5 = Add(t5, LiftBy<2485, 13>(t3));
  y[0] = t0;
  y[1] = t1;
  y[2] = t2;
  y[3] = t3;
  y[4] = t4;
  y[5] = t5;
  y[6] = t6;
  y[7] = t7;
}

// Transforms one image's blocks and sums their quadrants: rows 0 to 3 are quadrants 0 and 2.
template <typename T, bool kWide>
HWY_INLINE void TransformGroup(GroupScratch* scratch, int image, const NextGroup& next, VU16 quadrant_sum[4]) {
  const I16 d;
  const T* samples = reinterpret_cast<const T*>(scratch->samples) + image * kLanes;
  int16_t* columns = scratch->columns;
  VI16 sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (int c = 0; c < kBlockSize; ++c) {
    if (c > 0) next.PrefetchRow(image, c);
    VI16 x[8];
    for (int i = 0; i < 8; ++i) x[i] = LoadSamples(samples + (8 * i + c) * 2 * kLanes);
    const VI16 top = hn::Add(hn::Add(x[0], x[1]), hn::Add(x[2], x[3]));
    const VI16 low = hn::Add(hn::Add(x[4], x[5]), hn::Add(x[6], x[7]));
    const int right = c >> 2;
    sum[2 * right] = hn::Add(sum[2 * right], top);
    sum[2 * right + 1] = hn::Add(sum[2 * right + 1], low);
    VI16 y[8];
    TransformVectors<true, kWide>(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], y);
    for (int k = 0; k < 8; ++k) hn::Store(y[k], d, columns + (8 * k + c) * kLanes);
  }
  for (int q = 0; q < 4; ++q) quadrant_sum[q] = hn::BitCast(U16(), sum[q]);
  int16_t* coefficients = scratch->coefficients[image];
  for (int k = 0; k < kBlockSize; ++k) {
    const int16_t* z = columns + 8 * k * kLanes;
    VI16 y[8];
    TransformVectors<false, kWide>(hn::Load(d, z), hn::Load(d, z + kLanes), hn::Load(d, z + 2 * kLanes),
                                   hn::Load(d, z + 3 * kLanes), hn::Load(d, z + 4 * kLanes),
                                   hn::Load(d, z + 5 * kLanes), hn::Load(d, z + 6 * kLanes),
                                   hn::Load(d, z + 7 * kLanes), y);
    for (int n = 0; n < 8; ++n) hn::Store(y[n], d, coefficients + (8 * k + n) * kLanes);
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

// Adds a sample's squared deviations to its block's and its quadrant's variance.
template <typename T>
HWY_INLINE void AddDeviations(VF32 sample, VF32 mean, VF32 quadrant_mean, VF32& variance, VF32& quadrant_variance) {
  const VF32 deviation = hn::Sub(sample, mean);
  variance = hn::Add(variance, hn::Mul(deviation, deviation));
  const VF32 quadrant_deviation = hn::Sub(sample, quadrant_mean);
  // 8 bits: the square is exact, so that fusing changes nothing.
  quadrant_variance = sizeof(T) == 1
                          ? hn::MulAdd(quadrant_deviation, quadrant_deviation, quadrant_variance)
                          : hn::Add(quadrant_variance, hn::Mul(quadrant_deviation, quadrant_deviation));
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

// BlockActivity of block.h of one image's blocks.
template <typename T, bool kWide>
HWY_INLINE void Activity(const GroupScratch& scratch, int image, const VU16 quadrant_sum[4], VF32 activity[2]) {
  const F32 d;
  VF32 lower_mean, upper_mean, lower_quadrant_mean[4], upper_quadrant_mean[4];
  Means<0, kWide>(quadrant_sum, &lower_mean, lower_quadrant_mean);
  Means<1, kWide>(quadrant_sum, &upper_mean, upper_quadrant_mean);
  VF32 lower_variance = hn::Zero(d), upper_variance = hn::Zero(d);
  VF32 lower_quadrant[4], upper_quadrant[4];
  const T* sample = reinterpret_cast<const T*>(scratch.samples) + image * kLanes;
  for (int bottom = 0; bottom < 2; ++bottom) {
    VF32 lower_left = hn::Zero(d), lower_right = hn::Zero(d);
    VF32 upper_left = hn::Zero(d), upper_right = hn::Zero(d);
    const VF32 lower_left_mean = lower_quadrant_mean[bottom], lower_right_mean = lower_quadrant_mean[bottom + 2];
    const VF32 upper_left_mean = upper_quadrant_mean[bottom], upper_right_mean = upper_quadrant_mean[bottom + 2];
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j, sample += 2 * kLanes) {
        const VI16 both = LoadSamples(sample);
        AddDeviations<T>(SampleFloats<0, kWide>(both), lower_mean, lower_left_mean, lower_variance, lower_left);
        AddDeviations<T>(SampleFloats<1, kWide>(both), upper_mean, upper_left_mean, upper_variance, upper_left);
      }
      for (int j = 4; j < 8; ++j, sample += 2 * kLanes) {
        const VI16 both = LoadSamples(sample);
        AddDeviations<T>(SampleFloats<0, kWide>(both), lower_mean, lower_right_mean, lower_variance, lower_right);
        AddDeviations<T>(SampleFloats<1, kWide>(both), upper_mean, upper_right_mean, upper_variance, upper_right);
      }
    }
    lower_quadrant[bottom] = lower_left;
    lower_quadrant[bottom + 2] = lower_right;
    upper_quadrant[bottom] = upper_left;
    upper_quadrant[bottom + 2] = upper_right;
  }
  activity[0] = ActivityOf(lower_variance, lower_quadrant);
  activity[1] = ActivityOf(upper_variance, upper_quadrant);
}

// ---- Masking ---------------------------------------------------------------------------------------

// A coefficient as a float times 2^16 costs no sign extension; the weight is scaled to undo its square.
constexpr float kCoefficientUnscale = 1.0f / 65536 / 65536;

template <int kHalf>
HWY_INLINE VF32 ScaledCoefficient(VI16 c) {
  return hn::ConvertTo(F32(), hn::BitCast(I32(), Interleave<kHalf>(I16(), hn::Zero(I16()), c)));
}

// Fills the scratch's thresholds.
template <typename T, bool kWide>
HWY_INLINE void Thresholds(GroupScratch* scratch, const VU16 quadrant_sum[2][4]) {
  const F32 d;
  const I16 di;
  VF32 activity[2][2];  // [image][half]
  Activity<T, kWide>(*scratch, 0, quadrant_sum[0], activity[0]);
  Activity<T, kWide>(*scratch, 1, quadrant_sum[1], activity[1]);
  const float* weights = kMask.weight[scratch->pair->plane];
  VF32 energy[2][2] = {{hn::Zero(d), hn::Zero(d)}, {hn::Zero(d), hn::Zero(d)}};
  for (int k = 1; k < kBlockTerms; ++k) {
    const VF32 weight = hn::Set(d, weights[k] * kCoefficientUnscale);
    for (int image = 0; image < 2; ++image) {
      const VI16 c = hn::Load(di, scratch->coefficients[image] + k * kLanes);
      const VF32 lower = ScaledCoefficient<0>(c);
      const VF32 upper = ScaledCoefficient<1>(c);
      energy[0][image] = hn::Add(energy[0][image], hn::Mul(hn::Mul(lower, lower), weight));
      energy[1][image] = hn::Add(energy[1][image], hn::Mul(hn::Mul(upper, upper), weight));
    }
  }
  for (int half = 0; half < 2; ++half) {
    const VF32 reference = hn::Sqrt(hn::Mul(energy[half][0], activity[0][half]));
    const VF32 distorted = hn::Sqrt(hn::Mul(energy[half][1], activity[1][half]));
    const VF32 threshold =
        hn::Mul(hn::Max(reference, distorted), hn::Set(d, static_cast<float>(1 / kThresholdDivisor)));
    hn::Store(threshold, d, scratch->threshold + half * kFloatLanes);
  }
}

template <typename T, bool kWide>
HWY_INLINE bool PrepareGroup(const PlanePair& pair, int row, int group, bool follows, GroupScratch* scratch) {
  scratch->pair = &pair;
  scratch->blocks = std::min(kLanes, pair.columns() - group * kLanes);
  const bool equal = LoadGroup<T>(pair, row, group, follows, scratch);
  const NextGroup next = FindNextGroup<T>(pair, row, group);
  if (equal) {
    for (int i = 1; i < kBlockSize; ++i) {
      next.PrefetchRow(0, i);
      next.PrefetchRow(1, i);
    }
    return false;
  }
  VU16 quadrant_sum[2][4];
  TransformGroup<T, kWide>(scratch, 0, next, quadrant_sum[0]);
  TransformGroup<T, kWide>(scratch, 1, next, quadrant_sum[1]);
  scratch->dc_only = AcEqual(*scratch);
  if (!scratch->dc_only) Thresholds<T, kWide>(scratch, quadrant_sum);
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

// Stores a half's increments, 0 for blocks that are not asked for.
template <int kHalf>
HWY_INLINE void StoreIncrements(GroupScratch* scratch, uint32_t exponent, int first_block, VF32 even, VF32 odd) {
  const U32 d;
  const VU32 lane = hn::Iota(d, 0);
  const VU32 four = hn::Set(d, 3);
  const VU32 block =
      hn::Add(hn::Add(hn::ShiftLeft<1>(hn::AndNot(four, lane)), hn::And(four, lane)), hn::Set(d, 4 * kHalf));
  const auto wanted = hn::And(hn::Lt(hn::BitCast(I32(), block), hn::Set(I32(), scratch->blocks)),
                              hn::Gt(hn::BitCast(I32(), block), hn::Set(I32(), first_block - 1)));
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
  const int terms = scratch->dc_only ? 1 : kBlockTerms;
  const VF32 lower_threshold = hn::Load(d, scratch->threshold);
  const VF32 upper_threshold = hn::Load(d, scratch->threshold + kFloatLanes);
  VF32 lower_even = hn::Set(d, BitsFloat(exponent << 23));
  VF32 lower_odd = hn::Set(d, BitsFloat((exponent << 23) | 1));
  VF32 upper_even = lower_even;
  VF32 upper_odd = lower_odd;
  for (int k = 0; k < terms; ++k) {
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
    const int lane = VectorLane(block);
    SumMap next;
    next.even = scratch->even[lane];
    next.odd = scratch->odd[lane];
    map = Compose(map, next);
  }
  return map;
}

SumMap BlockMap(const GroupScratch& scratch, int block) {
  const int lane = VectorLane(block);
  SumMap map;
  map.even = scratch.even[lane];
  map.odd = scratch.odd[lane];
  return map;
}

void BlockTermsOf(const GroupScratch& scratch, int block, float terms[kBlockTerms]) {
  const int plane = scratch.pair->plane;
  const float threshold = scratch.dc_only ? 0.0f : scratch.threshold[VectorLane(block)];
  for (int k = 0; k < kBlockTerms; ++k) {
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
  const size_t groups_blocks = static_cast<size_t>(BlockCount(width)) + kMaxGroupBlocks;
  const size_t bytes = groups_blocks * kBlockSize * 2 * sizeof(uint16_t);
  bottom_memory.reset(new uint8_t[bytes + kAlignment]);
  const uintptr_t at = reinterpret_cast<uintptr_t>(bottom_memory.get());
  bottom = bottom_memory.get() + (kAlignment - at % kAlignment) % kAlignment;
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
