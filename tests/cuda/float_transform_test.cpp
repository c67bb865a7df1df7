// The float transform of 8-bit blocks: proven free of ties, and compared with the integer one.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cuda/float_transform.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "cpu/block.h"

namespace psnrhvs {
namespace {

template <int k>
void TransformRows(const float* columns, float* coefficients) {
  TransformCoefficients<kCoefficientBias[k]>(columns + 8 * k, 1, coefficients + 8 * k, 1);
  if constexpr (k < 7) TransformRows<k + 1>(columns, coefficients);
}

void ExpectSameCoefficients(const int32_t pixels[kBlockTerms]) {
  int32_t expected[kBlockTerms];
  TransformBlock(pixels, expected);
  float columns[kBlockTerms];
  float coefficients[kBlockTerms];
  for (int i = 0; i < kBlockTerms; ++i) columns[i] = static_cast<float>(kPixelBias + pixels[i]);
  for (int c = 0; c < 8; ++c) TransformPixels(columns + c, 8, columns + c, 8);
  TransformRows<0>(columns, coefficients);
  for (int i = 0; i < kBlockTerms; ++i) {
    ASSERT_EQ(coefficients[i] - static_cast<float>(kCoefficientBias[i % 8]), static_cast<float>(expected[i])) << i;
  }
}

TEST(FloatTransform, EqualsTheIntegerTransformOnRandomBlocks) {
  std::mt19937 random(1);
  int32_t pixels[kBlockTerms];
  for (int n = 0; n < 100000; ++n) {
    const int32_t low = static_cast<int32_t>(random() % 256);
    const int32_t span = 1 + static_cast<int32_t>(random() % (256 - low));
    for (int32_t& pixel : pixels) pixel = low + static_cast<int32_t>(random() % span);
    ASSERT_NO_FATAL_FAILURE(ExpectSameCoefficients(pixels));
  }
}

TEST(FloatTransform, EqualsTheIntegerTransformOnBlackAndWhiteBlocks) {
  std::mt19937_64 random(2);
  int32_t pixels[kBlockTerms];
  for (int n = 0; n < 100000; ++n) {
    const uint64_t bits = random();
    const int32_t near = n % 3;
    for (int i = 0; i < kBlockTerms; ++i) {
      pixels[i] = (bits >> i & 1) ? 255 - static_cast<int32_t>(random() % (near + 1)) : static_cast<int32_t>(near);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSameCoefficients(pixels));
  }
}

// The extreme block of each of the transform's outputs: every pixel at the end that its gain's sign asks for.
TEST(FloatTransform, EqualsTheIntegerTransformOnTheExtremesOfEveryCoefficient) {
  const double pi = std::acos(-1.0);
  for (int v = 0; v < 8; ++v) {
    for (int h = 0; h < 8; ++h) {
      for (int flip = 0; flip < 2; ++flip) {
        int32_t pixels[kBlockTerms];
        for (int i = 0; i < 8; ++i) {
          for (int j = 0; j < 8; ++j) {
            const double gain = std::cos(pi * (2 * i + 1) * v / 16) * std::cos(pi * (2 * j + 1) * h / 16);
            pixels[8 * i + j] = (gain > 0) != (flip == 1) ? 255 : 0;
          }
        }
        ASSERT_NO_FATAL_FAILURE(ExpectSameCoefficients(pixels));
      }
    }
  }
}

// A linear function of the 64 pixels plus an error of at most `slack`: bounds a value over all inputs.
struct Affine {
  std::array<double, kBlockTerms> gain{};
  double slack = 0;

  double Magnitude(double max_pixel) const {
    double high = 0, low = 0;
    for (double g : gain) (g > 0 ? high : low) += g * max_pixel;
    return std::max(high, -low) + slack;
  }
};

Affine Combine(const Affine& a, double scale_a, const Affine& b, double scale_b, double slack) {
  Affine sum;
  for (int i = 0; i < kBlockTerms; ++i) sum.gain[i] = scale_a * a.gain[i] + scale_b * b.gain[i];
  sum.slack = std::abs(scale_a) * a.slack + std::abs(scale_b) * b.slack + slack;
  return sum;
}
Affine operator+(const Affine& a, const Affine& b) { return Combine(a, 1, b, 1, 0); }
Affine operator-(const Affine& a, const Affine& b) { return Combine(a, 1, b, -1, 0); }
Affine HalfOf(const Affine& a) { return Combine(a, 0.5, a, 0, 0.5); }

// Checks each lifting source against the smallest magnitude at which it could be halfway.
struct TieBound {
  double max_pixel;
  bool safe = true;
  double largest = 0;

  Affine Lift(const Affine& t, const Affine& x, int c, int k) {
    EXPECT_EQ(std::abs(c) % 2, 1);  // else a tie needs less
    const double magnitude = x.Magnitude(max_pixel);
    largest = std::max(largest, magnitude / (1 << (k - 1)));
    safe = safe && magnitude < (1 << (k - 1));
    return Combine(t, 1, x, static_cast<double>(c) / (1 << k), 0.5);
  }

  void Transform(const Affine* x, int x_step, Affine* y, int y_step) {
    Affine t0 = x[0], t4 = x[x_step], t2 = x[2 * x_step], t6 = x[3 * x_step];
    Affine t7 = x[4 * x_step], t3 = x[5 * x_step], t5 = x[6 * x_step], t1 = x[7 * x_step];
    t1 = t0 - t1;
    const Affine h1 = HalfOf(t1);
    t0 = t0 - h1;
    t4 = t4 + t5;
    const Affine h4 = HalfOf(t4);
    t5 = t5 - h4;
    t3 = t2 - t3;
    t2 = t2 - HalfOf(t3);
    t6 = t6 + t7;
    const Affine h6 = HalfOf(t6);
    t7 = h6 - t7;
    t0 = t0 + h6;
    t6 = t0 - t6;
    t2 = h4 - t2;
    t4 = t2 - t4;
    t0 = Lift(t0, t4, -13573, 15);
    t4 = Lift(t4, t0, 11585, 14);
    t0 = Lift(t0, t4, -13573, 15);
    t6 = Lift(t6, t2, -21895, 15);
    t2 = Lift(t2, t6, 15137, 14);
    t6 = Lift(t6, t2, -21895, 15);
    t3 = Lift(t3, t5, 19195, 15);
    t5 = Lift(t5, t3, 11585, 14);
    t3 = Lift(t3, t5, -7489, 13);
    t7 = HalfOf(t5) - t7;
    t5 = t5 - t7;
    t3 = h1 - t3;
    t1 = t1 - t3;
    t7 = Lift(t7, t1, 3227, 15);
    t1 = Lift(t1, t7, -6393, 15);
    t7 = Lift(t7, t1, 3227, 15);
    t5 = Lift(t5, t3, 2485, 13);
    t3 = Lift(t3, t5, -18205, 15);
    t5 = Lift(t5, t3, 2485, 13);
    const Affine out[8] = {t0, t1, t2, t3, t4, t5, t6, t7};
    for (int k = 0; k < 8; ++k) y[k * y_step] = out[k];
  }

  void Block() {
    std::array<Affine, kBlockTerms> pixels, columns, coefficients;
    for (int i = 0; i < kBlockTerms; ++i) pixels[i].gain[i] = 1;
    for (int c = 0; c < 8; ++c) Transform(&pixels[c], 8, &columns[c], 8);
    for (int k = 0; k < 8; ++k) Transform(&columns[8 * k], 1, &coefficients[8 * k], 1);
    for (const Affine& value : columns) widest = std::max(widest, value.Magnitude(max_pixel));
    for (const Affine& value : coefficients) widest = std::max(widest, value.Magnitude(max_pixel));
  }
  double widest = 0;
};

TEST(FloatTransform, NoEightBitInputReachesATie) {
  TieBound bound{255};
  bound.Block();
  EXPECT_TRUE(bound.safe) << bound.largest;
  EXPECT_LT(bound.widest, Biased<0>::kMaxInteger / 4);
}

TEST(FloatTransform, TheBoundWouldNoticeATie) {
  TieBound bound{4095};
  bound.Block();
  EXPECT_FALSE(bound.safe);
}

}  // namespace
}  // namespace psnrhvs
