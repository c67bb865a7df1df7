// The reports of the first three frames of a natural clip, whose plane sums are known, and variations.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <array>
#include <vector>

#include "cpu/frame.h"
#include "cpu/score.h"
#include "gst/psnrhvs/publish.h"

namespace psnrhvs::testing {

constexpr guint64 kFrameNs = 40000000;  // 25 frames a second

// From sums that the tables hold for 640x360 4:2:0 8 bit; all 0: identical frames.
inline FrameScore ScoreOfSums(const std::array<float, kMaxPlanes>& sums) {
  return ScoreFrame(*FrameGeometry::Create(640, 360, Chroma::k420, 8), sums);
}

inline FrameScore LumaScoreOfSum(float sum) {
  return ScoreFrame(*FrameGeometry::Create(640, 360, Chroma::k400, 8), {sum, 0, 0});
}

inline FrameTiming TimingOf(guint64 index) {
  return FrameTiming{index, index * kFrameNs, index * kFrameNs, index * kFrameNs, kFrameNs};
}

inline FrameReport ReportOf(guint64 index, const FrameScore& score) {
  FrameReport report;
  report.reference = TimingOf(index);
  report.dist_running_time = index * kFrameNs;
  report.score = score;
  return report;
}

// Sums of clips/av-metrics/yuv420p8, Y, Cb, Cr.
constexpr std::array<std::array<float, kMaxPlanes>, 3> kExampleSums = {{
    {0x1.52df6p+22f, 0x1.758106p+19f, 0x1.832cc2p+18f},
    {0x1.b9b5ecp+22f, 0x1.767d18p+19f, 0x1.8a13ccp+18f},
    {0x1.0740dap+23f, 0x1.9600bp+19f, 0x1.a946b6p+18f},
}};

inline std::vector<FrameReport> ExampleReports() {
  std::vector<FrameReport> reports;
  for (const auto& sums : kExampleSums) reports.push_back(ReportOf(reports.size(), ScoreOfSums(sums)));
  return reports;
}

inline Summary SummaryOf(const std::vector<FrameReport>& reports) {
  Pooling pooling;
  for (const FrameReport& report : reports) pooling.Add(report.reference.index, report.score);
  return Summarize(pooling, 0, 0, 0, "cpu");
}

}  // namespace psnrhvs::testing
