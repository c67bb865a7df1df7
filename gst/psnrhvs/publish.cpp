// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/publish.h"

#include <charconv>
#include <cmath>

namespace psnrhvs {
namespace {

// Fields of structures list the combined score first.
constexpr std::array<ScoreKind, kScoreKinds> kFieldOrder = {ScoreKind::kCombined, ScoreKind::kY, ScoreKind::kCb,
                                                            ScoreKind::kCr};

std::string FieldName(ScoreKind kind) {
  switch (kind) {
    case ScoreKind::kY:
      return "psnr-hvs-y";
    case ScoreKind::kCb:
      return "psnr-hvs-cb";
    case ScoreKind::kCr:
      return "psnr-hvs-cr";
    case ScoreKind::kCombined:
      break;
  }
  return "psnr-hvs";
}

void Set(GstStructure* structure, const std::string& field, double value) {
  gst_structure_set(structure, field.c_str(), G_TYPE_DOUBLE, value, nullptr);
}

void Set(GstStructure* structure, const std::string& field, guint64 value) {
  gst_structure_set(structure, field.c_str(), G_TYPE_UINT64, value, nullptr);
}

void Set(GstStructure* structure, const std::string& field, const char* value) {
  gst_structure_set(structure, field.c_str(), G_TYPE_STRING, value, nullptr);
}

bool Get(const GstStructure* structure, const std::string& field, double* value) {
  return gst_structure_get_double(structure, field.c_str(), value);
}

bool Get(const GstStructure* structure, const std::string& field, guint64* value) {
  return gst_structure_get_uint64(structure, field.c_str(), value);
}

bool Get(const GstStructure* structure, const std::string& field, std::string* value) {
  const char* text = gst_structure_get_string(structure, field.c_str());
  if (text) *value = text;
  return text != nullptr;
}

// For fields that may be absent. False only if the field is there with another GType.
template <typename T>
bool GetOptional(const GstStructure* structure, const std::string& field, std::optional<T>* value) {
  value->reset();
  if (!gst_structure_has_field(structure, field.c_str())) return true;
  return Get(structure, field, &value->emplace());
}

void SetTiming(GstStructure* structure, const FrameTiming& timing) {
  Set(structure, "index", timing.index);
  Set(structure, "timestamp", timing.timestamp);
  Set(structure, "stream-time", timing.stream_time);
  Set(structure, "running-time", timing.running_time);
  Set(structure, "duration", timing.duration);
}

bool GetTiming(const GstStructure* structure, FrameTiming* timing) {
  return Get(structure, "index", &timing->index) && Get(structure, "timestamp", &timing->timestamp) &&
         Get(structure, "stream-time", &timing->stream_time) && Get(structure, "running-time", &timing->running_time) &&
         Get(structure, "duration", &timing->duration);
}

// The fields that a frame's message and its metadata share.
void SetFrame(GstStructure* structure, const FrameReport& report) {
  SetTiming(structure, report.reference);
  Set(structure, "dist-running-time", report.dist_running_time);
  for (ScoreKind kind : kFieldOrder) {
    if (report.score.has(kind)) Set(structure, FieldName(kind), report.score.score_db(kind));
  }
  if (report.window_mean) Set(structure, "window-mean", *report.window_mean);
}

void SetPooled(GstStructure* structure, ScoreKind kind, const PooledScore& pooled) {
  const std::string name = FieldName(kind);
  Set(structure, name + "-min", pooled.min);
  if (pooled.min_index) Set(structure, name + "-min-index", guint64{*pooled.min_index});
  Set(structure, name + "-max", pooled.max);
  Set(structure, name + "-mean", pooled.mean);
  if (pooled.harmonic_mean) Set(structure, name + "-harmonic-mean", *pooled.harmonic_mean);
  Set(structure, name + "-from-mean-error", pooled.from_mean_error);
  Set(structure, name + "-infinite", guint64{pooled.infinite});
}

bool GetPooled(const GstStructure* structure, ScoreKind kind, std::optional<PooledScore>* pooled) {
  const std::string name = FieldName(kind);
  pooled->reset();
  if (!gst_structure_has_field(structure, (name + "-infinite").c_str())) return true;
  PooledScore& score = pooled->emplace();
  std::optional<guint64> min_index;
  guint64 infinite = 0;
  const bool complete = Get(structure, name + "-min", &score.min) &&
                        GetOptional(structure, name + "-min-index", &min_index) &&
                        Get(structure, name + "-max", &score.max) && Get(structure, name + "-mean", &score.mean) &&
                        GetOptional(structure, name + "-harmonic-mean", &score.harmonic_mean) &&
                        Get(structure, name + "-from-mean-error", &score.from_mean_error) &&
                        Get(structure, name + "-infinite", &infinite);
  if (min_index) score.min_index = *min_index;
  score.infinite = infinite;
  return complete;
}

GstPtr<GstStructure> NewMessage(const char* type) {
  GstPtr<GstStructure> structure(gst_structure_new_empty(kMessageName));
  Set(structure.get(), "type", type);
  return structure;
}

bool HasType(const GstStructure* structure, const char* type) {
  std::string value;
  return Get(structure, "type", &value) && value == type;
}

}  // namespace

Summary Summarize(const Pooling& pooling, guint64 unpaired_ref, guint64 unpaired_dist, guint64 skipped,
                  const std::string& backend) {
  Summary summary;
  summary.frames = pooling.frames();
  for (ScoreKind kind : kAllScoreKinds) summary.pooled[static_cast<int>(kind)] = pooling.Pooled(kind);
  summary.unpaired_ref = unpaired_ref;
  summary.unpaired_dist = unpaired_dist;
  summary.skipped = skipped;
  summary.backend = backend;
  return summary;
}

GstPtr<GstStructure> ToStructure(const FrameReport& report) {
  GstPtr<GstStructure> structure = NewMessage("frame");
  SetFrame(structure.get(), report);
  return structure;
}

GstPtr<GstStructure> ToStructure(const UnpairedReport& report) {
  GstPtr<GstStructure> structure = NewMessage("unpaired");
  Set(structure.get(), "pad", report.pad.c_str());
  SetTiming(structure.get(), report.timing);
  return structure;
}

GstPtr<GstStructure> ToStructure(const Summary& summary) {
  GstPtr<GstStructure> structure = NewMessage("pooled");
  Set(structure.get(), "frames", summary.frames);
  Set(structure.get(), "unpaired-ref", summary.unpaired_ref);
  Set(structure.get(), "unpaired-dist", summary.unpaired_dist);
  if (summary.skipped > 0) Set(structure.get(), "skipped", summary.skipped);
  if (summary.start_offset) {
    gst_structure_set(structure.get(), "start-offset", G_TYPE_INT64, *summary.start_offset, nullptr);
  }
  Set(structure.get(), "backend", summary.backend.c_str());
  Set(structure.get(), "version", kVersion);
  for (ScoreKind kind : kFieldOrder) {
    const std::optional<PooledScore>& pooled = summary.pooled[static_cast<int>(kind)];
    if (pooled) SetPooled(structure.get(), kind, *pooled);
  }
  return structure;
}

GstPtr<GstStructure> ToStructure(const AlarmReport& report) {
  GstPtr<GstStructure> structure = NewMessage(report.raised ? "alarm" : "recovered");
  SetTiming(structure.get(), report.reference);
  Set(structure.get(), "value", report.value);
  Set(structure.get(), "threshold", report.threshold);
  Set(structure.get(), "since", report.since);
  return structure;
}

std::optional<FrameReport> FrameReportFrom(const GstStructure* structure) {
  if (gst_structure_has_field(structure, "type") && !HasType(structure, "frame")) return std::nullopt;
  FrameReport report;
  FrameScore& score = report.score;
  std::optional<double> cb, cr, combined;
  const bool typed = GetTiming(structure, &report.reference) &&
                     Get(structure, "dist-running-time", &report.dist_running_time) &&
                     Get(structure, FieldName(ScoreKind::kY), &score.plane_score_db[0]) &&
                     GetOptional(structure, FieldName(ScoreKind::kCb), &cb) &&
                     GetOptional(structure, FieldName(ScoreKind::kCr), &cr) &&
                     GetOptional(structure, FieldName(ScoreKind::kCombined), &combined) &&
                     GetOptional(structure, "window-mean", &report.window_mean);
  const bool all_or_luma = cb.has_value() == cr.has_value() && cb.has_value() == combined.has_value();
  if (!typed || !all_or_luma) return std::nullopt;
  score.scored_planes = 1;
  if (combined) {
    score.scored_planes = kMaxPlanes;
    score.plane_score_db[1] = *cb;
    score.plane_score_db[2] = *cr;
    score.combined_score_db = *combined;
  }
  return report;
}

std::optional<UnpairedReport> UnpairedReportFrom(const GstStructure* structure) {
  UnpairedReport report;
  if (!HasType(structure, "unpaired") || !Get(structure, "pad", &report.pad) || !GetTiming(structure, &report.timing)) {
    return std::nullopt;
  }
  return report;
}

std::optional<Summary> SummaryFrom(const GstStructure* structure) {
  Summary summary;
  std::optional<guint64> skipped;
  if (!HasType(structure, "pooled") || !Get(structure, "frames", &summary.frames) ||
      !Get(structure, "unpaired-ref", &summary.unpaired_ref) ||
      !Get(structure, "unpaired-dist", &summary.unpaired_dist) || !GetOptional(structure, "skipped", &skipped) ||
      !Get(structure, "backend", &summary.backend)) {
    return std::nullopt;
  }
  summary.skipped = skipped.value_or(0);
  if (gst_structure_has_field(structure, "start-offset")) {
    gint64 start_offset;
    if (!gst_structure_get_int64(structure, "start-offset", &start_offset)) return std::nullopt;
    summary.start_offset = start_offset;
  }
  for (ScoreKind kind : kAllScoreKinds) {
    if (!GetPooled(structure, kind, &summary.pooled[static_cast<int>(kind)])) return std::nullopt;
  }
  return summary;
}

std::optional<AlarmReport> AlarmReportFrom(const GstStructure* structure) {
  AlarmReport report;
  report.raised = HasType(structure, "alarm");
  if ((!report.raised && !HasType(structure, "recovered")) || !GetTiming(structure, &report.reference) ||
      !Get(structure, "value", &report.value) || !Get(structure, "threshold", &report.threshold) ||
      !Get(structure, "since", &report.since)) {
    return std::nullopt;
  }
  return report;
}

std::string SummaryText(const Summary& summary) {
  const bool combined = summary.pooled[static_cast<int>(ScoreKind::kCombined)].has_value();
  const ScoreKind kind = combined ? ScoreKind::kCombined : ScoreKind::kY;
  const std::optional<PooledScore>& pooled = summary.pooled[static_cast<int>(kind)];
  if (!pooled) return "no frame was scored (" + summary.backend + ")";
  char mean[64];  // to_chars: the same text in every locale
  const auto end = std::to_chars(mean, mean + sizeof(mean), pooled->mean, std::chars_format::fixed, 4);
  std::string text = FieldName(kind) + " mean " + std::string(mean, end.ptr) + " dB over " +
                     std::to_string(summary.frames) + (summary.frames == 1 ? " frame" : " frames");
  if (pooled->infinite > 0 && std::isfinite(pooled->mean)) {
    text += ", leaving out " + std::to_string(pooled->infinite) + " without any difference";
  }
  return text + " (" + summary.backend + ")";
}

void RegisterMeta() {
  // Another copy of this code in the process may have registered it.
  static const bool registered = [] {
    static const gchar* no_tags[] = {nullptr};
    return gst_meta_get_info(kMetaName) != nullptr ||
           gst_meta_register_custom(kMetaName, no_tags, nullptr, nullptr, nullptr) != nullptr;
  }();
  g_assert(registered);
}

namespace {

void RemoveMeta(GstBuffer* buffer) {
  while (GstCustomMeta* old = gst_buffer_get_custom_meta(buffer, kMetaName)) {
    gst_buffer_remove_meta(buffer, &old->meta);
  }
}

}  // namespace

GstPtr<GstBuffer> WithoutMeta(GstPtr<GstBuffer> buffer) {
  RegisterMeta();
  if (!gst_buffer_get_custom_meta(buffer.get(), kMetaName)) return buffer;
  buffer.reset(gst_buffer_make_writable(buffer.release()));
  RemoveMeta(buffer.get());
  return buffer;
}

void AttachMeta(GstBuffer* buffer, const FrameReport& report) {
  RegisterMeta();
  RemoveMeta(buffer);
  GstCustomMeta* meta = gst_buffer_add_custom_meta(buffer, kMetaName);
  SetFrame(gst_custom_meta_get_structure(meta), report);
}

}  // namespace psnrhvs
