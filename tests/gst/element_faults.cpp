// The element on an engine that fails, lags and holds several pairs, as a device may. This program links the element
// in and defines CreateCpuEngine() itself, so the library's is left out.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gst/check/gsttestclock.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <sstream>
#include <system_error>
#include <thread>

#include "cpu/cpu_engine.h"
#include "gst/psnrhvs/gstpsnrhvs.h"
#include "tests/gst/element_checks.h"

namespace psnrhvs {
namespace testing {
namespace {

enum class Call { kNone, kCreate, kSubmit, kCollect };

// What the next engine does.
struct Faults {
  Status create;  // returned by the factory if it is no success
  Call throwing = Call::kNone;
  bool system_error = false;  // what is thrown; else std::bad_alloc
  int depth = 1;              // pairs that the engine holds
  int fail_submit_at = -1;    // number of the pair that is refused
  int fail_collect_at = -1;
  std::function<void(int)> on_collect = [](int) {};
  int lent = 0;  // pairs submitted and not collected
  int most_lent = 0;
  int engines = 0;         // made so far
  int lent_at_create = 0;  // when the last was made
} faults;

// As a library may, if it breaks the engine's promise.
void ThrowIn(Call call) {
  if (call != faults.throwing) return;
  if (!faults.system_error) throw std::bad_alloc();
  throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again), "thread");
}

class FaultyEngine final : public Engine {
 public:
  explicit FaultyEngine(const FrameGeometry& geometry) : geometry_(geometry) {}
  ~FaultyEngine() override { faults.lent -= static_cast<int>(queue_.size()); }

  const char* backend() const override { return "cpu"; }
  int depth() const override { return faults.depth; }

  Status Submit(const FramePair&) override {
    ThrowIn(Call::kSubmit);
    if (submitted_ == faults.fail_submit_at) return Status(StatusCode::kInternal, "the device refuses a pair");
    queue_.push_back(submitted_++);
    faults.most_lent = std::max(faults.most_lent, ++faults.lent);
    return Status();
  }

  Result<FrameScore> Collect() override {
    const int number = queue_.front();
    queue_.pop_front();
    --faults.lent;
    faults.on_collect(number);
    ThrowIn(Call::kCollect);
    if (number == faults.fail_collect_at) return Status(StatusCode::kInternal, "the device lost a result");
    const float sum = static_cast<float>(number + 1);
    return ScoreFrame(geometry_, {sum, sum, sum});
  }

 private:
  const FrameGeometry geometry_;
  std::deque<int> queue_;
  int submitted_ = 0;
};

const TwoPads::Properties kCpu = {{"backend", "cpu"}};

TwoPads::Properties With(const std::string& name, const std::string& value) {
  TwoPads::Properties properties = kCpu;
  properties.emplace_back(name, value);
  return properties;
}

guint QueuedDistorted(GstElement* element) {
  GstStructure* stats;
  g_object_get(element, "stats", &stats, nullptr);
  guint queued = 0;
  fail_unless(gst_structure_get_uint(stats, "queue-dist", &queued));
  gst_structure_free(stats);
  return queued;
}

// Pushes pairs, at least six. The score of the first takes until four more pairs have gathered behind it, so that an
// engine that holds several gets them.
void PushPairs(TwoPads* pads, int count) {
  GstElement* element = pads->element();
  faults.on_collect = [element](int number) {
    while (number == 0 && faults.lent + static_cast<int>(QueuedDistorted(element)) < 4) g_usleep(500);
  };
  for (Side side : {Side::kReference, Side::kDistorted}) {
    for (int n = 0; n < count; ++n) pads->Push(side, SmallFrame(n));
  }
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  fail_unless(text.empty() || text.back() == '\n', "the last line is not whole");
  return lines;
}

// One error with this text; frames 0 to count - 1 were told, and are in the file.
void CheckEndedByError(TwoPads* pads, const std::string& text, int count, const std::string& csv) {
  pads->recorder().WaitForEnd();
  gst_element_set_state(pads->element(), GST_STATE_NULL);
  const Reports reports = pads->recorder().reports();
  fail_unless_equals_int(static_cast<int>(reports.errors.size()), 1);
  CheckText(reports.errors[0].text, text);
  fail_unless_equals_int(static_cast<int>(reports.frames.size()), count);
  for (int n = 0; n < count; ++n) fail_unless_equals_uint64(reports.frames[n].reference.index, n);
  fail_unless(reports.pooled.empty());
  const std::vector<std::string> lines = Lines(ReadFile(csv));
  fail_unless_equals_int(static_cast<int>(lines.size()), count + 1);
  for (int n = 0; n < count; ++n) CheckStartsWith(lines[n + 1], std::to_string(n) + ",");
  fail_unless_equals_int(faults.lent, 0);
}

START_TEST(engine_that_cannot_have_its_memory_is_an_error) {
  faults.create = Status(StatusCode::kOutOfMemory, "no memory for an engine");
  const TemporaryDirectory directory;
  TwoPads pads(With("results-filename", directory / "out.csv"));
  pads.SetCaps(kSmallCaps);
  pads.Push(Side::kReference, SmallFrame(0));
  pads.Push(Side::kDistorted, SmallFrame(0));
  CheckEndedByError(&pads, "no memory for an engine", 0, directory / "out.csv");
}
END_TEST

START_TEST(exception_of_an_engine_is_an_error) {
  static const char* const kDoing[] = {"make an engine", "take a pair", "compute a score"};
  faults.throwing = static_cast<Call>(_i / 2 + 1);
  faults.system_error = _i % 2 == 1;
  const std::string doing = kDoing[_i / 2];
  const TemporaryDirectory directory;
  TwoPads pads(With("results-filename", directory / "out.csv"));
  pads.SetCaps(kSmallCaps);
  pads.Push(Side::kReference, SmallFrame(0));
  pads.Push(Side::kDistorted, SmallFrame(0));
  CheckEndedByError(&pads,
                    faults.system_error ? "cannot " + doing + ": thread: Resource temporarily unavailable"
                                        : "not enough memory to " + doing,
                    0, directory / "out.csv");
}
END_TEST

START_TEST(engine_that_refuses_a_pair_is_an_error_and_keeps_the_pairs_before) {
  faults.depth = _i;
  faults.fail_submit_at = 5;
  const TemporaryDirectory directory;
  TwoPads pads(With("results-filename", directory / "out.csv"));
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, 9);
  CheckEndedByError(&pads, "the device refuses a pair", 5, directory / "out.csv");
}
END_TEST

START_TEST(engine_that_loses_a_result_is_an_error_and_keeps_the_pairs_before) {
  faults.depth = _i;
  faults.fail_collect_at = 5;
  const TemporaryDirectory directory;
  TwoPads pads(With("results-filename", directory / "out.csv"));
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, 6);
  CheckEndedByError(&pads, "the device lost a result", 5, directory / "out.csv");
}
END_TEST

START_TEST(element_works_again_after_an_engine_failed) {
  faults.fail_collect_at = 2;
  TwoPads pads(kCpu);
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, 6);
  pads.recorder().WaitForEnd();
  gst_element_set_state(pads.element(), GST_STATE_NULL);
  pads.recorder().Clear();
  faults = Faults();
  gst_element_set_state(pads.element(), GST_STATE_PLAYING);
  for (Side side : {Side::kReference, Side::kDistorted}) {
    pads.Push(side, gst_event_new_stream_start("again"));
    const GstPtr<GstCaps> caps(gst_caps_from_string(kSmallCaps));
    pads.Push(side, gst_event_new_caps(caps.get()));
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    pads.Push(side, gst_event_new_segment(&segment));
  }
  PushPairs(&pads, 6);
  CheckCounts(pads.End(), 6, 0, 0);
}
END_TEST

START_TEST(deep_engine_overlaps_pairs_and_tells_them_in_order) {
  faults.depth = 4;
  TwoPads pads(kCpu);
  pads.SetCaps(kSmallCaps);
  PushPairs(&pads, 30);
  const Reports reports = pads.End();
  CheckCounts(reports, 30, 0, 0);
  for (int n = 0; n < 30; ++n) {
    fail_unless_equals_uint64(reports.frames[n].reference.index, n);
    fail_unless_equals_uint64(reports.outputs[n].pts, n * kPeriod);
    fail_unless(reports.outputs[n].meta->reference.index == static_cast<guint64>(n));
  }
  fail_unless(faults.most_lent >= 2 && faults.most_lent <= 4, "%d pairs lent", faults.most_lent);
  fail_unless_equals_int(faults.lent, 0);
}
END_TEST

constexpr int kInFlight = 4;  // pairs that are with the engine while a test holds it

// An engine that holds the score of pair 1 back while pairs 2 to 4 are with it and more wait on the pads.
class HeldEngine {
 public:
  explicit HeldEngine(GstElement* element) {
    faults.depth = kInFlight;
    for (const char* name : {"ref_sink", "dist_sink"}) {
      const GstPtr<GstPad> pad(gst_element_get_static_pad(element, name));
      gst_pad_add_probe(
          pad.get(), GST_PAD_PROBE_TYPE_BUFFER,
          [](GstPad* arrived_at, GstPadProbeInfo*, gpointer held) {
            static_cast<HeldEngine*>(held)->Arrive(GST_PAD_NAME(arrived_at)[0] == 'd');
            return GST_PAD_PROBE_OK;
          },
          this, nullptr);
    }
    faults.on_collect = [this](int number) {
      first_is_collected_ = true;
      // When frame 5 arrives frame 4 is in its pad's queue.
      while (number == 0 && (arrived_[0] < kInFlight + 2 || arrived_[1] < kInFlight + 2)) g_usleep(500);
      if (number != 1) return;
      holding_ = true;
      while (!released_) g_usleep(500);
    };
  }
  // `least`: pairs that must be with the engine then, besides the one that is held back.
  void WaitUntilHolding(int least = kInFlight - 1) {
    while (!holding_) g_usleep(500);
    fail_unless(faults.lent >= least && faults.lent < kInFlight, "%d pairs lent", faults.lent);
  }
  void Release() { released_ = true; }

 private:
  void Arrive(bool distorted) {
    // The first pair is alone with the engine: all that are there when the inputs starve are collected in a row.
    while (distorted && arrived_[1] == 1 && !first_is_collected_) g_usleep(500);
    ++arrived_[distorted];
  }

  std::atomic<int> arrived_[2] = {0, 0};  // buffers, by pad
  std::atomic<bool> first_is_collected_{false};
  std::atomic<bool> holding_{false};
  std::atomic<bool> released_{false};
};

// Counts the buffers that are gone.
class Buffers {
 public:
  GstPtr<GstBuffer> Watched(GstPtr<GstBuffer> buffer) {
    ++alive_;
    gst_mini_object_weak_ref(
        GST_MINI_OBJECT_CAST(buffer.get()),
        [](gpointer alive, GstMiniObject*) { --*static_cast<std::atomic<int>*>(alive); }, &alive_);
    return buffer;
  }
  int alive() const { return alive_; }

 private:
  std::atomic<int> alive_{0};
};

constexpr int kPushed = 7;  // pairs 0 to 6: the first is told, four are in flight, two wait

void PushFrames(TwoPads* pads, Side side, int first, int count, GstClockTime shift = 0, Buffers* buffers = nullptr) {
  for (int n = first; n < first + count; ++n) {
    GstPtr<GstBuffer> frame = SmallFrame(n, n * kPeriod + shift);
    pads->Push(side, buffers ? buffers->Watched(std::move(frame)) : std::move(frame));
  }
}

void Flush(TwoPads* pads, Side side, guint32 seqnum = gst_util_seqnum_next()) {
  for (GstEvent* event : {gst_event_new_flush_start(), gst_event_new_flush_stop(TRUE)}) {
    gst_event_set_seqnum(event, seqnum);
    pads->Push(side, event);
  }
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  pads->Push(side, gst_event_new_segment(&segment));
}

START_TEST(flush_with_pairs_in_flight_forgets_those_and_goes_on_counting) {
  struct Case {
    std::vector<Side> flushed;
    int told;  // pairs, of those before the flush
    guint64 unpaired_ref, unpaired_dist;
  };
  const Case cases[] = {
      {{Side::kReference, Side::kDistorted}, 1, 0, 0}, {{Side::kReference}, 1, 0, 2}, {{Side::kDistorted}, 5, 2, 0}};
  const Case& tested = cases[_i % 3];
  // With a shift a further reference frame is looked at before each pair is made, and is known when the flush comes.
  const GstClockTime shift = _i >= 3 ? 10 * GST_MSECOND : 0;
  Buffers buffers;
  {
    TwoPads pads(kCpu);
    HeldEngine engine(pads.element());
    pads.SetCaps(kSmallCaps);
    PushFrames(&pads, Side::kReference, 0, kPushed, 0, &buffers);
    PushFrames(&pads, Side::kDistorted, 0, kPushed, shift, &buffers);
    engine.WaitUntilHolding();
    for (Side side : tested.flushed) Flush(&pads, side);
    for (int n : {50, 52}) {
      PushFrames(&pads, Side::kReference, n, 2);
      PushFrames(&pads, Side::kDistorted, n, 2, shift);
      engine.Release();  // more than the first two do not fit in
    }
    fail_unless(pads.recorder().WaitFor("buffer " + std::to_string(50 * kPeriod)));
    // What is left are reference buffers that went downstream, the harness's now.
    fail_unless_equals_int(buffers.alive(), tested.told + static_cast<int>(tested.unpaired_ref));
    const Reports reports = pads.End();
    CheckCounts(reports, tested.told + 4, tested.unpaired_ref, tested.unpaired_dist);
    for (int n = 0; n < tested.told + 4; ++n) {
      const int frame = n < tested.told ? n : 50 + n - tested.told;
      fail_unless_equals_uint64(reports.frames[n].reference.timestamp, frame * kPeriod);
      fail_unless_equals_uint64(reports.frames[n].dist_running_time, frame * kPeriod + shift);
    }
    fail_unless(reports.frames[tested.told].reference.index >= 5, "numbers start again");
    fail_unless_equals_int(faults.lent, 0);
    fail_unless_equals_int(faults.engines, 1);
  }
  fail_unless_equals_int(buffers.alive(), 0);
}
END_TEST

START_TEST(seek_with_pairs_in_flight_forgets_those_and_goes_on_counting) {
  const std::string source = "videotestsrc ! video/x-raw,format=I420,width=16,height=16,framerate=25/1";
  PipelineRun run(source + " ! m.ref_sink " + source + " ! m.dist_sink psnrhvs name=m backend=cpu ! fakesink");
  HeldEngine engine(run.element("m").get());
  gst_element_set_state(run.pipeline(), GST_STATE_PLAYING);
  engine.WaitUntilHolding(0);  // what a source says between frames may part them
  const GstPtr<GstPad> src(gst_element_get_static_pad(run.element("m").get(), "src"));
  std::thread releasing([&] {
    while (!GST_PAD_IS_FLUSHING(src.get())) g_usleep(500);
    engine.Release();
  });
  fail_unless(gst_element_seek_simple(run.pipeline(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 100 * kPeriod));
  releasing.join();
  fail_unless(run.recorder().WaitFor("buffer " + std::to_string(102 * kPeriod)));
  run.SetState(GST_STATE_NULL);
  const Reports reports = run.recorder().reports();
  CheckNoErrors(reports, "seek");
  fail_unless_equals_uint64(reports.frames[0].reference.index, 0);
  for (size_t n = 1; n < 4; ++n) {
    fail_unless_equals_uint64(reports.frames[n].reference.timestamp, (99 + n) * kPeriod);
    fail_unless(reports.frames[n].reference.index > n, "numbers start again");
  }
  fail_unless(reports.unpaired.empty() && reports.pooled.empty());
}
END_TEST

START_TEST(stop_with_pairs_in_flight_keeps_their_scores_and_lets_go_of_everything) {
  const TemporaryDirectory directory;
  Buffers buffers;
  {
    TwoPads pads(With("results-filename", directory / "out.csv"));
    HeldEngine engine(pads.element());
    pads.SetCaps(kSmallCaps);
    PushFrames(&pads, Side::kReference, 0, kPushed, 0, &buffers);
    PushFrames(&pads, Side::kDistorted, 0, kPushed, 0, &buffers);
    engine.WaitUntilHolding();
    const GstPtr<GstPad> src(gst_element_get_static_pad(pads.element(), "src"));
    std::thread releasing([&] {
      while (!GST_PAD_IS_FLUSHING(src.get())) g_usleep(500);
      engine.Release();
    });
    gst_element_set_state(pads.element(), GST_STATE_READY);
    releasing.join();
    const Reports reports = pads.recorder().reports();
    CheckNoErrors(reports, "stop");
    fail_unless_equals_int(static_cast<int>(reports.frames.size()), 1 + kInFlight);
    for (int n = 0; n < 1 + kInFlight; ++n) fail_unless_equals_uint64(reports.frames[n].reference.index, n);
    fail_unless(reports.pooled.empty() && reports.unpaired.empty());
    const std::vector<std::string> lines = Lines(ReadFile(directory / "out.csv"));
    fail_unless_equals_int(static_cast<int>(lines.size()), 2 + kInFlight);
    for (int n = 0; n < 1 + kInFlight; ++n) CheckStartsWith(lines[n + 1], std::to_string(n) + ",");
    fail_unless_equals_int(faults.lent, 0);
    fail_unless(buffers.alive() <= 2, "%d buffers are kept", buffers.alive());  // with the harness: 0 and perhaps 1
  }
  fail_unless_equals_int(buffers.alive(), 0);
}
END_TEST

START_TEST(end_of_stream_with_pairs_in_flight_tells_all_of_them_in_order) {
  TwoPads pads(kCpu);
  HeldEngine engine(pads.element());
  pads.SetCaps(kSmallCaps);
  PushFrames(&pads, Side::kReference, 0, kPushed);
  PushFrames(&pads, Side::kDistorted, 0, kPushed);
  engine.WaitUntilHolding();
  const Side first = _i == 0 ? Side::kReference : Side::kDistorted;
  pads.Push(first, gst_event_new_eos());
  pads.Push(Other(first), gst_event_new_eos());
  engine.Release();
  fail_unless(pads.recorder().WaitFor("eos"));
  const Reports reports = pads.recorder().reports();
  CheckCounts(reports, kPushed, 0, 0);
  for (int n = 0; n < kPushed; ++n) {
    fail_unless_equals_uint64(reports.frames[n].reference.index, n);
    fail_unless_equals_uint64(reports.outputs[n].pts, n * kPeriod);
    fail_unless(reports.outputs[n].meta->reference.index == static_cast<guint64>(n));
  }
  fail_unless(reports.Position("pooled") > reports.Position("buffer " + std::to_string((kPushed - 1) * kPeriod)));
}
END_TEST

bool Sleeps(pid_t thread) {
  const std::string stat = ReadFile("/proc/self/task/" + std::to_string(thread) + "/stat");
  return stat[stat.rfind(')') + 2] == 'S';
}

START_TEST(seek_that_begins_while_the_end_is_told_takes_the_end_back) {
  TwoPads pads(kCpu);
  HeldEngine engine(pads.element());
  static std::atomic<bool> queried{false}, has_enough{true};
  gst_pad_set_query_function(pads.harness(Side::kDistorted)->srcpad,
                             [](GstPad* pad, GstObject* parent, GstQuery* query) -> gboolean {
                               queried = queried || GST_QUERY_TYPE(query) == GST_QUERY_SEEKING;
                               return gst_pad_query_default(pad, parent, query);
                             });
  gst_pad_set_chain_function(pads.harness(Side::kReference)->sinkpad,
                             [](GstPad*, GstObject*, GstBuffer* buffer) -> GstFlowReturn {
                               const bool refused = has_enough && GST_BUFFER_PTS(buffer) == 2 * kPeriod;
                               gst_buffer_unref(buffer);
                               return refused ? GST_FLOW_EOS : GST_FLOW_OK;
                             });
  std::atomic<pid_t> seeker{0};
  std::atomic<bool> seek_waits{false};
  std::thread seeking;
  faults.on_collect = [&, held = faults.on_collect](int number) {
    held(number);
    if (number != kInFlight) return;
    // Downstream ended with pair 2, and this is the last in flight. The seek waits until the end is told.
    seeking = std::thread([&] {
      seeker = gettid();
      fail_unless(SendSeek(pads));
    });
    while (!queried || !Sleeps(seeker)) g_usleep(500);
    seek_waits = true;
  };
  pads.SetCaps(kSmallCaps);
  for (Side side : {Side::kReference, Side::kDistorted}) PushFrames(&pads, side, 0, kPushed);
  engine.WaitUntilHolding();
  engine.Release();
  while (!seek_waits) g_usleep(500);
  seeking.join();
  fail_unless(pads.recorder().reports().pooled.empty(), "it was the end");
  has_enough = false;
  for (Side side : {Side::kReference, Side::kDistorted}) {
    GstPtr<GstEvent> seek;
    do {
      seek.reset(gst_harness_pull_upstream_event(pads.harness(side)));
    } while (GST_EVENT_TYPE(seek.get()) != GST_EVENT_SEEK);
    Flush(&pads, side, gst_event_get_seqnum(seek.get()));
  }
  for (Side side : {Side::kReference, Side::kDistorted}) PushFrames(&pads, side, 50, 3);
  CheckCounts(pads.End(), kInFlight + 3, 0, 0);
}
END_TEST

START_TEST(new_caps_with_pairs_in_flight_get_an_engine_of_their_own_when_those_are_told) {
  TwoPads pads(kCpu);
  HeldEngine engine(pads.element());
  pads.SetCaps(kSmallCaps);
  PushFrames(&pads, Side::kReference, 0, kPushed);
  PushFrames(&pads, Side::kDistorted, 0, kPushed);
  engine.WaitUntilHolding();
  pads.SetCaps(CapsOf(GST_VIDEO_FORMAT_I420, 48, 32));
  for (int n = kPushed; n < kPushed + 5; ++n) {
    if (n == kPushed + 2) engine.Release();  // more do not fit in
    for (Side side : {Side::kReference, Side::kDistorted}) {
      GstPtr<GstBuffer> frame = BufferOf(MakePicture(48, 32, Chroma::k420, 8), GST_VIDEO_FORMAT_I420);
      GST_BUFFER_PTS(frame.get()) = n * kPeriod;
      GST_BUFFER_DURATION(frame.get()) = kPeriod;
      pads.Push(side, std::move(frame));
    }
  }
  const Reports reports = pads.End();
  CheckCounts(reports, kPushed + 5, 0, 0);
  for (int n = 0; n < kPushed + 5; ++n) {
    fail_unless_equals_uint64(reports.frames[n].reference.index, n);
    fail_unless_equals_uint64(reports.outputs[n].pts, n * kPeriod);
  }
  fail_unless_equals_int(faults.engines, 2);
  fail_unless_equals_int(faults.lent_at_create, 0);
  fail_unless_equals_int(reports.Count("caps"), 2);
  const auto new_caps = std::find(reports.order.rbegin(), reports.order.rend(), "caps");
  const std::string last_old = "buffer " + std::to_string((kPushed - 1) * kPeriod);
  fail_unless(std::find(new_caps, reports.order.rend(), last_old) != reports.order.rend());
}
END_TEST

START_TEST(pairs_that_a_slow_engine_would_delay_are_skipped_and_counted) {
  TwoPads pads(kCpu);
  for (Side side : {Side::kReference, Side::kDistorted}) {
    gst_harness_set_live(pads.harness(side), TRUE);
    gst_harness_set_upstream_latency(pads.harness(side), 0);
  }
  gst_harness_use_testclock(pads.harness(Side::kReference));
  const GstPtr<GstClock> clock(GST_CLOCK(gst_harness_get_testclock(pads.harness(Side::kReference))));
  // The first score takes as long as ten frames: those whose latency and own time it uses up are not scored.
  faults.on_collect = [&](int number) {
    if (number == 0) gst_test_clock_advance_time(GST_TEST_CLOCK(clock.get()), 10 * kPeriod);
  };
  pads.SetCaps(kSmallCaps);
  for (int n = 0; n < 20; ++n) {
    pads.Push(Side::kReference, SmallFrame(n));
    pads.Push(Side::kDistorted, SmallFrame(n));
    fail_unless(pads.recorder().WaitFor("buffer " + std::to_string(n * kPeriod)));
  }
  const Reports reports = pads.End();
  CheckNoErrors(reports, "slow");
  const Summary& pooled = reports.pooled[0];
  fail_unless_equals_uint64(pooled.frames + pooled.unpaired_ref + pooled.skipped, 20);
  fail_unless_equals_uint64(pooled.skipped, 7);  // frames 1 to 7 are due with 80 ms at 360 ms and before
  fail_unless_equals_uint64(reports.frames[1].reference.index, 8);
  fail_unless_equals_int(static_cast<int>(reports.outputs.size()), 20);
  for (int n = 1; n < 8; ++n) fail_if(reports.outputs[n].meta.has_value(), "buffer %d", n);
  const Notice& warning = reports.warnings.back();
  fail_unless(warning.text.find("7 pairs were too late") != std::string::npos, "%s", warning.text.c_str());
}
END_TEST

Suite* FaultsSuite() {
  Suite* suite = suite_create("psnrhvs: faults of the engine");
  TCase* tests = tcase_create("general");
  tcase_set_timeout(tests, 180);
  suite_add_tcase(suite, tests);
  tcase_add_checked_fixture(
      tests, [] { faults = Faults(); }, nullptr);
  tcase_add_test(tests, engine_that_cannot_have_its_memory_is_an_error);
  tcase_add_loop_test(tests, exception_of_an_engine_is_an_error, 0, 6);
  tcase_add_loop_test(tests, engine_that_refuses_a_pair_is_an_error_and_keeps_the_pairs_before, 1, 5);
  tcase_add_loop_test(tests, engine_that_loses_a_result_is_an_error_and_keeps_the_pairs_before, 1, 5);
  tcase_add_test(tests, element_works_again_after_an_engine_failed);
  tcase_add_test(tests, deep_engine_overlaps_pairs_and_tells_them_in_order);
  tcase_add_loop_test(tests, flush_with_pairs_in_flight_forgets_those_and_goes_on_counting, 0, 6);
  tcase_add_test(tests, seek_with_pairs_in_flight_forgets_those_and_goes_on_counting);
  tcase_add_test(tests, stop_with_pairs_in_flight_keeps_their_scores_and_lets_go_of_everything);
  tcase_add_loop_test(tests, end_of_stream_with_pairs_in_flight_tells_all_of_them_in_order, 0, 2);
  tcase_add_test(tests, seek_that_begins_while_the_end_is_told_takes_the_end_back);
  tcase_add_test(tests, new_caps_with_pairs_in_flight_get_an_engine_of_their_own_when_those_are_told);
  tcase_add_test(tests, pairs_that_a_slow_engine_would_delay_are_skipped_and_counted);
  return suite;
}

}  // namespace
}  // namespace testing

Result<std::unique_ptr<Engine>> CreateCpuEngine(const FrameGeometry& geometry, const CpuEngineOptions&) {
  ++testing::faults.engines;
  testing::faults.lent_at_create = testing::faults.lent;
  testing::ThrowIn(testing::Call::kCreate);
  if (!testing::faults.create.ok()) return testing::faults.create;
  return std::unique_ptr<Engine>(std::make_unique<testing::FaultyEngine>(geometry));
}

}  // namespace psnrhvs

int main(int argc, char** argv) {
  psnrhvs::testing::InitChecks(&argc, &argv);
  GST_ELEMENT_REGISTER(psnrhvs, nullptr);
  return gst_check_run_suite(psnrhvs::testing::FaultsSuite(), "element_faults", __FILE__);
}
