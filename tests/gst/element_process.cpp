// The element in a process of its own, as gst-launch runs it: stopped early, killed, watched while running; and what
// memory a long run takes. Exit code 77, with the reason: not run here.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <json-glib/json-glib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "tests/gst/element_checks.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PSNRHVS_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PSNRHVS_TEST_SANITIZED 1
#endif
#endif

namespace psnrhvs::testing {
namespace {

// Two live sources that run until they are stopped.
std::string LivePipeline(const std::string& results) {
  const std::string source =
      "videotestsrc is-live=true pattern=ball ! "
      "video/x-raw,format=I420,width=64,height=64,framerate=25/1 ! ";
  return source + "m.ref_sink " + source + "m.dist_sink psnrhvs name=m results-filename=" + results + " ! fakesink";
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Types of the records of a jsonl file, each a whole line of JSON.
std::vector<std::string> RecordTypes(const std::string& path) {
  const std::string text = ReadFile(path);
  fail_unless(!text.empty() && text.back() == '\n', "the last line is not whole: %s", text.c_str());
  std::vector<std::string> types;
  for (const std::string& line : Lines(text)) {
    JsonParser* parser = json_parser_new_immutable();
    fail_unless(json_parser_load_from_data(parser, line.data(), static_cast<gssize>(line.size()), nullptr), "%s",
                line.c_str());
    types.push_back(json_object_get_string_member(json_node_get_object(json_parser_get_root(parser)), "type"));
    g_object_unref(parser);
  }
  return types;
}

START_TEST(interrupted_run_leaves_every_scored_frame_and_a_summary) {
  static const char* const kOptions[] = {"", "-e"};
  const TemporaryDirectory directory;
  const std::string results = directory / "out.jsonl", printed = directory / "printed";
  // In the foreground timeout sends one signal; else two, of which gst-launch survives only the first.
  RunCommand("timeout --foreground -s INT 3 gst-launch-1.0 -m " + std::string(kOptions[_i]) + " " +
             LivePipeline(results) + " > " + printed + " 2>&1");
  const std::vector<std::string> types = RecordTypes(results);
  const std::string text = ReadFile(printed);
  fail_unless(types.size() > 20, "%zu records in 3 s: %s", types.size(), text.c_str());
  for (size_t i = 0; i + 1 < types.size(); ++i) {
    fail_unless(types[i] == "frame" || types[i] == "unpaired", "record %zu is %s", i, types[i].c_str());
  }
  CheckText(types.back(), "pooled");
  // With -e the stream ends in order, so that the summary is told as well.
  const bool told = text.find("type=(string)pooled") != std::string::npos;
  fail_unless(told == (_i == 1), "%s", text.c_str());
  // The line for people, as a plain gst-launch prints it.
  if (told) fail_unless(text.find("mean ") != std::string::npos, "%s", text.c_str());
}
END_TEST

START_TEST(killed_run_leaves_whole_lines_up_to_the_last_frames) {
  const TemporaryDirectory directory;
  const std::string results = directory / "out.jsonl", printed = directory / "printed";
  RunCommand("timeout -s KILL 3 gst-launch-1.0 -m " + LivePipeline(results) + " > " + printed + " 2>&1");
  const std::vector<std::string> types = RecordTypes(results);
  fail_unless(types.size() > 20, "%zu records in 3 s", types.size());
  for (const std::string& type : types) fail_if(type == "pooled");
}
END_TEST

START_TEST(live_scores_are_told_and_written_while_the_pipeline_runs) {
  const TemporaryDirectory directory;
  const std::string results = directory / "out.jsonl";
  PipelineRun run(LivePipeline(results));
  run.SetState(GST_STATE_PLAYING);
  fail_unless(run.recorder().WaitFor("frame 20"));
  // When a message is out its record is in the file.
  const size_t told = run.recorder().reports().order.size();
  fail_unless(Lines(ReadFile(results)).size() >= 21 && told >= 21);
  // How late the next messages are after the time of their frames; the median, as the machine may be busy.
  const GstPtr<GstElement> element = run.element("m");
  std::vector<gint64> delays;
  for (int n = 30; n < 55; ++n) {
    fail_unless(run.recorder().WaitFor("frame " + std::to_string(n)));
    const GstClockTime now = gst_element_get_current_running_time(element.get());
    for (const FrameReport& frame : run.recorder().reports().frames) {
      if (frame.reference.index == static_cast<guint64>(n)) {
        delays.push_back(static_cast<gint64>(now) - static_cast<gint64>(frame.reference.running_time));
      }
    }
  }
  std::sort(delays.begin(), delays.end());
  const gint64 median = delays[delays.size() / 2];
  fail_unless(median <= static_cast<gint64>(80 * GST_MSECOND), "%g ms", static_cast<double>(median) / 1e6);
}
END_TEST

int64_t ResidentBytes() {
  int64_t pages = 0, resident = 0;
  std::istringstream(ReadFile("/proc/self/statm")) >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Runs a pipeline whose messages nobody keeps, and calls back for every buffer that leaves. Recorder would grow.
template <typename Callback>
void RunUnrecorded(const std::string& description, Callback callback) {
  const GstPtr<GstElement> pipeline(gst_parse_launch(description.c_str(), nullptr));
  const GstPtr<GstBus> bus(gst_element_get_bus(pipeline.get()));
  gst_bus_set_sync_handler(
      bus.get(),
      [](GstBus*, GstMessage* message, gpointer) {
        const bool keep = GST_MESSAGE_TYPE(message) & (GST_MESSAGE_EOS | GST_MESSAGE_ERROR);
        if (!keep) gst_message_unref(message);
        return keep ? GST_BUS_PASS : GST_BUS_DROP;
      },
      nullptr, nullptr);
  const GstPtr<GstElement> element(gst_bin_get_by_name(GST_BIN(pipeline.get()), "m"));
  const GstPtr<GstPad> src(gst_element_get_static_pad(element.get(), "src"));
  gst_pad_add_probe(
      src.get(), GST_PAD_PROBE_TYPE_BUFFER,
      [](GstPad*, GstPadProbeInfo*, gpointer data) {
        (*static_cast<Callback*>(data))();
        return GST_PAD_PROBE_OK;
      },
      &callback, nullptr);
  gst_element_set_state(pipeline.get(), GST_STATE_PLAYING);
  const GstPtr<GstMessage> end(gst_bus_timed_pop_filtered(
      bus.get(), 170 * GST_SECOND, static_cast<GstMessageType>(GST_MESSAGE_EOS | GST_MESSAGE_ERROR)));
  fail_unless(end && GST_MESSAGE_TYPE(end.get()) == GST_MESSAGE_EOS);
  gst_element_set_state(pipeline.get(), GST_STATE_NULL);
}

std::string PlainPair(int buffers, const std::string& caps, const std::string& properties) {
  const std::string source = "videotestsrc pattern=ball num-buffers=" + std::to_string(buffers) +
                             " ! video/x-raw,format=I420,framerate=25/1," + caps + " ! ";
  return source + "m.ref_sink " + source + "m.dist_sink psnrhvs name=m " + properties + " ! fakesink sync=false";
}

START_TEST(memory_does_not_grow_with_the_number_of_frames) {
  const TemporaryDirectory directory;
  static const char* const kFiles[] = {"out.json", "out.csv", "out.jsonl"};
  int frames = 0;
  int64_t early = 0, late = 0;
  RunUnrecorded(PlainPair(20000, "width=64,height=64", "results-filename=" + (directory / kFiles[_i])), [&] {
    ++frames;
    if (frames == 5000) early = ResidentBytes();
    if (frames == 20000) late = ResidentBytes();
  });
  fail_unless_equals_int(frames, 20000);
  fail_unless(late - early < 2 * 1024 * 1024, "%" PRId64 " bytes more after 20000 frames than after 5000",
              late - early);
}
END_TEST

START_TEST(fast_sources_of_large_frames_are_held_back) {
  constexpr int64_t kFrameBytes = int64_t{3840} * 2160 * 3 / 2;
  // Four buffers may wait on each pad, one more is in each source's hands, and pairs in flight and the sink hold a few.
  constexpr int64_t kMostFrames = 24;
  const int64_t before = ResidentBytes();
  int64_t most = 0;
  RunUnrecorded(PlainPair(300, "width=3840,height=2160", "backend=cpu"),
                [&] { most = std::max(most, ResidentBytes()); });
  fail_unless(most - before < kMostFrames * kFrameBytes, "%.1f frames in memory",
              static_cast<double>(most - before) / kFrameBytes);
}
END_TEST

Suite* ProcessSuite() {
  Suite* suite = suite_create("psnrhvs: processes");
  TCase* tests = tcase_create("general");
  tcase_set_timeout(tests, 180);
  suite_add_tcase(suite, tests);
  tcase_add_loop_test(tests, interrupted_run_leaves_every_scored_frame_and_a_summary, 0, 2);
  tcase_add_test(tests, killed_run_leaves_whole_lines_up_to_the_last_frames);
  tcase_add_test(tests, live_scores_are_told_and_written_while_the_pipeline_runs);
  tcase_add_loop_test(tests, memory_does_not_grow_with_the_number_of_frames, 0, 3);
  tcase_add_test(tests, fast_sources_of_large_frames_are_held_back);
  return suite;
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) {
#ifdef PSNRHVS_TEST_SANITIZED
  std::printf("skipped: gst-launch cannot load an instrumented plugin, and sanitizers use memory of their own\n");
  return 77;
#endif
  psnrhvs::testing::InitChecks(&argc, &argv);
  return gst_check_run_suite(psnrhvs::testing::ProcessSuite(), "element_process", __FILE__);
}
