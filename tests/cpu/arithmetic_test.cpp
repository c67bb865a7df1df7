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

// A quadrant's variance is a chain of 16 squared deviations. Each of them is a multiple of 1/256, so every partial sum
// below 2^16 is a float, and the chain is exact up to there.
TEST(Arithmetic, AQuadrantsVarianceIsExactBelowTwoToTheSixteenAtEightBits) {
  for (int sample = 0; sample < 256; ++sample) {
    for (int sum = 0; sum <= 16 * 255; ++sum) {
      const double deviation = sample - sum / 16.0;
      const float square = static_cast<float>(deviation) * static_cast<float>(deviation);
      ASSERT_EQ(static_cast<double>(square), deviation * deviation);
      ASSERT_EQ(deviation * deviation * 256, std::floor(deviation * deviation * 256));
    }
  }
  std::mt19937 random(5);
  int exact = 0;
  for (int run = 0; run < 1000000; ++run) {
    int samples[16], sum = 0, squares = 0;
    const uint32_t spread = 1 + random() % 255;
    for (int& sample : samples) {
      sample = random() % 4 ? static_cast<int>(random() % (spread + 1)) : (random() % 2 ? static_cast<int>(spread) : 0);
      sum += sample;
      squares += sample * sample;
    }
    const float mean = static_cast<float>(sum) / 16.0f;
    float chain = 0.0f;
    for (int sample : samples) {
      const float deviation = static_cast<float>(sample) - mean;
      chain += deviation * deviation;
    }
    const float s = static_cast<float>(sum);
    const float from_sums = static_cast<float>(squares) - s * s * (1.0f / 16);
    ASSERT_EQ(from_sums < 65536.0f, chain < 65536.0f);
    if (from_sums < 65536.0f) {
      ++exact;
      ASSERT_EQ(from_sums, chain);
    }
  }
  EXPECT_GT(exact, 100000);
  EXPECT_LT(exact, 1000000);
}

}  // namespace
}  // namespace psnrhvs::testing
