// Live inputs: deadlines by a test clock, so that nothing sleeps, and a few real live pipelines.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gst/check/gsttestclock.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/gst/element_checks.h"

namespace psnrhvs::testing {
namespace {

constexpr GstClockTime kUpstreamLatency = 100 * GST_MSECOND;

// The element between two live sources, with time standing still.
class LivePads : public TwoPads {
 public:
  explicit LivePads(const Properties& properties = {}, const std::string& caps = kSmallCaps) : TwoPads(properties) {
    for (Side side : {Side::kReference, Side::kDistorted}) {
      gst_harness_set_live(harness(side), TRUE);
      gst_harness_set_upstream_latency(harness(side), kUpstreamLatency);
    }
    gst_harness_use_testclock(harness(Side::kReference));
    clock_.reset(GST_CLOCK(gst_harness_get_testclock(harness(Side::kReference))));
    if (!caps.empty()) SetCaps(caps);
  }

  // Waits until the element waits for a deadline, and makes it pass. The deadline.
  GstClockTime PassDeadline() {
    GstTestClock* clock = GST_TEST_CLOCK(clock_.get());
    fail_unless(gst_test_clock_timed_wait_for_multiple_pending_ids(clock, 1, 20000, nullptr),
                "the element waits for no deadline");
    const GstClockTime deadline = gst_test_clock_get_next_entry_time(clock);
    gst_test_clock_crank(clock);
    return deadline;
  }
  GstClockTime now() const { return gst_clock_get_time(clock_.get()); }
  void SetNow(GstClockTime time) { gst_test_clock_set_time(GST_TEST_CLOCK(clock_.get()), time); }

  void PushPair(int n) { PushPair(n, n); }
  void PushPair(int n, int index) {
    Push(Side::kReference, SmallFrame(n));
    Push(Side::kDistorted, SmallFrame(n));
    fail_unless(recorder().WaitFor("frame " + std::to_string(index)), "pair %d is not scored", n);
  }

 private:
  GstPtr<GstClock> clock_;
};

std::string Buffer(int n) { return "buffer " + std::to_string(n * kPeriod); }

START_TEST(latency_is_upstreams_and_one_frame_and_the_property) {
  LivePads pads(TwoPads::Properties{{"latency", "30000000"}});
  gst_harness_set_upstream_latency(pads.harness(Side::kDistorted), 70 * GST_MSECOND);
  pads.PushPair(0);
  GstQuery* query = gst_query_new_latency();
  const GstPtr<GstPad> src(gst_element_get_static_pad(pads.element(), "src"));
  fail_unless(gst_pad_query(src.get(), query));
  gboolean live;
  GstClockTime min, max;
  gst_query_parse_latency(query, &live, &min, &max);
  gst_query_unref(query);
  fail_unless(live);
  fail_unless_equals_uint64(min, 100 * GST_MSECOND + kPeriod + 30 * GST_MSECOND);
  fail_unless(max >= min);
}
END_TEST

START_TEST(stalled_distorted_input_lets_the_reference_go_at_its_deadline_and_recovers_at_once) {
  LivePads pads;
  pads.PushPair(0);
  pads.Push(Side::kReference, SmallFrame(1));
  fail_unless_equals_uint64(pads.PassDeadline(), kPeriod + kUpstreamLatency + kPeriod);
  fail_unless(pads.recorder().WaitFor(Buffer(1)));
  pads.Push(Side::kReference, SmallFrame(2));
  fail_unless_equals_uint64(pads.PassDeadline(), 2 * kPeriod + kUpstreamLatency + kPeriod);
  fail_unless(pads.recorder().WaitFor(Buffer(2)));
  const GstClockTime stalled = pads.now();
  pads.PushPair(3);
  fail_unless_equals_uint64(pads.now(), stalled);
  const Reports reports = pads.End();
  CheckCounts(reports, 2, 2, 0);
  CheckAllInfinite(reports);
  fail_unless(reports.outputs[0].meta && !reports.outputs[1].meta && !reports.outputs[2].meta &&
              reports.outputs[3].meta);
}
END_TEST

START_TEST(distorted_input_that_never_begins_lets_each_reference_frame_go_at_its_own_deadline) {
  LivePads pads;
  pads.Push(Side::kReference, SmallFrame(0));
  pads.Push(Side::kReference, SmallFrame(1));
  for (int n = 0; n < 2; ++n) {
    fail_unless_equals_uint64(pads.PassDeadline(), n * kPeriod + kUpstreamLatency + kPeriod);
    fail_unless(pads.recorder().WaitFor(Buffer(n)));
  }
  CheckCounts(pads.End(), 0, 2, 0);
}
END_TEST

// What the property `latency` holds.
guint64 LatencyOf(GstElement* element) {
  guint64 latency = 0;
  g_object_get(element, "latency", &latency, nullptr);
  return latency;
}

START_TEST(source_that_does_not_tell_yet_that_it_is_live_is_asked_again) {
  static std::atomic<bool> answers;
  answers = false;
  LivePads pads({}, "");
  static GstPadQueryFunction harness_query;
  GstPad* source = pads.harness(Side::kDistorted)->srcpad;
  harness_query = GST_PAD_QUERYFUNC(source);
  gst_pad_set_query_function(source, [](GstPad* pad, GstObject* parent, GstQuery* query) -> gboolean {
    return (GST_QUERY_TYPE(query) != GST_QUERY_LATENCY || answers) && harness_query(pad, parent, query);
  });
  pads.SetCaps(Side::kReference, kSmallCaps);
  // Taken for one that is not live.
  while (LatencyOf(pads.element()) == 0) g_usleep(1000);
  answers = true;
  for (int n = 0; n < 2; ++n) {
    pads.Push(Side::kReference, SmallFrame(n));
    fail_unless_equals_uint64(pads.PassDeadline(), n * kPeriod + kUpstreamLatency + kPeriod);
    fail_unless(pads.recorder().WaitFor(Buffer(n)));
  }
  fail_unless_equals_uint64(LatencyOf(pads.element()), 0);
  CheckCounts(pads.End(), 0, 2, 0);
}
END_TEST

START_TEST(frames_that_come_too_late_are_unpaired_and_harm_no_later_pair) {
  LivePads pads;
  pads.PushPair(0);
  pads.Push(Side::kReference, SmallFrame(1));
  pads.PassDeadline();
  fail_unless(pads.recorder().WaitFor(Buffer(1)));
  pads.Push(Side::kDistorted, SmallFrame(1));
  pads.PushPair(2);
  const Reports reports = pads.End();
  CheckCounts(reports, 2, 1, 1);
  CheckAllInfinite(reports);
  fail_unless_equals_int(static_cast<int>(reports.unpaired[1].timing.index), 1);
}
END_TEST

START_TEST(stalled_reference_does_not_hold_the_distorted_input) {
  LivePads pads;
  pads.PushPair(0);
  for (int n = 1; n <= 10; ++n) {
    pads.Push(Side::kDistorted, SmallFrame(n));
    fail_unless_equals_uint64(pads.PassDeadline(), n * kPeriod + kUpstreamLatency + kPeriod);
    fail_unless(pads.recorder().WaitFor("unpaired dist_sink " + std::to_string(n)));
  }
  pads.PushPair(11, 1);
  CheckCounts(pads.End(), 2, 0, 10);
}
END_TEST

START_TEST(dist_offset_shifts_the_deadline_of_distorted_frames) {
  LivePads pads(TwoPads::Properties{{"dist-offset", "20000000"}});
  pads.Push(Side::kReference, SmallFrame(0));
  pads.Push(Side::kDistorted, SmallFrame(1));
  fail_unless(pads.recorder().WaitFor("unpaired ref_sink 0"));
  fail_unless_equals_uint64(pads.PassDeadline(), kPeriod + 20 * GST_MSECOND + kUpstreamLatency + kPeriod);
  fail_unless(pads.recorder().WaitFor("unpaired dist_sink 0"));
}
END_TEST

START_TEST(live_run_ends_when_the_reference_has_ended_and_the_latency_has_passed) {
  LivePads pads;
  pads.PushPair(0);
  pads.Push(Side::kReference, gst_event_new_eos());
  fail_unless_equals_uint64(pads.PassDeadline(), kPeriod + kUpstreamLatency + kPeriod);
  fail_unless(pads.recorder().WaitFor("eos"));
  CheckCounts(pads.recorder().reports(), 1, 0, 0);
}
END_TEST

START_TEST(live_run_goes_on_when_the_distorted_input_has_ended) {
  LivePads pads;
  pads.PushPair(0);
  pads.Push(Side::kDistorted, gst_event_new_eos());
  for (int n = 1; n < 4; ++n) {
    pads.Push(Side::kReference, SmallFrame(n));
    fail_unless(pads.recorder().WaitFor(Buffer(n)));
  }
  fail_unless_equals_int(pads.recorder().reports().Count("pooled"), 0);
  pads.Push(Side::kReference, gst_event_new_eos());
  fail_unless(pads.recorder().WaitFor("eos"));
  CheckCounts(pads.recorder().reports(), 1, 3, 0);
}
END_TEST

START_TEST(inputs_that_end_together_end_a_live_run_at_once) {
  LivePads pads;
  pads.PushPair(0);
  CheckCounts(pads.End(), 1, 0, 0);
  fail_unless_equals_uint64(pads.now(), 0);
}
END_TEST

START_TEST(frame_without_timestamps_of_its_own_rate_ends_a_live_run_too) {
  LivePads pads({}, "video/x-raw,format=I420,width=16,height=16,framerate=0/1");
  pads.Push(Side::kReference, SmallFrame(0, 0, GST_CLOCK_TIME_NONE));
  pads.Push(Side::kDistorted, SmallFrame(0, 0, GST_CLOCK_TIME_NONE));
  fail_unless(pads.recorder().WaitFor("frame 0"));
  pads.Push(Side::kReference, gst_event_new_eos());
  fail_unless_equals_uint64(pads.PassDeadline(), kUpstreamLatency);
  fail_unless(pads.recorder().WaitFor("eos"));
}
END_TEST

START_TEST(latency_property_is_the_users_again_after_a_run) {
  for (const char* users : {"0", "7000000", "20000000000"}) {
    TwoPads pads(TwoPads::Properties{{"latency", users}});
    pads.SetCaps(kSmallCaps);
    pads.Push(Side::kReference, SmallFrame(0));
    pads.Push(Side::kDistorted, SmallFrame(0));
    CheckCounts(pads.End(), 1, 0, 0);
    gst_element_set_state(pads.element(), GST_STATE_NULL);
    fail_unless_equals_uint64(LatencyOf(pads.element()), g_ascii_strtoull(users, nullptr, 10));
  }
}
END_TEST

START_TEST(file_against_a_live_input_waits_no_longer_than_the_live_latency) {
  LivePads pads;
  gst_harness_set_live(pads.harness(Side::kReference), FALSE);
  gst_harness_set_live(pads.harness(Side::kDistorted), FALSE);
  // New caps raise the question, should the first ones have raised it before the inputs became files.
  pads.SetCaps("video/x-raw,format=I420,width=16,height=16,framerate=25/1,pixel-aspect-ratio=1/1");
  pads.PushPair(0);
  fail_unless(pads.recorder().WaitFor("frame 0"));
  fail_unless(LatencyOf(pads.element()) > 0);  // how a run that is not live opens the pads
  gst_harness_set_live(pads.harness(Side::kDistorted), TRUE);
  pads.SetCaps("video/x-raw,format=I420,width=16,height=16,framerate=25/1,interlace-mode=progressive");
  pads.PushPair(1);
  fail_unless_equals_uint64(LatencyOf(pads.element()), 0);
}
END_TEST

START_TEST(input_that_never_begins_is_warned_of_once_by_its_name) {
  const Side flowing = _i == 0 ? Side::kReference : Side::kDistorted;
  TwoPads pads;
  pads.SetCaps(flowing, kSmallCaps);
  const gint64 start = g_get_monotonic_time();
  pads.Push(flowing, SmallFrame(0));
  fail_unless(pads.recorder().WaitFor("warning"));
  fail_unless(g_get_monotonic_time() - start >= 5 * G_USEC_PER_SEC);
  const Reports reports = pads.recorder().reports();
  CheckStartsWith(reports.warnings[0].text, _i == 0 ? "Nothing has come to dist_sink" : "Nothing has come to ref_sink");
  g_usleep(1500 * 1000);  // the watch looks every second
  fail_unless_equals_int(pads.recorder().reports().Count("warning"), 1);
}
END_TEST

// Pushes reference frames from a thread until the element holds them back.
class Pushing {
 public:
  Pushing(TwoPads* pads, int count)
      : thread_([=] {
          for (int n = 0; n < count && pads->Push(Side::kReference, SmallFrame(n)) == GST_FLOW_OK; ++n) ++pushed_;
        }) {}
  ~Pushing() { thread_.join(); }
  int pushed() const { return pushed_; }

 private:
  std::atomic<int> pushed_{0};
  std::thread thread_;
};

guint QueueOf(GstElement* element, const char* field) {
  GstStructure* stats;
  g_object_get(element, "stats", &stats, nullptr);
  guint queued = 0;
  fail_unless(gst_structure_get_uint(stats, field, &queued));
  gst_structure_free(stats);
  return queued;
}

START_TEST(lead_is_bounded_in_frames_and_in_time_and_too_long_a_stall_is_an_error) {
  const char* const frames[] = {"9", "1000"};
  const char* const time[] = {"5000000000", "400000000"};
  TwoPads pads(TwoPads::Properties{
      {"max-lead-frames", frames[_i]}, {"max-lead-time", time[_i]}, {"stall-timeout", "700000000"}});
  pads.SetCaps(kSmallCaps);
  const int bound = _i == 0 ? 9 : 10;
  {
    const Pushing pushing(&pads, 100);
    while (pushing.pushed() < bound) g_usleep(1000);
    g_usleep(100 * 1000);
    fail_unless_equals_int(pushing.pushed(), bound);
    fail_unless_equals_int(static_cast<int>(QueueOf(pads.element(), "queue-ref")), bound);
    fail_unless_equals_int(static_cast<int>(QueueOf(pads.element(), "queue-dist")), 0);
    pads.recorder().WaitForEnd();
  }
  CheckError(pads.recorder().reports(), {"ref_sink", "max-lead-frames", "max-lead-time", "stall-timeout"});
}
END_TEST

START_TEST(paused_pipeline_that_has_shown_a_frame_may_stand_still) {
  TwoPads pads(TwoPads::Properties{{"max-lead-frames", "5"}, {"stall-timeout", "300000000"}});
  pads.SetCaps(kSmallCaps);
  pads.Push(Side::kReference, SmallFrame(0));
  pads.Push(Side::kDistorted, SmallFrame(0));
  fail_unless(pads.recorder().WaitFor(Buffer(0)));
  gst_element_set_state(pads.element(), GST_STATE_PAUSED);
  {
    std::thread reference([&] {
      for (int n = 1; n < 20; ++n) pads.Push(Side::kReference, SmallFrame(n));
    });
    while (QueueOf(pads.element(), "queue-ref") < 5) g_usleep(1000);
    g_usleep(900 * 1000);
    CheckNoErrors(pads.recorder().reports(), "paused");
    gst_element_set_state(pads.element(), GST_STATE_PLAYING);
    for (int n = 1; n < 20; ++n) pads.Push(Side::kDistorted, SmallFrame(n));
    reference.join();
  }
  CheckCounts(pads.End(), 20, 0, 0);
}
END_TEST

// Whole pipelines in real time.

constexpr char kLiveSource[] =
    "videotestsrc is-live=true num-buffers=25 pattern=ball ! video/x-raw,format=I420,width=64,height=64,"
    "framerate=25/1 ! ";

// A live pipeline, and how late each frame left the element, by its clock.
struct LiveRun {
  Reports reports;
  std::vector<GstClockTimeDiff> delays;  // ns after the frame's running time
  GstClockTime latency;                  // of the whole pipeline
};

LiveRun RunLive(const std::string& description) {
  LiveRun result;
  PipelineRun run(description);
  const GstPtr<GstPad> src(gst_element_get_static_pad(run.element("m").get(), "src"));
  gst_pad_add_probe(
      src.get(), GST_PAD_PROBE_TYPE_BUFFER,
      [](GstPad* pad, GstPadProbeInfo* info, gpointer delays) {
        const GstPtr<GstElement> element(gst_pad_get_parent_element(pad));
        static_cast<std::vector<GstClockTimeDiff>*>(delays)->push_back(GST_CLOCK_DIFF(
            GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info)), gst_element_get_current_running_time(element.get())));
        return GST_PAD_PROBE_OK;
      },
      &result.delays, nullptr);
  run.SetState(GST_STATE_PLAYING);
  const GstPtr<GstQuery> query(gst_query_new_latency());
  fail_unless(gst_element_query(run.pipeline(), query.get()));
  gboolean live;
  gst_query_parse_latency(query.get(), &live, &result.latency, nullptr);
  fail_unless(live);
  run.recorder().WaitForEnd();
  run.SetState(GST_STATE_NULL);
  result.reports = run.recorder().reports();
  return result;
}

START_TEST(two_live_sources_are_compared_frame_by_frame_as_they_come) {
  // No machine is so busy that a frame arrives three seconds late.
  const LiveRun run = RunLive(std::string(kLiveSource) + "m.ref_sink " + kLiveSource +
                              "m.dist_sink psnrhvs name=m align=start latency=3000000000 ! queue max-size-time=0 ! "
                              "fakesink sync=true processing-deadline=0");
  CheckCounts(run.reports, 25, 0, 0);
  CheckAllInfinite(run.reports);
  fail_unless_equals_int(static_cast<int>(run.reports.outputs.size()), 25);
  for (size_t n = 0; n < 25; ++n) {
    // Each source counts from when it began.
    const FrameReport &zeroth = run.reports.frames[0], &nth = run.reports.frames[n];
    fail_unless_equals_uint64(nth.reference.running_time - zeroth.reference.running_time, n * kPeriod);
    fail_unless_equals_uint64(nth.dist_running_time - zeroth.dist_running_time, n * kPeriod);
    fail_unless(run.reports.outputs[n].meta->reference.index == n);
  }
  // The sources', the element's and the property.
  fail_unless_equals_uint64(run.latency, kPeriod + kPeriod + 3 * GST_SECOND);
  // Pairs leave when they are there and not when they must. The median, as the machine may be busy.
  std::vector<GstClockTimeDiff> delays = run.delays;
  std::sort(delays.begin(), delays.end());
  fail_unless(delays[12] < static_cast<GstClockTimeDiff>(3 * kPeriod), "%g ms", static_cast<double>(delays[12]) / 1e6);
}
END_TEST

START_TEST(live_frames_that_miss_their_deadline_are_the_only_ones_not_scored) {
  const Reports reports = RunLive(std::string(kLiveSource) +
                                  "tee name=t t. ! queue ! m.ref_sink t. ! queue ! m.dist_sink psnrhvs name=m ! "
                                  "fakesink sync=true")
                              .reports;
  CheckNoErrors(reports, "live");
  fail_unless_equals_int(static_cast<int>(reports.outputs.size()), 25);
  const Summary& pooled = reports.pooled[0];
  fail_unless_equals_uint64(pooled.frames + pooled.unpaired_ref + pooled.skipped, 25);
  CheckAllInfinite(reports);
  guint64 scored = 0;
  for (size_t n = 0; n < 25; ++n) {
    fail_unless_equals_uint64(reports.outputs[n].pts - reports.outputs[0].pts, n * kPeriod);
    scored += reports.outputs[n].metas == 1;
  }
  fail_unless_equals_uint64(scored, pooled.frames);
  for (const FrameReport& frame : reports.frames) {
    fail_unless_equals_uint64(frame.dist_running_time, frame.reference.running_time);
  }
}
END_TEST

START_TEST(live_tee_with_a_look_ahead_pairs_every_frame_behind_a_queue_that_covers_it) {
  const Reports reports = RunPipeline(
      "videotestsrc is-live=true num-buffers=60 pattern=ball ! video/x-raw,format=I420,width=64,height=64,"
      "framerate=50/1 ! tee name=t t. ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=0 ! m.ref_sink "
      "t. ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=0 ! x264enc bitrate=300 rc-lookahead=20 "
      "threads=1 ! avdec_h264 max-threads=1 ! m.dist_sink psnrhvs name=m latency=500000000 ! fakesink");
  CheckCounts(reports, 60, 0, 0, "look-ahead");
}
END_TEST

Suite* LiveSuite() {
  Suite* suite = suite_create("psnrhvs: live inputs");
  TCase* tests = tcase_create("general");
  tcase_set_timeout(tests, 180);
  suite_add_tcase(suite, tests);
  tcase_add_test(tests, latency_is_upstreams_and_one_frame_and_the_property);
  tcase_add_test(tests, stalled_distorted_input_lets_the_reference_go_at_its_deadline_and_recovers_at_once);
  tcase_add_test(tests, distorted_input_that_never_begins_lets_each_reference_frame_go_at_its_own_deadline);
  tcase_add_test(tests, source_that_does_not_tell_yet_that_it_is_live_is_asked_again);
  tcase_add_test(tests, frames_that_come_too_late_are_unpaired_and_harm_no_later_pair);
  tcase_add_test(tests, stalled_reference_does_not_hold_the_distorted_input);
  tcase_add_test(tests, dist_offset_shifts_the_deadline_of_distorted_frames);
  tcase_add_test(tests, live_run_ends_when_the_reference_has_ended_and_the_latency_has_passed);
  tcase_add_test(tests, live_run_goes_on_when_the_distorted_input_has_ended);
  tcase_add_test(tests, inputs_that_end_together_end_a_live_run_at_once);
  tcase_add_test(tests, frame_without_timestamps_of_its_own_rate_ends_a_live_run_too);
  tcase_add_test(tests, latency_property_is_the_users_again_after_a_run);
  tcase_add_test(tests, file_against_a_live_input_waits_no_longer_than_the_live_latency);
  tcase_add_loop_test(tests, input_that_never_begins_is_warned_of_once_by_its_name, 0, 2);
  tcase_add_loop_test(tests, lead_is_bounded_in_frames_and_in_time_and_too_long_a_stall_is_an_error, 0, 2);
  tcase_add_test(tests, paused_pipeline_that_has_shown_a_frame_may_stand_still);
  tcase_add_test(tests, two_live_sources_are_compared_frame_by_frame_as_they_come);
  tcase_add_test(tests, live_frames_that_miss_their_deadline_are_the_only_ones_not_scored);
  tcase_add_test(tests, live_tee_with_a_look_ahead_pairs_every_frame_behind_a_queue_that_covers_it);
  return suite;
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) {
  psnrhvs::testing::InitChecks(&argc, &argv);
  return gst_check_run_suite(psnrhvs::testing::LiveSuite(), "element_live", __FILE__);
}
