// Every number of the metric, once, with its source. Usable from device code.
//
// The metric: N. Ponomarenko et al., "On between-coefficient contrast masking of DCT basis
// functions", VPQM 2007; K. Egiazarian et al., "New full-reference quality metrics based on HVS",
// VPQM 2006; tables and transform as published by Xiph.Org in the Daala tools, which libvmaf
// carries. docs/metric.md states the computation completely.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cstdint>

namespace psnrhvs {

constexpr int kBlockSize = 8;                         // samples a side
constexpr int kBlockStep = 7;                         // samples from a block to the next: neighbours share one
constexpr int kBlockTerms = kBlockSize * kBlockSize;  // terms a block, row-major, row = vertical frequency

// Contrast sensitivity, indexed [plane Y/Cb/Cr][8 * vertical + horizontal frequency]. The same chroma
// tables serve every subsampling.
// clang-format off
constexpr float kCsf[3][kBlockTerms] = {
    {  // Y
        1.6193873005f, 2.2901594831f, 2.08509755623f, 1.48366094411f, 1.00227514334f, 0.678296995242f, 0.466224900598f, 0.3265091542f,
        2.2901594831f, 1.94321815382f, 2.04793073064f, 1.68731108984f, 1.2305666963f, 0.868920337363f, 0.61280991668f, 0.436405793551f,
        2.08509755623f, 2.04793073064f, 1.34329019223f, 1.09205635862f, 0.875748795257f, 0.670882927016f, 0.501731932449f, 0.372504254596f,
        1.48366094411f, 1.68731108984f, 1.09205635862f, 0.772819797575f, 0.605636379554f, 0.48309405692f, 0.380429446972f, 0.295774038565f,
        1.00227514334f, 1.2305666963f, 0.875748795257f, 0.605636379554f, 0.448996256676f, 0.352889268808f, 0.283006984131f, 0.226951348204f,
        0.678296995242f, 0.868920337363f, 0.670882927016f, 0.48309405692f, 0.352889268808f, 0.27032073436f, 0.215017739696f, 0.17408067321f,
        0.466224900598f, 0.61280991668f, 0.501731932449f, 0.380429446972f, 0.283006984131f, 0.215017739696f, 0.168869545842f, 0.136153931001f,
        0.3265091542f, 0.436405793551f, 0.372504254596f, 0.295774038565f, 0.226951348204f, 0.17408067321f, 0.136153931001f, 0.109083846276f,
    },
    {  // Cb
        1.91113096927f, 2.46074210438f, 1.18284184739f, 1.14982565193f, 1.05017074788f, 0.898018824055f, 0.74725392039f, 0.615105596242f,
        2.46074210438f, 1.58529308355f, 1.21363250036f, 1.38190029285f, 1.33100189972f, 1.17428548929f, 0.996404342439f, 0.830890433625f,
        1.18284184739f, 1.21363250036f, 0.978712413627f, 1.02624506078f, 1.03145147362f, 0.960060382087f, 0.849823426169f, 0.731221236837f,
        1.14982565193f, 1.38190029285f, 1.02624506078f, 0.861317501629f, 0.801821139099f, 0.751437590932f, 0.685398513368f, 0.608694761374f,
        1.05017074788f, 1.33100189972f, 1.03145147362f, 0.801821139099f, 0.676555426187f, 0.605503172737f, 0.55002013668f, 0.495804539034f,
        0.898018824055f, 1.17428548929f, 0.960060382087f, 0.751437590932f, 0.605503172737f, 0.514674450957f, 0.454353482512f, 0.407050308965f,
        0.74725392039f, 0.996404342439f, 0.849823426169f, 0.685398513368f, 0.55002013668f, 0.454353482512f, 0.389234902883f, 0.342353999733f,
        0.615105596242f, 0.830890433625f, 0.731221236837f, 0.608694761374f, 0.495804539034f, 0.407050308965f, 0.342353999733f, 0.295530605237f,
    },
    {  // Cr
        2.03871978502f, 2.62502345193f, 1.26180942886f, 1.11019789803f, 1.01397751469f, 0.867069376285f, 0.721500455585f, 0.593906509971f,
        2.62502345193f, 1.69112867013f, 1.17180569821f, 1.3342742857f, 1.28513006198f, 1.13381474809f, 0.962064122248f, 0.802254508198f,
        1.26180942886f, 1.17180569821f, 0.944981930573f, 0.990876405848f, 0.995903384143f, 0.926972725286f, 0.820534991409f, 0.706020324706f,
        1.11019789803f, 1.3342742857f, 0.990876405848f, 0.831632933426f, 0.77418706195f, 0.725539939514f, 0.661776842059f, 0.587716619023f,
        1.01397751469f, 1.28513006198f, 0.995903384143f, 0.77418706195f, 0.653238524286f, 0.584635025748f, 0.531064164893f, 0.478717061273f,
        0.867069376285f, 1.13381474809f, 0.926972725286f, 0.725539939514f, 0.584635025748f, 0.496936637883f, 0.438694579826f, 0.393021669543f,
        0.721500455585f, 0.962064122248f, 0.820534991409f, 0.661776842059f, 0.531064164893f, 0.438694579826f, 0.375820256136f, 0.330555063063f,
        0.593906509971f, 0.802254508198f, 0.706020324706f, 0.587716619023f, 0.478717061273f, 0.393021669543f, 0.330555063063f, 0.285345396658f,
    },
};
// clang-format on

constexpr double kMaskScale = 0.3885746225901003;  // of the masking table against the sensitivity

// The masking weight of a coefficient: formed in double, rounded to float once.
constexpr float MaskWeight(float csf) { return static_cast<float>((csf * kMaskScale) * (csf * kMaskScale)); }

struct MaskTables {
  float weight[3][kBlockTerms];
};

constexpr MaskTables MakeMaskTables() {
  MaskTables tables{};
  for (int plane = 0; plane < 3; ++plane) {
    for (int k = 0; k < kBlockTerms; ++k) tables.weight[plane][k] = MaskWeight(kCsf[plane][k]);
  }
  return tables;
}

constexpr MaskTables kMask = MakeMaskTables();

// 1 / kMask.weight as a sum of two floats: with a fused multiply-add, fma(t, high, fl(t * low)) is the
// correctly rounded t / weight. tests/cpu/arithmetic_test.cpp checks it for every significand of t.
struct InverseMaskTables {
  float high[3][kBlockTerms];
  float low[3][kBlockTerms];
};

constexpr InverseMaskTables MakeInverseMaskTables() {
  InverseMaskTables tables{};
  for (int plane = 0; plane < 3; ++plane) {
    for (int k = 0; k < kBlockTerms; ++k) {
      const double inverse = 1.0 / static_cast<double>(kMask.weight[plane][k]);
      tables.high[plane][k] = static_cast<float>(inverse);
      tables.low[plane][k] = static_cast<float>(inverse - static_cast<double>(tables.high[plane][k]));
    }
  }
  return tables;
}

constexpr InverseMaskTables kInverseMask = MakeInverseMaskTables();

// Scales of the variances: n/(n-1), each step rounded to float.
constexpr float kVarianceScale64 = (1.0f / 63.0f) * 64.0f;
constexpr float kVarianceScale16 = (1.0f / 15.0f) * 16.0f;

// 2^kHidingBits / kMask.weight, rounded down: what bounds a hidden error from below in 16-bit integers.
constexpr int kHidingBits = 6;
constexpr uint16_t HidingFactor(int plane, int k) {
  return static_cast<uint16_t>((1 << kHidingBits) / static_cast<double>(kMask.weight[plane][k]));
}

constexpr double kThresholdDivisor = 32.0;

// Weights of the planes in the combined score.
constexpr double kLumaWeight = 0.8;
constexpr double kChromaWeight = 0.1;

// Blocks along a dimension of `samples` samples.
constexpr int BlockCount(int samples) { return samples < kBlockSize ? 0 : (samples - kBlockSize) / kBlockStep + 1; }

}  // namespace psnrhvs
