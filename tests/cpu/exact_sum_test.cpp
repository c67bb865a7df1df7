// The order-preserving sum against the plain chain, bit for bit, over streams of terms made to be awkward.
// 200 million comparisons of a term's addition as it stands, ten times as many with PSNRHVS_LONG_TESTS=1.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/support/frames.h"

namespace psnrhvs::testing {
namespace {

constexpr int kBlock = 64;

// Blocks of `block_terms` terms of a stream.
class TermRun {
 public:
  TermRun(const float* terms, int blocks, int block_terms)
      : terms_(terms), blocks_(blocks), block_terms_(block_terms), maps_(blocks) {}

  int blocks() const { return blocks_; }

  SumMap Map(uint32_t exponent, int first) {
    SumMap all;
    for (int block = first; block < blocks_; ++block) {
      maps_[block] = MapTerms(exponent, terms_ + static_cast<size_t>(block) * block_terms_, block_terms_);
      all = Compose(all, maps_[block]);
    }
    return all;
  }

  SumMap BlockMap(int block) const { return maps_[block]; }

  float AddBlock(float sum, int block) {
    ++serial_blocks_;
    return AddSerially(sum, terms_ + static_cast<size_t>(block) * block_terms_, block_terms_);
  }

  int serial_blocks() const { return serial_blocks_; }

 private:
  const float* terms_;
  const int blocks_;
  const int block_terms_;
  std::vector<SumMap> maps_;
  int serial_blocks_ = 0;
};

// Sums `terms` from `start` in runs of `run_blocks` blocks. The rest of an incomplete block is added serially.
uint32_t SumExactly(uint32_t start, const std::vector<float>& terms, int run_blocks, int block_terms = kBlock) {
  uint32_t bits = start;
  size_t at = 0;
  while (terms.size() - at >= static_cast<size_t>(block_terms)) {
    const int blocks = static_cast<int>(
        std::min<size_t>(static_cast<size_t>(run_blocks), (terms.size() - at) / static_cast<size_t>(block_terms)));
    bits = AddRun(bits, TermRun(terms.data() + at, blocks, block_terms));
    at += static_cast<size_t>(blocks) * block_terms;
  }
  return FloatBits(AddSerially(BitsFloat(bits), terms.data() + at, static_cast<int>(terms.size() - at)));
}

void ExpectSame(const std::string& name, const std::vector<float>& terms, uint32_t start = 0) {
  const uint32_t expected = FloatBits(AddSerially(BitsFloat(start), terms.data(), static_cast<int>(terms.size())));
  for (int run_blocks : {1, 8, 32, 1000}) {
    ASSERT_EQ(SumExactly(start, terms, run_blocks), expected) << name << ", runs of " << run_blocks << " blocks";
  }
}

int StreamTerms() { return std::getenv("PSNRHVS_LONG_TESTS") ? 32 << 20 : 3 << 20; }

using Engine32 = std::mt19937;

float Uniform(Engine32& random) { return static_cast<float>(random() >> 8) * (1.0f / (1 << 24)); }

struct Stream {
  const char* name;
  float (*next)(Engine32& random, int index, float sum);
};

// `sum` is the plain chain's value before the term.
const Stream kStreams[] = {
    {"uniform", [](Engine32& random, int, float) { return Uniform(random); }},
    {"log-uniform", [](Engine32& random, int,
                       float) { return std::ldexp(1.0f + Uniform(random), static_cast<int>(random() % 60) - 30); }},
    {"four of five zero", [](Engine32& random, int, float) { return random() % 5 ? 0.0f : 100 * Uniform(random); }},
    {"all zero", [](Engine32&, int, float) { return 0.0f; }},
    {"halves after 2^23", [](Engine32& random, int index,
                             float) { return index == 0 ? 8388608.0f : 0.5f * static_cast<float>(random() % 4); }},
    {"equal ones", [](Engine32&, int, float) { return 1.0f; }},
    {"equal one and a half", [](Engine32&, int, float) { return 1.5f; }},
    {"equal threes", [](Engine32&, int, float) { return 3.0f; }},
    {"equal tenths", [](Engine32&, int, float) { return 0.1f; }},
    {"powers of two",
     [](Engine32& random, int, float) { return std::ldexp(1.0f, static_cast<int>(random() % 48) - 24); }},
    {"any finite pattern",
     [](Engine32& random, int index, float) {
       // Small exponents first, so that the sum passes through all binades before it is infinite.
       const uint32_t limit = std::min<uint32_t>(254, 1 + static_cast<uint32_t>(index) / 512);
       return BitsFloat((random() % limit) << 23 | (random() & 0x7fffff));
     }},
    {"subnormals", [](Engine32& random, int, float) { return BitsFloat(random() & 0x7fffff); }},
    {"huge after tiny",
     [](Engine32& random, int index, float) { return index % 997 == 996 ? 1e6f * Uniform(random) : 1e-3f; }},
    {"a tie at every term",
     [](Engine32& random, int, float sum) {
       // Odd multiples of half an ulp of the sum.
       const uint32_t bits = FloatBits(sum);
       if (bits < 0x0c800000) return 1.0f;
       return static_cast<float>(2 * (random() % 3) + 1) * BitsFloat(((bits >> 23) - 24) << 23);
     }},
    {"ties now and then",
     [](Engine32& random, int, float sum) {
       const uint32_t bits = FloatBits(sum);
       if (bits < 0x0c800000 || random() % 50) return Uniform(random);
       return BitsFloat(((bits >> 23) - 24) << 23);
     }},
    {"growth that crosses a binade every few terms",
     [](Engine32& random, int index, float sum) {
       if (index % 4096 == 0 || sum > 1e30f) return 0.25f;
       return sum * (index % 64 == 0 ? 1.0f : 0.001f * Uniform(random));
     }},
    {"ramp", [](Engine32&, int index, float) { return static_cast<float>(index); }},
};

TEST(ExactSum, EqualsThePlainChainOnEveryKindOfStream) {
  for (const Stream& stream : kStreams) {
    Engine32 random(12345);
    std::vector<float> terms(StreamTerms());
    float sum = 0.0f;
    for (size_t i = 0; i < terms.size(); ++i) {
      terms[i] = stream.next(random, static_cast<int>(i), sum);
      sum += terms[i];
    }
    ExpectSame(stream.name, terms);
  }
}

TEST(ExactSum, EqualsThePlainChainWhenABinadeIsLeftAtAnyTermOfABlock) {
  Engine32 random(7);
  for (uint32_t exponent : {1u, 100u, 127u, 150u, 253u}) {
    for (int crossing = 0; crossing < 3 * kBlock; ++crossing) {
      for (int variant = 0; variant < 8; ++variant) {
        // Just below the next power of two; every term before the crossing is less than half an ulp.
        const uint32_t start = ((exponent + 1) << 23) - 1 - static_cast<uint32_t>(variant % 4);
        const float ulp = exponent > 24 ? BitsFloat((exponent - 23) << 23) : BitsFloat(1u << (exponent - 1));
        std::vector<float> terms(4 * kBlock, variant & 1 ? 0.0f : ulp * 0.25f);
        terms[crossing] = ulp * static_cast<float>(variant + 1) * 0.5f;
        for (size_t i = crossing + 1; i < terms.size(); ++i) terms[i] = ulp * 4 * Uniform(random);
        ExpectSame("exponent " + std::to_string(exponent) + " crossing " + std::to_string(crossing), terms, start);
      }
    }
  }
}

TEST(ExactSum, EqualsThePlainChainWithATieAtAnyTermAndEitherParity) {
  for (int tie = 0; tie < kBlock; ++tie) {
    for (uint32_t parity = 0; parity < 2; ++parity) {
      for (float other : {0.0f, 1.0f, 2.0f, 3.0f, 0.75f}) {
        std::vector<float> terms(2 * kBlock, other);
        terms[tie] = 0.5f;
        terms[kBlock + tie] = 1.5f;
        ExpectSame("tie at " + std::to_string(tie), terms, FloatBits(8388608.0f + static_cast<float>(parity)));
      }
    }
  }
}

TEST(ExactSum, EqualsThePlainChainOnShortRandomRunsFromRandomSums) {
  Engine32 random(99);
  const int runs = std::getenv("PSNRHVS_LONG_TESTS") ? 4000000 : 200000;
  for (int run = 0; run < runs; ++run) {
    const uint32_t start = (random() % 254) << 23 | (random() & 0x7fffff);
    const uint32_t exponent = ExponentField(start);
    std::vector<float> terms(24);
    for (float& term : terms) {
      // Within reach of the sum, with few significant bits: ties and exact edges are frequent.
      const uint32_t below = random() % 28;
      const uint32_t significand = random() & (random() % 2 ? 0x7fffff : 0x600000);
      term = exponent > below ? BitsFloat((exponent - below) << 23 | significand) : BitsFloat(significand);
    }
    const uint32_t expected = FloatBits(AddSerially(BitsFloat(start), terms.data(), 24));
    ASSERT_EQ(SumExactly(start, terms, 3, 8), expected) << "run " << run;
  }
}

TEST(ExactSum, ReachesInfinityAndStaysThere) {
  std::vector<float> terms(10 * kBlock, std::numeric_limits<float>::max() / 100);
  ExpectSame("overflow", terms);
  terms[5] = std::numeric_limits<float>::infinity();
  ExpectSame("infinite term", terms);
}

TEST(ExactSum, AddsAtMostOneBlockABinadeSerially) {
  Engine32 random(3);
  std::vector<float> terms(10000 * kBlock);
  for (float& term : terms) term = Uniform(random);
  TermRun run(terms.data(), 10000, kBlock);
  const uint32_t bits = AddRun(0, run);
  EXPECT_EQ(bits, FloatBits(AddSerially(0.0f, terms.data(), static_cast<int>(terms.size()))));
  // From the first block, which starts at 0, to the final binade.
  EXPECT_LE(run.serial_blocks(), static_cast<int>(ExponentField(bits)) - 127);
}

TEST(SumMap, CompositionIsAssociativeAndEqualsTheMapOfTheWholeRun) {
  Engine32 random(11);
  for (int run = 0; run < 20000; ++run) {
    const uint32_t exponent = 100 + random() % 50;
    float terms[24];
    for (float& term : terms) term = BitsFloat((exponent - 12 - random() % 16) << 23 | (random() & 0x700000));
    const SumMap a = MapTerms(exponent, terms, 8);
    const SumMap b = MapTerms(exponent, terms + 8, 8);
    const SumMap c = MapTerms(exponent, terms + 16, 8);
    const SumMap whole = MapTerms(exponent, terms, 24);
    const SumMap left = Compose(Compose(a, b), c);
    const SumMap right = Compose(a, Compose(b, c));
    ASSERT_EQ(left.even, whole.even);
    ASSERT_EQ(left.odd, whole.odd);
    ASSERT_EQ(right.even, whole.even);
    ASSERT_EQ(right.odd, whole.odd);
  }
}

}  // namespace
}  // namespace psnrhvs::testing
