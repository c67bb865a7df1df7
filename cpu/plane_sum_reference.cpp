// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/block.h"
#include "cpu/metric.h"
#include "cpu/plane_sum.h"

namespace psnrhvs {
namespace {

template <typename T>
void LoadBlock(const PlaneView& plane, int x, int y, int sample_mask, int32_t samples[kBlockTerms]) {
  for (int i = 0; i < kBlockSize; ++i) {
    const uint8_t* row = plane.Row(y + i);
    for (int j = 0; j < kBlockSize; ++j) {
      samples[8 * i + j] =
          (LoadSample<T>(row, static_cast<ptrdiff_t>(x + j) * plane.step) >> plane.shift) & sample_mask;
    }
  }
}

template <typename T>
float Sum(const PlaneView& reference, const PlaneView& distorted, int depth, int plane) {
  const int sample_mask = (1 << depth) - 1;
  int32_t reference_samples[kBlockTerms];
  int32_t distorted_samples[kBlockTerms];
  float terms[kBlockTerms];
  float sum = 0.0f;
  for (int y = 0; y < reference.height - 7; y += kBlockStep) {
    for (int x = 0; x < reference.width - 7; x += kBlockStep) {
      LoadBlock<T>(reference, x, y, sample_mask, reference_samples);
      LoadBlock<T>(distorted, x, y, sample_mask, distorted_samples);
      BlockTerms(reference_samples, distorted_samples, kCsf[plane], kMask.weight[plane], terms);
      for (int k = 0; k < kBlockTerms; ++k) sum += terms[k];
    }
  }
  return sum;
}

}  // namespace

float PlaneSumReference(const PlaneView& reference, const PlaneView& distorted, int depth, int plane) {
  return depth > 8 ? Sum<uint16_t>(reference, distorted, depth, plane)
                   : Sum<uint8_t>(reference, distorted, depth, plane);
}

}  // namespace psnrhvs
