// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/alarm.h"

#include <gtest/gtest.h>

#include <limits>

namespace psnrhvs {
namespace {

constexpr uint64_t kMs = 1000000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

AlarmSettings Below(double below_db) {
  AlarmSettings settings;
  settings.below_db = below_db;
  return settings;
}

TEST(Alarm, IsRaisedByTheFirstScoreBelowAndRecoversAtTheThreshold) {
  Alarm alarm;
  const AlarmSettings settings = Below(30);
  EXPECT_FALSE(alarm.Add(settings, 0, 30.0));
  const auto raised = alarm.Add(settings, 40 * kMs, 29.5);
  ASSERT_TRUE(raised);
  EXPECT_TRUE(raised->raised);
  EXPECT_EQ(raised->value_db, 29.5);
  EXPECT_EQ(raised->threshold_db, 30.0);
  EXPECT_EQ(raised->since_ns, 40 * kMs);
  EXPECT_FALSE(alarm.Add(settings, 80 * kMs, 20.0)) << "said once";
  const auto recovered = alarm.Add(settings, 120 * kMs, 30.0);
  ASSERT_TRUE(recovered);
  EXPECT_FALSE(recovered->raised);
  EXPECT_EQ(recovered->value_db, 30.0);
  EXPECT_EQ(recovered->since_ns, 120 * kMs);
}

TEST(Alarm, WaitsForTheDurationAndForgetsShorterDips) {
  Alarm alarm;
  AlarmSettings settings = Below(30);
  settings.duration_ns = 100 * kMs;
  EXPECT_FALSE(alarm.Add(settings, 0, 20));
  EXPECT_FALSE(alarm.Add(settings, 60 * kMs, 20));
  EXPECT_FALSE(alarm.Add(settings, 99 * kMs, 31));
  EXPECT_FALSE(alarm.Add(settings, 100 * kMs, 20));
  EXPECT_FALSE(alarm.Add(settings, 199 * kMs, 20));
  const auto raised = alarm.Add(settings, 200 * kMs, 21);
  ASSERT_TRUE(raised);
  EXPECT_EQ(raised->since_ns, 100 * kMs);
  EXPECT_EQ(raised->value_db, 21.0);
}

TEST(Alarm, RecoversOnlyAboveTheHysteresis) {
  Alarm alarm;
  AlarmSettings settings = Below(30);
  settings.hysteresis_db = 2;
  ASSERT_TRUE(alarm.Add(settings, 0, 29));
  EXPECT_FALSE(alarm.Add(settings, 1, 31.9));
  const auto recovered = alarm.Add(settings, 2, 32);
  ASSERT_TRUE(recovered);
  EXPECT_EQ(recovered->threshold_db, 32.0);
}

TEST(Alarm, WatchesTheMeanOfTheWindow) {
  Alarm alarm;
  AlarmSettings settings = Below(30);
  settings.window_frames = 3;
  EXPECT_FALSE(alarm.Add(settings, 0, 40));
  EXPECT_EQ(alarm.window_mean_db(), 40.0);
  EXPECT_FALSE(alarm.Add(settings, 1, 30));
  EXPECT_EQ(alarm.window_mean_db(), 35.0);
  EXPECT_FALSE(alarm.Add(settings, 2, 20));
  EXPECT_EQ(alarm.window_mean_db(), 30.0);
  const auto raised = alarm.Add(settings, 3, 10);
  ASSERT_TRUE(raised);
  EXPECT_EQ(raised->value_db, 20.0);
}

TEST(Alarm, TakesInfiniteScoresAsAboveEverything) {
  Alarm alarm;
  AlarmSettings settings = Below(30);
  settings.window_frames = 2;
  EXPECT_FALSE(alarm.Add(settings, 0, kInfinity));
  EXPECT_EQ(alarm.window_mean_db(), kInfinity);
  EXPECT_FALSE(alarm.Add(settings, 1, 10));
  EXPECT_TRUE(alarm.Add(settings, 2, 10));
  EXPECT_EQ(alarm.window_mean_db(), 10.0);
}

TEST(Alarm, IsOffByDefault) {
  Alarm alarm;
  EXPECT_FALSE(AlarmSettings().watching());
  EXPECT_FALSE(alarm.Add(AlarmSettings(), 0, -100.0));
}

TEST(Alarm, StartsTheDurationAnewWhenTimeJumpsBack) {
  Alarm alarm;
  AlarmSettings settings = Below(30);
  settings.duration_ns = 100;
  EXPECT_FALSE(alarm.Add(settings, 1000, 20));
  EXPECT_FALSE(alarm.Add(settings, 0, 20));
  EXPECT_FALSE(alarm.Add(settings, 99, 20));
  EXPECT_TRUE(alarm.Add(settings, 100, 20));
}

TEST(Alarm, WatchesLumaWhereThereIsNoCombinedScore) {
  FrameScore score;
  score.scored_planes = 1;
  score.plane_score_db[0] = 33;
  score.combined_score_db = 22;
  EXPECT_EQ(WatchedScore(score), 33.0);
  score.scored_planes = 3;
  EXPECT_EQ(WatchedScore(score), 22.0);
}

}  // namespace
}  // namespace psnrhvs
