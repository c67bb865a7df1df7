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

// The factors of the transform's 16-bit multiplications, as vectors.
constexpr int kHalfFactor = 16383;
constexpr int kFactors[] = {kHalfFactor, 13573, 2 * 11585, 21895,    2 * 15137, 19195,
                            4 * 7489,    3227,  6393,      4 * 2485, 18205};
constexpr int kFactorCount = sizeof(kFactors) / sizeof(kFactors[0]);

constexpr int FactorIndex(int factor) {
  int i = 0;
  while (kFactors[i] != factor) ++i;
  return i;
}

struct FactorVectors {
  alignas(64) int16_t factor[kFactorCount][kMaxGroupBlocks];
};

constexpr FactorVectors MakeFactorVectors() {
  FactorVectors vectors{};
  for (int i = 0; i < kFactorCount; ++i) {
    for (int lane = 0; lane < kMaxGroupBlocks; ++lane) vectors.factor[i][lane] = static_cast<int16_t>(kFactors[i]);
  }
  return vectors;
}

inline constexpr FactorVectors kFactorVectors = MakeFactorVectors();
// Volatile, as the compiler must not know what is there: vectors that it knows it makes anew in every round of a loop,
// which takes longer than to load them.
inline const FactorVectors* volatile factor_vectors = &kFactorVectors;

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

bool Prepare(const PlanePair& pair, int group, GroupScratch* scratch) {
  const int columns = pair.columns();
  if (columns == 0) return false;
  scratch->pair = &pair;
  scratch->live_terms = ~uint64_t{0};
  scratch->blocks = std::min(kLanes, pair.blocks() - group * kLanes);
  const float* mask = kMask.weight[pair.plane];
  for (int block = 0; block < scratch->blocks; ++block) {
    const PlaneView* views[2] = {&pair.reference, &pair.distorted};
    float thresholds[2];
    for (int image = 0; image < 2; ++image) {
      const int x = (group * kLanes + block) % columns * kBlockStep;
      const int y = (group * kLanes + block) / columns * kBlockStep;
      int32_t samples[kBlockTerms];
      if (pair.depth > 8) {
        LoadBlock<uint16_t>(pair, *views[image], x, y, samples);
      } else {
        LoadBlock<uint8_t>(pair, *views[image], x, y, samples);
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

// A row of a group's samples: [column][image][lane].
constexpr int kColumnSamples = 2 * kLanes;
constexpr int kRowSamples = kBlockSize * kColumnSamples;

// Samples are rearranged for at most 16 blocks at a time: longer vectors cost more to fill than they save.
using PartU8 = hn::CappedTag<uint8_t, 32>;
using PartU16 = hn::Repartition<uint16_t, PartU8>;
using PartU32 = hn::Repartition<uint32_t, PartU8>;
using PartU64 = hn::Repartition<uint64_t, PartU8>;
constexpr int kPartLanes = static_cast<int>(hn::MaxLanes(PartU16()));

// Of rows in which each block begins `block_bytes` after the one before: 16 bytes from block `first` on and, where
// vectors hold them, 16 from 8 blocks further on.
HWY_INLINE hn::Vec<PartU8> LoadBlocks(const uint8_t* row, int block_bytes, int first) {
  const hn::Full128<uint8_t> d;
  const uint8_t* at = row + first * block_bytes;
#if HWY_MAX_BYTES >= 32
  return hn::Combine(PartU8(), hn::LoadU(d, at + 8 * block_bytes), hn::LoadU(d, at));
#else
  return hn::LoadU(d, at);
#endif
}

// Rearranges a part of a sample row whose blocks begin at every kStep-th sample. 16 bytes hold two blocks, whose
// columns are first brought together by twos.
template <int kStep>
HWY_INLINE void RearrangeBytes(const uint8_t* source, uint16_t* out) {
  const PartU8 d8;
  const PartU16 d16;
  const PartU32 d32;
  const PartU64 d64;
  alignas(16) static constexpr uint8_t kPairs[16] = {0, 1, kStep,     kStep + 1, 2, 3, kStep + 2, kStep + 3,
                                                     4, 5, kStep + 4, kStep + 5, 6, 7, kStep + 6, kStep + 7};
  const auto pairs = hn::LoadDup128(d8, kPairs);
  hn::Vec<PartU32> v[4];
  for (int i = 0; i < 4; ++i) v[i] = hn::BitCast(d32, hn::TableLookupBytes(LoadBlocks(source, kStep, 2 * i), pairs));
  const hn::Vec<PartU64> low[2] = {hn::BitCast(d64, hn::InterleaveLower(d32, v[0], v[1])),
                                   hn::BitCast(d64, hn::InterleaveLower(d32, v[2], v[3]))};
  const hn::Vec<PartU64> high[2] = {hn::BitCast(d64, hn::InterleaveUpper(d32, v[0], v[1])),
                                    hn::BitCast(d64, hn::InterleaveUpper(d32, v[2], v[3]))};
  const hn::Vec<PartU64> columns[4] = {
      hn::InterleaveLower(d64, low[0], low[1]), hn::InterleaveUpper(d64, low[0], low[1]),
      hn::InterleaveLower(d64, high[0], high[1]), hn::InterleaveUpper(d64, high[0], high[1])};
  for (int j = 0; j < 4; ++j) {
    const hn::Vec<PartU16> two = hn::BitCast(d16, columns[j]);
    hn::Store(hn::And(two, hn::Set(d16, 0xff)), d16, out + kColumnSamples * 2 * j);
    hn::Store(hn::ShiftRight<8>(two), d16, out + kColumnSamples * (2 * j + 1));
  }
}

template <int kStep>
HWY_INLINE void RearrangeWords(const uint8_t* source, int shift, int sample_mask, uint16_t* out) {
  const PartU16 d;
  const auto mask = hn::Set(d, static_cast<uint16_t>(sample_mask));
  hn::Vec<PartU16> v[8];
  for (int i = 0; i < 8; ++i) v[i] = hn::BitCast(d, LoadBlocks(source, 2 * kStep, i));
  if (shift > 0) {
    for (int i = 0; i < 8; ++i) v[i] = hn::ShiftRightSame(v[i], shift);
  }
  for (int i = 0; i < 8; ++i) v[i] = hn::And(v[i], mask);
  Transpose8x8(d, v);
  for (int j = 0; j < 8; ++j) hn::Store(v[j], d, out + kColumnSamples * j);
}

template <typename T, int kStep>
HWY_INLINE void Rearrange(const uint8_t* source, int shift, int sample_mask, uint16_t* out) {
  if (sizeof(T) == 1) {
    RearrangeBytes<kStep>(source, out);
  } else {
    RearrangeWords<kStep>(source, shift, sample_mask, out);
  }
}

// The samples of a block's row, one after the other.
template <typename T>
HWY_INLINE void CopyBlockRow(const uint8_t* from, int step, uint8_t* to) {
  if (step == 1) {
    std::memcpy(to, from, kBlockSize * sizeof(T));
    return;
  }
  for (int i = 0; i < kBlockSize; ++i) {
    std::memcpy(to + static_cast<size_t>(i) * sizeof(T), from + static_cast<size_t>(i) * 2 * sizeof(T), sizeof(T));
  }
}

// Blocks of a group that are neighbours in a row.
struct Run {
  int row, column;  // of the first, in blocks
  int count;        // blocks

  int x() const { return column * kBlockStep; }
  int y() const { return row * kBlockStep; }
};

// The run of at most `count` blocks that begins at block `first` of the plane.
HWY_INLINE Run FindRun(const PlanePair& pair, int first, int count) {
  const int columns = pair.columns();
  const int row = first / columns, column = first - row * columns;
  return {row, column, std::min(count, columns - column)};
}

// That of at most `count` blocks that begins where `run` ends.
HWY_INLINE Run NextRun(const PlanePair& pair, const Run& run, int count) {
  const int columns = pair.columns();
  const int column = run.column + run.count;
  if (column < columns) return {run.row, column, std::min(count, columns - column)};
  return {run.row + 1, 0, std::min(count, columns)};
}

// Whether a run's samples are surely equal in both images.
template <typename T>
HWY_INLINE bool SamplesEqual(const PlanePair& pair, const Run& run) {
  const PlaneView& reference = pair.reference;
  const PlaneView& distorted = pair.distorted;
  if (reference.step != distorted.step || reference.shift != distorted.shift) return false;
  const size_t bytes = static_cast<size_t>(run.count * kBlockStep * reference.step + 1) * sizeof(T);
  for (int i = 0; i < kBlockSize; ++i) {
    if (std::memcmp(SampleAddress(reference, run.x(), run.y() + i, sizeof(T)),
                    SampleAddress(distorted, run.x(), run.y() + i, sizeof(T)), bytes) != 0) {
      return false;
    }
  }
  return true;
}

template <typename T>
HWY_INLINE bool GroupEqual(const PlanePair& pair, Run run, int count) {
  run.count = std::min(run.count, count);
  while (SamplesEqual<T>(pair, run)) {
    count -= run.count;
    if (count == 0) return true;
    run = NextRun(pair, run, count);
  }
  return false;
}

// Copies the samples of `count` blocks from the beginning of `run` on to where a part is rearranged from.
template <typename T>
HWY_INLINE void CopyBlocks(const PlanePair& pair, const PlaneView& view, Run run, int count, GroupScratch* scratch) {
  run.count = std::min(run.count, count);
  for (int copied = 0;;) {
    const uint8_t* from = SampleAddress(view, run.x(), run.y(), sizeof(T));
    for (int block = copied; block < copied + run.count; ++block) {
      for (int i = 0; i < kBlockSize; ++i) {
        CopyBlockRow<T>(from + i * view.stride_bytes, view.step,
                        scratch->copied[i] + static_cast<size_t>(block * kBlockSize) * sizeof(T));
      }
      from += static_cast<ptrdiff_t>(kBlockStep * view.step) * static_cast<ptrdiff_t>(sizeof(T));
    }
    copied += run.count;
    if (copied == count) return;
    run = NextRun(pair, run, count - copied);
  }
}

// Fills the scratch's samples with `count` blocks from the beginning of `run` on. In other lanes any samples may stand.
template <typename T>
HWY_INLINE void LoadGroup(const PlanePair& pair, Run run, int count, GroupScratch* scratch) {
  const PlaneView* views[2] = {&pair.reference, &pair.distorted};
  const int sample_mask = (1 << pair.depth) - 1;
  for (int lane = 0; lane < count; lane += kPartLanes) {
    // 16 bytes of 8-bit samples are two blocks and one sample more.
    const bool whole =
        run.count >= kPartLanes && run.x() + kPartLanes * kBlockStep + (sizeof(T) == 1 ? 2 : 1) <= pair.reference.width;
    for (int image = 0; image < 2; ++image) {
      const PlaneView& view = *views[image];
      uint16_t* out = scratch->samples + image * kLanes + lane;
      if (whole && view.step == 1) {
        for (int i = 0; i < kBlockSize; ++i) {
          Rearrange<T, kBlockStep>(SampleAddress(view, run.x(), run.y() + i, sizeof(T)), view.shift, sample_mask,
                                   out + i * kRowSamples);
        }
      } else {
        CopyBlocks<T>(pair, view, run, std::min(kPartLanes, count - lane), scratch);
        for (int i = 0; i < kBlockSize; ++i) {
          Rearrange<T, kBlockSize>(scratch->copied[i], view.shift, sample_mask, out + i * kRowSamples);
        }
      }
    }
    if (lane + kPartLanes < count) run = FindRun(pair, run.row * pair.columns() + run.column + kPartLanes, kLanes);
  }
}

// Asks for the next group's samples, row by row. Of a group that ends in another row than it begins, for those in the
// former: the latter's follow on those of the group at hand.
template <typename T>
struct NextGroup {
  const uint8_t* data[2];  // [image]
  ptrdiff_t stride_bytes[2];
  int step;

  HWY_INLINE NextGroup(const PlanePair& pair, const Run& run) : step(pair.reference.step) {
    const int columns = pair.columns();
    int row = run.row, column = run.column + kLanes;
    while (column + kLanes > columns && row + 1 < pair.rows()) {
      column = std::max(0, column - columns);
      ++row;
    }
    if (column >= columns) column = 0;  // nothing is next
    const PlaneView* views[2] = {&pair.reference, &pair.distorted};
    for (int image = 0; image < 2; ++image) {
      data[image] = SampleAddress(*views[image], column * kBlockStep, row * kBlockStep, sizeof(T));
      stride_bytes[image] = views[image]->stride_bytes;
    }
  }

  HWY_INLINE void PrefetchRow(int image, int row) const {
    constexpr int kBytes = kLanes * kBlockStep * static_cast<int>(sizeof(T));
    uintptr_t at = reinterpret_cast<uintptr_t>(data[image]) + static_cast<uintptr_t>(stride_bytes[image] * row);
    for (int part = 0; part < step; ++part) {
      for (int b = 0; b < kBytes; b += 64) hwy::Prefetch(reinterpret_cast<const uint8_t*>(at + b));
      at += kBytes;
      hwy::Prefetch(reinterpret_cast<const uint8_t*>(at));
    }
  }
};

// ---- Transform -------------------------------------------------------------------------------------

// The factors of the transform's rounding multiplications, in vectors.
class Factors {
 public:
  HWY_INLINE Factors() {
    const FactorVectors& vectors = *factor_vectors;
    for (int i = 0; i < kFactorCount; ++i) factors_[i] = hn::Load(I16(), vectors.factor[i]);
  }

  // Lift of block.h for a constant of `kShift` bits.
  template <int kConstant, int kShift>
  HWY_INLINE VI16 Lift(VI16 a) const {
    return hn::MulFixedPoint15(a, factors_[FactorIndex(kConstant << (15 - kShift))]);
  }

  // Half of block.h. The one multiplication is right from -16383 to 16385.
  template <bool kNotNegative, bool kLarge>
  HWY_INLINE VI16 Half(VI16 a) const {
    if (kNotNegative) return hn::ShiftRight<1>(a);
    if (kLarge) return hn::ShiftRight<1>(hn::Sub(a, hn::ShiftRight<15>(a)));
    return hn::MulFixedPoint15(a, factors_[FactorIndex(kHalfFactor)]);
  }

 private:
  VI16 factors_[kFactorCount];
};

// Transform8 of block.h. `kFirst`: on samples, which are not negative. `kWide`: deeper than 10 bits. The same steps,
// but the odd outputs' long chain comes as early as it can and the even outputs' short ones between its waits.
template <bool kFirst, bool kWide>
HWY_INLINE void TransformVectors(const Factors& f, const VI16 x[8], VI16 y[8]) {
  constexpr bool kLarge = kWide && !kFirst;
  VI16 t0 = x[0], t1 = x[7], t2 = x[2], t3 = x[5], t4 = x[1], t5 = x[6], t6 = x[3], t7 = x[4];
  t4 = hn::Add(t4, t5);
  const VI16 h4 = f.Half<kFirst, kLarge>(t4);
  t3 = hn::Sub(t2, t3);
  const VI16 h3 = f.Half<false, kLarge>(t3);
  t1 = hn::Sub(t0, t1);
  const VI16 h1 = f.Half<false, kLarge>(t1);
  t5 = hn::Sub(t5, h4);
  t6 = hn::Add(t6, t7);
  const VI16 h6 = f.Half<kFirst, kLarge>(t6);
  t3 = hn::Add(t3, f.Lift<19195, 15>(t5));
  t2 = hn::Sub(t2, h3);
  t0 = hn::Sub(t0, h1);
  t7 = hn::Sub(h6, t7);
  t2 = hn::Sub(h4, t2);
  t0 = hn::Add(t0, h6);
  t5 = hn::Add(t5, f.Lift<11585, 14>(t3));
  t4 = hn::Sub(t2, t4);
  t6 = hn::Sub(t0, t6);
  t0 = hn::Sub(t0, f.Lift<13573, 15>(t4));
  t6 = hn::Sub(t6, f.Lift<21895, 15>(t2));
  t3 = hn::Sub(t3, f.Lift<7489, 13>(t5));
  t7 = hn::Sub(f.Half<false, kLarge>(t5), t7);
  t4 = hn::Add(t4, f.Lift<11585, 14>(t0));
  t2 = hn::Add(t2, f.Lift<15137, 14>(t6));
  y[4] = t4;
  y[2] = t2;
  t3 = hn::Sub(h1, t3);
  t5 = hn::Sub(t5, t7);
  t1 = hn::Sub(t1, t3);
  t5 = hn::Add(t5, f.Lift<2485, 13>(t3));
  t7 = hn::Add(t7, f.Lift<3227, 15>(t1));
  y[0] = hn::Sub(t0, f.Lift<13573, 15>(t4));
  y[6] = hn::Sub(t6, f.Lift<21895, 15>(t2));
  t3 = hn::Sub(t3, f.Lift<18205, 15>(t5));
  t1 = hn::Sub(t1, f.Lift<6393, 15>(t7));
  y[3] = t3;
  y[1] = t1;
  y[5] = hn::Add(t5, f.Lift<2485, 13>(t3));
  y[7] = hn::Add(t7, f.Lift<3227, 15>(t1));
}

HWY_INLINE VI16 LoadSamples(const uint16_t* column) { return hn::BitCast(I16(), hn::Load(U16(), column)); }

// Adds `a`'s and `b`'s squares to the two halves' sums.
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

// The sums and, by halves, the sums of squares of an image's samples, [quadrant].
struct Quadrants {
  // Not left to the compiler: GCC compiles an implicit one for no target, and cannot inline it.
  HWY_INLINE Quadrants() {}  // NOLINT(modernize-use-equals-default)

  VU16 sum[4];
  VI32 squares[4][2];
};

// Transforms the columns of an image's samples and sums its quadrants: rows 0 to 3 are quadrants 0 and 2.
template <typename T, bool kWide>
HWY_NOINLINE void TransformColumns(const uint16_t* samples, int image, const NextGroup<T>& next, GroupScratch* scratch,
                                   Quadrants* quadrants) {
  const I16 d;
  const Factors factors;
  for (int right = 0; right < 2; ++right) {
    VI16 top = hn::Zero(d), low = hn::Zero(d);
    VI32 top_lower = hn::Zero(I32()), top_upper = hn::Zero(I32());
    VI32 low_lower = hn::Zero(I32()), low_upper = hn::Zero(I32());
    for (int c = 4 * right; c < 4 * right + 4; ++c) {
      next.PrefetchRow(image, c);
      VI16 x[8], y[8];
      for (int k = 0; k < 8; ++k) x[k] = LoadSamples(samples + k * kRowSamples + (2 * c + image) * kLanes);
      top = hn::Add(top, hn::Add(hn::Add(x[0], x[1]), hn::Add(x[2], x[3])));
      low = hn::Add(low, hn::Add(hn::Add(x[4], x[5]), hn::Add(x[6], x[7])));
      AddSquares(x[0], x[1], top_lower, top_upper);
      AddSquares(x[2], x[3], top_lower, top_upper);
      AddSquares(x[4], x[5], low_lower, low_upper);
      AddSquares(x[6], x[7], low_lower, low_upper);
      TransformVectors<true, kWide>(factors, x, y);
      for (int k = 0; k < 8; ++k) hn::Store(y[k], d, scratch->coefficients[image] + (8 * k + c) * kLanes);
    }
    quadrants->sum[2 * right] = hn::BitCast(U16(), top);
    quadrants->sum[2 * right + 1] = hn::BitCast(U16(), low);
    quadrants->squares[2 * right][0] = top_lower;
    quadrants->squares[2 * right][1] = top_upper;
    quadrants->squares[2 * right + 1][0] = low_lower;
    quadrants->squares[2 * right + 1][1] = low_upper;
  }
}

// Transforms the rows that TransformColumns left, in place: a group's memory should stay in the first level cache.
template <bool kWide>
HWY_NOINLINE void TransformRows(int16_t* coefficients) {
  const I16 d;
  const Factors factors;
  for (int k = 0; k < kBlockSize; ++k) {
    int16_t* row = coefficients + k * kBlockSize * kLanes;
    VI16 x[8], y[8];
    for (int n = 0; n < 8; ++n) x[n] = hn::Load(d, row + n * kLanes);
    TransformVectors<false, kWide>(factors, x, y);
    for (int n = 0; n < 8; ++n) hn::Store(y[n], d, row + n * kLanes);
  }
}

// Lanes in which a coefficient other than DC differs.
HWY_INLINE VI16 AcDifferences(const GroupScratch& scratch) {
  const I16 d;
  VI16 differences = hn::Zero(d);
  for (int k = 1; k < kBlockTerms; ++k) {
    differences = hn::Or(differences, hn::Xor(hn::Load(d, scratch.coefficients[0] + k * kLanes),
                                              hn::Load(d, scratch.coefficients[1] + k * kLanes)));
  }
  return differences;
}

HWY_INLINE bool NoneSet(VI16 v) { return hn::AllTrue(I16(), hn::Eq(v, hn::Zero(I16()))); }

HWY_INLINE bool AcEqual(const GroupScratch& scratch) {
  const I16 d;
  // Seldom more than the first is to be looked at.
  const VI16 first = hn::Load(d, scratch.coefficients[0] + kLanes);
  return NoneSet(hn::Xor(first, hn::Load(d, scratch.coefficients[1] + kLanes))) && NoneSet(AcDifferences(scratch));
}

// Two halves' masks as one vector of 16-bit lanes.
HWY_INLINE VI16 NarrowMasks(hn::Mask<F32> lower, hn::Mask<F32> upper) {
  const I32 d;
  return hn::ReorderDemote2To(I16(), hn::VecFromMask(d, hn::RebindMask(d, lower)),
                              hn::VecFromMask(d, hn::RebindMask(d, upper)));
}

// ---- Activity --------------------------------------------------------------------------------------

// A block's and its quadrants' variances, before they are scaled.
struct Variances {
  HWY_INLINE Variances() {}  // NOLINT(modernize-use-equals-default)

  VF32 block[2];        // [half]
  VF32 quadrant[4][2];  // [quadrant][half]
};

// BlockActivity of block.h.
HWY_INLINE VF32 ActivityOf(const Variances& variances, int half) {
  const F32 d;
  const VF32 total = hn::Mul(variances.block[half], hn::Set(d, kVarianceScale64));
  const VF32 scale = hn::Set(d, kVarianceScale16);
  VF32 sum = hn::Mul(variances.quadrant[0][half], scale);
  for (int q = 1; q < 4; ++q) sum = hn::Add(sum, hn::Mul(variances.quadrant[q][half], scale));
  return hn::IfThenElse(hn::Gt(total, hn::Zero(d)), hn::Div(sum, total), total);
}

template <int kHalf>
HWY_INLINE VI32 WideSum(VU16 sum) {
  return hn::BitCast(I32(), Interleave<kHalf>(U16(), sum, hn::Zero(U16())));
}

// Variances from sums. Their chains in block.h add multiples of 1/256 for a quadrant and of 1/4096 for a block, and are
// exact below kExactQuadrant and kExactBlock: these are then the same floats. Above, they differ from the chains by
// fewer than 100 roundings. A block's is not below its quadrants' sum: if it is exact, so are they.
constexpr float kExactQuadrant = 65536.0f;
constexpr float kExactBlock = 4096.0f;
constexpr float kLeastVariance = 0x1p-20f;  // of a block that is not constant, and less

template <int kHalf>
HWY_INLINE void VariancesOfSums(const Quadrants& quadrants, Variances* variances) {
  const F32 d;
  VI32 sum[4];
  VF32 within[4];  // the sum of squared deviations from the quadrant's mean, times 16: an integer below 2^31
  for (int q = 0; q < 4; ++q) {
    const VU16 s = quadrants.sum[q];
    const VU32 square = hn::BitCast(U32(), Interleave<kHalf>(U16(), hn::Mul(s, s), hn::MulHigh(s, s)));
    const VU32 squares = hn::BitCast(U32(), quadrants.squares[q][kHalf]);
    within[q] = hn::ConvertTo(d, hn::BitCast(I32(), hn::Sub(hn::ShiftLeft<4>(squares), square)));
    variances->quadrant[q][kHalf] = hn::Mul(within[q], hn::Set(d, 1.0f / 16));
    sum[q] = WideSum<kHalf>(s);
  }
  // And those of the quadrants' means from the block's: no difference of large numbers is taken.
  const VI32 left = hn::Add(sum[0], sum[1]), right = hn::Add(sum[2], sum[3]);
  const VI32 left_step = hn::Sub(sum[0], sum[1]), right_step = hn::Sub(sum[2], sum[3]);
  const VF32 across = hn::ConvertTo(d, hn::Sub(left, right));
  const VF32 down = hn::ConvertTo(d, hn::Add(left_step, right_step));
  const VF32 crossed = hn::ConvertTo(d, hn::Sub(left_step, right_step));
  const VF32 between = hn::Add(hn::Add(hn::Mul(across, across), hn::Mul(down, down)), hn::Mul(crossed, crossed));
  const VF32 all_within = hn::Add(hn::Add(within[0], within[1]), hn::Add(within[2], within[3]));
  variances->block[kHalf] =
      hn::Add(hn::Mul(all_within, hn::Set(d, 1.0f / 16)), hn::Mul(between, hn::Set(d, 1.0f / 64)));
}

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

// The variances by their chains, of the distorted image in the lanes that `distorted` marks and of the reference in the
// others. `kQuadrants`: the quadrants' as well.
template <bool kWide, bool kQuadrants>
HWY_NOINLINE void VariancesByChains(const uint16_t* samples, const Quadrants quadrants[2], hn::Mask<I16> distorted,
                                    Variances* variances) {
  const F32 d;
  VU16 sum[4];
  for (int q = 0; q < 4; ++q) {
    sum[q] = hn::IfThenElse(hn::RebindMask(U16(), distorted), quadrants[1].sum[q], quadrants[0].sum[q]);
  }
  VF32 lower_mean, upper_mean, lower_quadrant_mean[4], upper_quadrant_mean[4];
  Means<0, kWide>(sum, &lower_mean, lower_quadrant_mean);
  Means<1, kWide>(sum, &upper_mean, upper_quadrant_mean);
  VF32 lower = hn::Zero(d), upper = hn::Zero(d);
  for (int bottom = 0; bottom < 2; ++bottom) {
    VF32 lower_quadrant[2] = {hn::Zero(d), hn::Zero(d)};
    VF32 upper_quadrant[2] = {hn::Zero(d), hn::Zero(d)};
    for (int i = 4 * bottom; i < 4 * bottom + 4; ++i) {
      for (int right = 0; right < 2; ++right) {
        const int q = bottom + 2 * right;
        for (int j = 4 * right; j < 4 * right + 4; ++j) {
          const uint16_t* column = samples + i * kRowSamples + j * kColumnSamples;
          const VI16 values = hn::IfThenElse(distorted, LoadSamples(column + kLanes), LoadSamples(column));
          const VF32 lower_samples = SampleFloats<0, kWide>(values), upper_samples = SampleFloats<1, kWide>(values);
          AddDeviation(lower_samples, lower_mean, lower);
          AddDeviation(upper_samples, upper_mean, upper);
          if (kQuadrants) {
            AddDeviation(lower_samples, lower_quadrant_mean[q], lower_quadrant[right]);
            AddDeviation(upper_samples, upper_quadrant_mean[q], upper_quadrant[right]);
          }
        }
      }
    }
    if (kQuadrants) {
      for (int right = 0; right < 2; ++right) {
        variances->quadrant[bottom + 2 * right][0] = lower_quadrant[right];
        variances->quadrant[bottom + 2 * right][1] = upper_quadrant[right];
      }
    }
  }
  variances->block[0] = lower;
  variances->block[1] = upper;
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
HWY_NOINLINE void Energy(const GroupScratch& scratch, VF32 energy[2][2]) {
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

// Of each lane's image: the distorted where `distorted` says so, else the reference.
template <bool kWide>
HWY_INLINE void Strength(const uint16_t* samples, const Quadrants quadrants[2], const Variances from_sums[2],
                         const VF32 energy[2][2], hn::Mask<F32> lower_distorted, hn::Mask<F32> upper_distorted,
                         VF32 strength[2]) {
  const F32 d;
  const hn::Mask<F32> distorted[2] = {lower_distorted, upper_distorted};
  Variances variances;
  VF32 largest = hn::Zero(d), largest_quadrant = hn::Zero(d);
  for (int half = 0; half < 2; ++half) {
    variances.block[half] = hn::IfThenElse(distorted[half], from_sums[1].block[half], from_sums[0].block[half]);
    largest = hn::Max(largest, variances.block[half]);
    for (int q = 0; q < 4; ++q) {
      variances.quadrant[q][half] =
          hn::IfThenElse(distorted[half], from_sums[1].quadrant[q][half], from_sums[0].quadrant[q][half]);
      largest_quadrant = hn::Max(largest_quadrant, variances.quadrant[q][half]);
    }
  }
  if (!hn::AllTrue(d, hn::Lt(largest, hn::Set(d, kExactBlock)))) {
    const hn::Mask<I16> narrow = hn::MaskFromVec(NarrowMasks(lower_distorted, upper_distorted));
    if (hn::AllTrue(d, hn::Lt(largest_quadrant, hn::Set(d, kExactQuadrant)))) {
      VariancesByChains<kWide, false>(samples, quadrants, narrow, &variances);
    } else {
      VariancesByChains<kWide, true>(samples, quadrants, narrow, &variances);
    }
  }
  for (int half = 0; half < 2; ++half) {
    const VF32 e = hn::IfThenElse(distorted[half], energy[1][half], energy[0][half]);
    strength[half] = hn::Mul(e, ActivityOf(variances, half));
  }
}

// Strengths this much apart, relatively, are in the order in which sums put them: these are off by less than half of
// it.
constexpr float kStrengthDoubt = 0x1p-15f;

// Fills the scratch's thresholds: the larger image's of MaskingThreshold of block.h. Only that image's variances need
// chains, if any; which one it is, sums tell.
template <bool kWide>
HWY_INLINE void Thresholds(const uint16_t* samples, const Quadrants quadrants[2], const VF32 energy[2][2],
                           GroupScratch* scratch) {
  const F32 d;
  Variances from_sums[2];
  for (int image = 0; image < 2; ++image) {
    VariancesOfSums<0>(quadrants[image], &from_sums[image]);
    VariancesOfSums<1>(quadrants[image], &from_sums[image]);
  }
  hn::Mask<F32> distorted[2], doubtful[2];
  for (int half = 0; half < 2; ++half) {
    // Both strengths times both blocks' variances: nothing is divided. A constant block has no strength.
    VF32 scaled[2];
    for (int image = 0; image < 2; ++image) {
      const VF32* quadrant[4] = {from_sums[image].quadrant[0], from_sums[image].quadrant[1],
                                 from_sums[image].quadrant[2], from_sums[image].quadrant[3]};
      const VF32 sum =
          hn::Add(hn::Add(quadrant[0][half], quadrant[1][half]), hn::Add(quadrant[2][half], quadrant[3][half]));
      const VF32 other = hn::Max(from_sums[1 - image].block[half], hn::Set(d, kLeastVariance));
      scaled[image] = hn::Mul(hn::Mul(energy[image][half], sum), other);
    }
    distorted[half] = hn::Lt(scaled[0], scaled[1]);
    doubtful[half] = hn::Lt(hn::Abs(hn::Sub(scaled[0], scaled[1])),
                            hn::Mul(hn::Max(scaled[0], scaled[1]), hn::Set(d, kStrengthDoubt)));
  }
  VI16 doubt = NarrowMasks(doubtful[0], doubtful[1]);
  // Where coefficients are equal the threshold hides nothing, whatever it is.
  if (!NoneSet(doubt)) doubt = hn::And(doubt, AcDifferences(*scratch));
  VF32 strength[2];
  if (NoneSet(doubt)) {
    Strength<kWide>(samples, quadrants, from_sums, energy, distorted[0], distorted[1], strength);
  } else {
    VF32 other[2];
    const hn::Mask<F32> none = hn::Lt(hn::Zero(d), hn::Zero(d)), all = hn::Eq(hn::Zero(d), hn::Zero(d));
    Strength<kWide>(samples, quadrants, from_sums, energy, none, none, strength);
    Strength<kWide>(samples, quadrants, from_sums, energy, all, all, other);
    for (int half = 0; half < 2; ++half) strength[half] = hn::Max(strength[half], other[half]);
  }
  const VF32 scale = hn::Set(d, static_cast<float>(1 / kThresholdDivisor));
  for (int half = 0; half < 2; ++half) {
    hn::Store(hn::Mul(hn::Sqrt(strength[half]), scale), d, scratch->threshold + half * kFloatLanes);
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

// Whether a difference exceeds a bound, in signed lanes: a bound that does not fit is taken for a negative one.
template <bool kWide>
HWY_INLINE hn::Mask<I16> Exceeds(VU16 difference, VU16 bound) {
  if (kWide) difference = hn::Min(difference, hn::Set(U16(), 32767));
  return hn::Gt(hn::BitCast(I16(), difference), hn::BitCast(I16(), bound));
}

// Collects a bit for each coefficient, from the last to the first of every 16: whether it is set in any lane.
class LiveTerms {
 public:
  HWY_INLINE LiveTerms() {
    for (VU16& bits : bits_) bits = hn::Zero(U16());
  }

  // Coefficient 16 * i + bit.
  HWY_INLINE void Push(int i, [[maybe_unused]] int bit, hn::Mask<I16> live) {
#if HWY_MAX_BYTES == 64
    // A mask is no vector there, but a register of bits.
    any_ |= static_cast<uint64_t>(!hn::AllFalse(I16(), live)) << (16 * i + bit);
#else
    bits_[i] = hn::Sub(hn::Add(bits_[i], bits_[i]), hn::BitCast(U16(), hn::VecFromMask(I16(), live)));
#endif
  }

  HWY_INLINE uint64_t Any() const {
    const U16 d;
    const U32 d32;
    const hn::RepartitionToWide<U32> d64;
    VU32 pairs[2];
    for (int i = 0; i < 2; ++i) {
      pairs[i] = hn::BitCast(d32, hn::Or(hn::InterleaveLower(d, bits_[2 * i], bits_[2 * i + 1]),
                                         hn::InterleaveUpper(d, bits_[2 * i], bits_[2 * i + 1])));
    }
    alignas(64) uint64_t lanes[kLanes / 4];
    hn::Store(hn::BitCast(d64, hn::Or(hn::InterleaveLower(d32, pairs[0], pairs[1]),
                                      hn::InterleaveUpper(d32, pairs[0], pairs[1]))),
              d64, lanes);
    uint64_t any = any_;
    for (uint64_t lane : lanes) any |= lane;
    return any;
  }

 private:
  VU16 bits_[4];
  uint64_t any_ = 0;
};

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
  LiveTerms live;
  for (int bit = 15; bit >= 0; --bit) {
    for (int i = 0; i < 4; ++i) {
      const int k = 16 * i + bit;
      VU16 hidden = hn::MulHigh(threshold, hn::BitCast(d16, hn::Set(U32(), factors[k])));
      if (sizeof(T) > 1) hidden = hn::ShiftLeftSame(hidden, shift);
      live.Push(i, bit, Exceeds<kWide>(Difference<kWide>(*scratch, k), hidden));
    }
  }
  scratch->live_terms = live.Any() | 1;
}

template <typename T, bool kWide>
HWY_INLINE bool PrepareGroup(const PlanePair& pair, int group, GroupScratch* scratch) {
  const int first = group * kLanes;
  scratch->pair = &pair;
  scratch->blocks = std::min(kLanes, pair.blocks() - first);
  const Run run = FindRun(pair, first, kLanes);
  const NextGroup<T> next(pair, run);
  if (GroupEqual<T>(pair, run, scratch->blocks)) {
    for (int i = 0; i < kBlockSize; ++i) {
      next.PrefetchRow(0, i);
      next.PrefetchRow(1, i);
    }
    return false;
  }
  LoadGroup<T>(pair, run, scratch->blocks, scratch);
  Quadrants quadrants[2];
  for (int image = 0; image < 2; ++image) {
    TransformColumns<T, kWide>(scratch->samples, image, next, scratch, &quadrants[image]);
    TransformRows<kWide>(scratch->coefficients[image]);
  }
  scratch->live_terms = 1;
  if (AcEqual(*scratch)) return true;
  VF32 energy[2][2];  // [image][half]
  Energy<T>(*scratch, energy);
  Thresholds<kWide>(scratch->samples, quadrants, energy, scratch);
  FindLiveTerms<T, kWide>(scratch);
  return true;
}

bool Prepare(const PlanePair& pair, int group, GroupScratch* scratch) {
  if (pair.depth == 8) return PrepareGroup<uint8_t, false>(pair, group, scratch);
  if (pair.depth <= 10) return PrepareGroup<uint16_t, false>(pair, group, scratch);
  return PrepareGroup<uint16_t, true>(pair, group, scratch);
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

uint32_t AddGroup(const GroupKernel& kernel, const PlanePair& pair, int group, GroupScratch* scratch, uint32_t bits) {
  if (!kernel.prepare(pair, group, scratch)) return bits;
  return AddRun(bits, GroupRun(kernel, scratch));
}

float PlaneSumSimd(const PlaneView& reference, const PlaneView& distorted, int depth, int plane,
                   const GroupKernel& kernel) {
  PlanePair pair;
  pair.reference = reference;
  pair.distorted = distorted;
  pair.depth = depth;
  pair.plane = plane;
  const auto scratch = std::make_unique<GroupScratch>();
  uint32_t bits = 0;
  for (int group = 0; group < kernel.groups(pair); ++group) bits = AddGroup(kernel, pair, group, scratch.get(), bits);
  return BitsFloat(bits);
}

}  // namespace psnrhvs
#endif  // HWY_ONCE
