// The metric's arithmetic on one pair of 8x8 blocks, in plain scalar code: the definition that
// every faster version is held to with ==. Compiles for the host and for CUDA devices.
//
// Every float operation rounds to nearest even, in the order written; the build forbids the
// compiler to contract or reorder (see the top-level meson.build).
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/host_device.h"
#include "cpu/metric.h"

namespace psnrhvs {

// v / 2, towards zero.
PSNRHVS_HOST_DEVICE inline int32_t Half(int32_t v) { return v / 2; }

// v * c / 2^shift, rounded half up. `shift` is 13 to 15.
PSNRHVS_HOST_DEVICE inline int32_t Lift(int32_t v, int32_t c, int shift) {
  return (v * c + (1 << (shift - 1))) >> shift;
}

// 8-point integer transform of x[0], x[x_step], ...; writes y[0], y[y_step], ....
PSNRHVS_HOST_DEVICE inline void Transform8(const int32_t* x, int x_step, int32_t* y, int y_step) {
  int32_t t0 = x[0], t4 = x[x_step], t2 = x[2 * x_step], t6 = x[3 * x_step];
  int32_t t7 = x[4 * x_step], t3 = x[5 * x_step], t5 = x[6 * x_step], t1 = x[7 * x_step];
  // Butterflies.
  t1 = t0 - t1;
  const int32_t h1 = Half(t1);
  t0 -= h1;
  t4 += t5;
  const int32_t h4 = Half(t4);
  t5 -= h4;
  t3 = t2 - t3;
  t2 -= Half(t3);
  t6 += t7;
  const int32_t h6 = Half(t6);
  t7 = h6 - t7;
  // 4-point DCT-II.
  t0 += h6;
  t6 = t0 - t6;
  t2 = h4 - t2;
  t4 = t2 - t4;
  // 2-point DCT-II.
  t0 -= Lift(t4, 13573, 15);
  t4 += Lift(t0, 11585, 14);
  t0 -= Lift(t4, 13573, 15);
  // 2-point DST-IV.
  t6 -= Lift(t2, 21895, 15);
  t2 += Lift(t6, 15137, 14);
  t6 -= Lift(t2, 21895, 15);
  // 4-point DST-IV.
  t3 += Lift(t5, 19195, 15);
  t5 += Lift(t3, 11585, 14);
  t3 -= Lift(t5, 7489, 13);
  t7 = Half(t5) - t7;
  t5 -= t7;
  t3 = h1 - t3;
  t1 -= t3;
  t7 += Lift(t1, 3227, 15);
  t1 -= Lift(t7, 6393, 15);
  t7 += Lift(t1, 3227, 15);
  t5 += Lift(t3, 2485, 13);
  t3 -= Lift(t5, 18205, 15);
  t5 += Lift(t3, 2485, 13);
  y[0] = t0;
  y[y_step] = t1;
  y[2 * y_step] = t2;
  y[3 * y_step] = t3;
  y[4 * y_step] = t4;
  y[5 * y_step] = t5;
  y[6 * y_step] = t6;
  y[7 * y_step] = t7;
}

// Coefficients [8 * vertical + horizontal frequency] of samples [8 * row + column].
PSNRHVS_HOST_DEVICE inline void TransformBlock(const int32_t samples[kBlockTerms], int32_t coefficients[kBlockTerms]) {
  int32_t columns[kBlockTerms];
  for (int c = 0; c < kBlockSize; ++c) Transform8(samples + c, kBlockSize, columns + c, kBlockSize);
  for (int k = 0; k < kBlockSize; ++k) Transform8(columns + 8 * k, 1, coefficients + 8 * k, 1);
}

// Sum of the four quadrants' variances over the block's variance: small in flat or uniformly
// textured blocks. 0 if the block is constant.
PSNRHVS_HOST_DEVICE inline float BlockActivity(const int32_t samples[kBlockTerms]) {
  int32_t quadrant_sum[4] = {0, 0, 0, 0};
  for (int i = 0; i < kBlockSize; ++i) {
    for (int j = 0; j < kBlockSize; ++j) quadrant_sum[(i >> 2) + 2 * (j >> 2)] += samples[8 * i + j];
  }
  const float mean = static_cast<float>(quadrant_sum[0] + quadrant_sum[1] + quadrant_sum[2] + quadrant_sum[3]) / 64.0f;
  float quadrant_mean[4];
  for (int q = 0; q < 4; ++q) quadrant_mean[q] = static_cast<float>(quadrant_sum[q]) / 16.0f;

  float variance = 0.0f;
  float quadrant_variance[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int i = 0; i < kBlockSize; ++i) {
    for (int j = 0; j < kBlockSize; ++j) {
      const int q = (i >> 2) + 2 * (j >> 2);
      const float sample = static_cast<float>(samples[8 * i + j]);
      const float deviation = sample - mean;
      variance += deviation * deviation;
      const float quadrant_deviation = sample - quadrant_mean[q];
      quadrant_variance[q] += quadrant_deviation * quadrant_deviation;
    }
  }
  variance *= kVarianceScale64;
  for (int q = 0; q < 4; ++q) quadrant_variance[q] *= kVarianceScale16;
  if (variance > 0.0f) {
    variance = (quadrant_variance[0] + quadrant_variance[1] + quadrant_variance[2] + quadrant_variance[3]) / variance;
  }
  return variance;
}

// Weighted energy of all coefficients but DC. `mask` is a row of kMask.weight.
PSNRHVS_HOST_DEVICE inline float MaskingEnergy(const int32_t coefficients[kBlockTerms], const float* mask) {
  float energy = 0.0f;
  for (int k = 1; k < kBlockTerms; ++k) {
    energy += static_cast<float>(coefficients[k] * coefficients[k]) * mask[k];
  }
  return energy;
}

// Error that one image's texture hides, before division by a coefficient's mask weight.
PSNRHVS_HOST_DEVICE inline float MaskingThreshold(float energy, float activity) {
  return static_cast<float>(sqrt(static_cast<double>(energy * activity)) / kThresholdDivisor);
}

// Term `k` of a block whose coefficients there differ by `difference`. `csf` and `mask` are the tables'
// entries `k`.
PSNRHVS_HOST_DEVICE inline float CoefficientTerm(int k, int32_t difference, float threshold, float csf, float mask) {
  float error = static_cast<float>(difference < 0 ? -difference : difference);
  if (k > 0) {
    const float hidden = threshold / mask;
    error = error < hidden ? 0.0f : error - hidden;
  }
  const float weighted = error * csf;
  return weighted * weighted;
}

// The 64 terms of one block pair, in the order in which they enter the plane's sum. `csf` and
// `mask` are rows of kCsf and kMask.weight.
PSNRHVS_HOST_DEVICE inline void BlockTerms(const int32_t reference[kBlockTerms], const int32_t distorted[kBlockTerms],
                                           const float* csf, const float* mask, float terms[kBlockTerms]) {
  int32_t reference_coefficients[kBlockTerms];
  int32_t distorted_coefficients[kBlockTerms];
  TransformBlock(reference, reference_coefficients);
  TransformBlock(distorted, distorted_coefficients);
  const float reference_threshold =
      MaskingThreshold(MaskingEnergy(reference_coefficients, mask), BlockActivity(reference));
  const float distorted_threshold =
      MaskingThreshold(MaskingEnergy(distorted_coefficients, mask), BlockActivity(distorted));
  const float threshold = distorted_threshold > reference_threshold ? distorted_threshold : reference_threshold;
  for (int k = 0; k < kBlockTerms; ++k) {
    terms[k] = CoefficientTerm(k, reference_coefficients[k] - distorted_coefficients[k], threshold, csf[k], mask[k]);
  }
}

}  // namespace psnrhvs
