// Reports as message structures and metadata: the documented text, and the way back.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/publish.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/gst/example_reports.h"
#include "tests/support/frames.h"

namespace psnrhvs::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string Text(const GstStructure* structure) { return GstPtr<gchar>(gst_structure_to_string(structure)).get(); }

void ExpectEqual(const FrameTiming& a, const FrameTiming& b) {
  EXPECT_EQ(a.index, b.index);
  EXPECT_EQ(a.timestamp, b.timestamp);
  EXPECT_EQ(a.stream_time, b.stream_time);
  EXPECT_EQ(a.running_time, b.running_time);
  EXPECT_EQ(a.duration, b.duration);
}

// All that structures hold; linear errors they do not.
void ExpectEqual(const FrameReport& a, const FrameReport& b) {
  ExpectEqual(a.reference, b.reference);
  EXPECT_EQ(a.dist_running_time, b.dist_running_time);
  ASSERT_EQ(a.score.scored_planes, b.score.scored_planes);
  for (ScoreKind kind : kAllScoreKinds) {
    if (a.score.has(kind)) {
      EXPECT_EQ(Bits(a.score.score_db(kind)), Bits(b.score.score_db(kind)));
    }
  }
  EXPECT_EQ(a.window_mean, b.window_mean);
}

void ExpectEqual(const Summary& a, const Summary& b) {
  EXPECT_EQ(a.frames, b.frames);
  EXPECT_EQ(a.unpaired_ref, b.unpaired_ref);
  EXPECT_EQ(a.unpaired_dist, b.unpaired_dist);
  EXPECT_EQ(a.skipped, b.skipped);
  EXPECT_EQ(a.backend, b.backend);
  for (int k = 0; k < kScoreKinds; ++k) {
    ASSERT_EQ(a.pooled[k].has_value(), b.pooled[k].has_value()) << k;
    if (!a.pooled[k]) continue;
    EXPECT_EQ(a.pooled[k]->min, b.pooled[k]->min);
    EXPECT_EQ(a.pooled[k]->max, b.pooled[k]->max);
    EXPECT_EQ(a.pooled[k]->mean, b.pooled[k]->mean);
    EXPECT_EQ(a.pooled[k]->harmonic_mean, b.pooled[k]->harmonic_mean);
    EXPECT_EQ(a.pooled[k]->from_mean_error, b.pooled[k]->from_mean_error);
    EXPECT_EQ(a.pooled[k]->infinite, b.pooled[k]->infinite);
    EXPECT_EQ(a.pooled[k]->min_index, b.pooled[k]->min_index);
  }
}

class Publish : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { gst_init(nullptr, nullptr); }
};

TEST_F(Publish, FrameMessagePrintsAsDocumented) {
  EXPECT_EQ(Text(ToStructure(ExampleReports()[2]).get()),
            "psnrhvs, type=(string)frame, index=(guint64)2, timestamp=(guint64)80000000, "
            "stream-time=(guint64)80000000, running-time=(guint64)80000000, duration=(guint64)40000000, "
            "dist-running-time=(guint64)80000000, psnr-hvs=(double)34.152516232036774, "
            "psnr-hvs-y=(double)33.500481170834597, psnr-hvs-cb=(double)37.505539807275959, "
            "psnr-hvs-cr=(double)40.314418206455287;");
}

TEST_F(Publish, UnpairedMessagePrintsAsDocumented) {
  EXPECT_EQ(Text(ToStructure(UnpairedReport{"ref_sink", TimingOf(7)}).get()),
            "psnrhvs, type=(string)unpaired, pad=(string)ref_sink, index=(guint64)7, timestamp=(guint64)280000000, "
            "stream-time=(guint64)280000000, running-time=(guint64)280000000, duration=(guint64)40000000;");
}

TEST_F(Publish, PooledMessagePrintsAsDocumented) {
  EXPECT_EQ(Text(ToStructure(SummaryOf(ExampleReports())).get()),
            "psnrhvs, type=(string)pooled, frames=(guint64)3, unpaired-ref=(guint64)0, unpaired-dist=(guint64)0, "
            "backend=(string)cpu, version=(string)" PSNRHVS_VERSION
            ", psnr-hvs-min=(double)34.152516232036774, psnr-hvs-min-index=(guint64)2, "
            "psnr-hvs-max=(double)35.938372522251207, psnr-hvs-mean=(double)34.991744114218932, "
            "psnr-hvs-harmonic-mean=(double)34.976878069092884, psnr-hvs-from-mean-error=(double)34.93084846376015, "
            "psnr-hvs-infinite=(guint64)0, psnr-hvs-y-min=(double)33.500481170834597, "
            "psnr-hvs-y-min-index=(guint64)2, psnr-hvs-y-max=(double)35.414155608095378, "
            "psnr-hvs-y-mean=(double)34.392592636835104, psnr-hvs-y-harmonic-mean=(double)34.37520041433806, "
            "psnr-hvs-y-from-mean-error=(double)34.322677855534934, psnr-hvs-y-infinite=(guint64)0, "
            "psnr-hvs-cb-min=(double)37.505539807275959, psnr-hvs-cb-min-index=(guint64)2, "
            "psnr-hvs-cb-max=(double)37.867876514737993, psnr-hvs-cb-mean=(double)37.743286286417309, "
            "psnr-hvs-cb-harmonic-mean=(double)37.74255402371471, "
            "psnr-hvs-cb-from-mean-error=(double)37.740001038884344, psnr-hvs-cb-infinite=(guint64)0, "
            "psnr-hvs-cr-min=(double)40.314418206455287, psnr-hvs-cr-min-index=(guint64)2, "
            "psnr-hvs-cr-max=(double)40.72205776103209, psnr-hvs-cr-mean=(double)40.560596785444083, "
            "psnr-hvs-cr-harmonic-mean=(double)40.559842108010244, "
            "psnr-hvs-cr-from-mean-error=(double)40.55696614436161, psnr-hvs-cr-infinite=(guint64)0;");
}

TEST_F(Publish, LumaOnlyFrameHasNoFieldForChromaOrTheCombinedScore) {
  EXPECT_EQ(Text(ToStructure(ReportOf(0, LumaScoreOfSum(kExampleSums[0][0]))).get()),
            "psnrhvs, type=(string)frame, index=(guint64)0, timestamp=(guint64)0, stream-time=(guint64)0, "
            "running-time=(guint64)0, duration=(guint64)40000000, dist-running-time=(guint64)0, "
            "psnr-hvs-y=(double)35.414155608095378;");
}

TEST_F(Publish, UnknownTimesAreClockTimeNone) {
  FrameReport report = ReportOf(5, LumaScoreOfSum(0));
  report.reference = FrameTiming{};
  report.reference.index = 5;
  report.dist_running_time = GST_CLOCK_TIME_NONE;
  EXPECT_EQ(Text(ToStructure(report).get()),
            "psnrhvs, type=(string)frame, index=(guint64)5, timestamp=(guint64)18446744073709551615, "
            "stream-time=(guint64)18446744073709551615, running-time=(guint64)18446744073709551615, "
            "duration=(guint64)18446744073709551615, dist-running-time=(guint64)18446744073709551615, "
            "psnr-hvs-y=(double)inf;");
}

TEST_F(Publish, IdenticalFramesPoolToInfinityWithoutAWorstFrame) {
  const Summary summary = SummaryOf({ReportOf(0, LumaScoreOfSum(0)), ReportOf(1, LumaScoreOfSum(0))});
  EXPECT_EQ(Text(ToStructure(summary).get()),
            "psnrhvs, type=(string)pooled, frames=(guint64)2, unpaired-ref=(guint64)0, unpaired-dist=(guint64)0, "
            "backend=(string)cpu, version=(string)" PSNRHVS_VERSION
            ", psnr-hvs-y-min=(double)inf, psnr-hvs-y-max=(double)inf, psnr-hvs-y-mean=(double)inf, "
            "psnr-hvs-y-harmonic-mean=(double)inf, psnr-hvs-y-from-mean-error=(double)inf, "
            "psnr-hvs-y-infinite=(guint64)2;");
}

TEST_F(Publish, PooledMessageOfNoFrameHasCountsOnly) {
  Summary summary = SummaryOf({});
  summary.unpaired_ref = 3;
  summary.unpaired_dist = 4;
  summary.skipped = 5;
  EXPECT_EQ(Text(ToStructure(summary).get()),
            "psnrhvs, type=(string)pooled, frames=(guint64)0, unpaired-ref=(guint64)3, unpaired-dist=(guint64)4, "
            "skipped=(guint64)5, backend=(string)cpu, version=(string)" PSNRHVS_VERSION ";");
}

TEST_F(Publish, FrameReportsComeBackFromTheirStructures) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    FrameReport report = ReportOf(random(), ScoreOfSums({}));
    report.reference.timestamp = random();
    report.reference.stream_time = random();
    report.reference.running_time = random();
    report.reference.duration = random();
    report.dist_running_time = random();
    std::uniform_real_distribution<double> scores(-30, 120);
    for (double& score_db : report.score.plane_score_db) score_db = scores(random);
    report.score.combined_score_db = scores(random);
    if (i % 3 == 0) report.score.scored_planes = 1;
    if (i % 5 == 0) report.window_mean = scores(random);
    if (i % 7 == 0) report.score.plane_score_db[0] = kInfinity;
    const std::optional<FrameReport> back = FrameReportFrom(ToStructure(report).get());
    ASSERT_TRUE(back);
    ExpectEqual(*back, report);
  }
}

TEST_F(Publish, WindowMeanFollowsTheScores) {
  FrameReport report = ReportOf(0, LumaScoreOfSum(0));
  report.window_mean = 35.5;
  const std::string text = Text(ToStructure(report).get());
  const std::string tail = "psnr-hvs-y=(double)inf, window-mean=(double)35.5;";
  ASSERT_GT(text.size(), tail.size());
  EXPECT_EQ(text.substr(text.size() - tail.size()), tail);
}

TEST_F(Publish, UnpairedReportsComeBackFromTheirStructures) {
  const UnpairedReport report{"dist_sink", FrameTiming{7, 1, 2, 3, GST_CLOCK_TIME_NONE}};
  const std::optional<UnpairedReport> back = UnpairedReportFrom(ToStructure(report).get());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->pad, "dist_sink");
  ExpectEqual(back->timing, report.timing);
}

TEST_F(Publish, SummariesComeBackFromTheirStructures) {
  std::vector<FrameReport> one_infinite = ExampleReports();
  one_infinite[0].score = ScoreOfSums({});
  Summary counted = SummaryOf(ExampleReports());
  counted.unpaired_ref = 1;
  counted.unpaired_dist = 2;
  counted.skipped = 3;
  counted.backend = "cuda";
  Summary pole = SummaryOf(ExampleReports());
  pole.pooled[0]->harmonic_mean.reset();
  for (const Summary& summary :
       {SummaryOf(ExampleReports()), SummaryOf(one_infinite), SummaryOf({ReportOf(0, ScoreOfSums({}))}),
        SummaryOf({ReportOf(0, LumaScoreOfSum(1))}), SummaryOf({}), counted, pole}) {
    const std::optional<Summary> back = SummaryFrom(ToStructure(summary).get());
    ASSERT_TRUE(back);
    ExpectEqual(*back, summary);
  }
}

TEST_F(Publish, StructuresOfAnotherTypeOrWithAFieldMissingOrOfAnotherGTypeAreRefused) {
  const GstPtr<GstStructure> frame = ToStructure(ExampleReports()[0]);
  const GstPtr<GstStructure> unpaired = ToStructure(UnpairedReport{"ref_sink", TimingOf(0)});
  const GstPtr<GstStructure> pooled = ToStructure(SummaryOf(ExampleReports()));
  EXPECT_FALSE(FrameReportFrom(unpaired.get()));
  EXPECT_FALSE(FrameReportFrom(pooled.get()));
  EXPECT_FALSE(UnpairedReportFrom(frame.get()));
  EXPECT_FALSE(SummaryFrom(frame.get()));
  for (const char* field : {"index", "duration", "dist-running-time", "psnr-hvs", "psnr-hvs-y", "psnr-hvs-cr"}) {
    const GstPtr<GstStructure> less(gst_structure_copy(frame.get()));
    gst_structure_remove_field(less.get(), field);
    EXPECT_FALSE(FrameReportFrom(less.get())) << field;
    const GstPtr<GstStructure> other(gst_structure_copy(frame.get()));
    gst_structure_set(other.get(), field, G_TYPE_INT, 1, nullptr);
    EXPECT_FALSE(FrameReportFrom(other.get())) << field;
  }
  for (const char* field : {"frames", "unpaired-dist", "backend", "psnr-hvs-y-mean", "psnr-hvs-cb-infinite"}) {
    const GstPtr<GstStructure> other(gst_structure_copy(pooled.get()));
    gst_structure_set(other.get(), field, G_TYPE_INT, 1, nullptr);
    EXPECT_FALSE(SummaryFrom(other.get())) << field;
  }
}

const GstStructure* MetaOf(const GstPtr<GstBuffer>& buffer) {
  GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer.get(), "GstPsnrHvsMeta");
  return meta ? gst_custom_meta_get_structure(meta) : nullptr;
}

TEST_F(Publish, MetadataHasTheFieldsOfTheFrameMessageButType) {
  const GstPtr<GstBuffer> buffer(gst_buffer_new_allocate(nullptr, 16, nullptr));
  AttachMeta(buffer.get(), ExampleReports()[2]);
  const GstStructure* structure = MetaOf(buffer);
  ASSERT_NE(structure, nullptr);
  const GstPtr<GstStructure> expected = ToStructure(ExampleReports()[2]);
  gst_structure_remove_field(expected.get(), "type");
  gst_structure_set_name(expected.get(), "GstPsnrHvsMeta");
  EXPECT_EQ(Text(structure), Text(expected.get()));
  const std::optional<FrameReport> back = FrameReportFrom(structure);
  ASSERT_TRUE(back);
  ExpectEqual(*back, ExampleReports()[2]);
}

TEST_F(Publish, MetadataThatABufferCarriesIsReplaced) {
  GstPtr<GstBuffer> first(gst_buffer_new_allocate(nullptr, 16, nullptr));
  AttachMeta(first.get(), ExampleReports()[0]);
  const GstPtr<GstBuffer> buffer(gst_buffer_copy(first.get()));
  AttachMeta(buffer.get(), ReportOf(1, LumaScoreOfSum(0)));
  EXPECT_EQ(gst_buffer_get_n_meta(buffer.get(), gst_meta_get_info("GstPsnrHvsMeta")->api), 1u);
  ExpectEqual(*FrameReportFrom(MetaOf(buffer)), ReportOf(1, LumaScoreOfSum(0)));
  ExpectEqual(*FrameReportFrom(MetaOf(first)), ExampleReports()[0]);
}

TEST_F(Publish, MetadataHasNoTags) {
  RegisterMeta();
  RegisterMeta();
  const GstMetaInfo* info = gst_meta_get_info("GstPsnrHvsMeta");
  ASSERT_NE(info, nullptr);
  const gchar* const* tags = gst_meta_api_type_get_tags(info->api);
  EXPECT_TRUE(tags == nullptr || tags[0] == nullptr);
}

TEST_F(Publish, SummaryTextNamesMeanFramesAndBackend) {
  EXPECT_EQ(SummaryText(SummaryOf(ExampleReports())), "psnr-hvs mean 34.9917 dB over 3 frames (cpu)");
  EXPECT_EQ(SummaryText(SummaryOf({ReportOf(0, LumaScoreOfSum(kExampleSums[0][0]))})),
            "psnr-hvs-y mean 35.4142 dB over 1 frame (cpu)");
  EXPECT_EQ(SummaryText(SummaryOf({ReportOf(0, ScoreOfSums({}))})), "psnr-hvs mean inf dB over 1 frame (cpu)");
  std::vector<FrameReport> one_infinite = ExampleReports();
  one_infinite[0].score = ScoreOfSums({});
  EXPECT_EQ(SummaryText(SummaryOf(one_infinite)),
            "psnr-hvs mean 34.5184 dB over 3 frames, leaving out 1 without any difference (cpu)");
  EXPECT_EQ(SummaryText(SummaryOf({})), "no frame was scored (cpu)");
}

}  // namespace
}  // namespace psnrhvs::testing
