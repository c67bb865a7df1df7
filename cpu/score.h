// From plane sums to scores, and from frames' scores to pooled ones. The only logarithms.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "cpu/frame.h"

namespace psnrhvs {

// The scores of a frame, in the order in which files write them. The first three are planes.
enum class ScoreKind { kY, kCb, kCr, kCombined };
constexpr int kScoreKinds = 4;
constexpr std::array<ScoreKind, kScoreKinds> kAllScoreKinds = {ScoreKind::kY, ScoreKind::kCb, ScoreKind::kCr,
                                                               ScoreKind::kCombined};

// One frame. Errors are linear, scores in dB; an error of 0 is a score of +infinity.
struct FrameScore {
  int scored_planes = 0;                            // 3, or 1 where only luma was scored
  std::array<float, kMaxPlanes> plane_error{};      // `v`: mean weighted squared error over M^2
  std::array<double, kMaxPlanes> plane_score_db{};  // 10 * (-1 * log10(v))
  double combined_error = 0;                        // valid if scored_planes == 3
  double combined_score_db = 0;                     // valid if scored_planes == 3

  bool has(ScoreKind kind) const { return kind == ScoreKind::kY || scored_planes == kMaxPlanes; }
  double error(ScoreKind kind) const {
    return kind == ScoreKind::kCombined ? combined_error : plane_error[static_cast<int>(kind)];
  }
  double score_db(ScoreKind kind) const {
    return kind == ScoreKind::kCombined ? combined_score_db : plane_score_db[static_cast<int>(kind)];
  }
};

// Scores of a frame whose planes' terms add up to `sums` (see plane_sum.h).
FrameScore ScoreFrame(const FrameGeometry& geometry, const std::array<float, kMaxPlanes>& sums);

// One score pooled over frames, as docs/usage.md defines it. dB, but for the counts.
struct PooledScore {
  double min = 0;
  double max = 0;
  double mean = 0;
  std::optional<double> harmonic_mean;  // absent if not finite although frames are
  double from_mean_error = 0;           // dB of the mean linear error
  uint64_t infinite = 0;                // frames whose score is +infinity
  std::optional<uint64_t> min_index;    // first frame with the lowest score; absent if all are infinite
};

// Pools scores as frames arrive, in that order, in constant memory.
class Pooling {
 public:
  void Add(uint64_t index, const FrameScore& score);

  uint64_t frames() const { return frames_; }
  // nullopt if no frame had this score.
  std::optional<PooledScore> Pooled(ScoreKind kind) const;

 private:
  struct Accumulator {
    uint64_t count = 0;     // frames with this score
    uint64_t infinite = 0;  // of those
    uint64_t min_index = 0;
    double min = 0;
    double max = 0;
    double sum = 0;
    double reciprocal_sum = 0;
    double error_sum = 0;
  };

  uint64_t frames_ = 0;
  std::array<Accumulator, kScoreKinds> accumulators_;
};

}  // namespace psnrhvs
