// Streams that change while they run: ends that were none, new links, seeks after the end, shifted and rated segments,
// starts that differ, timestamps on one side, and files that can grow no further.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <thread>

#include "tests/gst/element_checks.h"

namespace psnrhvs::testing {
namespace {

void PushPair(TwoPads* pads, int n, GstClockTime pts) {
  pads->Push(Side::kReference, SmallFrame(n, pts));
  pads->Push(Side::kDistorted, SmallFrame(n, pts));
}

void PushSegment(TwoPads* pads, Side side, double rate, GstClockTime start, GstClockTime base) {
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  segment.rate = rate;
  segment.start = segment.time = start;
  segment.base = base;
  pads->Push(side, gst_event_new_segment(&segment));
}

// What a pad gets at the start of a stream.
void BeginStream(TwoPads* pads, Side side, GstClockTime base = 0) {
  pads->Push(side, gst_event_new_stream_start("next"));
  const GstPtr<GstCaps> caps(gst_caps_from_string(kSmallCaps));
  pads->Push(side, gst_event_new_caps(caps.get()));
  PushSegment(pads, side, 1, 0, base);
}

START_TEST(rate_and_base_of_segments_are_taken_into_account) {
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  // Twice as fast from 4 s on, beginning at 10 s of running time; the distorted input as it is.
  PushSegment(&pads, Side::kReference, 2, 4 * GST_SECOND, 10 * GST_SECOND);
  for (int n = 0; n < 5; ++n) {
    pads.Push(Side::kReference, SmallFrame(n, 4 * GST_SECOND + 2 * n * kPeriod));
    pads.Push(Side::kDistorted, SmallFrame(n, 10 * GST_SECOND + n * kPeriod));
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 5, 0, 0);
  CheckAllInfinite(reports);
  fail_unless_equals_uint64(reports.frames[4].reference.running_time, 10 * GST_SECOND + 4 * kPeriod);
  fail_unless_equals_uint64(reports.frames[4].reference.stream_time, 4 * GST_SECOND + 8 * kPeriod);
}
END_TEST

START_TEST(frames_played_fast_pair_within_half_of_the_time_that_they_are_shown) {
  // Four times as fast, frames are 10 ms apart; one is lost on each side, next to each other.
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  const double rate = _i == 0 ? 4 : -4;
  for (Side side : {Side::kReference, Side::kDistorted}) {
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    segment.rate = rate;
    segment.stop = 16 * kPeriod;
    pads.Push(side, gst_event_new_segment(&segment));
  }
  for (int n = 0; n < 16; ++n) {
    const int frame = rate > 0 ? n : 15 - n;
    if (n != 7) pads.Push(Side::kReference, SmallFrame(frame));
    if (n != 8) pads.Push(Side::kDistorted, SmallFrame(frame));
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 14, 1, 1);
  CheckAllInfinite(reports);
}
END_TEST

START_TEST(frames_played_slowly_pair_within_half_of_the_time_that_they_are_shown) {
  // A quarter as fast, frames are 160 ms apart and 60 ms is near.
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  for (Side side : {Side::kReference, Side::kDistorted}) PushSegment(&pads, side, 0.25, 0, 0);
  for (int n = 0; n < 5; ++n) {
    pads.Push(Side::kReference, SmallFrame(n));
    pads.Push(Side::kDistorted, SmallFrame(n, n * kPeriod + 15 * GST_MSECOND));
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 5, 0, 0);
  CheckAllInfinite(reports);
}
END_TEST

START_TEST(milliseconds_of_a_container_pair_with_exact_stamps) {
  TwoPads pads;
  pads.SetCaps("video/x-raw,format=I420,width=16,height=16,framerate=60000/1001");
  const guint64 count = 60;
  for (guint64 n = 0; n < count; ++n) {
    const GstClockTime exact = gst_util_uint64_scale(n, 1001 * GST_SECOND, 60000);
    const GstClockTime rounded = (exact + GST_MSECOND / 2) / GST_MSECOND * GST_MSECOND;
    pads.Push(Side::kReference, SmallFrame(static_cast<int>(n), exact, GST_CLOCK_TIME_NONE));
    pads.Push(Side::kDistorted, SmallFrame(static_cast<int>(n), rounded, 17 * GST_MSECOND));
  }
  const Reports reports = pads.End();
  CheckCounts(reports, count, 0, 0);
  CheckAllInfinite(reports);
}
END_TEST

START_TEST(timestamps_of_a_variable_rate_pair_where_they_are_equal) {
  TwoPads pads;
  pads.SetCaps("video/x-raw,format=I420,width=16,height=16,framerate=0/1");
  const GstClockTime stamps[] = {0, 33, 40, 140, 150, 151, 400};
  int n = 0;
  for (GstClockTime stamp : stamps) {
    pads.Push(Side::kReference, SmallFrame(n, stamp * GST_MSECOND, GST_CLOCK_TIME_NONE));
    if (n != 4) pads.Push(Side::kDistorted, SmallFrame(n, stamp * GST_MSECOND, GST_CLOCK_TIME_NONE));
    ++n;
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 6, 1, 0);
  CheckAllInfinite(reports);
}
END_TEST

START_TEST(inputs_that_must_be_seen_far_ahead_to_be_paired_do_not_hold_each_other_up) {
  // Each frame is nearer to the next one of the other input than to the one before, so that all there are decide.
  TwoPads pads(TwoPads::Properties{{"tolerance", "1000000000"}});
  pads.SetCaps("video/x-raw,format=I420,width=16,height=16,framerate=0/1");
  std::vector<GstClockTime> times[2];
  GstClockTime time = 0;
  for (int k = 0; k < 40; ++k) {
    times[k % 2].push_back(time);
    time += static_cast<GstClockTime>(100 - k) * GST_MSECOND;
  }
  const auto feed = [&](Side side) {
    int n = 0;
    for (GstClockTime pts : times[static_cast<int>(side)]) pads.Push(side, SmallFrame(n++, pts, GST_CLOCK_TIME_NONE));
    pads.Push(side, gst_event_new_eos());
  };
  std::thread reference(feed, Side::kReference);
  feed(Side::kDistorted);
  reference.join();
  fail_unless(pads.recorder().WaitFor("eos"));
  const Reports reports = pads.recorder().reports();
  CheckNoErrors(reports, "all seen");
  const Summary& pooled = reports.pooled[0];
  fail_unless(pooled.frames + pooled.unpaired_ref == 20 && pooled.frames + pooled.unpaired_dist == 20);
}
END_TEST

START_TEST(timestamps_on_one_side_only_are_an_error_that_says_what_to_set) {
  const Side untimed = _i == 0 ? Side::kReference : Side::kDistorted;
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  for (int n = 0; n < 2; ++n) {
    for (Side side : {Side::kReference, Side::kDistorted}) {
      pads.Push(side, SmallFrame(n, side == untimed ? GST_CLOCK_TIME_NONE : n * kPeriod));
    }
  }
  pads.recorder().WaitForEnd();
  CheckError(pads.recorder().reports(),
             {_i == 0 ? "The reference input carries no timestamps" : "The distorted input carries no timestamps",
              "do-timestamp=true", "pairing=order"});
}
END_TEST

START_TEST(shift_between_the_starts_is_estimated_and_told_and_never_applied) {
  const gint64 shift = 7 * static_cast<gint64>(kPeriod) + 3000000;
  const auto run = [&](const TwoPads::Properties& properties) {
    TwoPads pads(properties);
    pads.SetCaps(kSmallCaps);
    for (int n = 0; n < 40; ++n) {
      pads.Push(Side::kReference, SmallFrame(n));
      pads.Push(Side::kDistorted, SmallFrame(n, n * kPeriod + static_cast<GstClockTime>(shift)));
    }
    return pads.End();
  };
  const Reports reports = run({});
  CheckCounts(reports, 33, 7, 7);
  fail_unless(reports.pooled[0].start_offset == shift);
  fail_unless(reports.warnings.back().text.find("dist-offset=-" + std::to_string(shift)) != std::string::npos, "%s",
              reports.warnings.back().text.c_str());
  const Reports shifted = run(TwoPads::Properties{{"dist-offset", "-" + std::to_string(shift)}});
  CheckCounts(shifted, 40, 0, 0);
  CheckAllInfinite(shifted);
  fail_if(shifted.pooled[0].start_offset.has_value());
}
END_TEST

START_TEST(input_that_begins_again_after_its_end_goes_on) {
  const Side side = _i == 0 ? Side::kReference : Side::kDistorted;
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  PushPair(&pads, 0, 0);
  fail_unless(pads.recorder().WaitFor("frame 0"));
  pads.Push(side, gst_event_new_eos());
  BeginStream(&pads, side, kPeriod);
  pads.Push(side, SmallFrame(1, 0));
  pads.Push(Other(side), SmallFrame(1, kPeriod));
  const Reports reports = pads.End();
  CheckCounts(reports, 2, 0, 0);
  CheckAllInfinite(reports);
}
END_TEST

START_TEST(pad_that_is_linked_anew_goes_on_counting) {
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  PushPair(&pads, 0, 0);
  fail_unless(pads.recorder().WaitFor("frame 0"));
  const GstPtr<GstPad> peer(gst_pad_get_peer(pads.pad(Side::kDistorted)));
  fail_unless(gst_pad_unlink(peer.get(), pads.pad(Side::kDistorted)));
  pads.Push(Side::kReference, SmallFrame(1));
  const GstPtr<GstPad> other(gst_pad_new("other", GST_PAD_SRC));
  gst_object_ref_sink(other.get());
  gst_pad_set_active(other.get(), TRUE);
  fail_unless(gst_pad_link(other.get(), pads.pad(Side::kDistorted)) == GST_PAD_LINK_OK);
  gst_pad_push_event(other.get(), gst_event_new_stream_start("other"));
  const GstPtr<GstCaps> caps(gst_caps_from_string(kSmallCaps));
  gst_pad_push_event(other.get(), gst_event_new_caps(caps.get()));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(other.get(), gst_event_new_segment(&segment));
  fail_unless_equals_int(gst_pad_push(other.get(), SmallFrame(1).release()), GST_FLOW_OK);
  fail_unless(pads.recorder().WaitFor("frame 1"));
  gst_pad_push_event(other.get(), gst_event_new_eos());
  pads.Push(Side::kReference, gst_event_new_eos());
  pads.recorder().WaitFor("eos");
  const Reports reports = pads.recorder().reports();
  CheckCounts(reports, 2, 0, 0);
  CheckAllInfinite(reports);
  gst_element_set_state(pads.element(), GST_STATE_NULL);
  gst_pad_unlink(other.get(), pads.pad(Side::kDistorted));
  gst_pad_link(peer.get(), pads.pad(Side::kDistorted));
}
END_TEST

START_TEST(other_size_on_one_side_is_an_error_only_when_a_pair_disagrees) {
  const char kOther[] = "video/x-raw,format=I420,width=32,height=16,framerate=25/1";
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  PushPair(&pads, 0, 0);
  pads.SetCaps(Side::kReference, kOther);
  pads.SetCaps(Side::kReference, kSmallCaps);
  PushPair(&pads, 1, kPeriod);
  CheckCounts(pads.End(), 2, 0, 0);
}
END_TEST

START_TEST(results_file_goes_on_after_the_end_and_a_seek) {
  const TemporaryDirectory directory;
  const std::string clip = directory / "clip.mkv";
  fail_unless(
      RunCommand("gst-launch-1.0 -q videotestsrc num-buffers=30 pattern=ball ! "
                 "video/x-raw,format=I420,width=64,height=64,framerate=25/1 ! x264enc key-int-max=10 ! "
                 "matroskamux ! filesink location=" +
                 clip));
  const std::string source = "filesrc location=" + clip + " ! matroskademux ! h264parse ! avdec_h264 ! ";
  PipelineRun run(source + "m.ref_sink " + source +
                  "m.dist_sink psnrhvs name=m backend=cpu results-filename=" + directory / "out.jsonl" + " ! fakesink");
  gst_element_set_state(run.pipeline(), GST_STATE_PLAYING);
  run.recorder().WaitForEnd();
  CheckCounts(run.recorder().reports(), 30, 0, 0);
  run.recorder().Clear();
  fail_unless(gst_element_seek_simple(run.pipeline(), GST_FORMAT_TIME,
                                      static_cast<GstSeekFlags>(GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_ACCURATE),
                                      20 * kPeriod));
  run.recorder().WaitForEnd();
  const Reports reports = run.recorder().reports();
  CheckNoErrors(reports, "after the seek");
  fail_unless_equals_int(static_cast<int>(reports.frames.size()), 10);
  fail_unless_equals_uint64(reports.pooled[0].frames, 40);
  fail_unless_equals_uint64(reports.frames[0].reference.timestamp, 20 * kPeriod);
  CheckAllInfinite(reports);
  run.SetState(GST_STATE_NULL);
  const std::string text = ReadFile(directory / "out.jsonl");
  int frames = 0, pooled = 0;
  for (size_t at = 0; (at = text.find(R"({"type":")", at)) != std::string::npos; ++at) {
    frames += text.compare(at + 9, 5, "frame") == 0;
    pooled += text.compare(at + 9, 6, "pooled") == 0;
  }
  fail_unless(frames == 40 && pooled == 1, "%d frames, %d summaries", frames, pooled);
}
END_TEST

// A clip of `frames` balls with a key frame every `interval` frames.
std::string Clip(const TemporaryDirectory& directory, int frames, int interval) {
  const std::string clip = directory / "clip" + std::to_string(interval) + ".mkv";
  fail_unless(RunCommand("gst-launch-1.0 -q videotestsrc num-buffers=" + std::to_string(frames) +
                         " pattern=ball ! video/x-raw,format=I420,width=320,height=240,framerate=25/1 ! x264enc "
                         "bitrate=8000 key-int-max=" +
                         std::to_string(interval) + " ! matroskamux ! filesink location=" + clip));
  return clip;
}

bool SeekTo(const PipelineRun& run, double rate, int flags, GstSeekType start_type, gint64 start,
            GstSeekType stop_type = GST_SEEK_TYPE_NONE, gint64 stop = -1) {
  return gst_element_seek(run.pipeline(), rate, GST_FORMAT_TIME, static_cast<GstSeekFlags>(flags), start_type, start,
                          stop_type, stop);
}

START_TEST(seek_to_key_frames_takes_both_inputs_to_the_same_place) {
  const TemporaryDirectory directory;
  const auto source = [&](int interval) {
    return "filesrc location=" + Clip(directory, 60, interval) + " ! matroskademux ! h264parse ! avdec_h264 ! ";
  };
  PipelineRun run(source(20) + "m.ref_sink " + source(37) + "m.dist_sink psnrhvs name=m ! fakesink");
  fail_unless(run.SetState(GST_STATE_PAUSED));
  fail_unless(SeekTo(run, 1, GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_KEY_UNIT, GST_SEEK_TYPE_SET, 30 * kPeriod));
  run.recorder().Clear();
  fail_unless(run.SetState(GST_STATE_PAUSED));
  const Reports reports = run.PlayToEnd();
  CheckNoErrors(reports, "after the seek");
  fail_unless(reports.unpaired.empty());
  // The first is on its way while the record is cleared.
  fail_unless(reports.frames.size() == 30 || reports.frames.size() == 29, "%zu frames", reports.frames.size());
  fail_unless_equals_uint64(reports.frames.back().reference.stream_time, 59 * kPeriod);
  for (const FrameReport& frame : reports.frames) {
    // A frame against its neighbour scores below 30 dB.
    fail_unless(frame.score.combined_score_db > 45, "%g dB", frame.score.combined_score_db);
  }
}
END_TEST

START_TEST(seek_that_leaves_the_place_to_the_inputs_is_refused_and_disturbs_nothing) {
  const std::string source = "videotestsrc num-buffers=60 pattern=ball ! " + std::string(kSmallCaps) + " ! ";
  PipelineRun run(source + "m.ref_sink " + source + "m.dist_sink psnrhvs name=m ! fakesink");
  fail_unless(run.SetState(GST_STATE_PAUSED));
  constexpr int kFlush = GST_SEEK_FLAG_FLUSH, kExact = kFlush | GST_SEEK_FLAG_ACCURATE;
  fail_if(SeekTo(run, 1, GST_SEEK_FLAG_ACCURATE, GST_SEEK_TYPE_SET, 0), "without a flush");
  fail_if(SeekTo(run, 2, kExact, GST_SEEK_TYPE_NONE, -1), "from where each is");
  fail_if(SeekTo(run, 1, kFlush, GST_SEEK_TYPE_END, -1), "from the end of each");
  fail_if(SeekTo(run, -1, kExact, GST_SEEK_TYPE_SET, 0), "backwards from the end of each");
  CheckCounts(run.PlayToEnd(), 60, 0, 0);
}
END_TEST

START_TEST(seek_that_only_one_input_can_follow_is_refused_and_disturbs_nothing) {
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  PushPair(&pads, 0, 0);
  const Side fixed = _i == 0 ? Side::kReference : Side::kDistorted;
  gst_pad_set_query_function(pads.harness(fixed)->srcpad,
                             [](GstPad* pad, GstObject* parent, GstQuery* query) -> gboolean {
                               if (GST_QUERY_TYPE(query) != GST_QUERY_SEEKING)
                                 return gst_pad_query_default(pad, parent, query);
                               gst_query_set_seeking(query, GST_FORMAT_TIME, FALSE, 0, -1);
                               return TRUE;
                             });
  fail_if(SendSeek(pads));
  for (Side side : {Side::kReference, Side::kDistorted}) {
    while (GstEvent* event = gst_harness_try_pull_upstream_event(pads.harness(side))) {
      fail_if(GST_EVENT_TYPE(event) == GST_EVENT_SEEK);
      gst_event_unref(event);
    }
  }
  PushPair(&pads, 1, kPeriod);
  CheckCounts(pads.End(), 2, 0, 0);
}
END_TEST

START_TEST(seek_that_fails_on_one_input_is_an_error) {
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  PushPair(&pads, 0, 0);
  const Side failing = _i == 0 ? Side::kReference : Side::kDistorted;
  gst_pad_set_event_function(pads.harness(failing)->srcpad, [](GstPad*, GstObject*, GstEvent* event) -> gboolean {
    const gboolean handled = GST_EVENT_TYPE(event) != GST_EVENT_SEEK;
    gst_event_unref(event);
    return handled;
  });
  fail_if(SendSeek(pads));
  const Reports reports = pads.recorder().reports();
  fail_unless_equals_int(static_cast<int>(reports.errors.size()), 1);
  CheckStartsWith(reports.errors[0].text, "A seek failed on one of the inputs");
}
END_TEST

START_TEST(refusal_downstream_is_an_error_also_when_the_sources_have_sent_everything) {
  TwoPads pads;
  pads.SetCaps(kSmallCaps);
  const GstFlowReturn refusals[] = {GST_FLOW_NOT_LINKED, GST_FLOW_NOT_NEGOTIATED, GST_FLOW_NOT_SUPPORTED};
  const char* const texts[] = {"Nothing takes what leaves on src",
                               "What follows src does not take the reference's format, I420 16x16",
                               "What follows src stopped with not-supported"};
  static GstFlowReturn refusal;
  refusal = refusals[_i];
  gst_pad_set_chain_function(pads.harness(Side::kReference)->sinkpad,
                             [](GstPad*, GstObject*, GstBuffer* buffer) -> GstFlowReturn {
                               gst_buffer_unref(buffer);
                               return refusal;
                             });
  pads.Push(Side::kReference, SmallFrame(0));
  pads.Push(Side::kReference, gst_event_new_eos());
  pads.Push(Side::kDistorted, SmallFrame(0));
  pads.Push(Side::kDistorted, gst_event_new_eos());
  pads.recorder().WaitForEnd();
  const Reports reports = pads.recorder().reports();
  fail_unless_equals_int(static_cast<int>(reports.errors.size()), 1);
  CheckStartsWith(reports.errors[0].text, texts[_i]);
}
END_TEST

constexpr char kTwoSources[] =
    "videotestsrc num-buffers=400 ! video/x-raw,width=64,height=64 ! m.ref_sink "
    "videotestsrc num-buffers=400 ! video/x-raw,width=64,height=64 ! m.dist_sink psnrhvs name=m ";

START_TEST(reader_that_leaves_the_results_pipe_is_an_error) {
  const TemporaryDirectory directory;
  const std::string log = directory / "log";
  const auto run = [&](const char* format, const char* reader) {
    return RunCommand("{ gst-launch-1.0 -q " + std::string(kTwoSources) +
                      "results-filename=/dev/stdout results-format=" + format + " ! fakesink 2>" + log +
                      "; echo $? >>" + log + "; } | " + reader + " >" + directory / "out");
  };
  fail_unless(run("csv", "head -n 1"));
  const std::string text = ReadFile(log);
  fail_unless(
      text.find("GstPsnrHvs:m: The results file '/dev/stdout' cannot be written: Broken pipe.") != std::string::npos &&
          text.substr(text.size() - 3) == "\n1\n",
      "%s", text.c_str());
  // One that stays gets everything once, also at the stop after the end.
  for (const char* format : {"json", "jsonl"}) {
    fail_unless(run(format, "cat"));
    CheckText(ReadFile(log), "0\n");
    const std::string out = ReadFile(directory / "out");
    const size_t first = out.find("pooled");
    fail_unless(first != std::string::npos && out.back() == '\n');
    if (std::string(format) == "jsonl") fail_unless(out.find("\"pooled\"", first + 2) == std::string::npos);
  }
}
END_TEST

START_TEST(file_that_may_grow_no_further_is_an_error_and_keeps_its_whole_lines) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out.csv";
  fail_if(RunCommand(std::string("trap '' XFSZ; ulimit -f 8; gst-launch-1.0 -q ") + kTwoSources +
                     "results-filename=" + out + " ! fakesink 2>" + directory / "log"));
  const std::string log = ReadFile(directory / "log"), text = ReadFile(out);
  fail_unless(log.find("ERROR: from element") != std::string::npos && log.find("GstPsnrHvs:m") != std::string::npos,
              "%s", log.c_str());
  fail_unless(text.size() > 2000 && text.back() == '\n', "%zu bytes", text.size());
}
END_TEST

START_TEST(full_disk_is_an_error) {
  const TemporaryDirectory directory;
  fail_if(RunCommand(std::string("gst-launch-1.0 -q ") + kTwoSources +
                     "results-filename=/dev/full results-format=jsonl ! fakesink 2>" + directory / "log"));
  const std::string log = ReadFile(directory / "log");
  fail_unless(log.find("GstPsnrHvs:m") != std::string::npos && log.find("/dev/full") != std::string::npos, "%s",
              log.c_str());
}
END_TEST

START_TEST(two_hundred_elements_run_in_one_process) {
  std::vector<std::unique_ptr<TwoPads>> elements;
  for (int i = 0; i < 200; ++i) {
    elements.push_back(std::make_unique<TwoPads>(TwoPads::Properties{{"backend", "cpu"}}));
    elements.back()->SetCaps(kSmallCaps);
  }
  for (int n = 0; n < 3; ++n) {
    for (const auto& element : elements) PushPair(element.get(), n, n * kPeriod);
  }
  for (const auto& element : elements) {
    const Reports reports = element->End();
    CheckCounts(reports, 3, 0, 0);
    CheckAllInfinite(reports);
  }
}
END_TEST

START_TEST(nothing_leaks_according_to_gstreamers_tracer) {
  const TemporaryDirectory directory;
  fail_unless(
      RunCommand(std::string("GST_DEBUG_NO_COLOR=1 GST_TRACERS=leaks GST_DEBUG=GST_TRACER:7 gst-launch-1.0 -q ") +
                 kTwoSources + "results-filename=" + directory / "out.json" + " ! fakesink 2>" + directory / "log"));
  const std::string log = ReadFile(directory / "log");
  fail_if(log.find("object-alive, type-name=(string)G") != std::string::npos, "%s", log.c_str());
}
END_TEST

Suite* ChangesSuite() {
  Suite* suite = suite_create("psnrhvs: changing streams");
  TCase* tests = tcase_create("general");
  tcase_set_timeout(tests, 180);
  suite_add_tcase(suite, tests);
  tcase_add_test(tests, rate_and_base_of_segments_are_taken_into_account);
  tcase_add_loop_test(tests, frames_played_fast_pair_within_half_of_the_time_that_they_are_shown, 0, 2);
  tcase_add_test(tests, frames_played_slowly_pair_within_half_of_the_time_that_they_are_shown);
  tcase_add_test(tests, milliseconds_of_a_container_pair_with_exact_stamps);
  tcase_add_test(tests, timestamps_of_a_variable_rate_pair_where_they_are_equal);
  tcase_add_test(tests, inputs_that_must_be_seen_far_ahead_to_be_paired_do_not_hold_each_other_up);
  tcase_add_loop_test(tests, timestamps_on_one_side_only_are_an_error_that_says_what_to_set, 0, 2);
  tcase_add_test(tests, shift_between_the_starts_is_estimated_and_told_and_never_applied);
  tcase_add_loop_test(tests, input_that_begins_again_after_its_end_goes_on, 0, 2);
  tcase_add_test(tests, pad_that_is_linked_anew_goes_on_counting);
  tcase_add_test(tests, other_size_on_one_side_is_an_error_only_when_a_pair_disagrees);
  tcase_add_test(tests, results_file_goes_on_after_the_end_and_a_seek);
  tcase_add_test(tests, seek_to_key_frames_takes_both_inputs_to_the_same_place);
  tcase_add_test(tests, seek_that_leaves_the_place_to_the_inputs_is_refused_and_disturbs_nothing);
  tcase_add_loop_test(tests, seek_that_only_one_input_can_follow_is_refused_and_disturbs_nothing, 0, 2);
  tcase_add_loop_test(tests, seek_that_fails_on_one_input_is_an_error, 0, 2);
  tcase_add_loop_test(tests, refusal_downstream_is_an_error_also_when_the_sources_have_sent_everything, 0, 3);
  TCASE_ADD_LAUNCH_TEST(tests, "element_changes", reader_that_leaves_the_results_pipe_is_an_error, 1);
  TCASE_ADD_LAUNCH_TEST(tests, "element_changes", file_that_may_grow_no_further_is_an_error_and_keeps_its_whole_lines,
                        1);
  TCASE_ADD_LAUNCH_TEST(tests, "element_changes", full_disk_is_an_error, 1);
  tcase_add_test(tests, two_hundred_elements_run_in_one_process);
  TCASE_ADD_LAUNCH_TEST(tests, "element_changes", nothing_leaks_according_to_gstreamers_tracer, 1);
  return suite;
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) {
  psnrhvs::testing::InitChecks(&argc, &argv);
  return gst_check_run_suite(psnrhvs::testing::ChangesSuite(), "element_changes", __FILE__);
}
