// What the element reports, as values; the GstStructure of each (bus message, buffer metadata) and
// back, in one place. docs/usage.md describes every field; gst/psnrhvs/results.h writes the same to files.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/gst.h>

#include <array>
#include <optional>
#include <string>

#include "cpu/score.h"
#include "gst/psnrhvs/gstptr.h"

namespace psnrhvs {

// The element's version, as messages and files state it.
inline constexpr char kVersion[] = PSNRHVS_VERSION;
// Name of the element's bus messages' structure.
inline constexpr char kMessageName[] = "psnrhvs";
// Name of the GstCustomMeta on scored buffers.
inline constexpr char kMetaName[] = "GstPsnrHvsMeta";

// Which buffer of its pad, and when. Times in ns; unknown: GST_CLOCK_TIME_NONE.
struct FrameTiming {
  guint64 index = GST_CLOCK_TIME_NONE;  // counts the pad's buffers from 0 since start
  guint64 timestamp = GST_CLOCK_TIME_NONE;
  guint64 stream_time = GST_CLOCK_TIME_NONE;
  guint64 running_time = GST_CLOCK_TIME_NONE;
  guint64 duration = GST_CLOCK_TIME_NONE;
};

// A scored pair.
struct FrameReport {
  FrameTiming reference;
  guint64 dist_running_time = GST_CLOCK_TIME_NONE;  // of the distorted buffer
  FrameScore score;
  std::optional<double> window_mean;  // dB, where a sliding mean is watched; not in files
};

// A buffer that found no partner.
struct UnpairedReport {
  std::string pad;  // "ref_sink" or "dist_sink"
  FrameTiming timing;
};

// A whole run.
struct Summary {
  guint64 frames = 0;                                            // scored pairs
  std::array<std::optional<PooledScore>, kScoreKinds> pooled{};  // by ScoreKind; nullopt if no frame had it
  guint64 unpaired_ref = 0;
  guint64 unpaired_dist = 0;
  guint64 skipped = 0;                   // live pairs that were not scored in time; reported only if there are any
  std::string backend;                   // "cpu" or "cuda": the one that computed
  std::optional<gint64> start_offset{};  // ns by which the distorted input seems to start later; not in files
};

// The watched mean fell below a threshold for long enough, or came back.
struct AlarmReport {
  bool raised = false;                  // else recovered
  FrameTiming reference;                // of the frame with which it happened
  double value = 0;                     // dB, the window's mean
  double threshold = 0;                 // dB
  guint64 since = GST_CLOCK_TIME_NONE;  // running time from which on it has been so
};

Summary Summarize(const Pooling& pooling, guint64 unpaired_ref, guint64 unpaired_dist, guint64 skipped,
                  const std::string& backend);

// Message structures of `type` "frame", "unpaired", "pooled", and "alarm" or "recovered".
GstPtr<GstStructure> ToStructure(const FrameReport& report);
GstPtr<GstStructure> ToStructure(const UnpairedReport& report);
GstPtr<GstStructure> ToStructure(const Summary& summary);
GstPtr<GstStructure> ToStructure(const AlarmReport& report);

// The way back, from a message's or the metadata's structure; nullopt if `type` (absent in metadata)
// or a field's GType differs or a field is missing. Structures hold no linear errors: those of the
// score that comes back are 0.
std::optional<FrameReport> FrameReportFrom(const GstStructure* structure);
std::optional<UnpairedReport> UnpairedReportFrom(const GstStructure* structure);
std::optional<Summary> SummaryFrom(const GstStructure* structure);
std::optional<AlarmReport> AlarmReportFrom(const GstStructure* structure);

// One line for people: mean dB, frames, backend.
std::string SummaryText(const Summary& summary);

// Registers GstPsnrHvsMeta, so that readers find it by name. Any number of calls from any thread.
void RegisterMeta();

// Puts the frame's fields on `buffer`, which must be writable, in place of any that it carried.
void AttachMeta(GstBuffer* buffer, const FrameReport& report);

// `buffer` without the fields that an earlier element may have put on it.
GstPtr<GstBuffer> WithoutMeta(GstPtr<GstBuffer> buffer);

}  // namespace psnrhvs
