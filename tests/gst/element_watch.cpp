// Watching quality: alarms, the window's mean, fail-below, statistics, and labels that differ.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/gst/element_checks.h"

namespace psnrhvs::testing {
namespace {

// One pair for each letter: '+' alike but for a little, '-' nothing alike.
void PushPairs(TwoPads* pads, const std::string& qualities, int first = 0) {
  for (size_t i = 0; i < qualities.size(); ++i) {
    const int n = first + static_cast<int>(i);
    pads->Push(Side::kReference, SmallFrame(n));
    GstPtr<GstBuffer> distorted = SmallFrame(n);
    GstMapInfo map;
    gst_buffer_map(distorted.get(), &map, GST_MAP_WRITE);
    for (gsize k = 0; k < map.size; k += 7) map.data[k] = map.data[k] ^ (qualities[i] == '-' ? 0x80 : 0x01);
    gst_buffer_unmap(distorted.get(), &map);
    pads->Push(Side::kDistorted, std::move(distorted));
    pads->recorder().WaitFor("frame " + std::to_string(n));
  }
}

double CombinedOf(const FrameReport& frame) { return frame.score.score_db(ScoreKind::kCombined); }

START_TEST(alarm_is_raised_and_recovers_with_its_values) {
  TwoPads pads({{"alarm-below", "30"}, {"alarm-hysteresis", "2"}});
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, "+--+");
  const Reports reports = pads.End();
  CheckCounts(reports, 4, 0, 0);
  fail_unless(CombinedOf(reports.frames[0]) > 32 && CombinedOf(reports.frames[1]) < 30);
  fail_unless_equals_int(static_cast<int>(reports.alarms.size()), 2);
  const AlarmReport& alarm = reports.alarms[0];
  fail_unless(alarm.raised && alarm.threshold == 30 && alarm.value == CombinedOf(reports.frames[1]));
  fail_unless_equals_uint64(alarm.since, kPeriod);
  fail_unless_equals_uint64(alarm.reference.index, 1);
  const AlarmReport& recovered = reports.alarms[1];
  fail_unless(!recovered.raised && recovered.threshold == 32 && recovered.value == CombinedOf(reports.frames[3]));
  fail_unless_equals_uint64(recovered.since, 3 * kPeriod);
  fail_unless(reports.Position("alarm") > reports.Position("frame 1"));
  fail_unless(reports.Position("alarm") < reports.Position("frame 2"));
}
END_TEST

START_TEST(short_dips_raise_no_alarm_if_a_duration_is_set) {
  TwoPads pads({{"alarm-below", "30"}, {"alarm-duration", "80000000"}});
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, "+--+---+");
  const Reports reports = pads.End();
  fail_unless_equals_int(reports.Count("alarm"), 1);
  fail_unless_equals_uint64(reports.alarms[0].since, 4 * kPeriod);
  fail_unless_equals_uint64(reports.alarms[0].reference.index, 6);
}
END_TEST

START_TEST(window_mean_is_told_with_each_frame_while_it_is_watched) {
  TwoPads pads(TwoPads::Properties{{"window", "3"}});
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, "+-+--");
  const Reports reports = pads.End();
  for (int n = 0; n < 5; ++n) {
    double sum = 0;
    const int first = std::max(0, n - 2);
    for (int k = first; k <= n; ++k) sum += CombinedOf(reports.frames[k]);
    fail_unless(reports.frames[n].window_mean == sum / (n - first + 1), "frame %d", n);
  }
  fail_unless(reports.alarms.empty());
}
END_TEST

START_TEST(nothing_is_watched_by_default) {
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, "+-");
  const Reports reports = pads.End();
  fail_if(reports.frames[1].window_mean.has_value());
  fail_unless(reports.alarms.empty());
}
END_TEST

START_TEST(settings_of_watching_take_effect_while_running) {
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, "--");
  g_object_set(pads.element(), "alarm-below", 30.0, nullptr);
  PushPairs(&pads, "-", 2);
  g_object_set(pads.element(), "frame-message", FALSE, nullptr);
  pads.Push(Side::kReference, SmallFrame(3));
  pads.Push(Side::kDistorted, SmallFrame(3));
  pads.recorder().WaitFor("buffer " + std::to_string(3 * kPeriod));
  const Reports reports = pads.End();
  fail_unless_equals_int(reports.Count("alarm"), 1);
  fail_unless_equals_uint64(reports.alarms[0].reference.index, 2);
  fail_unless_equals_int(static_cast<int>(reports.frames.size()), 3);
  fail_unless_equals_uint64(reports.pooled[0].frames, 4);
  fail_unless(reports.warnings.empty());
}
END_TEST

START_TEST(settings_of_a_run_are_refused_with_a_warning_while_it_runs) {
  static const struct {
    const char* name;
    const char* value;
  } kSettings[] = {{"results-filename", "other.csv"},
                   {"results-format", "csv"},
                   {"tolerance", "5"},
                   {"pairing", "order"},
                   {"dist-offset", "7"},
                   {"align", "start"},
                   {"threads", "3"},
                   {"max-lead-frames", "3"},
                   {"max-lead-time", "3"},
                   {"stall-timeout", "3"},
                   {"strict", "true"},
                   {"backend", "cuda"}};
  const auto& setting = kSettings[_i];
  TwoPads pads;
  GParamSpec* spec = g_object_class_find_property(G_OBJECT_GET_CLASS(pads.element()), setting.name);
  const auto text = [&] {
    GValue value = G_VALUE_INIT;
    g_value_init(&value, spec->value_type);
    g_object_get_property(G_OBJECT(pads.element()), setting.name, &value);
    const GstPtr<gchar> owned(gst_value_serialize(&value));
    const std::string result = owned ? owned.get() : "";
    g_value_unset(&value);
    return result;
  };
  const std::string before = text();
  gst_util_set_object_arg(G_OBJECT(pads.element()), setting.name, setting.value);
  CheckText(text(), before);
  const Reports reports = pads.recorder().reports();
  fail_unless_equals_int(static_cast<int>(reports.warnings.size()), 1);
  CheckStartsWith(reports.warnings[0].text, std::string(setting.name) + " cannot change while the element runs");
  gst_element_set_state(pads.element(), GST_STATE_READY);
  gst_util_set_object_arg(G_OBJECT(pads.element()), setting.name, setting.value);
  fail_if(text() == before, "%s cannot be set in READY", setting.name);
}
END_TEST

// Whether the run ended by the only error `start`..., after the pooled message if at the end.
void CheckTooLow(const Reports& reports, const std::string& start) {
  fail_unless_equals_int(static_cast<int>(reports.errors.size()), 1);
  CheckText(reports.errors[0].source, "m");
  CheckStartsWith(reports.errors[0].text, start);
}

START_TEST(mean_below_the_bar_is_an_error_at_the_end) {
  TwoPads pads(TwoPads::Properties{{"fail-below", "30"}});
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, "--+-");
  pads.Push(Side::kReference, gst_event_new_eos());
  pads.Push(Side::kDistorted, gst_event_new_eos());
  pads.recorder().WaitForEnd();
  const Reports reports = pads.recorder().reports();
  CheckTooLow(reports, "The quality is too low: the mean of psnr-hvs over 4 frames is ");
  fail_unless_equals_int(static_cast<int>(reports.pooled.size()), 1);
  fail_unless(reports.Position("pooled") < reports.Position("error"));
}
END_TEST

START_TEST(mean_below_the_bar_is_an_error_at_once_if_told_so) {
  TwoPads pads({{"fail-below", "30"}, {"fail-at", "now"}});
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, "+----------");
  pads.recorder().WaitForEnd();
  const Reports reports = pads.recorder().reports();
  double sum = 0;
  for (const FrameReport& frame : reports.frames) sum += CombinedOf(frame);
  const auto count = static_cast<double>(reports.frames.size());
  fail_unless(sum / count < 30, "%g over %g", sum / count, count);
  fail_unless((sum - CombinedOf(reports.frames.back())) / (count - 1) >= 30);
  CheckTooLow(reports, "The quality is too low: ");
}
END_TEST

START_TEST(mean_at_the_bar_passes) {
  TwoPads pads(TwoPads::Properties{{"fail-below", "30"}});
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, "+++");
  CheckCounts(pads.End(), 3, 0, 0);
}
END_TEST

START_TEST(bar_is_not_passed_by_comparing_nothing) {
  TwoPads pads(TwoPads::Properties{{"fail-below", "30"}});
  pads.SetCaps(kSmallCaps);
  pads.Push(Side::kReference, SmallFrame(0));
  pads.Push(Side::kReference, gst_event_new_eos());
  pads.Push(Side::kDistorted, gst_event_new_eos());
  pads.recorder().WaitForEnd();
  CheckTooLow(pads.recorder().reports(), "No frame was compared, so fail-below=30 is not met");
}
END_TEST

START_TEST(end_that_comes_from_downstream_is_summed_up_and_measured_like_any_other) {
  const std::string sources =
      "videotestsrc num-buffers=50 ! video/x-raw,width=64,height=64 ! m.ref_sink "
      "videotestsrc num-buffers=50 pattern=snow ! video/x-raw,width=64,height=64 ! m.dist_sink psnrhvs name=m ";
  const std::string end = " ! fakesink num-buffers=5";
  // A deeper engine scores some frames beyond the five that may leave.
  const Reports passed = RunPipeline(sources + "backend=cpu fail-below=1" + end);
  CheckCounts(passed, 5, 0, 0);
  fail_unless(passed.eos_posted);
  const Reports failed = RunPipeline(sources + "backend=cpu fail-below=90" + end);
  fail_if(failed.errors.empty());  // of the sources too, which are stopped
  CheckText(failed.errors[0].source, "m");
  CheckStartsWith(failed.errors[0].text, "The quality is too low: the mean of psnr-hvs over 5 frames is ");
  fail_unless_equals_int(static_cast<int>(failed.pooled.size()), 1);
}
END_TEST

START_TEST(too_low_a_quality_is_the_exit_code_of_gst_launch) {
  const std::string command =
      "gst-launch-1.0 -q videotestsrc num-buffers=5 ! video/x-raw,width=64,height=64 ! m.ref_sink "
      "videotestsrc num-buffers=5 pattern=snow ! video/x-raw,width=64,height=64 ! m.dist_sink psnrhvs name=m ";
  fail_unless(RunCommand(command + "fail-below=1 ! fakesink >/dev/null 2>&1"));
  fail_if(RunCommand(command + "fail-below=90 ! fakesink >/dev/null 2>&1"));
  fail_if(RunCommand(command + "fail-below=90 fail-at=now ! fakesink >/dev/null 2>&1"));
}
END_TEST

START_TEST(statistics_can_be_read_by_another_thread_while_running) {
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  std::atomic<bool> done{false};
  guint64 last_frames = 0;
  std::thread reader([&] {
    while (!done) {
      GstStructure* stats;
      g_object_get(pads.element(), "stats", &stats, nullptr);
      guint64 frames = 0;
      fail_unless(gst_structure_get_uint64(stats, "frames", &frames) && frames >= last_frames);
      last_frames = frames;
      gst_structure_free(stats);
    }
  });
  PushPairs(&pads, std::string(200, '+'));
  done = true;
  reader.join();
  pads.Push(Side::kReference, SmallFrame(200));
  pads.Push(Side::kReference, SmallFrame(201));
  GstStructure* stats;
  g_object_get(pads.element(), "stats", &stats, nullptr);
  guint64 frames, unpaired;
  guint queue_ref, queue_dist;
  double last, ms, mean;
  fail_unless(gst_structure_get(stats, "frames", G_TYPE_UINT64, &frames, "unpaired-ref", G_TYPE_UINT64, &unpaired,
                                "queue-ref", G_TYPE_UINT, &queue_ref, "queue-dist", G_TYPE_UINT, &queue_dist,
                                "last-psnr-hvs", G_TYPE_DOUBLE, &last, "ms-per-frame", G_TYPE_DOUBLE, &ms,
                                "psnr-hvs-mean", G_TYPE_DOUBLE, &mean, nullptr));
  gst_structure_free(stats);
  fail_unless_equals_uint64(frames, 200);
  fail_unless_equals_uint64(unpaired, 0);
  fail_unless_equals_int(static_cast<int>(queue_ref), 2);
  fail_unless_equals_int(static_cast<int>(queue_dist), 0);
  fail_unless(ms > 0 && ms < 1000);
  const Reports reports = pads.End();
  fail_unless(last == CombinedOf(reports.frames[199]));
  fail_unless(mean == reports.pooled[0].pooled[static_cast<int>(ScoreKind::kCombined)]->mean);
}
END_TEST

// A label, two of its values, and how the text names it and them.
struct Label {
  const char* field;
  const char* reference;
  const char* distorted;
  const char* text;
};
const Label kLabels[] = {
    {"colorimetry", "1:3:5:1", "2:3:5:1",
     "The inputs differ in colour range: ref_sink has 0-255, dist_sink has 16-235"},
    {"colorimetry", "2:3:5:1", "2:4:5:1", "The inputs differ in colour matrix: ref_sink has "},
    {"colorimetry", "2:3:5:1", "2:3:7:1", "The inputs differ in transfer function: ref_sink has "},
    {"colorimetry", "2:3:5:1", "2:3:5:4", "The inputs differ in colour primaries: ref_sink has "},
    {"chroma-site", "mpeg2", "jpeg", "The inputs differ in chroma site: ref_sink has mpeg2, dist_sink has jpeg"},
    {"interlace-mode", "progressive", "mixed",
     "The inputs differ in interlace mode: ref_sink has progressive, dist_sink has mixed"},
    {"pixel-aspect-ratio", "1/1", "64/45",
     "The inputs differ in pixel aspect ratio: ref_sink has 1/1, dist_sink has 64/45"},
};

std::string Labelled(const char* field, const char* value) {
  return std::string(kSmallCaps) + "," + field + "=" + value;
}

START_TEST(label_that_differs_is_warned_of_once_with_both_values) {
  const Label& label = kLabels[_i];
  TwoPads pads;
  pads.SetCaps(Side::kReference, Labelled(label.field, label.reference));
  pads.SetCaps(Side::kDistorted, Labelled(label.field, label.distorted));
  PushPairs(&pads, "+");
  pads.SetCaps(Side::kDistorted, kSmallCaps);
  PushPairs(&pads, "+", 1);
  pads.SetCaps(Side::kDistorted, Labelled(label.field, label.distorted));
  PushPairs(&pads, "+", 2);
  const Reports reports = pads.End();
  CheckCounts(reports, 3, 0, 0);
  fail_unless_equals_int(static_cast<int>(reports.warnings.size()), 1);
  CheckStartsWith(reports.warnings[0].text, label.text);
}
END_TEST

START_TEST(label_that_differs_is_an_error_if_strict) {
  const Label& label = kLabels[_i];
  TwoPads pads(TwoPads::Properties{{"strict", "true"}});
  pads.SetCaps(Side::kReference, Labelled(label.field, label.reference));
  pads.SetCaps(Side::kDistorted, Labelled(label.field, label.distorted));
  pads.Push(Side::kReference, SmallFrame(0));
  pads.Push(Side::kDistorted, SmallFrame(0));
  pads.recorder().WaitForEnd();
  CheckError(pads.recorder().reports(), {label.text, "strict=false"});
}
END_TEST

START_TEST(label_that_one_side_does_not_have_is_no_difference) {
  const Label& label = kLabels[_i];
  TwoPads pads(TwoPads::Properties{{"strict", "true"}});
  pads.SetCaps(Side::kReference, Labelled(label.field, label.reference));
  pads.SetCaps(Side::kDistorted, kSmallCaps);
  PushPairs(&pads, "+");
  const Reports reports = pads.End();
  CheckCounts(reports, 1, 0, 0);
  fail_unless(reports.warnings.empty());
}
END_TEST

Suite* WatchSuite() {
  Suite* suite = suite_create("psnrhvs: watching");
  TCase* tests = tcase_create("general");
  tcase_set_timeout(tests, 180);
  suite_add_tcase(suite, tests);
  tcase_add_test(tests, alarm_is_raised_and_recovers_with_its_values);
  tcase_add_test(tests, short_dips_raise_no_alarm_if_a_duration_is_set);
  tcase_add_test(tests, window_mean_is_told_with_each_frame_while_it_is_watched);
  tcase_add_test(tests, nothing_is_watched_by_default);
  tcase_add_test(tests, settings_of_watching_take_effect_while_running);
  tcase_add_loop_test(tests, settings_of_a_run_are_refused_with_a_warning_while_it_runs, 0, 12);
  tcase_add_test(tests, mean_below_the_bar_is_an_error_at_the_end);
  tcase_add_test(tests, mean_below_the_bar_is_an_error_at_once_if_told_so);
  tcase_add_test(tests, mean_at_the_bar_passes);
  tcase_add_test(tests, bar_is_not_passed_by_comparing_nothing);
  tcase_add_test(tests, end_that_comes_from_downstream_is_summed_up_and_measured_like_any_other);
  TCASE_ADD_LAUNCH_TEST(tests, "element_watch", too_low_a_quality_is_the_exit_code_of_gst_launch, 1);
  tcase_add_test(tests, statistics_can_be_read_by_another_thread_while_running);
  const int labels = static_cast<int>(G_N_ELEMENTS(kLabels));
  tcase_add_loop_test(tests, label_that_differs_is_warned_of_once_with_both_values, 0, labels);
  tcase_add_loop_test(tests, label_that_differs_is_an_error_if_strict, 0, labels);
  tcase_add_loop_test(tests, label_that_one_side_does_not_have_is_no_difference, 0, labels);
  return suite;
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) {
  psnrhvs::testing::InitChecks(&argc, &argv);
  return gst_check_run_suite(psnrhvs::testing::WatchSuite(), "element_watch", __FILE__);
}
