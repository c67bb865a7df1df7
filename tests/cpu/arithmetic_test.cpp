// Proofs of the shortcuts that faster versions of the metric take, over every value they can meet.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/block.h"
#include "cpu/exact_sum.h"
#include "cpu/metric.h"

namespace psnrhvs::testing {
namespace {

struct Divisor {
  float weight, high, low;
  bool operator<(const Divisor& other) const { return weight < other.weight; }
};

std::vector<Divisor> DistinctDivisors() {
  std::set<Divisor> divisors;
  for (int plane = 0; plane < 3; ++plane) {
    for (int k = 0; k < kBlockTerms; ++k) {
      divisors.insert({kMask.weight[plane][k], kInverseMask.high[plane][k], kInverseMask.low[plane][k]});
    }
  }
  return {divisors.begin(), divisors.end()};
}

// Significands for which fma(t, high, t * low) is not t / weight.
#if defined(__x86_64__)
__attribute__((target("avx2,fma")))
#endif
int CountWrongQuotients(const Divisor& divisor) {
  int wrong = 0;
  for (uint32_t significand = 0; significand < (1u << 23); ++significand) {
    const float t = BitsFloat((127u << 23) | significand);
    wrong += __builtin_fmaf(t, divisor.high, t * divisor.low) != t / divisor.weight;
  }
  return wrong;
}

// The exponent does not matter: thresholds lie far from the ends of the float range.
TEST(Arithmetic, TwoFusedMultipliesDivideEverySignificandByEveryMaskWeight) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) GTEST_SKIP() << "no fused multiply-add";
#endif
  const std::vector<Divisor> divisors = DistinctDivisors();
  EXPECT_EQ(divisors.size(), 108u);
  std::vector<int> wrong(divisors.size());
  const size_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> pool;
  for (size_t first = 0; first < threads; ++first) {
    pool.emplace_back([&, first] {
      for (size_t i = first; i < divisors.size(); i += threads) wrong[i] = CountWrongQuotients(divisors[i]);
    });
  }
  for (std::thread& thread : pool) thread.join();
  for (size_t i = 0; i < divisors.size(); ++i) EXPECT_EQ(wrong[i], 0) << "weight " << divisors[i].weight;
}

// What a rounding 16-bit multiplication (pmulhrsw) gives.
int RoundingMultiply(int a, int b) { return (a * b + (1 << 14)) >> 15; }

TEST(Arithmetic, EveryLiftIsOneRoundingSixteenBitMultiplication) {
  const std::pair<int, int> lifts[] = {{13573, 15}, {11585, 14}, {21895, 15}, {15137, 14}, {19195, 15},
                                       {7489, 13},  {3227, 15},  {6393, 15},  {2485, 13},  {18205, 15}};
  for (const auto& [constant, shift] : lifts) {
    const int scaled = constant << (15 - shift);
    ASSERT_LT(scaled, 32768);
    for (int v = -32768; v <= 32767; ++v) ASSERT_EQ(RoundingMultiply(v, scaled), Lift(v, constant, shift));
  }
}

TEST(Arithmetic, HalvingTowardsZeroIsOneMultiplicationInRange) {
  for (int v = -16383; v <= 16385; ++v) ASSERT_EQ(RoundingMultiply(v, 16383), Half(v));
  for (int v = -32768; v <= 32767; ++v) ASSERT_EQ((v - (v >> 15)) >> 1, Half(v));
}

TEST(Arithmetic, AFloatRootEqualsTheDoubleRootRounded) {
  // Every significand of two neighbouring exponents: the root's rounding repeats every two.
  for (uint32_t bits = 127u << 23; bits < 129u << 23; bits += 1) {
    const float v = BitsFloat(bits);
    ASSERT_EQ(std::sqrt(v) * (1.0f / 32), static_cast<float>(std::sqrt(static_cast<double>(v)) / kThresholdDivisor));
  }
}

TEST(Arithmetic, SquaredCoefficientsRoundOnceEitherWay) {
  for (int c = -32768; c <= 32767; ++c) {
    const float f = static_cast<float>(c);
    ASSERT_EQ(f * f, static_cast<float>(c * c));
    // Scaled by 2^16, with the weight scaled by 2^-32.
    const float scaled = f * 65536;
    const float weight = kMask.weight[0][1];
    ASSERT_EQ(scaled * scaled * (weight / 65536 / 65536), f * f * weight);
  }
}

TEST(Arithmetic, SamplesAndMeansWithACommonOffsetDifferExactly) {
  // Up to 10 bits: value * 64 in the low half of the pattern of 2^17 + value.
  for (int sample = 0; sample < 1024; ++sample) {
    const float offset_sample = BitsFloat(0x48000000u | static_cast<uint32_t>(sample << 6));
    ASSERT_EQ(offset_sample, 131072.0f + static_cast<float>(sample));
    for (int sum = 0; sum <= 64 * 1023; sum += 7) {
      const float offset_mean = BitsFloat(0x48000000u | static_cast<uint32_t>(sum));
      ASSERT_EQ(offset_sample - offset_mean, static_cast<float>(sample) - static_cast<float>(sum) / 64.0f);
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma")))
#endif
float WeighOffsetSquare(float offset_square, float weight) {
  return __builtin_fmaf(offset_square, weight * 0x1p118f, -(weight * 0x1p23f));
}

TEST(Arithmetic, OneFusedMultiplyWeighsASquareThatIsAddedToAPattern) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) GTEST_SKIP() << "no fused multiply-add";
#endif
  // All coefficients whose square is below 2^23, which is more than twice what 8-bit samples reach.
  for (const Divisor& divisor : DistinctDivisors()) {
    for (int c = -2896; c <= 2896; ++c) {
      const float offset_square = BitsFloat(static_cast<uint32_t>((1 << 28) + c * c));
      const float f = static_cast<float>(c);
      ASSERT_EQ(WeighOffsetSquare(offset_square, divisor.weight), f * f * divisor.weight) << c;
    }
  }
}

// The bound on a hidden error: 16-bit multiplication's high half, at a depth of 8 + shift bits.
TEST(Arithmetic, TheSixteenBitBoundOnAHiddenErrorIsNeverAboveIt) {
  std::mt19937 random(17);
  for (int plane = 0; plane < 3; ++plane) {
    for (int k = 1; k < kBlockTerms; ++k) {
      const float weight = kMask.weight[plane][k];
      const uint32_t factor = HidingFactor(plane, k);
      // Both sides are exact in double.
      ASSERT_LE(static_cast<double>(factor) * static_cast<double>(weight), static_cast<double>(1 << kHidingBits));
      for (int shift = 0; shift <= 4; ++shift) {
        for (int run = 0; run < 2000; ++run) {
          const float threshold =
              std::ldexp(1.0f + static_cast<float>(random() % 65536) / 65536.0f, static_cast<int>(random() % 24) - 12);
          const float scale = static_cast<float>(1 << (16 - kHidingBits)) / static_cast<float>(1 << shift);
          const uint32_t rounded = static_cast<uint32_t>(std::min(threshold * scale, 32767.0f));
          const uint32_t bound = ((rounded * factor) >> 16 << shift) & 0xffff;
          ASSERT_LE(static_cast<float>(bound), threshold / weight);
        }
      }
    }
  }
}

// A block's variances before they are scaled, [4] being the whole block's.
struct Variances {
  float value[5];
};

// By the chains of block.h.
Variances VariancesByChains(const int samples[kBlockTerms]) {
  int sum[5] = {};
  for (int k = 0; k < kBlockTerms; ++k) {
    sum[(k >> 5) + 2 * (k >> 2 & 1)] += samples[k];
    sum[4] += samples[k];
  }
  Variances variances{};
  for (int k = 0; k < kBlockTerms; ++k) {
    const int q = (k >> 5) + 2 * (k >> 2 & 1);
    const float quadrant_deviation = static_cast<float>(samples[k]) - static_cast<float>(sum[q]) / 16.0f;
    variances.value[q] += quadrant_deviation * quadrant_deviation;
    const float deviation = static_cast<float>(samples[k]) - static_cast<float>(sum[4]) / 64.0f;
    variances.value[4] += deviation * deviation;
  }
  return variances;
}

// As plane_sum_simd.cpp has them from sums and sums of squares.
Variances VariancesOfSums(const int samples[kBlockTerms]) {
  uint32_t sum[4] = {}, squares[4] = {};
  for (int k = 0; k < kBlockTerms; ++k) {
    const int q = (k >> 5) + 2 * (k >> 2 & 1);
    sum[q] += static_cast<uint32_t>(samples[k]);
    squares[q] += static_cast<uint32_t>(samples[k] * samples[k]);
  }
  Variances variances{};
  float within[4];
  for (int q = 0; q < 4; ++q) {
    within[q] = static_cast<float>(static_cast<int32_t>(16 * squares[q] - sum[q] * sum[q]));
    variances.value[q] = within[q] * (1.0f / 16);
  }
  const int32_t left = static_cast<int32_t>(sum[0] - sum[1]), right = static_cast<int32_t>(sum[2] - sum[3]);
  const float across = static_cast<float>(static_cast<int32_t>(sum[0] + sum[1] - sum[2] - sum[3]));
  const float down = static_cast<float>(left + right);
  const float crossed = static_cast<float>(left - right);
  const float all_within = within[0] + within[1] + (within[2] + within[3]);
  variances.value[4] = all_within * (1.0f / 16) + (across * across + down * down + crossed * crossed) * (1.0f / 64);
  return variances;
}

// Blocks of all amplitudes: smooth, noisy and of two values.
void MakeBlock(std::mt19937* random, int depth, int samples[kBlockTerms]) {
  const int max = (1 << depth) - 1;
  const int full_spread = 1 + static_cast<int>((*random)() % static_cast<uint32_t>(max));
  const int spread = full_spread >> ((*random)() % static_cast<uint32_t>(depth));
  const int base = static_cast<int>((*random)() % static_cast<uint32_t>(max - spread + 1));
  const uint32_t kind = (*random)() % 3;
  for (int k = 0; k < kBlockTerms; ++k) {
    const int noise = static_cast<int>((*random)() % static_cast<uint32_t>(spread + 1));
    samples[k] = base + (kind == 0 ? noise : kind == 1 ? (noise % 2) * spread : spread * (k / 8 + k % 8) / 14);
  }
}

TEST(Arithmetic, VariancesOfSumsAreTheChainsWhereTheseAreExactAndNearThemElsewhere) {
  std::mt19937 random(5);
  for (int depth : {8, 10, 12}) {
    int exact = 0;
    for (int run = 0; run < 400000; ++run) {
      int samples[kBlockTerms];
      MakeBlock(&random, depth, samples);
      const Variances chains = VariancesByChains(samples);
      const Variances sums = VariancesOfSums(samples);
      for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(sums.value[i] == 0.0f, chains.value[i] == 0.0f);
        const float limit = i < 4 ? 65536.0f : 4096.0f;
        if (sums.value[i] < limit) {
          ASSERT_EQ(sums.value[i], chains.value[i]) << depth << " bits, " << i;
          exact += i == 4;
        }
        // A product of an energy, quadrants and a block is compared with a doubt of 2^-15.
        ASSERT_LE(std::abs(sums.value[i] - chains.value[i]), std::ldexp(chains.value[i], -18))
            << depth << " bits, " << i;
      }
      if (sums.value[4] < 4096.0f) {
        for (int q = 0; q < 4; ++q) ASSERT_LE(sums.value[q], sums.value[4]);
      }
    }
    EXPECT_GT(exact, 10000);
    EXPECT_LT(exact, 400000);
  }
}

// Extremes of 12 bits: what has to fit 32 bits does.
TEST(Arithmetic, VariancesOfSumsHoldAtFullSwing) {
  for (int pattern = 0; pattern < 256; ++pattern) {
    int samples[kBlockTerms];
    for (int k = 0; k < kBlockTerms; ++k) samples[k] = (pattern >> (k % 8) & 1) * 4095;
    const Variances chains = VariancesByChains(samples);
    const Variances sums = VariancesOfSums(samples);
    for (int i = 0; i < 5; ++i) {
      ASSERT_LE(std::abs(sums.value[i] - chains.value[i]), std::ldexp(chains.value[i], -18)) << pattern << ", " << i;
    }
  }
}

}  // namespace
}  // namespace psnrhvs::testing
