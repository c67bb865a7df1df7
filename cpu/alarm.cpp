// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/alarm.h"

#include <algorithm>

namespace psnrhvs {

double WatchedScore(const FrameScore& score) {
  return score.score_db(score.has(ScoreKind::kCombined) ? ScoreKind::kCombined : ScoreKind::kY);
}

std::optional<Alarm::Change> Alarm::Add(const AlarmSettings& settings, uint64_t running_time_ns, double score_db) {
  window_.push_back(score_db);
  while (window_.size() > std::max(settings.window_frames, 1u)) window_.pop_front();
  double sum = 0;
  for (double score : window_) sum += score;
  mean_db_ = sum / static_cast<double>(window_.size());

  if (raised_) {
    const double threshold = settings.below_db + settings.hysteresis_db;
    if (mean_db_ < threshold) return std::nullopt;
    raised_ = false;
    below_since_ns_.reset();
    return Change{false, mean_db_, threshold, running_time_ns};
  }
  if (mean_db_ >= settings.below_db) {
    below_since_ns_.reset();
    return std::nullopt;
  }
  if (!below_since_ns_) below_since_ns_ = running_time_ns;
  // After a jump back of the time the duration starts anew.
  below_since_ns_ = std::min(*below_since_ns_, running_time_ns);
  if (running_time_ns - *below_since_ns_ < settings.duration_ns) return std::nullopt;
  raised_ = true;
  return Change{true, mean_db_, settings.below_db, *below_since_ns_};
}

}  // namespace psnrhvs
