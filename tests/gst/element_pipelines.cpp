// Whole pipelines with real sources, encoders, containers and decoders: which frames are compared, and what is told
// when they cannot be. Most sources change with every frame, so a pair is the right one if its score is infinite.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <json-glib/json-glib.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <sstream>

#include "tests/gst/element_checks.h"

namespace psnrhvs::testing {
namespace {

const char kVideo[] = "video/x-raw,format=I420,width=320,height=240,framerate=25/1";
const char kLongQueue[] = "queue max-size-buffers=0 max-size-bytes=0 max-size-time=5000000000";

std::string Ball(int buffers, const std::string& caps = kVideo, const std::string& properties = "") {
  return "videotestsrc pattern=ball num-buffers=" + std::to_string(buffers) + " " + properties + " ! " + caps;
}

// One source in both branches; `branch` leads to dist_sink, `queue` to ref_sink.
std::string Tee(const std::string& source, const std::string& queue, const std::string& branch,
                const std::string& properties = "") {
  return source + " ! tee name=t t. ! " + queue + " ! m.ref_sink t. ! queue ! " + branch +
         " ! m.dist_sink psnrhvs name=m " + properties + " ! fakesink";
}

std::string Two(const std::string& reference, const std::string& distorted, const std::string& properties = "") {
  return reference + " ! m.ref_sink " + distorted + " ! m.dist_sink psnrhvs name=m " + properties + " ! fakesink";
}

void CheckCombinedAtLeast(const Reports& reports, double db) {
  for (const FrameReport& frame : reports.frames) {
    fail_unless(frame.score.combined_score_db >= db, "frame %" PRIu64 " scores %g dB", frame.reference.index,
                frame.score.combined_score_db);
  }
}

int WarningsWith(const Reports& reports, const std::string& text) {
  int count = 0;
  for (const Notice& warning : reports.warnings) count += warning.text.find(text) != std::string::npos;
  return count;
}

// A file made by ffmpeg; empty, with a line saying so, if there is none.
std::string MadeByFfmpeg(const std::string& path, const std::string& options) {
  const GstPtr<gchar> program(g_find_program_in_path("ffmpeg"));
  if (!program) {
    std::printf("not run: there is no ffmpeg\n");
    return "";
  }
  fail_unless(RunCommand("ffmpeg -v error -y " + options + " " + path), "ffmpeg failed");
  return path;
}

std::string Lossless(const TemporaryDirectory& directory, const std::string& name, const std::string& filter = "") {
  return MadeByFfmpeg(directory / name, "-f lavfi -i testsrc2=s=320x240:r=25:d=1.2 " + filter +
                                            " -vsync passthrough -pix_fmt yuv420p -c:v ffv1");
}

std::string LosslessSource(const std::string& path) {
  return "filesrc location=" + path + " ! matroskademux ! avdec_ffv1";
}

START_TEST(encoder_that_shifts_timestamps_is_compared_with_its_own_input) {
  const Reports reports = RunPipeline(Tee(Ball(100), kLongQueue, "x264enc ! avdec_h264"));
  CheckCounts(reports, 100, 0, 0);
  CheckCombinedAtLeast(reports, 60);
  for (size_t i = 0; i < 100; ++i) {
    fail_unless(reports.frames[i].reference.running_time == i * 40 * GST_MSECOND);
    fail_unless(reports.frames[i].dist_running_time == i * 40 * GST_MSECOND);
  }
}
END_TEST

START_TEST(look_ahead_behind_default_queues_loses_and_mixes_up_nothing) {
  const TemporaryDirectory directory;
  std::string first;
  for (const char* name : {"first.csv", "second.csv"}) {
    const Reports reports = RunPipeline(Tee(Ball(100, "video/x-raw,format=I420,width=1920,height=1080,framerate=25/1"),
                                            "queue", "x264enc speed-preset=ultrafast rc-lookahead=40 ! avdec_h264",
                                            "results-filename=" + (directory / name)));
    CheckCounts(reports, 100, 0, 0);
    CheckCombinedAtLeast(reports, 40);
    const std::string text = ReadFile(directory / name);
    fail_unless(first.empty() || text == first, "two runs wrote different files");
    first = text;
  }
}
END_TEST

START_TEST(default_encoder_behind_default_queues_does_not_stall) {
  const Reports reports = RunPipeline(Tee(Ball(120), "queue", "x264enc ! avdec_h264"));
  CheckCounts(reports, 120, 0, 0);
  CheckCombinedAtLeast(reports, 60);
}
END_TEST

START_TEST(look_ahead_beyond_the_allowed_lead_is_an_error_that_says_what_to_raise) {
  const Reports reports = RunPipeline(Tee(Ball(1000), "queue max-size-buffers=4", "x264enc ! avdec_h264",
                                          "max-lead-frames=8 stall-timeout=1000000000"));
  CheckError(reports, {"queue", "max-size-time", "ref_sink", "dist_sink", "max-lead-frames", "stall-timeout"});
}
END_TEST

START_TEST(every_codec_round_trip_pairs_each_frame_with_itself) {
  struct Codec {
    const char* branch;
    double least_db;
  };
  const Codec codecs[] = {
      {"vp8enc deadline=1 ! vp8dec", 30},
      {"vp9enc deadline=1 cpu-used=8 ! vp9dec", 30},
      {"vp8enc deadline=1 ! avdec_vp8", 30},
      {"x265enc speed-preset=ultrafast ! avdec_h265", 30},
      {"jpegenc quality=90 ! jpegdec", 35},
      {"avenc_ffv1 ! avdec_ffv1", 1000},
      {"x264enc speed-preset=ultrafast ! matroskamux ! matroskademux ! avdec_h264", 30},
  };
  const Codec& codec = codecs[_i];
  // A rate whose times are no whole milliseconds, as Matroska stores them.
  const std::string caps = "video/x-raw,format=I420,width=320,height=240,framerate=30000/1001";
  const Reports reports = RunPipeline(Tee(Ball(60, caps), kLongQueue, codec.branch));
  CheckCounts(reports, 60, 0, 0, codec.branch);
  CheckCombinedAtLeast(reports, codec.least_db);
}
END_TEST

START_TEST(transport_stream_that_shifts_its_start_is_told_and_compared_once_that_is_put_right) {
  // The multiplexer lets its clock reference run ahead of the pictures by an eighth of a second.
  const auto run = [](const char* properties) {
    return RunPipeline(Tee(Ball(60), kLongQueue,
                           "x264enc speed-preset=ultrafast ! h264parse ! mpegtsmux ! tsdemux ! h264parse ! avdec_h264",
                           properties));
  };
  const Reports shifted = run("");
  CheckCounts(shifted, 57, 3, 3);
  fail_unless(shifted.pooled[0].start_offset == 125000000);
  fail_unless_equals_int(WarningsWith(shifted, "dist-offset=-125000000"), 1);
  for (const char* remedy : {"align=start", "dist-offset=-125000000"}) {
    const Reports reports = run(remedy);
    CheckCounts(reports, 60, 0, 0, remedy);
    CheckCombinedAtLeast(reports, 30);
    fail_if(reports.pooled[0].start_offset.has_value());
  }
}
END_TEST

START_TEST(y4m_file_is_compared_with_what_was_written_to_it) {
  const TemporaryDirectory directory;
  const std::string file = directory / "clip.y4m";
  fail_unless(RunCommand("gst-launch-1.0 -q " + Ball(10) + " ! y4menc ! filesink location=" + file));
  const Reports reports = RunPipeline(Two(Ball(10), "filesrc location=" + file + " ! y4mdec"));
  CheckCounts(reports, 10, 0, 0);
  CheckAllInfinite(reports);
}
END_TEST

START_TEST(later_start_is_compared_by_time) {
  const Reports reports = RunPipeline(Two(Ball(50), Ball(50, kVideo, "timestamp-offset=400000000")));
  CheckCounts(reports, 40, 10, 10);
  for (size_t i = 0; i < 40; ++i) {
    fail_unless(reports.frames[i].reference.index == i + 10);
    fail_unless(reports.frames[i].dist_running_time == (i + 10) * 40 * GST_MSECOND);
    fail_if(std::isinf(reports.frames[i].score.combined_score_db));
  }
  fail_unless_equals_int(WarningsWith(reports, "10 reference and 10 distorted"), 1);
}
END_TEST

START_TEST(later_start_is_rebased_if_told_so) {
  static const char* const kOptions[] = {"align=start", "dist-offset=-400000000"};
  const Reports reports = RunPipeline(Two(Ball(50), Ball(50, kVideo, "timestamp-offset=400000000"), kOptions[_i]));
  CheckCounts(reports, 50, 0, 0);
  CheckAllInfinite(reports);
  fail_unless(reports.frames[0].dist_running_time == 400 * GST_MSECOND, "dist-running-time is as it came");
  fail_unless_equals_int(static_cast<int>(reports.warnings.size()), 0);
}
END_TEST

START_TEST(start_forty_seconds_later_is_waited_for_without_an_error_and_without_storing_the_lead_in) {
  const std::string caps = "video/x-raw,format=I420,width=64,height=64,framerate=25/1";
  PipelineRun run(Two(Ball(1200, caps), Ball(300, caps, "timestamp-offset=40000000000")));
  // Reference buffers that came and have not left.
  struct Inside {
    std::atomic<int> now{0};
    std::atomic<int> most{0};
  } inside;
  const GstPtr<GstElement> element = run.element("m");
  const GstPtr<GstPad> sink(gst_element_get_static_pad(element.get(), "ref_sink"));
  const GstPtr<GstPad> src(gst_element_get_static_pad(element.get(), "src"));
  const auto on_buffer = [](GstPad* pad, GstPadProbeInfo*, gpointer data) {
    Inside* counts = static_cast<Inside*>(data);
    if (GST_PAD_IS_SRC(pad)) {
      --counts->now;
    } else {
      counts->most = std::max(counts->most.load(), ++counts->now);
    }
    return GST_PAD_PROBE_OK;
  };
  for (const auto& pad : {sink.get(), src.get()}) {
    gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, on_buffer, &inside, nullptr);
  }
  const Reports reports = run.PlayToEnd();
  CheckCounts(reports, 200, 1000, 100);
  fail_unless(reports.frames[0].reference.index == 1000);
  fail_unless_equals_int(inside.now, 0);
  // The lead that is allowed, what the source holds in its hand, and what is being decided.
  fail_unless(inside.most <= 64 + 2, "%d frames are held", inside.most.load());
}
END_TEST

START_TEST(frame_lost_in_the_middle_is_left_out_and_named) {
  const TemporaryDirectory directory;
  const std::string full = Lossless(directory, "full.mkv");
  if (full.empty()) return;
  const std::string drop = Lossless(directory, "drop.mkv", "-vf \"select='not(eq(n,7))'\"");
  const Reports reports = RunPipeline(Two(LosslessSource(full), LosslessSource(drop)));
  CheckCounts(reports, 29, 1, 0);
  CheckAllInfinite(reports);
  fail_unless(reports.unpaired[0].pad == "ref_sink" && reports.unpaired[0].timing.index == 7);
  fail_unless(reports.unpaired[0].timing.running_time == 280 * GST_MSECOND);
  for (size_t i = 0; i < 29; ++i) fail_unless(reports.frames[i].reference.index == (i < 7 ? i : i + 1));
}
END_TEST

START_TEST(shorter_input_leaves_the_rest_of_the_other_unpaired) {
  const bool shorter_reference = _i == 1;
  const Reports reports = RunPipeline(Two(Ball(shorter_reference ? 20 : 30), Ball(shorter_reference ? 30 : 20)));
  CheckCounts(reports, 20, shorter_reference ? 0 : 10, shorter_reference ? 10 : 0);
  CheckAllInfinite(reports);
  fail_unless(reports.eos_posted);
  fail_unless_equals_int(static_cast<int>(reports.outputs.size()), shorter_reference ? 20 : 30);
  for (size_t i = 0; i < reports.outputs.size(); ++i) fail_unless(reports.outputs[i].meta.has_value() == (i < 20));
}
END_TEST

START_TEST(half_the_rate_is_compared_with_every_second_frame_and_warned_of_once) {
  const std::string caps = "video/x-raw,format=I420,width=320,height=240,framerate=50/1";
  const Reports reports =
      RunPipeline(Two(Ball(100, caps), Ball(100, caps) + " ! videorate drop-only=true ! video/x-raw,framerate=25/1"));
  CheckCounts(reports, 50, 50, 0);
  CheckAllInfinite(reports);
  for (size_t i = 0; i < 50; ++i) {
    fail_unless(reports.frames[i].reference.index == 2 * i);
    fail_unless(reports.unpaired[i].timing.index == 2 * i + 1);
  }
  fail_unless_equals_int(WarningsWith(reports, "different frame rates"), 1);
}
END_TEST

START_TEST(other_size_is_the_elements_own_error_with_both_sizes) {
  static const char* const kBranches[] = {"", " ! x264enc ! avdec_h264", " ! queue"};
  const std::string queue = _i == 2 ? " ! queue" : "";
  const std::string other = "video/x-raw,format=I420,width=322,height=240,framerate=25/1";
  const Reports reports =
      RunPipeline(Two("videotestsrc ! " + std::string(kVideo) + queue, "videotestsrc ! " + other + kBranches[_i]));
  CheckError(reports, {"320x240", "322x240", "ref_sink", "dist_sink", "videoscale ! video/x-raw,width=320,height=240"});
}
END_TEST

START_TEST(other_size_is_the_exit_code_of_gst_launch) {
  const std::string pipeline = Two("videotestsrc ! " + std::string(kVideo),
                                   "videotestsrc ! video/x-raw,format=I420,width=322,height=240,framerate=25/1");
  fail_if(RunCommand("gst-launch-1.0 -q " + pipeline + " >/dev/null 2>&1"));
}
END_TEST

START_TEST(other_depth_or_subsampling_is_refused_with_both_formats) {
  static const char* const kPairs[][2] = {{"I420", "I420_10LE"}, {"I420_12LE", "I420_10LE"}, {"Y42B", "I420"},
                                          {"Y444", "Y42B"},      {"GRAY8", "I420"},          {"NV12", "P010_10LE"}};
  const auto caps = [](const char* format) {
    return "videotestsrc ! video/x-raw,format=" + std::string(format) + ",width=320,height=240,framerate=25/1";
  };
  const std::string reference = kPairs[_i][0], distorted = kPairs[_i][1];
  CheckError(RunPipeline(Two(caps(reference.c_str()), caps(distorted.c_str()))),
             {reference + " 320x240", distorted + " 320x240", "ref_sink", "dist_sink",
              "videoconvert ! video/x-raw,format=" + reference});
}
END_TEST

START_TEST(layouts_of_the_same_samples_are_compared_as_they_are) {
  static const char* const kPairs[][2] = {{"I420", "NV12"}, {"YV12", "NV21"},           {"Y42B", "NV16"},
                                          {"NV12", "I420"}, {"I420_10LE", "P010_10LE"}, {"P012_LE", "I420_12LE"}};
  // The ball moves, the bars have colours.
  for (const char* pattern : {"ball", "smpte"}) {
    const auto source = [&](const char* format) {
      return std::string("videotestsrc num-buffers=5 pattern=") + pattern + " ! video/x-raw,format=" + format +
             ",width=320,height=240,framerate=25/1";
    };
    const Reports reports = RunPipeline(Two(source(kPairs[_i][0]), source(kPairs[_i][1])));
    CheckCounts(reports, 5, 0, 0, pattern);
    CheckAllInfinite(reports, pattern);
  }
}
END_TEST

START_TEST(converters_on_both_sides_settle_on_formats_that_can_be_compared) {
  const std::string rgb =
      "videotestsrc pattern=ball num-buffers=5 ! video/x-raw,format=RGB,width=320,height=240 ! "
      "videoconvert";
  const Reports reports = RunPipeline(Two(rgb, rgb));
  CheckCounts(reports, 5, 0, 0);
  CheckAllInfinite(reports);
}
END_TEST

START_TEST(identical_inputs_are_infinite_everywhere_and_null_in_json) {
  const TemporaryDirectory directory;
  const std::string results = directory / "out.json";
  const Reports reports = RunPipeline(Two(Ball(10), Ball(10), "results-filename=" + results));
  CheckCounts(reports, 10, 0, 0);
  CheckAllInfinite(reports);
  JsonParser* parser = json_parser_new_immutable();
  fail_unless(json_parser_load_from_file(parser, results.c_str(), nullptr), "%s", ReadFile(results).c_str());
  JsonObject* root = json_node_get_object(json_parser_get_root(parser));
  JsonArray* frames = json_object_get_array_member(root, "frames");
  fail_unless_equals_int(static_cast<int>(json_array_get_length(frames)), 10);
  JsonObject* pooled = json_object_get_object_member(root, "pooled_metrics");
  for (ScoreKind kind : kAllScoreKinds) {
    static const char* const kKeys[] = {"psnr_hvs_y", "psnr_hvs_cb", "psnr_hvs_cr", "psnr_hvs"};
    const char* key = kKeys[static_cast<int>(kind)];
    for (guint i = 0; i < 10; ++i) {
      JsonObject* metrics = json_object_get_object_member(json_array_get_object_element(frames, i), "metrics");
      fail_unless(json_object_get_null_member(metrics, key), "frame %u: %s is not null", i, key);
    }
    JsonObject* values = json_object_get_object_member(pooled, key);
    for (const char* value : {"min", "max", "mean", "harmonic_mean", "from_mean_error"}) {
      fail_unless(json_object_get_null_member(values, value), "%s of %s is not null", value, key);
    }
    fail_unless(json_object_get_int_member(values, "infinite") == 10);
    fail_if(json_object_has_member(values, "min_frame"));
    const PooledScore& message = *reports.pooled[0].pooled[static_cast<int>(kind)];
    fail_unless(std::isinf(message.min) && std::isinf(message.max) && std::isinf(message.mean) &&
                std::isinf(*message.harmonic_mean) && std::isinf(message.from_mean_error));
    fail_unless(message.infinite == 10 && !message.min_index);
  }
  g_object_unref(parser);
}
END_TEST

START_TEST(grey_is_scored_by_luma_alone) {
  const TemporaryDirectory directory;
  const std::string grey = Ball(10, "video/x-raw,format=GRAY8,width=320,height=240,framerate=25/1");
  const std::string results = directory / "out.csv";
  const Reports reports =
      RunPipeline(Two(grey, grey + " ! jpegenc quality=20 ! jpegdec", "results-filename=" + results));
  CheckCounts(reports, 10, 0, 0);
  for (const FrameReport& frame : reports.frames) {
    fail_unless(frame.score.scored_planes == 1);
    fail_unless(std::isfinite(frame.score.plane_score_db[0]) && frame.score.plane_score_db[0] > 20);
  }
  fail_unless(reports.pooled[0].pooled[0].has_value());
  for (int k = 1; k < kScoreKinds; ++k) fail_if(reports.pooled[0].pooled[k].has_value());
  const std::string text = ReadFile(results);
  fail_unless(text.find(",,,,0,0,0,40000000,0\n") != std::string::npos, "%s", text.c_str());
  fail_unless_equals_int(static_cast<int>(reports.warnings.size()), 0);
}
END_TEST

START_TEST(late_synchronised_sink_does_not_make_decoders_skip_frames) {
  const TemporaryDirectory directory;
  const std::string file = directory / "clip.mkv";
  {
    const std::string make = Ball(240) + " ! x264enc speed-preset=ultrafast ! matroskamux ! filesink location=" + file;
    fail_unless(RunCommand("gst-launch-1.0 -q " + make), "gst-launch-1.0 failed");
  }
  const std::string source = "filesrc location=" + file + " ! matroskademux ! avdec_h264 ! queue";
  // The sink is ten seconds late from the first frame on and says so.
  const Reports reports = RunPipeline(source + " ! m.ref_sink " + source +
                                      " ! m.dist_sink psnrhvs name=m ! fakesink sync=true qos=true "
                                      "ts-offset=-10000000000");
  CheckCounts(reports, 240, 0, 0);
  CheckAllInfinite(reports);
}
END_TEST

START_TEST(sibling_of_a_tee_keeps_its_timestamps_and_shares_its_memory) {
  PipelineRun run(Ball(20) +
                  " ! identity name=i ! tee name=t t. ! queue ! m.ref_sink t. ! queue ! m.dist_sink "
                  "t. ! queue max-size-buffers=0 ! fakesink name=sibling psnrhvs name=m ! fakesink");
  using Seen = std::vector<std::pair<GstClockTime, GstPtr<GstBuffer>>>;
  Seen seen;
  const GstPtr<GstElement> sibling = run.element("sibling");
  const GstPtr<GstPad> pad(gst_element_get_static_pad(sibling.get(), "sink"));
  gst_pad_add_probe(
      pad.get(), GST_PAD_PROBE_TYPE_BUFFER,
      [](GstPad*, GstPadProbeInfo* info, gpointer data) {
        GstBuffer* buffer = GST_PAD_PROBE_INFO_BUFFER(info);
        // Kept, so that the source's pool does not use the memory again.
        static_cast<Seen*>(data)->emplace_back(GST_BUFFER_PTS(buffer), gst_buffer_ref(buffer));
        return GST_PAD_PROBE_OK;
      },
      &seen, nullptr);
  run.SetState(GST_STATE_PLAYING);
  run.recorder().WaitForEnd();
  const Reports reports = run.recorder().reports();
  CheckCounts(reports, 20, 0, 0);
  CheckAllInfinite(reports);
  fail_unless_equals_int(static_cast<int>(seen.size()), 20);
  for (size_t i = 0; i < 20; ++i) {
    fail_unless(seen[i].first == i * 40 * GST_MSECOND && GST_BUFFER_PTS(seen[i].second.get()) == seen[i].first);
    fail_unless(GST_BUFFER_DURATION(seen[i].second.get()) == 40 * GST_MSECOND);
    fail_unless(gst_buffer_peek_memory(seen[i].second.get(), 0) == reports.outputs[i].memory, "memory was copied");
    fail_if(gst_buffer_get_custom_meta(seen[i].second.get(), kMetaName), "the sibling got the score");
    fail_unless(reports.outputs[i].pts == seen[i].first && reports.outputs[i].metas == 1);
  }
}
END_TEST

START_TEST(every_run_counts_frames_from_zero) {
  PipelineRun run(Two(Ball(12), Ball(12)));
  for (int i = 0; i < 3; ++i) {
    run.recorder().Clear();
    const Reports reports = run.PlayToEnd();
    CheckCounts(reports, 12, 0, 0);
    CheckAllInfinite(reports);
    for (size_t n = 0; n < 12; ++n) fail_unless(reports.frames[n].reference.index == n);
  }
}
END_TEST

START_TEST(run_that_is_stopped_early_leaves_nothing_behind_for_the_next) {
  const TemporaryDirectory directory;
  PipelineRun run(Two(Ball(100000), Ball(100000), "results-filename=" + (directory / "out.json")));
  for (int i = 0; i < 3; ++i) {
    run.recorder().Clear();
    run.SetState(GST_STATE_PLAYING);
    fail_unless(run.recorder().WaitFor("frame 20"));
    fail_unless(run.SetState(GST_STATE_READY));
    const Reports reports = run.recorder().reports();
    CheckNoErrors(reports, "stopped early");
    fail_unless(reports.pooled.empty() && reports.frames[0].reference.index == 0);
    // The file is complete although no EOS came.
    JsonParser* parser = json_parser_new_immutable();
    fail_unless(json_parser_load_from_file(parser, (directory / "out.json").c_str(), nullptr));
    JsonObject* root = json_node_get_object(json_parser_get_root(parser));
    fail_unless_equals_int(static_cast<int>(json_array_get_length(json_object_get_array_member(root, "frames"))),
                           static_cast<int>(reports.frames.size()));
    fail_unless(json_object_get_int_member(json_object_get_object_member(root, "psnrhvs"), "frames") ==
                static_cast<gint64>(reports.frames.size()));
    g_object_unref(parser);
  }
}
END_TEST

// Copies of one frame cost the sources nothing, so there is always another pair to score.
std::string TooFast() {
  const auto still = [](const std::string& pattern) {
    return "videotestsrc num-buffers=1 pattern=" + pattern +
           " ! video/x-raw,format=Y444,width=1920,height=1080,framerate=25/1 ! imagefreeze num-buffers=100000 ! queue";
  };
  return Two(still("snow"), still("zone-plate kx2=20 ky2=20"), "backend=cpu threads=1");
}

START_TEST(run_that_is_slower_than_its_sources_stops_at_once) {
  PipelineRun run(TooFast());
  run.SetState(GST_STATE_PLAYING);
  fail_unless(run.recorder().WaitFor("frame 10"));
  const gint64 start_us = g_get_monotonic_time();
  fail_unless(run.SetState(GST_STATE_READY));
  const gint64 taken_us = g_get_monotonic_time() - start_us;
  fail_unless(taken_us < 10 * G_USEC_PER_SEC, "%g s", static_cast<double>(taken_us) / G_USEC_PER_SEC);
  CheckNoErrors(run.recorder().reports(), "stopped");
}
END_TEST

START_TEST(run_that_is_slower_than_its_sources_seeks_at_once) {
  PipelineRun run(TooFast());
  run.SetState(GST_STATE_PLAYING);
  fail_unless(run.recorder().WaitFor("frame 10"));
  const gint64 start_us = g_get_monotonic_time();
  fail_unless(gst_element_seek_simple(run.pipeline(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 100 * GST_SECOND));
  fail_unless(run.recorder().WaitFor("buffer " + std::to_string(100 * GST_SECOND)));
  const gint64 taken_us = g_get_monotonic_time() - start_us;
  fail_unless(taken_us < 10 * G_USEC_PER_SEC, "%g s", static_cast<double>(taken_us) / G_USEC_PER_SEC);
  CheckNoErrors(run.recorder().reports(), "sought");
}
END_TEST

START_TEST(flushing_seek_in_files_scores_right_pairs_from_there_on) {
  const TemporaryDirectory directory;
  const std::string full = Lossless(directory, "full.mkv");
  if (full.empty()) return;
  PipelineRun run(Two(LosslessSource(full), LosslessSource(full)));
  fail_unless(run.SetState(GST_STATE_PAUSED));
  run.recorder().Clear();
  fail_unless(gst_element_seek_simple(run.pipeline(), GST_FORMAT_TIME,
                                      static_cast<GstSeekFlags>(GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_ACCURATE),
                                      600 * GST_MSECOND));
  run.SetState(GST_STATE_PLAYING);
  run.recorder().WaitForEnd();
  const Reports reports = run.recorder().reports();
  CheckNoErrors(reports, "seek");
  CheckAllInfinite(reports);
  fail_unless(reports.unpaired.empty());
  std::vector<FrameReport> after;
  for (const FrameReport& frame : reports.frames) {
    // What was on its way before the seek is either gone or the same file's beginning.
    if (frame.reference.timestamp >= 600 * GST_MSECOND) after.push_back(frame);
  }
  fail_unless_equals_int(static_cast<int>(after.size()), 15);
  for (size_t i = 0; i < after.size(); ++i) {
    fail_unless(after[i].reference.running_time == i * 40 * GST_MSECOND);
    fail_unless(after[i].dist_running_time == i * 40 * GST_MSECOND);
    fail_unless(after[i].reference.stream_time == 600 * GST_MSECOND + i * 40 * GST_MSECOND);
  }
}
END_TEST

START_TEST(second_element_in_a_row_replaces_the_metadata_of_the_first) {
  PipelineRun run(
      Ball(10) +
          " ! tee name=t t. ! queue ! first.ref_sink t. ! queue ! jpegenc quality=30 ! jpegdec ! tee name=u "
          "u. ! queue ! first.dist_sink u. ! queue ! jpegenc quality=30 ! jpegdec ! jpegenc quality=5 ! jpegdec "
          "! m.dist_sink psnrhvs name=first ! m.ref_sink psnrhvs name=m ! fakesink",
      "m");
  const Reports reports = run.PlayToEnd();
  CheckCounts(reports, 10, 0, 0);
  for (size_t i = 0; i < 10; ++i) {
    const Output& output = reports.outputs[i];
    fail_unless_equals_int(output.metas, 1);
    fail_unless(output.meta->score.combined_score_db == reports.frames[i].score.combined_score_db);
    fail_unless(output.meta->reference.index == i);
  }
}
END_TEST

START_TEST(second_element_in_a_row_takes_the_metadata_of_the_first_off_what_it_does_not_score) {
  // The first scores all twenty frames, the second has partners for ten.
  PipelineRun run(Ball(20) + " ! first.ref_sink " + Ball(20) + " ! first.dist_sink " + Ball(10) +
                  " ! m.dist_sink psnrhvs name=first ! m.ref_sink psnrhvs name=m ! "
                  "fakesink");
  const Reports reports = run.PlayToEnd();
  CheckCounts(reports, 10, 10, 0);
  fail_unless_equals_int(static_cast<int>(reports.outputs.size()), 20);
  for (int n = 0; n < 20; ++n) fail_unless_equals_int(reports.outputs[n].metas, n < 10 ? 1 : 0);
}
END_TEST

START_TEST(two_pipelines_at_once_do_not_disturb_each_other) {
  const auto jpeg = [](int quality) {
    return Two(Ball(40), Ball(40) + " ! jpegenc quality=" + std::to_string(quality) + " ! jpegdec");
  };
  PipelineRun a(jpeg(20)), b(jpeg(80));
  a.SetState(GST_STATE_PLAYING);
  b.SetState(GST_STATE_PLAYING);
  a.recorder().WaitForEnd();
  b.recorder().WaitForEnd();
  const Reports alone_a = RunPipeline(jpeg(20)), alone_b = RunPipeline(jpeg(80));
  CheckCounts(a.recorder().reports(), 40, 0, 0);
  CheckCounts(b.recorder().reports(), 40, 0, 0);
  for (size_t i = 0; i < 40; ++i) {
    fail_unless(a.recorder().reports().frames[i].score.combined_score_db == alone_a.frames[i].score.combined_score_db);
    fail_unless(b.recorder().reports().frames[i].score.combined_score_db == alone_b.frames[i].score.combined_score_db);
  }
  fail_unless(alone_a.frames[0].score.combined_score_db < alone_b.frames[0].score.combined_score_db);
}
END_TEST

START_TEST(results_file_that_cannot_be_written_fails_the_start) {
  static const char* const kFiles[][2] = {{"/nonexistent-folder/out.json", "/nonexistent-folder/out.json"},
                                          {"out.txt", "results-format"}};
  PipelineRun run(Two(Ball(5), Ball(5), std::string("results-filename=") + kFiles[_i][0]));
  fail_if(run.SetState(GST_STATE_PAUSED), "the state change went well");
  CheckError(run.recorder().reports(), {kFiles[_i][1]});
  fail_if(g_file_test("out.txt", G_FILE_TEST_EXISTS), "the file was made all the same");
}
END_TEST

START_TEST(pooled_message_comes_after_the_last_frame_and_before_eos_leaves) {
  const Reports reports = RunPipeline(Two(Ball(30), Ball(20)));
  CheckCounts(reports, 20, 10, 0);
  const int pooled = reports.Position("pooled"), eos = reports.Position("eos");
  fail_unless(pooled > reports.Position("frame 19") && pooled > reports.Position("unpaired ref_sink 29"));
  fail_unless(pooled > reports.Position("buffer " + std::to_string(29 * 40 * GST_MSECOND)));
  fail_unless(eos > pooled);
  fail_unless_equals_int(reports.Count("eos"), 1);
  fail_unless(reports.infos.size() == 1 && reports.Position("info") > pooled);
  fail_unless(reports.Position("warning") > pooled);
}
END_TEST

Suite* PipelineSuite() {
  Suite* suite = suite_create("psnrhvs: pipelines");
  TCase* tests = tcase_create("general");
  tcase_set_timeout(tests, 300);
  suite_add_tcase(suite, tests);
  tcase_add_test(tests, encoder_that_shifts_timestamps_is_compared_with_its_own_input);
  tcase_add_test(tests, look_ahead_behind_default_queues_loses_and_mixes_up_nothing);
  tcase_add_test(tests, default_encoder_behind_default_queues_does_not_stall);
  tcase_add_test(tests, look_ahead_beyond_the_allowed_lead_is_an_error_that_says_what_to_raise);
  tcase_add_loop_test(tests, every_codec_round_trip_pairs_each_frame_with_itself, 0, 7);
  tcase_add_test(tests, transport_stream_that_shifts_its_start_is_told_and_compared_once_that_is_put_right);
  tcase_add_test(tests, y4m_file_is_compared_with_what_was_written_to_it);
  tcase_add_test(tests, later_start_is_compared_by_time);
  tcase_add_loop_test(tests, later_start_is_rebased_if_told_so, 0, 2);
  tcase_add_test(tests, start_forty_seconds_later_is_waited_for_without_an_error_and_without_storing_the_lead_in);
  tcase_add_test(tests, frame_lost_in_the_middle_is_left_out_and_named);
  tcase_add_loop_test(tests, shorter_input_leaves_the_rest_of_the_other_unpaired, 0, 2);
  tcase_add_test(tests, half_the_rate_is_compared_with_every_second_frame_and_warned_of_once);
  tcase_add_loop_test(tests, other_size_is_the_elements_own_error_with_both_sizes, 0, 3);
  TCASE_ADD_LAUNCH_TEST(tests, "element_pipelines", other_size_is_the_exit_code_of_gst_launch, 1);
  tcase_add_loop_test(tests, other_depth_or_subsampling_is_refused_with_both_formats, 0, 6);
  tcase_add_loop_test(tests, layouts_of_the_same_samples_are_compared_as_they_are, 0, 6);
  tcase_add_test(tests, converters_on_both_sides_settle_on_formats_that_can_be_compared);
  tcase_add_test(tests, identical_inputs_are_infinite_everywhere_and_null_in_json);
  tcase_add_test(tests, grey_is_scored_by_luma_alone);
  tcase_add_test(tests, late_synchronised_sink_does_not_make_decoders_skip_frames);
  tcase_add_test(tests, sibling_of_a_tee_keeps_its_timestamps_and_shares_its_memory);
  tcase_add_test(tests, every_run_counts_frames_from_zero);
  tcase_add_test(tests, run_that_is_stopped_early_leaves_nothing_behind_for_the_next);
  tcase_add_test(tests, run_that_is_slower_than_its_sources_stops_at_once);
  tcase_add_test(tests, run_that_is_slower_than_its_sources_seeks_at_once);
  tcase_add_test(tests, flushing_seek_in_files_scores_right_pairs_from_there_on);
  tcase_add_test(tests, second_element_in_a_row_replaces_the_metadata_of_the_first);
  tcase_add_test(tests, second_element_in_a_row_takes_the_metadata_of_the_first_off_what_it_does_not_score);
  tcase_add_test(tests, two_pipelines_at_once_do_not_disturb_each_other);
  tcase_add_loop_test(tests, results_file_that_cannot_be_written_fails_the_start, 0, 2);
  tcase_add_test(tests, pooled_message_comes_after_the_last_frame_and_before_eos_leaves);
  return suite;
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) {
  psnrhvs::testing::InitChecks(&argc, &argv);
  return gst_check_run_suite(psnrhvs::testing::PipelineSuite(), "element_pipelines", __FILE__);
}
