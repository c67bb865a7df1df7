// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/score.h"

#include <cmath>
#include <limits>

#include "cpu/metric.h"

namespace psnrhvs {
namespace {

double Decibels(double error) { return 10 * (-1 * std::log10(error)); }

// Mean of a plane's terms relative to the largest sample's square. The count is rounded to float
// before it divides, which matters above 2^24 terms.
float PlaneError(float sum, int width, int height, int depth) {
  const int terms = BlockCount(width) * BlockCount(height) * kBlockTerms;
  const int max_sample = (1 << depth) - 1;
  const float mean = sum / static_cast<float>(terms);
  return mean / static_cast<float>(max_sample * max_sample);
}

}  // namespace

FrameScore ScoreFrame(const FrameGeometry& geometry, const std::array<float, kMaxPlanes>& sums) {
  FrameScore score;
  score.scored_planes = geometry.scored_planes();
  for (int plane = 0; plane < score.scored_planes; ++plane) {
    score.plane_error[plane] =
        PlaneError(sums[plane], geometry.plane_width(plane), geometry.plane_height(plane), geometry.depth());
    score.plane_score_db[plane] = Decibels(score.plane_error[plane]);
  }
  if (score.scored_planes == kMaxPlanes) {
    const double chroma = static_cast<double>(score.plane_error[1]) + static_cast<double>(score.plane_error[2]);
    score.combined_error = score.plane_error[0] * kLumaWeight + kChromaWeight * chroma;
    score.combined_score_db = Decibels(score.combined_error);
  }
  return score;
}

void Pooling::Add(uint64_t index, const FrameScore& score) {
  ++frames_;
  for (ScoreKind kind : kAllScoreKinds) {
    if (!score.has(kind)) continue;
    Accumulator& pool = accumulators_[static_cast<int>(kind)];
    const double db = score.score_db(kind);
    const bool first_finite = pool.count == pool.infinite;
    ++pool.count;
    pool.error_sum += score.error(kind);
    if (std::isinf(db)) {
      ++pool.infinite;
      continue;
    }
    if (first_finite || db < pool.min) {
      pool.min = db;
      pool.min_index = index;
    }
    if (first_finite || db > pool.max) pool.max = db;
    pool.sum += db;
    pool.reciprocal_sum += 1 / (db + 1);
  }
}

std::optional<PooledScore> Pooling::Pooled(ScoreKind kind) const {
  const Accumulator& pool = accumulators_[static_cast<int>(kind)];
  if (pool.count == 0) return std::nullopt;
  PooledScore pooled;
  pooled.infinite = pool.infinite;
  pooled.from_mean_error = Decibels(pool.error_sum / static_cast<double>(pool.count));
  if (pool.count == pool.infinite) {
    pooled.min = pooled.max = pooled.mean = std::numeric_limits<double>::infinity();
    pooled.harmonic_mean = pooled.mean;
    return pooled;
  }
  const double finite = static_cast<double>(pool.count - pool.infinite);
  pooled.min = pool.min;
  pooled.min_index = pool.min_index;
  pooled.max = pool.max;
  pooled.mean = pool.sum / finite;
  const double harmonic_mean = finite / pool.reciprocal_sum - 1;
  if (std::isfinite(harmonic_mean)) pooled.harmonic_mean = harmonic_mean;
  return pooled;
}

}  // namespace psnrhvs
