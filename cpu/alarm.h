// Watching scores while they arrive: the mean over the last frames, and an alarm when it stays low.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>

#include "cpu/score.h"

namespace psnrhvs {

struct AlarmSettings {
  double below_db = -std::numeric_limits<double>::infinity();  // raised below this; -infinity = off
  double hysteresis_db = 0;                                    // recovered only at or above below_db + hysteresis_db
  uint64_t duration_ns = 0;                                    // how long the mean must have been below
  unsigned window_frames = 1;                                  // of the mean

  bool watching() const { return below_db > -std::numeric_limits<double>::infinity(); }
};

// The score that is watched: the combined one, or luma where there is no other.
double WatchedScore(const FrameScore& score);

// One watched stream of scores.
class Alarm {
 public:
  struct Change {
    bool raised = false;      // else recovered
    double value_db = 0;      // the window's mean
    double threshold_db = 0;  // what it fell below or came back to
    uint64_t since_ns = 0;    // running time of the first frame below, or of the frame that recovered
  };

  // Takes the next frame's score at its running time; says what changed with it. Settings may differ
  // from call to call.
  std::optional<Change> Add(const AlarmSettings& settings, uint64_t running_time_ns, double score_db);

  // Mean of the last scores, in dB; +infinity if one of them is.
  double window_mean_db() const { return mean_db_; }

 private:
  std::deque<double> window_;
  double mean_db_ = 0;
  std::optional<uint64_t> below_since_ns_;
  bool raised_ = false;
};

}  // namespace psnrhvs
