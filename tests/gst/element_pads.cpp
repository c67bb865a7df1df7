// The element alone between harnesses: buffers, events, queries and layouts, one at a time.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <set>
#include <thread>

#include "gst/psnrhvs/mapped_frame.h"
#include "tests/gst/element_checks.h"

namespace psnrhvs::testing {
namespace {

constexpr Side kRef = Side::kReference;
constexpr Side kDist = Side::kDistorted;
constexpr GstClockTime kPeriod = 40 * GST_MSECOND;
const char kSmall[] = "video/x-raw,format=I420,width=64,height=48,framerate=25/1";

// Picture `n` of a source whose pictures all differ.
Picture Scene(int n, int width = 64, int height = 48, Chroma chroma = Chroma::k420, int depth = 8) {
  return GeneratePicture("scene:0:0:7", width, height, chroma, depth, n);
}

GstPtr<GstBuffer> Timed(GstPtr<GstBuffer> buffer, GstClockTime pts, GstClockTime duration = kPeriod) {
  GST_BUFFER_PTS(buffer.get()) = pts;
  GST_BUFFER_DURATION(buffer.get()) = duration;
  return buffer;
}

// Frame `n` of the source at its time.
GstPtr<GstBuffer> Frame(int n) { return Timed(BufferOf(Scene(n), GST_VIDEO_FORMAT_I420), n * kPeriod); }

void PushBoth(TwoPads* pads, int first, int last) {
  for (int n = first; n <= last; ++n) {
    fail_unless_equals_int(pads->Push(kRef, Frame(n)), GST_FLOW_OK);
    fail_unless_equals_int(pads->Push(kDist, Frame(n)), GST_FLOW_OK);
  }
}

GstEvent* TimeSegment(GstClockTime start = 0) {
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  segment.start = segment.time = start;
  return gst_event_new_segment(&segment);
}

void Flush(TwoPads* pads, Side side) {
  pads->Push(side, gst_event_new_flush_start());
  pads->Push(side, gst_event_new_flush_stop(TRUE));
  pads->Push(side, TimeSegment());
}

std::vector<GstVideoFormat> FormatsOf(Chroma chroma, int depth) {
  switch (chroma) {
    case Chroma::k400:
      return {GST_VIDEO_FORMAT_GRAY8};
    case Chroma::k420:
      if (depth == 8)
        return {GST_VIDEO_FORMAT_I420, GST_VIDEO_FORMAT_YV12, GST_VIDEO_FORMAT_NV12, GST_VIDEO_FORMAT_NV21};
      if (depth == 10) return {GST_VIDEO_FORMAT_I420_10LE, GST_VIDEO_FORMAT_P010_10LE};
      return {GST_VIDEO_FORMAT_I420_12LE, GST_VIDEO_FORMAT_P012_LE};
    case Chroma::k422:
      if (depth == 8) return {GST_VIDEO_FORMAT_Y42B, GST_VIDEO_FORMAT_NV16};
      break;
    case Chroma::k444:
      break;
  }
  return {PlanarFormat(chroma, depth)};
}

// Sixteen formats, each in three layouts: GStreamer's own, and padded rows and displaced planes, odd and even.
struct FormatCase {
  GstVideoFormat format;
  Chroma chroma;
  int depth;
};

std::vector<FormatCase> FormatCases() {
  std::vector<FormatCase> cases;
  for (int depth : {8, 10, 12}) {
    for (Chroma chroma : {Chroma::k420, Chroma::k422, Chroma::k444}) {
      for (GstVideoFormat format : FormatsOf(chroma, depth)) cases.push_back({format, chroma, depth});
    }
  }
  return cases;
}

const Layout kLayouts[] = {{false, 0, 0}, {true, 0, 0}, {true, 37, 129}, {true, 64, 4096}};

START_TEST(generated_goldens_score_exactly_in_every_format_and_layout_on_both_pads) {
  const FormatCase tested = FormatCases()[_i];
  const GstVideoFormat planar = PlanarFormat(tested.chroma, tested.depth);
  // Rows of a pair follow each other in the table.
  std::vector<std::vector<Golden>> pairs;
  for (const Golden& golden : ReadGoldens(DataDirectory() + "/generated.csv")) {
    if (golden.chroma != tested.chroma || golden.depth != tested.depth) continue;
    if (pairs.empty() || pairs.back()[0].name != golden.name) pairs.emplace_back();
    pairs.back().push_back(golden);
  }
  fail_unless(pairs.size() >= 9, "%zu pairs", pairs.size());
  for (const std::vector<Golden>& frames : pairs) {
    for (const Layout& layout : kLayouts) {
      for (Side side : {kRef, kDist}) {
        TwoPads pads;
        pads.SetCaps(side, CapsOf(tested.format, frames[0].width, frames[0].height));
        pads.SetCaps(Other(side), CapsOf(planar, frames[0].width, frames[0].height));
        for (const Golden& golden : frames) {
          const PicturePair pair = LoadGolden(golden, "");
          const auto buffer = [&](const Picture& picture, Side of) {
            GstPtr<GstBuffer> made = of == side ? BufferOf(picture, tested.format, layout) : BufferOf(picture, planar);
            return Timed(std::move(made), golden.frame * kPeriod);
          };
          pads.Push(kRef, buffer(pair.reference, kRef));
          pads.Push(kDist, buffer(pair.distorted, kDist));
        }
        const Reports reports = pads.End();
        CheckCounts(reports, frames.size(), 0, 0, frames[0].name);
        for (size_t i = 0; i < frames.size(); ++i) {
          CheckScore(reports.frames[i].score, frames[i], gst_video_format_to_string(tested.format));
          CheckScore(reports.outputs[i].meta->score, frames[i], gst_video_format_to_string(tested.format));
        }
      }
    }
  }
}
END_TEST

START_TEST(grey_scores_the_luma_of_the_goldens_in_every_layout) {
  for (const Golden& golden : ReadGoldens(DataDirectory() + "/generated.csv")) {
    if (golden.chroma != Chroma::k420 || golden.depth != 8) continue;
    PicturePair pair = LoadGolden(golden, "");
    for (Picture* picture : {&pair.reference, &pair.distorted}) picture->chroma = Chroma::k400;
    for (const Layout& layout : kLayouts) {
      TwoPads pads;
      pads.SetCaps(CapsOf(GST_VIDEO_FORMAT_GRAY8, golden.width, golden.height));
      pads.Push(kRef, Timed(BufferOf(pair.reference, GST_VIDEO_FORMAT_GRAY8, layout), 0));
      pads.Push(kDist, Timed(BufferOf(pair.distorted, GST_VIDEO_FORMAT_GRAY8), 0));
      const Reports reports = pads.End();
      CheckCounts(reports, 1, 0, 0, golden.name);
      const FrameScore& score = reports.frames[0].score;
      fail_unless(score.scored_planes == 1 && Bits(score.plane_score_db[0]) == golden.score_bits[0], "%s",
                  golden.name.c_str());
    }
  }
}
END_TEST

START_TEST(difference_in_the_right_half_alone_is_seen_at_every_depth) {
  static const int kDepths[] = {8, 10, 12};
  const int depth = kDepths[_i];
  const GstVideoFormat format = PlanarFormat(Chroma::k420, depth);
  const Picture reference = Scene(0, 64, 48, Chroma::k420, depth);
  // Luma blanked on one half, then on the other: the halves' errors cannot be seen as the same or none.
  double score[2] = {};
  for (int half : {0, 1}) {
    Picture distorted = reference;
    const int bytes = distorted.BytesPerSample();
    for (int y = 0; y < 48; ++y) {
      std::fill_n(distorted.planes[0].begin() + (y * 64 + half * 32) * bytes, 32 * bytes, uint8_t{0});
    }
    TwoPads pads;
    pads.SetCaps(CapsOf(format, 64, 48));
    pads.Push(kRef, Timed(BufferOf(reference, format), 0));
    pads.Push(kDist, Timed(BufferOf(distorted, format), 0));
    const Reports reports = pads.End();
    CheckCounts(reports, 1, 0, 0);
    score[half] = reports.frames[0].score.plane_score_db[0];
    fail_unless(score[half] < 20, "half %d scores %g dB", half, score[half]);
    fail_unless(std::isinf(reports.frames[0].score.plane_score_db[1]));
  }
  fail_unless(std::abs(score[0] - score[1]) < 6, "%g and %g dB", score[0], score[1]);
}
END_TEST

START_TEST(buffers_leave_as_they_came_with_metadata_on_scored_ones_only) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  std::vector<GstPtr<GstBuffer>> sent;
  std::vector<std::string> bytes;
  for (int n = 0; n < 6; ++n) {
    GstPtr<GstBuffer> buffer = Frame(n);
    GST_BUFFER_DTS(buffer.get()) = n * kPeriod + 1;
    GST_BUFFER_OFFSET(buffer.get()) = 100 + n;
    GST_BUFFER_OFFSET_END(buffer.get()) = 101 + n;
    if (n % 2) GST_BUFFER_FLAG_SET(buffer.get(), GST_BUFFER_FLAG_MARKER | GST_BUFFER_FLAG_DELTA_UNIT);
    GstMapInfo map;
    gst_buffer_map(buffer.get(), &map, GST_MAP_READ);
    bytes.emplace_back(reinterpret_cast<const char*>(map.data), map.size);
    gst_buffer_unmap(buffer.get(), &map);
    sent.emplace_back(gst_buffer_ref(buffer.get()));
    pads.Push(kRef, std::move(buffer));
    if (n != 3) pads.Push(kDist, Frame(n));
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 5, 1, 0);
  CheckAllInfinite(reports);
  fail_unless_equals_int(static_cast<int>(reports.outputs.size()), 6);
  for (int n = 0; n < 6; ++n) {
    const Output& output = reports.outputs[n];
    const GstPtr<GstBuffer> received(gst_harness_pull(pads.harness(kRef)));
    fail_unless(output.pts == n * kPeriod && output.dts == n * kPeriod + 1 && output.duration == kPeriod);
    fail_unless(output.offset == 100u + n && output.offset_end == 101u + n);
    // TAG_MEMORY is bookkeeping of the owner of the buffer, not of its contents.
    constexpr guint kContent = ~static_cast<guint>(GST_BUFFER_FLAG_TAG_MEMORY);
    fail_unless((output.flags & kContent) == (GST_BUFFER_FLAGS(sent[n].get()) & kContent));
    fail_unless(output.memory == gst_buffer_peek_memory(sent[n].get(), 0), "memory was copied");
    fail_unless_equals_int(output.metas, n == 3 ? 0 : 1);
    fail_unless(gst_buffer_get_size(received.get()) == bytes[n].size() &&
                gst_buffer_memcmp(received.get(), 0, bytes[n].data(), bytes[n].size()) == 0);
    fail_if(gst_buffer_get_custom_meta(sent[n].get(), kMetaName), "the sender's buffer was written to");
    if (n == 3) continue;
    fail_unless(output.meta->reference.index == static_cast<guint64>(n));
    fail_unless(output.meta->reference.timestamp == n * kPeriod && output.meta->dist_running_time == n * kPeriod);
  }
}
END_TEST

START_TEST(metadata_of_an_earlier_element_is_replaced) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  GstPtr<GstBuffer> buffer = Frame(0);
  GstCustomMeta* stale = gst_buffer_add_custom_meta(buffer.get(), kMetaName);
  gst_structure_set(gst_custom_meta_get_structure(stale), "psnr-hvs-y", G_TYPE_DOUBLE, 1.0, nullptr);
  pads.Push(kRef, std::move(buffer));
  pads.Push(kDist, Frame(0));
  const Reports reports = pads.End();
  CheckCounts(reports, 1, 0, 0);
  fail_unless_equals_int(reports.outputs[0].metas, 1);
  fail_unless(std::isinf(reports.outputs[0].meta->score.plane_score_db[0]));
}
END_TEST

START_TEST(metadata_of_an_earlier_element_is_taken_off_a_buffer_that_is_not_scored) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  // The first lies outside its segment, the second has no partner.
  pads.Push(kRef, TimeSegment(kPeriod));
  std::vector<GstPtr<GstBuffer>> sent;
  for (int n = 0; n < 2; ++n) {
    GstPtr<GstBuffer> buffer = Frame(n);
    for (int i = 0; i < 2; ++i) gst_buffer_add_custom_meta(buffer.get(), kMetaName);
    sent.emplace_back(gst_buffer_ref(buffer.get()));
    pads.Push(kRef, std::move(buffer));
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 0, 1, 0);
  fail_unless_equals_int(static_cast<int>(reports.outputs.size()), 2);
  for (int n = 0; n < 2; ++n) {
    fail_unless_equals_int(reports.outputs[n].metas, 0);
    fail_unless(reports.outputs[n].memory == gst_buffer_peek_memory(sent[n].get(), 0), "memory was copied");
    fail_unless(gst_buffer_get_custom_meta(sent[n].get(), kMetaName) != nullptr, "the sender's buffer was written to");
  }
}
END_TEST

START_TEST(gap_events_of_either_pad_are_no_frames) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  PushBoth(&pads, 0, 1);
  pads.Push(kRef, gst_event_new_gap(2 * kPeriod, kPeriod));
  pads.Push(kDist, gst_event_new_gap(2 * kPeriod, kPeriod));
  PushBoth(&pads, 3, 3);
  pads.Push(kDist, gst_event_new_gap(4 * kPeriod, kPeriod));
  pads.Push(kRef, Frame(4));
  pads.Push(kRef, gst_event_new_gap(5 * kPeriod, kPeriod));
  pads.Push(kDist, Frame(5));
  PushBoth(&pads, 6, 7);
  const Reports reports = pads.End();
  CheckCounts(reports, 5, 1, 1);
  CheckAllInfinite(reports);
  fail_unless(reports.frames[2].reference.timestamp == 3 * kPeriod && reports.frames[2].reference.index == 2);
  fail_unless(reports.unpaired[0].pad == "ref_sink" || reports.unpaired[1].pad == "ref_sink");
  // The reference's gaps go on downstream, between its buffers.
  fail_unless_equals_int(reports.Count("gap"), 2);
  const auto buffer = [&](int n) { return reports.Position("buffer " + std::to_string(n * kPeriod)); };
  fail_unless(buffer(1) < reports.Position("gap") && reports.Position("gap") < buffer(3));
}
END_TEST

START_TEST(empty_buffers_marked_as_gaps_are_gaps_and_hold_nothing_up) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  constexpr int kFrames = 200;  // more gaps than the lead that is allowed
  std::thread reference([&] {
    for (int n = 0; n < kFrames; ++n) {
      if (n % 2 == 0) {
        pads.Push(kRef, Frame(n));
        continue;
      }
      GstPtr<GstBuffer> gap(gst_buffer_new());
      GST_BUFFER_FLAG_SET(gap.get(), GST_BUFFER_FLAG_GAP);
      pads.Push(kRef, Timed(std::move(gap), n * kPeriod));
    }
    pads.Push(kRef, gst_event_new_eos());
  });
  for (int n = 0; n < kFrames; ++n) pads.Push(kDist, Frame(n));
  pads.Push(kDist, gst_event_new_eos());
  reference.join();
  fail_unless(pads.recorder().WaitFor("eos"));
  CheckCounts(pads.recorder().reports(), kFrames / 2, 0, kFrames / 2);
}
END_TEST

START_TEST(buffers_without_duration_take_the_frame_period_of_their_caps) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  for (int n = 0; n < 4; ++n) {
    pads.Push(kRef, Timed(Frame(n), n * kPeriod, GST_CLOCK_TIME_NONE));
    pads.Push(kDist, Timed(Frame(n), n * kPeriod + 19 * GST_MSECOND, GST_CLOCK_TIME_NONE));
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 4, 0, 0);
  CheckAllInfinite(reports);
  for (int n = 0; n < 4; ++n) {
    fail_unless(reports.frames[n].reference.duration == kPeriod);
    fail_unless(reports.frames[n].dist_running_time == n * kPeriod + 19 * GST_MSECOND);
    fail_unless(reports.outputs[n].duration == GST_CLOCK_TIME_NONE, "the buffer itself is left alone");
  }
}
END_TEST

START_TEST(buffers_without_duration_or_rate_pair_by_the_distance_to_the_next) {
  TwoPads pads;
  pads.SetCaps("video/x-raw,format=I420,width=64,height=48,framerate=0/1");
  for (int n = 0; n < 4; ++n) {
    pads.Push(kRef, Timed(Frame(n), n * kPeriod, GST_CLOCK_TIME_NONE));
    pads.Push(kDist, Timed(Frame(n), n * kPeriod + 19 * GST_MSECOND, GST_CLOCK_TIME_NONE));
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 4, 0, 0);
  CheckAllInfinite(reports);
  fail_unless(reports.frames[0].reference.duration == GST_CLOCK_TIME_NONE);
}
END_TEST

START_TEST(half_a_frame_apart_is_not_a_pair_and_less_is) {
  static const struct {
    GstClockTime shift;
    const char* tolerance;
    guint64 pairs;
  } kCases[] = {{20 * GST_MSECOND, "18446744073709551615", 0},
                {20 * GST_MSECOND - 1, "18446744073709551615", 1},
                {20 * GST_MSECOND, "20000000", 1},
                {20 * GST_MSECOND + 1, "20000000", 0},
                {1, "0", 0},
                {0, "0", 1}};
  TwoPads pads(TwoPads::Properties{{"tolerance", kCases[_i].tolerance}});
  pads.SetCaps(kSmall);
  pads.Push(kRef, Frame(0));
  pads.Push(kDist, Timed(Frame(0), kCases[_i].shift));
  CheckCounts(pads.End(), kCases[_i].pairs, 1 - kCases[_i].pairs, 1 - kCases[_i].pairs);
}
END_TEST

START_TEST(inputs_without_timestamps_are_paired_by_arrival_with_one_warning) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  for (int n = 0; n < 4; ++n) {
    pads.Push(kRef, Timed(Frame(n), GST_CLOCK_TIME_NONE));
    pads.Push(kDist, Timed(Frame(n), GST_CLOCK_TIME_NONE));
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 4, 0, 0);
  CheckAllInfinite(reports);
  fail_unless_equals_int(static_cast<int>(reports.warnings.size()), 1);
  fail_unless(reports.warnings[0].text.find("timestamps") != std::string::npos);
  for (int n = 0; n < 4; ++n) {
    fail_unless(reports.frames[n].reference.index == static_cast<guint64>(n));
    fail_unless(reports.frames[n].reference.timestamp == GST_CLOCK_TIME_NONE);
    fail_unless(reports.frames[n].reference.running_time == GST_CLOCK_TIME_NONE);
  }
}
END_TEST

START_TEST(pairing_by_order_ignores_times) {
  TwoPads pads(TwoPads::Properties{{"pairing", "order"}});
  pads.SetCaps(kSmall);
  for (int n = 0; n < 5; ++n) pads.Push(kRef, Frame(n));
  for (int n = 0; n < 3; ++n) pads.Push(kDist, Timed(Frame(n), (100 - n) * GST_SECOND));
  const Reports reports = pads.End();
  CheckCounts(reports, 3, 2, 0);
  CheckAllInfinite(reports);
}
END_TEST

START_TEST(flush_of_one_pad_leaves_right_pairs_and_goes_on_counting) {
  const Side flushed = _i == 0 ? kRef : kDist;
  TwoPads pads;
  pads.SetCaps(kSmall);
  PushBoth(&pads, 0, 3);
  fail_unless(pads.recorder().WaitFor("frame 3"));
  // A frame of the flushed pad waits for a partner that will not be its own.
  pads.Push(flushed, Frame(4));
  Flush(&pads, flushed);
  PushBoth(&pads, 5, 9);
  const Reports reports = pads.End();
  CheckNoErrors(reports, "flush");
  CheckAllInfinite(reports);
  fail_unless_equals_int(static_cast<int>(reports.frames.size()), 9);
  fail_unless(reports.pooled.size() == 1 && reports.pooled[0].frames == 9);
  fail_unless(reports.frames[4].reference.timestamp == 5 * kPeriod);
  fail_unless(reports.frames[4].reference.index >= 4, "numbers start again");
}
END_TEST

START_TEST(flush_of_both_pads_starts_again_from_any_time) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  PushBoth(&pads, 5, 9);
  fail_unless(pads.recorder().WaitFor("frame 4"));
  Flush(&pads, kRef);
  Flush(&pads, kDist);
  PushBoth(&pads, 0, 3);
  const Reports reports = pads.End();
  CheckCounts(reports, 9, 0, 0);
  CheckAllInfinite(reports);
  for (size_t i = 0; i < 9; ++i) fail_unless(reports.frames[i].reference.index == i);
  fail_unless(reports.frames[5].reference.timestamp == 0);
}
END_TEST

START_TEST(flush_while_one_side_waits_for_the_other_does_not_hang) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  for (int n = 0; n < 20; ++n) pads.Push(kRef, Frame(n));
  Flush(&pads, kRef);
  Flush(&pads, kDist);
  PushBoth(&pads, 0, 3);
  const Reports reports = pads.End();
  CheckCounts(reports, 4, 0, 0);
  CheckAllInfinite(reports);
}
END_TEST

START_TEST(pooled_message_and_eos_come_once_whichever_input_ends_first) {
  const Side first = _i == 0 ? kRef : kDist;
  TwoPads pads;
  pads.SetCaps(kSmall);
  PushBoth(&pads, 0, 4);
  const Reports reports = pads.End(first);
  CheckCounts(reports, 5, 0, 0);
  fail_unless(reports.Position("frame 4") < reports.Position("pooled"));
  fail_unless(reports.Position("pooled") < reports.Position("eos"));
  fail_unless_equals_int(reports.Count("eos"), 1);
}
END_TEST

START_TEST(input_without_a_frame_leaves_the_other_unpaired) {
  const Side empty = _i == 0 ? kRef : kDist;
  TwoPads pads;
  pads.SetCaps(kSmall);
  for (int n = 0; n < 3; ++n) pads.Push(Other(empty), Frame(n));
  const Reports reports = pads.End(empty);
  CheckCounts(reports, 0, empty == kRef ? 0 : 3, empty == kRef ? 3 : 0);
  for (const auto& pooled : reports.pooled[0].pooled) fail_if(pooled.has_value());
}
END_TEST

START_TEST(without_frame_messages_the_pooled_one_and_the_metadata_stay) {
  TwoPads pads(TwoPads::Properties{{"frame-message", "false"}});
  pads.SetCaps(kSmall);
  PushBoth(&pads, 0, 3);
  pads.Push(kRef, Frame(4));
  const Reports reports = pads.End();
  CheckNoErrors(reports, "quiet");
  fail_unless(reports.frames.empty() && reports.unpaired.empty());
  fail_unless(reports.pooled.size() == 1 && reports.pooled[0].frames == 4 && reports.pooled[0].unpaired_ref == 1);
  for (int n = 0; n < 4; ++n) fail_unless(reports.outputs[n].metas == 1);
}
END_TEST

START_TEST(tags_of_the_reference_go_on_and_those_of_the_other_do_not) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  pads.Push(kRef, gst_event_new_tag(gst_tag_list_new(GST_TAG_TITLE, "reference", nullptr)));
  pads.Push(kDist, gst_event_new_tag(gst_tag_list_new(GST_TAG_TITLE, "distorted", nullptr)));
  PushBoth(&pads, 0, 1);
  const Reports reports = pads.End();
  CheckCounts(reports, 2, 0, 0);
  fail_unless_equals_int(reports.Count("tag"), 1);
  const GstPtr<GstPad> src(gst_element_get_static_pad(pads.element(), "src"));
  bool found = false;
  while (GstEvent* event = gst_harness_try_pull_event(pads.harness(kRef))) {
    if (GST_EVENT_TYPE(event) == GST_EVENT_TAG) {
      GstTagList* tags;
      gst_event_parse_tag(event, &tags);
      gchar* title = nullptr;
      fail_unless(gst_tag_list_get_string(tags, GST_TAG_TITLE, &title));
      CheckText(title, "reference");
      g_free(title);
      found = true;
    }
    gst_event_unref(event);
  }
  fail_unless(found);
}
END_TEST

START_TEST(other_events_of_the_reference_go_on_and_those_of_the_other_do_not) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  PushBoth(&pads, 0, 1);
  for (Side side : {kRef, kDist}) {
    pads.Push(side, gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM,
                                         gst_structure_new_empty(side == kRef ? "reference" : "distorted")));
    pads.Push(side, gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_OOB,
                                         gst_structure_new_empty(side == kRef ? "reference" : "distorted")));
    pads.Push(side, gst_event_new_segment_done(GST_FORMAT_TIME, 2 * kPeriod));
  }
  CheckCounts(pads.End(), 2, 0, 0);
  int custom = 0, done = 0;
  while (GstEvent* event = gst_harness_try_pull_event(pads.harness(kRef))) {
    done += GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT_DONE;
    if (GST_EVENT_TYPE(event) == GST_EVENT_CUSTOM_DOWNSTREAM ||
        GST_EVENT_TYPE(event) == GST_EVENT_CUSTOM_DOWNSTREAM_OOB) {
      CheckText(gst_structure_get_name(gst_event_get_structure(event)), "reference");
      ++custom;
    }
    gst_event_unref(event);
  }
  fail_unless(custom == 2 && done == 1, "%d custom events, %d segments done", custom, done);
}
END_TEST

START_TEST(quality_of_service_events_are_swallowed) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  PushBoth(&pads, 0, 1);
  fail_unless(pads.recorder().WaitFor("frame 0"));
  fail_unless(gst_harness_push_upstream_event(
      pads.harness(kRef), gst_event_new_qos(GST_QOS_TYPE_UNDERFLOW, 0.5, 100 * GST_MSECOND, 2 * kPeriod)));
  for (Side side : {kRef, kDist}) {
    while (GstEvent* event = gst_harness_try_pull_upstream_event(pads.harness(side))) {
      fail_if(GST_EVENT_TYPE(event) == GST_EVENT_QOS, "it went on upstream");
      gst_event_unref(event);
    }
  }
  PushBoth(&pads, 2, 5);
  CheckCounts(pads.End(), 6, 0, 0);
}
END_TEST

// Names of the formats in caps.
std::set<std::string> FormatNames(const GstCaps* caps) {
  std::set<std::string> names;
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    const GValue* formats = gst_structure_get_value(gst_caps_get_structure(caps, i), "format");
    if (G_VALUE_HOLDS_STRING(formats)) {
      names.insert(g_value_get_string(formats));
    } else {
      for (guint f = 0; f < gst_value_list_get_size(formats); ++f) {
        names.insert(g_value_get_string(gst_value_list_get_value(formats, f)));
      }
    }
  }
  return names;
}

GstPtr<GstCaps> Query(GstPad* pad, const char* filter = nullptr) {
  const GstPtr<GstCaps> caps(filter ? gst_caps_from_string(filter) : nullptr);
  return GstPtr<GstCaps>(gst_pad_query_caps(pad, caps.get()));
}

START_TEST(caps_query_offers_every_layout_of_the_other_pads_samples_in_any_size) {
  static const struct {
    const char* format;
    std::set<std::string> offered;
  } kCases[] = {
      {"I420", {"I420", "YV12", "NV12", "NV21"}},
      {"NV12", {"I420", "YV12", "NV12", "NV21"}},
      {"NV16", {"Y42B", "NV16"}},
      {"Y444", {"Y444"}},
      {"P010_10LE", {"I420_10LE", "P010_10LE"}},
      {"I420_12LE", {"I420_12LE", "P012_LE"}},
      {"Y444_12LE", {"Y444_12LE"}},
      {"GRAY8", {"GRAY8"}},
  };
  for (Side known : {kRef, kDist}) {
    TwoPads pads;
    pads.SetCaps(known, CapsOf(gst_video_format_from_string(kCases[_i].format), 64, 48));
    const GstPtr<GstCaps> caps = Query(pads.pad(Other(known)));
    fail_unless(FormatNames(caps.get()) == kCases[_i].offered, "%s: %" GST_PTR_FORMAT, kCases[_i].format, caps.get());
    const std::string size = "video/x-raw,format=" + *kCases[_i].offered.begin() + ",width=1922,height=8";
    const GstPtr<GstCaps> other_size(gst_caps_from_string(size.c_str()));
    fail_unless(gst_caps_can_intersect(caps.get(), other_size.get()), "the size is limited");
  }
}
END_TEST

START_TEST(caps_query_answers_the_template_before_the_other_pads_caps_and_where_nothing_else_is_left) {
  TwoPads pads;
  // What device memory may hold depends on the build and the machine.
  const GstPtr<GstCaps> all(gst_caps_from_string(GST_VIDEO_CAPS_MAKE(PSNRHVS_FORMATS)));
  fail_unless(gst_caps_is_subset(all.get(), Query(pads.pad(kDist)).get()));
  fail_unless_equals_int(static_cast<int>(FormatNames(Query(pads.pad(kDist)).get()).size()), 16);
  pads.SetCaps(kRef, kSmall);
  pads.Push(kRef, Frame(0));
  const GstPtr<GstCaps> only = Query(pads.pad(kDist), "video/x-raw,format=Y444,width=64,height=48");
  fail_if(gst_caps_is_empty(only.get()), "a source of another format would fail without being told why");
  fail_unless(FormatNames(only.get()) == std::set<std::string>{"Y444"});
  const GstPtr<GstCaps> choice = Query(pads.pad(kDist), "video/x-raw,format={Y444,NV12}");
  fail_unless(FormatNames(choice.get()) == std::set<std::string>{"NV12"});
  fail_unless(gst_caps_is_empty(Query(pads.pad(kDist), "video/x-raw,format=RGB").get()));
}
END_TEST

START_TEST(accept_caps_is_answered_by_the_template) {
  TwoPads pads;
  pads.SetCaps(kRef, kSmall);
  const auto accepted = [&](const char* text) {
    const GstPtr<GstCaps> caps(gst_caps_from_string(text));
    return gst_pad_query_accept_caps(pads.pad(kDist), caps.get());
  };
  fail_unless(accepted("video/x-raw,format=I420,width=66,height=48,framerate=25/1"));
  fail_unless(accepted("video/x-raw,format=Y444_12LE,width=64,height=48,framerate=50/1"));
  fail_if(accepted("video/x-raw,format=RGB,width=64,height=48,framerate=25/1"));
  for (const char* wide : {"GRAY16_LE", "P016_LE", "Y444_16LE", "ARGB64"}) {
    fail_if(accepted((std::string("video/x-raw,width=64,height=48,framerate=25/1,format=") + wide).c_str()), "%s",
            wide);
  }
}
END_TEST

START_TEST(allocation_query_promises_on_ref_sink_only_what_downstream_takes) {
  for (bool downstream : {false, true}) {
    TwoPads pads;
    if (downstream) gst_harness_add_propose_allocation_meta(pads.harness(kRef), GST_VIDEO_META_API_TYPE, nullptr);
    pads.SetCaps(kSmall);
    const GstPtr<GstCaps> caps(gst_caps_from_string(kSmall));
    for (Side side : {kRef, kDist}) {
      const GstPtr<GstQuery> query(gst_query_new_allocation(caps.get(), FALSE));
      gst_pad_query(pads.pad(side), query.get());
      const bool offered = gst_query_find_allocation_meta(query.get(), GST_VIDEO_META_API_TYPE, nullptr);
      fail_unless(offered == (side == kDist || downstream), "side %d", static_cast<int>(side));
    }
  }
}
END_TEST

START_TEST(caps_that_change_on_both_sides_are_followed) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  PushBoth(&pads, 0, 2);
  pads.SetCaps("video/x-raw,format=Y444,width=72,height=40,framerate=25/1");
  for (int n = 3; n < 6; ++n) {
    for (Side side : {kRef, kDist}) {
      pads.Push(side, Timed(BufferOf(Scene(n, 72, 40, Chroma::k444), GST_VIDEO_FORMAT_Y444), n * kPeriod));
    }
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 6, 0, 0);
  CheckAllInfinite(reports);
  fail_unless_equals_int(reports.Count("caps"), 2);
}
END_TEST

START_TEST(caps_that_change_on_one_side_only_are_an_error) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  PushBoth(&pads, 0, 2);
  pads.SetCaps(kDist, "video/x-raw,format=I420,width=72,height=40,framerate=25/1");
  pads.Push(kRef, Frame(3));
  pads.Push(kDist, Timed(BufferOf(Scene(3, 72, 40), GST_VIDEO_FORMAT_I420), 3 * kPeriod));
  const Reports reports = pads.End();
  fail_unless_equals_int(static_cast<int>(reports.errors.size()), 1);
  fail_unless(reports.errors[0].text.find("72x40") != std::string::npos);
  fail_unless(reports.errors[0].text.find("64x48") != std::string::npos);
  fail_unless_equals_int(static_cast<int>(reports.frames.size()), 3);
  fail_unless(reports.pooled.empty() && reports.Position("error") >= 0);
  fail_unless(reports.Position("eos") < 0 || reports.Position("eos") > reports.Position("error"));
}
END_TEST

START_TEST(luma_below_8x8_is_an_error) {
  static const char* const kSizes[] = {"width=7,height=64", "width=64,height=7"};
  TwoPads pads;
  pads.SetCaps(std::string("video/x-raw,format=I420,framerate=25/1,") + kSizes[_i]);
  const int width = _i == 0 ? 7 : 64, height = _i == 0 ? 64 : 7;
  for (Side side : {kRef, kDist}) {
    pads.Push(side, Timed(BufferOf(Scene(0, width, height), GST_VIDEO_FORMAT_I420), 0));
  }
  CheckError(pads.End(), {"8x8"});
}
END_TEST

START_TEST(chroma_below_8x8_is_warned_of_once_and_left_out) {
  TwoPads pads;
  pads.SetCaps("video/x-raw,format=I420,width=17,height=15,framerate=25/1");
  for (int n = 0; n < 3; ++n) {
    for (Side side : {kRef, kDist}) {
      pads.Push(side, Timed(BufferOf(Scene(n + (side == kDist), 17, 15), GST_VIDEO_FORMAT_I420), n * kPeriod));
    }
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 3, 0, 0);
  for (const FrameReport& frame : reports.frames) {
    fail_unless(frame.score.scored_planes == 1 && std::isfinite(frame.score.plane_score_db[0]));
  }
  fail_unless_equals_int(static_cast<int>(reports.warnings.size()), 1);
  fail_unless(reports.warnings[0].text.find("8x8") != std::string::npos);
}
END_TEST

// Ways in which a buffer can fail to hold what its caps or its metadata promise.
enum class Lie { kEmpty, kShort, kOneByteShort, kStride, kOffset, kSmallerMeta, kNegativeStride, kCount };

GstPtr<GstBuffer> LyingBuffer(Lie lie) {
  GstVideoInfo info;
  gst_video_info_set_format(&info, GST_VIDEO_FORMAT_I420, 64, 48);
  size_t size = info.size;
  if (lie == Lie::kEmpty) size = 0;
  if (lie == Lie::kShort) size /= 2;
  if (lie == Lie::kOneByteShort) --size;
  int width = 64, height = 48;
  bool meta = true;
  switch (lie) {
    case Lie::kStride:
      info.stride[0] = 4096;
      break;
    case Lie::kOffset:
      info.offset[2] = size;
      break;
    case Lie::kSmallerMeta:
      width = height = 16;
      size = 16 * 16 * 3 / 2;
      info.offset[1] = 256;
      info.offset[2] = 320;
      info.stride[0] = 16;
      info.stride[1] = info.stride[2] = 8;
      break;
    case Lie::kNegativeStride:
      info.stride[0] = -64;
      break;
    default:
      meta = false;
      break;
  }
  GstPtr<GstBuffer> buffer(gst_buffer_new_allocate(nullptr, size, nullptr));
  if (size > 0) gst_buffer_memset(buffer.get(), 0, 0x80, size);
  if (meta) {
    gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_I420, width, height, 3,
                                   info.offset, info.stride);
  }
  return buffer;
}

START_TEST(buffer_that_does_not_hold_what_it_promises_is_an_error_that_names_the_pad) {
  const Lie lie = static_cast<Lie>(_i / 2);
  const Side liar = _i % 2 == 0 ? kRef : kDist;
  TwoPads pads;
  pads.SetCaps(kSmall);
  pads.Push(liar, Timed(LyingBuffer(lie), 0));
  pads.Push(Other(liar), Frame(0));
  CheckError(pads.End(), {liar == kRef ? "ref_sink" : "dist_sink"});
}
END_TEST

START_TEST(buffers_outside_their_segment_are_no_frames) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  for (Side side : {kRef, kDist}) pads.Push(side, TimeSegment(2 * kPeriod));
  // Decoders clip these; where none has, both sides' times before the start are alike unknown.
  PushBoth(&pads, 0, 5);
  const Reports reports = pads.End();
  CheckCounts(reports, 4, 0, 0);
  CheckAllInfinite(reports);
  fail_unless(reports.frames[0].reference.timestamp == 2 * kPeriod);
  fail_unless(reports.frames[0].reference.running_time == 0);
  fail_unless(reports.frames[0].reference.stream_time == 2 * kPeriod);
}
END_TEST

START_TEST(frames_belong_together_by_running_time_not_by_timestamp) {
  TwoPads pads;
  pads.SetCaps(kSmall);
  constexpr GstClockTime kThousandHours = 3600 * 1000 * GST_SECOND;
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  segment.start = kThousandHours;
  pads.Push(kDist, gst_event_new_segment(&segment));
  for (int n = 0; n < 4; ++n) {
    pads.Push(kRef, Frame(n));
    pads.Push(kDist, Timed(Frame(n), kThousandHours + n * kPeriod));
  }
  const Reports reports = pads.End();
  CheckCounts(reports, 4, 0, 0);
  CheckAllInfinite(reports);
  fail_unless(reports.frames[3].dist_running_time == 3 * kPeriod);
}
END_TEST

Suite* PadSuite() {
  Suite* suite = suite_create("psnrhvs: pads");
  TCase* tests = tcase_create("general");
  tcase_set_timeout(tests, 180);
  suite_add_tcase(suite, tests);
  tcase_add_loop_test(tests, generated_goldens_score_exactly_in_every_format_and_layout_on_both_pads, 0,
                      static_cast<int>(FormatCases().size()));
  tcase_add_test(tests, grey_scores_the_luma_of_the_goldens_in_every_layout);
  tcase_add_loop_test(tests, difference_in_the_right_half_alone_is_seen_at_every_depth, 0, 3);
  tcase_add_test(tests, buffers_leave_as_they_came_with_metadata_on_scored_ones_only);
  tcase_add_test(tests, metadata_of_an_earlier_element_is_replaced);
  tcase_add_test(tests, metadata_of_an_earlier_element_is_taken_off_a_buffer_that_is_not_scored);
  tcase_add_test(tests, gap_events_of_either_pad_are_no_frames);
  tcase_add_test(tests, empty_buffers_marked_as_gaps_are_gaps_and_hold_nothing_up);
  tcase_add_test(tests, buffers_without_duration_take_the_frame_period_of_their_caps);
  tcase_add_test(tests, buffers_without_duration_or_rate_pair_by_the_distance_to_the_next);
  tcase_add_loop_test(tests, half_a_frame_apart_is_not_a_pair_and_less_is, 0, 6);
  tcase_add_test(tests, inputs_without_timestamps_are_paired_by_arrival_with_one_warning);
  tcase_add_test(tests, pairing_by_order_ignores_times);
  tcase_add_loop_test(tests, flush_of_one_pad_leaves_right_pairs_and_goes_on_counting, 0, 2);
  tcase_add_test(tests, flush_of_both_pads_starts_again_from_any_time);
  tcase_add_test(tests, flush_while_one_side_waits_for_the_other_does_not_hang);
  tcase_add_loop_test(tests, pooled_message_and_eos_come_once_whichever_input_ends_first, 0, 2);
  tcase_add_loop_test(tests, input_without_a_frame_leaves_the_other_unpaired, 0, 2);
  tcase_add_test(tests, without_frame_messages_the_pooled_one_and_the_metadata_stay);
  tcase_add_test(tests, tags_of_the_reference_go_on_and_those_of_the_other_do_not);
  tcase_add_test(tests, other_events_of_the_reference_go_on_and_those_of_the_other_do_not);
  tcase_add_test(tests, quality_of_service_events_are_swallowed);
  tcase_add_loop_test(tests, caps_query_offers_every_layout_of_the_other_pads_samples_in_any_size, 0, 8);
  tcase_add_test(tests, caps_query_answers_the_template_before_the_other_pads_caps_and_where_nothing_else_is_left);
  tcase_add_test(tests, accept_caps_is_answered_by_the_template);
  tcase_add_test(tests, allocation_query_promises_on_ref_sink_only_what_downstream_takes);
  tcase_add_test(tests, caps_that_change_on_both_sides_are_followed);
  tcase_add_test(tests, caps_that_change_on_one_side_only_are_an_error);
  tcase_add_loop_test(tests, luma_below_8x8_is_an_error, 0, 2);
  tcase_add_test(tests, chroma_below_8x8_is_warned_of_once_and_left_out);
  tcase_add_loop_test(tests, buffer_that_does_not_hold_what_it_promises_is_an_error_that_names_the_pad, 0,
                      2 * static_cast<int>(Lie::kCount));
  tcase_add_test(tests, buffers_outside_their_segment_are_no_frames);
  tcase_add_test(tests, frames_belong_together_by_running_time_not_by_timestamp);
  return suite;
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) {
  psnrhvs::testing::InitChecks(&argc, &argv);
  return gst_check_run_suite(psnrhvs::testing::PadSuite(), "element_pads", __FILE__);
}
