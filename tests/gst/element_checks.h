// What the element's suites check again and again. Every failure names the test's own words in `what`.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/support/pipelines.h"

// Last: it defines macros with names of the standard library.
#include <gst/check/gstcheck.h>

namespace psnrhvs::testing {

// Adds a loop test that runs the element in gst-launch, or says that it is left out. `suite` is the program's name.
#define TCASE_ADD_LAUNCH_TEST(tcase, suite, test, count) \
  do {                                                   \
    if (GstLaunchRunsElement()) {                        \
      tcase_add_loop_test(tcase, test, 0, count);        \
    } else {                                             \
      std::printf("[  SKIPPED ] %s.%s\n", suite, #test); \
    }                                                    \
  } while (0)

inline void CheckNoErrors(const Reports& reports, const std::string& what) {
  fail_unless(reports.errors.empty(), "%s: %s", what.c_str(),
              reports.errors.empty() ? "" : reports.errors[0].text.c_str());
}

// One pooled message with these counts, as many frame and unpaired messages, and no error.
inline void CheckCounts(const Reports& reports, guint64 frames, guint64 unpaired_ref, guint64 unpaired_dist,
                        const std::string& what = "counts") {
  CheckNoErrors(reports, what);
  fail_unless_equals_int(static_cast<int>(reports.pooled.size()), 1);
  const Summary& pooled = reports.pooled[0];
  fail_unless(pooled.frames == frames && pooled.unpaired_ref == unpaired_ref && pooled.unpaired_dist == unpaired_dist,
              "%s: pooled over %" PRIu64 " frames, %" PRIu64 " and %" PRIu64 " unpaired", what.c_str(), pooled.frames,
              pooled.unpaired_ref, pooled.unpaired_dist);
  guint64 from_ref = 0;
  for (const UnpairedReport& unpaired : reports.unpaired) from_ref += unpaired.pad == "ref_sink";
  fail_unless(reports.frames.size() == frames && from_ref == unpaired_ref &&
                  reports.unpaired.size() - from_ref == unpaired_dist,
              "%s: %zu frame messages, %zu unpaired ones of which %" PRIu64 " from ref_sink", what.c_str(),
              reports.frames.size(), reports.unpaired.size(), from_ref);
}

inline void CheckAllInfinite(const Reports& reports, const std::string& what = "pairs") {
  fail_if(reports.frames.empty(), "%s: nothing was scored", what.c_str());
  for (const FrameReport& frame : reports.frames) {
    const ScoreKind kind = frame.score.has(ScoreKind::kCombined) ? ScoreKind::kCombined : ScoreKind::kY;
    fail_unless(std::isinf(frame.score.score_db(kind)) && frame.score.score_db(kind) > 0,
                "%s: frame %" PRIu64 " scores %.17g dB", what.c_str(), frame.reference.index,
                frame.score.score_db(kind));
  }
}

inline void CheckText(const std::string& text, const std::string& expected) {
  fail_unless(text == expected, "\"%s\" instead of \"%s\"", text.c_str(), expected.c_str());
}

inline void CheckStartsWith(const std::string& text, const std::string& start) {
  CheckText(text.substr(0, start.size()), start);
}

inline double Double(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The golden's doubles; NaN in the table is a score that is absent.
inline void CheckScore(const FrameScore& score, const Golden& golden, const std::string& what) {
  for (ScoreKind kind : kAllScoreKinds) {
    const uint64_t bits = golden.score_bits[static_cast<int>(kind)];
    const bool scored = !std::isnan(Double(bits));
    fail_unless(score.has(kind) == scored, "%s %s frame %d: score %d %s", what.c_str(), golden.name.c_str(),
                golden.frame, static_cast<int>(kind), scored ? "is missing" : "is there");
    if (!scored) continue;
    fail_unless(Bits(score.score_db(kind)) == bits, "%s %s frame %d: score %d is %.17g, libvmaf's %.17g", what.c_str(),
                golden.name.c_str(), golden.frame, static_cast<int>(kind), score.score_db(kind), Double(bits));
  }
}

// The only error is the element's own, and its text holds all of these.
inline void CheckError(const Reports& reports, const std::vector<std::string>& texts) {
  fail_if(reports.errors.empty(), "no error was posted");
  const Notice& error = reports.errors[0];
  fail_unless(error.source == "m", "the first error is of %s: %s", error.source.c_str(), error.text.c_str());
  for (const std::string& text : texts) {
    fail_unless(error.text.find(text) != std::string::npos, "no \"%s\" in: %s", text.c_str(), error.text.c_str());
  }
  fail_unless(reports.frames.empty() && reports.pooled.empty(), "something was scored all the same");
}

// A flushing seek to second 1, from downstream.
inline bool SendSeek(const TwoPads& pads) {
  const GstPtr<GstPad> src(gst_element_get_static_pad(pads.element(), "src"));
  return gst_pad_send_event(src.get(), gst_event_new_seek(1, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET,
                                                          GST_SECOND, GST_SEEK_TYPE_NONE, -1));
}

}  // namespace psnrhvs::testing
