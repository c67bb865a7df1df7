// Pooling: the formulas, and what infinite and missing scores do to them.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace psnrhvs::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sums of three natural frames of 640x360 4:2:0 8 bit, Y, Cb, Cr; all 0: no difference.
constexpr std::array<std::array<float, kMaxPlanes>, 3> kSums = {{
    {0x1.52df6p+22f, 0x1.758106p+19f, 0x1.832cc2p+18f},
    {0x1.b9b5ecp+22f, 0x1.767d18p+19f, 0x1.8a13ccp+18f},
    {0x1.0740dap+23f, 0x1.9600bp+19f, 0x1.a946b6p+18f},
}};

FrameScore Score(const std::array<float, kMaxPlanes>& sums, Chroma chroma = Chroma::k420) {
  return ScoreFrame(*FrameGeometry::Create(640, 360, chroma, 8), sums);
}

// A score in dB whose linear error is 1 wherever it is finite.
FrameScore LumaScore(double score_db) {
  FrameScore score;
  score.scored_planes = 1;
  score.plane_error[0] = std::isinf(score_db) ? 0 : 1;
  score.plane_score_db[0] = score_db;
  return score;
}

PooledScore PoolLuma(const std::vector<double>& scores_db) {
  Pooling pooling;
  for (size_t i = 0; i < scores_db.size(); ++i) pooling.Add(i, LumaScore(scores_db[i]));
  return *pooling.Pooled(ScoreKind::kY);
}

TEST(Pooling, PoolsLikeLibvmafAndByMeanError) {
  Pooling pooling;
  for (size_t i = 0; i < kSums.size(); ++i) pooling.Add(i, Score(kSums[i]));
  EXPECT_EQ(pooling.frames(), 3u);
  const struct {
    ScoreKind kind;
    double min, max, mean, harmonic_mean, from_mean_error;
  } expected[] = {
      {ScoreKind::kY, 33.500481170834597, 35.414155608095378, 34.392592636835104, 34.37520041433806,
       34.322677855534934},
      {ScoreKind::kCb, 37.505539807275959, 37.867876514737993, 37.743286286417309, 37.74255402371471,
       37.740001038884344},
      {ScoreKind::kCr, 40.314418206455287, 40.72205776103209, 40.560596785444083, 40.559842108010244,
       40.55696614436161},
      {ScoreKind::kCombined, 34.152516232036774, 35.938372522251207, 34.991744114218932, 34.976878069092884,
       34.93084846376015},
  };
  for (const auto& row : expected) {
    const std::optional<PooledScore> pooled = pooling.Pooled(row.kind);
    ASSERT_TRUE(pooled);
    EXPECT_EQ(pooled->min, row.min);
    EXPECT_EQ(pooled->max, row.max);
    EXPECT_EQ(pooled->mean, row.mean);
    EXPECT_EQ(pooled->harmonic_mean, row.harmonic_mean);
    EXPECT_EQ(pooled->from_mean_error, row.from_mean_error);
    EXPECT_EQ(pooled->infinite, 0u);
    EXPECT_EQ(pooled->min_index, 2u);
  }
}

TEST(Pooling, AnInfiniteFrameIsCountedLeftOutOfTheMeansAndHasNoError) {
  Pooling pooling;
  pooling.Add(0, Score({}));
  pooling.Add(1, Score(kSums[1]));
  pooling.Add(2, Score(kSums[2]));
  const std::optional<PooledScore> pooled = pooling.Pooled(ScoreKind::kY);
  ASSERT_TRUE(pooled);
  EXPECT_EQ(pooled->min, 33.500481170834597);
  EXPECT_EQ(pooled->max, 34.263141131575338);
  EXPECT_EQ(pooled->mean, 33.881811151204971);
  EXPECT_EQ(pooled->harmonic_mean, 33.877642429767342);
  EXPECT_EQ(pooled->from_mean_error, 35.626003970136033);
  EXPECT_EQ(pooled->infinite, 1u);
  EXPECT_EQ(pooled->min_index, 2u);
}

TEST(Pooling, AllInfiniteFramesPoolToInfinityWithoutAWorstFrame) {
  Pooling pooling;
  pooling.Add(0, Score({}));
  pooling.Add(1, Score({}));
  for (ScoreKind kind : kAllScoreKinds) {
    const std::optional<PooledScore> pooled = pooling.Pooled(kind);
    ASSERT_TRUE(pooled);
    EXPECT_EQ(pooled->min, kInfinity);
    EXPECT_EQ(pooled->max, kInfinity);
    EXPECT_EQ(pooled->mean, kInfinity);
    EXPECT_EQ(pooled->harmonic_mean, kInfinity);
    EXPECT_EQ(pooled->from_mean_error, kInfinity);
    EXPECT_EQ(pooled->infinite, 2u);
    EXPECT_FALSE(pooled->min_index);
  }
}

TEST(Pooling, HarmonicMeanIsAbsentWhereItsReciprocalsCancel) {
  const PooledScore pooled = PoolLuma({0, -2});  // 1/(0+1) + 1/(-2+1) = 0
  EXPECT_FALSE(pooled.harmonic_mean);
  EXPECT_EQ(pooled.mean, -1);
  EXPECT_EQ(pooled.min, -2);
  EXPECT_EQ(pooled.max, 0);
  EXPECT_EQ(pooled.min_index, 1u);
}

TEST(Pooling, HarmonicMeanOfAFrameAtMinusOneDecibelIsThat) { EXPECT_EQ(PoolLuma({-1, 30}).harmonic_mean, -1); }

TEST(Pooling, TheWorstFrameIsTheFirstOfEqualOnes) {
  EXPECT_EQ(PoolLuma({30, 20, 25, 20}).min_index, 1u);
  EXPECT_EQ(PoolLuma({kInfinity, 30, 30}).min_index, 1u);
}

TEST(Pooling, TheWorstFrameIsNamedByItsIndex) {
  Pooling pooling;
  pooling.Add(40, LumaScore(30));
  pooling.Add(99, LumaScore(20));
  EXPECT_EQ(pooling.Pooled(ScoreKind::kY)->min_index, 99u);
}

TEST(Pooling, AScoreThatNoFrameHasIsAbsent) {
  Pooling pooling;
  for (ScoreKind kind : kAllScoreKinds) EXPECT_FALSE(pooling.Pooled(kind));
  pooling.Add(0, Score(kSums[0], Chroma::k400));
  EXPECT_EQ(pooling.frames(), 1u);
  EXPECT_EQ(pooling.Pooled(ScoreKind::kY)->mean, 35.414155608095378);
  EXPECT_FALSE(pooling.Pooled(ScoreKind::kCb));
  EXPECT_FALSE(pooling.Pooled(ScoreKind::kCr));
  EXPECT_FALSE(pooling.Pooled(ScoreKind::kCombined));
}

TEST(Pooling, FramesWithoutChromaDoNotWeighOnTheChromaOfOthers) {
  Pooling pooling;
  pooling.Add(0, Score(kSums[0], Chroma::k400));
  pooling.Add(1, Score(kSums[1]));
  EXPECT_EQ(pooling.frames(), 2u);
  EXPECT_EQ(pooling.Pooled(ScoreKind::kCb)->mean, 37.856442537237967);
  EXPECT_EQ(pooling.Pooled(ScoreKind::kCb)->from_mean_error, 37.856442537237967);
  EXPECT_EQ(pooling.Pooled(ScoreKind::kCb)->min_index, 1u);
}

}  // namespace
}  // namespace psnrhvs::testing
