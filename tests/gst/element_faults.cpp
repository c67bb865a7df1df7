// The element on an engine that fails, lags and holds several pairs, as a device may. This program links the element
// in and defines CreateCpuEngine() itself, so the library's is left out.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gst/check/gsttestclock.h>

#include <deque>
#include <functional>
#include <memory>
#include <sstream>

#include "cpu/cpu_engine.h"
#include "gst/psnrhvs/gstpsnrhvs.h"
#include "tests/gst/element_checks.h"

namespace psnrhvs {
namespace testing {
namespace {

// What the next engine does.
struct Faults {
  Status create;            // returned by the factory if it is no success
  int depth = 1;            // pairs that the engine holds
  int fail_submit_at = -1;  // number of the pair that is refused
  int fail_collect_at = -1;
  std::function<void(int)> on_collect = [](int) {};
  int lent = 0;  // pairs submitted and not collected
  int most_lent = 0;
} faults;

class FaultyEngine final : public Engine {
 public:
  explicit FaultyEngine(const FrameGeometry& geometry) : geometry_(geometry) {}
  ~FaultyEngine() override { faults.lent -= static_cast<int>(queue_.size()); }

  const char* backend() const override { return "cpu"; }
  int depth() const override { return faults.depth; }

  Status Submit(const FramePair&) override {
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
  tcase_add_loop_test(tests, engine_that_refuses_a_pair_is_an_error_and_keeps_the_pairs_before, 1, 5);
  tcase_add_loop_test(tests, engine_that_loses_a_result_is_an_error_and_keeps_the_pairs_before, 1, 5);
  tcase_add_test(tests, element_works_again_after_an_engine_failed);
  tcase_add_test(tests, deep_engine_overlaps_pairs_and_tells_them_in_order);
  tcase_add_test(tests, pairs_that_a_slow_engine_would_delay_are_skipped_and_counted);
  return suite;
}

}  // namespace
}  // namespace testing

Result<std::unique_ptr<Engine>> CreateCpuEngine(const FrameGeometry& geometry, const CpuEngineOptions&) {
  if (!testing::faults.create.ok()) return testing::faults.create;
  return std::unique_ptr<Engine>(std::make_unique<testing::FaultyEngine>(geometry));
}

}  // namespace psnrhvs

int main(int argc, char** argv) {
  gst_check_init(&argc, &argv);
  GST_ELEMENT_REGISTER(psnrhvs, nullptr);
  return gst_check_run_suite(psnrhvs::testing::FaultsSuite(), "element_faults", __FILE__);
}
