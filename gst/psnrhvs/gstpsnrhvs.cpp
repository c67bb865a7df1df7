// SPDX-License-Identifier: LGPL-2.1-or-later

/**
 * SECTION:element-psnrhvs
 * @title: psnrhvs
 * @short_description: scores a distorted video against its reference with PSNR-HVS
 *
 * psnrhvs takes a reference and a distorted video, pairs their frames by running time and computes
 * PSNR-HVS of every pair, with the same bits as libvmaf's `psnr_hvs`. The reference's buffers leave
 * on the source pad as they came, with their score attached.
 *
 * ## Pads
 * `ref_sink` and `dist_sink` take raw video of the same size, chroma subsampling and depth; layouts
 * may differ (I420 against NV12), and so may the memory: each side may be in CUDA memory
 * (`memory:CUDAMemory`) where the CUDA backend computes. `src` gives the reference's buffers, timestamps and memory
 * untouched. Reference buffers that were not scored pass without metadata.
 *
 * ## Messages
 * Element messages with a structure named `psnrhvs`, told apart by the string field `type`.
 * `frame`, one for each scored pair, if #GstPsnrHvs:frame-message is set:
 *  * #guint64 `index`: number of the reference buffer on its pad, from 0;
 *  * #guint64 `timestamp`, `stream-time`, `running-time`, `duration`: of the reference buffer, in
 *    ns, #GST_CLOCK_TIME_NONE if unknown;
 *  * #guint64 `dist-running-time`: of the distorted buffer;
 *  * #gdouble `psnr-hvs`, `psnr-hvs-y`, `psnr-hvs-cb`, `psnr-hvs-cr`: dB, +infinity if the plane's
 *    error is 0; chroma and the combined score are absent where only luma is scored.
 *
 * `unpaired`, one for each buffer that found no partner, if #GstPsnrHvs:frame-message is set:
 * string `pad`, and `index` and times of that buffer as above.
 *
 * `pooled`, once, after the last frame and before EOS leaves:
 *  * #guint64 `frames`, `unpaired-ref`, `unpaired-dist`; `skipped`, if live pairs were too late;
 *  * #gint64 `start-offset`: by how many ns the distorted input seems to start later, if another shift than the
 *    present one pairs more of the first frames;
 *  * string `backend`, `version`;
 *  * for each score #gdouble `-min`, `-max`, `-mean`, `-harmonic-mean`, `-from-mean-error` and
 *    #guint64 `-min-index`, `-infinite`.
 *
 * ## Metadata
 * Every scored buffer carries a #GstCustomMeta named `GstPsnrHvsMeta` with the fields of the `frame`
 * message except `type`: read it with gst_buffer_get_custom_meta().
 *
 * ## Results file
 * #GstPsnrHvs:results-filename names a json (in the shape of libvmaf's report), csv or jsonl file
 * that grows while the pipeline runs.
 *
 * ## Example
 * |[
 * gst-launch-1.0 -m videotestsrc num-buffers=50 pattern=ball ! video/x-raw,format=I420,width=320,height=240 !
 * tee name=t ! queue ! m.ref_sink t. ! queue ! jpegenc quality=30 ! jpegdec ! m.dist_sink psnrhvs name=m ! fakesink
 * ]|
 * Scores JPEG compression: a message for each frame, then the pooled scores.
 */

#include "gst/psnrhvs/gstpsnrhvs.h"

#include <gst/video/video.h>

#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "gst/psnrhvs/comparison.h"

GST_DEBUG_CATEGORY_EXTERN(gst_psnr_hvs_debug);
#define GST_CAT_DEFAULT gst_psnr_hvs_debug

namespace {

using psnrhvs::AlarmSettings;
using psnrhvs::Backend;
using psnrhvs::BackendChoice;
using psnrhvs::Comparison;
using psnrhvs::CudaReduction;
using psnrhvs::GstPtr;
using psnrhvs::PairingSettings;
using psnrhvs::ResultsFormat;
using psnrhvs::Settings;
using psnrhvs::Side;

enum {
  PROP_0,
  PROP_FRAME_MESSAGE,
  PROP_RESULTS_FILENAME,
  PROP_RESULTS_FORMAT,
  PROP_TOLERANCE,
  PROP_PAIRING,
  PROP_DIST_OFFSET,
  PROP_ALIGN,
  PROP_BACKEND,
  PROP_THREADS,
  PROP_CUDA_DEVICE_ID,
  PROP_CUDA_REDUCTION,
  PROP_VERIFY,
  PROP_MAX_LEAD_FRAMES,
  PROP_MAX_LEAD_TIME,
  PROP_STALL_TIMEOUT,
  PROP_STRICT,
  PROP_ALARM_BELOW,
  PROP_ALARM_DURATION,
  PROP_ALARM_HYSTERESIS,
  PROP_WINDOW,
  PROP_FAIL_BELOW,
  PROP_FAIL_AT,
  PROP_STATS,
};

enum Align { ALIGN_TIME, ALIGN_START };
enum FailAt { FAIL_AT_END, FAIL_AT_NOW };

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr guint kMaxWindow = 100000;  // frames; bounds the work a frame
constexpr GstClockTime kWatchInterval = GST_SECOND;

}  // namespace

struct _GstPsnrHvs {
  GstAggregator parent;

  GstAggregatorPad* ref_sink;
  GstAggregatorPad* dist_sink;
  Backend* backend;
  // Under the object lock.
  Settings settings;
  bool running;  // between start() and stop()

  GstClockID watch;  // periodic, while running
  // Of the current or the last run. Replaced under the object lock by start(), when no pad is active:
  // streaming threads need no lock to read it, others do.
  std::shared_ptr<Comparison> comparison;
};

G_DEFINE_TYPE(GstPsnrHvs, gst_psnr_hvs, GST_TYPE_AGGREGATOR)
GST_ELEMENT_REGISTER_DEFINE(psnrhvs, "psnrhvs", GST_RANK_NONE, GST_TYPE_PSNR_HVS)

#define GST_TYPE_PSNR_HVS_RESULTS_FORMAT (gst_psnr_hvs_results_format_get_type())
static GType gst_psnr_hvs_results_format_get_type() {
  static const GEnumValue values[] = {
      {static_cast<gint>(ResultsFormat::kAuto), "By the ending of the file's name", "auto"},
      {static_cast<gint>(ResultsFormat::kJson), "JSON in the shape of libvmaf's report", "json"},
      {static_cast<gint>(ResultsFormat::kCsv), "A line of comma-separated values a frame", "csv"},
      {static_cast<gint>(ResultsFormat::kJsonl), "A JSON object a line", "jsonl"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstPsnrHvsResultsFormat", values);
  return type;
}

#define GST_TYPE_PSNR_HVS_BACKEND (gst_psnr_hvs_backend_get_type())
static GType gst_psnr_hvs_backend_get_type() {
  static const GEnumValue values[] = {
      {static_cast<gint>(BackendChoice::kAuto), "CUDA if a device works, else the CPU", "auto"},
      {static_cast<gint>(BackendChoice::kCpu), "The CPU", "cpu"},
      {static_cast<gint>(BackendChoice::kCuda), "CUDA; an error at start if that is not possible", "cuda"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstPsnrHvsBackend", values);
  return type;
}

#define GST_TYPE_PSNR_HVS_CUDA_REDUCTION (gst_psnr_hvs_cuda_reduction_get_type())
static GType gst_psnr_hvs_cuda_reduction_get_type() {
  static const GEnumValue values[] = {
      {static_cast<gint>(CudaReduction::kDevice), "On the device", "device"},
      {static_cast<gint>(CudaReduction::kHost), "On the host, from all terms: slow, a cross-check", "host"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstPsnrHvsCudaReduction", values);
  return type;
}

#define GST_TYPE_PSNR_HVS_PAIRING (gst_psnr_hvs_pairing_get_type())
static GType gst_psnr_hvs_pairing_get_type() {
  static const GEnumValue values[] = {
      {static_cast<gint>(PairingSettings::Mode::kTime), "By running time; by arrival if neither input has timestamps",
       "time"},
      {static_cast<gint>(PairingSettings::Mode::kOrder), "By arrival: the first with the first, and so on", "order"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstPsnrHvsPairing", values);
  return type;
}

#define GST_TYPE_PSNR_HVS_ALIGN (gst_psnr_hvs_align_get_type())
static GType gst_psnr_hvs_align_get_type() {
  static const GEnumValue values[] = {
      {ALIGN_TIME, "Frames of equal running time belong together", "time"},
      {ALIGN_START, "The first frames of both inputs belong together", "start"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstPsnrHvsAlign", values);
  return type;
}

#define GST_TYPE_PSNR_HVS_FAIL_AT (gst_psnr_hvs_fail_at_get_type())
static GType gst_psnr_hvs_fail_at_get_type() {
  static const GEnumValue values[] = {
      {FAIL_AT_END, "At the end of the streams", "end"},
      {FAIL_AT_NOW, "With the frame that brings the mean below", "now"},
      {0, nullptr, nullptr},
  };
  static const GType type = g_enum_register_static("GstPsnrHvsFailAt", values);
  return type;
}

static Side gst_psnr_hvs_side(GstPsnrHvs* self, GstPad* pad) {
  return pad == GST_PAD(self->ref_sink) ? Side::kReference : Side::kDistorted;
}

static GstAggregatorPad* gst_psnr_hvs_other_pad(GstPsnrHvs* self, GstAggregatorPad* pad) {
  return pad == self->ref_sink ? self->dist_sink : self->ref_sink;
}

static void gst_psnr_hvs_set_property(GObject* object, guint id, const GValue* value, GParamSpec* pspec) {
  GstPsnrHvs* self = GST_PSNR_HVS(object);
  GST_OBJECT_LOCK(self);
  if (self->running && !(pspec->flags & GST_PARAM_MUTABLE_PLAYING)) {
    GST_OBJECT_UNLOCK(self);
    GST_ELEMENT_WARNING(self, LIBRARY, SETTINGS,
                        ("%s cannot change while the element runs: set it to READY first", pspec->name), (nullptr));
    return;
  }
  Settings& settings = self->settings;
  switch (id) {
    case PROP_FRAME_MESSAGE:
      settings.live.frame_message = g_value_get_boolean(value);
      break;
    case PROP_RESULTS_FILENAME:
      settings.results_filename = g_value_get_string(value) ? g_value_get_string(value) : "";
      break;
    case PROP_RESULTS_FORMAT:
      settings.results_format = static_cast<ResultsFormat>(g_value_get_enum(value));
      break;
    case PROP_TOLERANCE:
      settings.pairing.tolerance_ns.reset();
      if (g_value_get_uint64(value) != G_MAXUINT64) settings.pairing.tolerance_ns = g_value_get_uint64(value);
      break;
    case PROP_PAIRING:
      settings.pairing.mode = static_cast<PairingSettings::Mode>(g_value_get_enum(value));
      break;
    case PROP_DIST_OFFSET:
      settings.pairing.dist_offset_ns = g_value_get_int64(value);
      break;
    case PROP_ALIGN:
      settings.pairing.align_start = g_value_get_enum(value) == ALIGN_START;
      break;
    case PROP_BACKEND:
      settings.backend.choice = static_cast<BackendChoice>(g_value_get_enum(value));
      break;
    case PROP_CUDA_DEVICE_ID:
      settings.backend.cuda_device_id = g_value_get_int(value);
      break;
    case PROP_CUDA_REDUCTION:
      settings.backend.cuda_reduction = static_cast<CudaReduction>(g_value_get_enum(value));
      break;
    case PROP_VERIFY:
      settings.backend.verify = g_value_get_boolean(value);
      break;
    case PROP_THREADS:
      settings.backend.threads = static_cast<int>(g_value_get_uint(value));
      break;
    case PROP_MAX_LEAD_FRAMES:
      settings.lead.frames = g_value_get_uint(value);
      break;
    case PROP_MAX_LEAD_TIME:
      settings.lead.time = g_value_get_uint64(value);
      break;
    case PROP_STALL_TIMEOUT:
      settings.lead.stall_timeout = g_value_get_uint64(value);
      break;
    case PROP_STRICT:
      settings.strict = g_value_get_boolean(value);
      break;
    case PROP_ALARM_BELOW:
      settings.live.alarm.below_db = g_value_get_double(value);
      break;
    case PROP_ALARM_DURATION:
      settings.live.alarm.duration_ns = g_value_get_uint64(value);
      break;
    case PROP_ALARM_HYSTERESIS:
      settings.live.alarm.hysteresis_db = g_value_get_double(value);
      break;
    case PROP_WINDOW:
      settings.live.alarm.window_frames = g_value_get_uint(value);
      break;
    case PROP_FAIL_BELOW:
      settings.live.fail_below_db = g_value_get_double(value);
      break;
    case PROP_FAIL_AT:
      settings.live.fail_now = g_value_get_enum(value) == FAIL_AT_NOW;
      break;
    default:
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, pspec);
      break;
  }
  if (self->running) self->comparison->Update(settings.live);
  GST_OBJECT_UNLOCK(self);
}

static void gst_psnr_hvs_get_property(GObject* object, guint id, GValue* value, GParamSpec* pspec) {
  GstPsnrHvs* self = GST_PSNR_HVS(object);
  GST_OBJECT_LOCK(self);
  const Settings& settings = self->settings;
  switch (id) {
    case PROP_FRAME_MESSAGE:
      g_value_set_boolean(value, settings.live.frame_message);
      break;
    case PROP_RESULTS_FILENAME:
      g_value_set_string(value, settings.results_filename.empty() ? nullptr : settings.results_filename.c_str());
      break;
    case PROP_RESULTS_FORMAT:
      g_value_set_enum(value, static_cast<gint>(settings.results_format));
      break;
    case PROP_TOLERANCE:
      g_value_set_uint64(value, settings.pairing.tolerance_ns.value_or(G_MAXUINT64));
      break;
    case PROP_PAIRING:
      g_value_set_enum(value, static_cast<gint>(settings.pairing.mode));
      break;
    case PROP_DIST_OFFSET:
      g_value_set_int64(value, settings.pairing.dist_offset_ns);
      break;
    case PROP_ALIGN:
      g_value_set_enum(value, settings.pairing.align_start ? ALIGN_START : ALIGN_TIME);
      break;
    case PROP_BACKEND:
      g_value_set_enum(value, static_cast<gint>(settings.backend.choice));
      break;
    case PROP_CUDA_DEVICE_ID:
      g_value_set_int(value, settings.backend.cuda_device_id);
      break;
    case PROP_CUDA_REDUCTION:
      g_value_set_enum(value, static_cast<gint>(settings.backend.cuda_reduction));
      break;
    case PROP_VERIFY:
      g_value_set_boolean(value, settings.backend.verify);
      break;
    case PROP_THREADS:
      g_value_set_uint(value, static_cast<guint>(settings.backend.threads));
      break;
    case PROP_MAX_LEAD_FRAMES:
      g_value_set_uint(value, settings.lead.frames);
      break;
    case PROP_MAX_LEAD_TIME:
      g_value_set_uint64(value, settings.lead.time);
      break;
    case PROP_STALL_TIMEOUT:
      g_value_set_uint64(value, settings.lead.stall_timeout);
      break;
    case PROP_STRICT:
      g_value_set_boolean(value, settings.strict);
      break;
    case PROP_ALARM_BELOW:
      g_value_set_double(value, settings.live.alarm.below_db);
      break;
    case PROP_ALARM_DURATION:
      g_value_set_uint64(value, settings.live.alarm.duration_ns);
      break;
    case PROP_ALARM_HYSTERESIS:
      g_value_set_double(value, settings.live.alarm.hysteresis_db);
      break;
    case PROP_WINDOW:
      g_value_set_uint(value, settings.live.alarm.window_frames);
      break;
    case PROP_FAIL_BELOW:
      g_value_set_double(value, settings.live.fail_below_db);
      break;
    case PROP_FAIL_AT:
      g_value_set_enum(value, settings.live.fail_now ? FAIL_AT_NOW : FAIL_AT_END);
      break;
    case PROP_STATS:
      g_value_take_boxed(value, self->comparison->Stats().release());
      break;
    default:
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, pspec);
      break;
  }
  GST_OBJECT_UNLOCK(self);
}

static gboolean gst_psnr_hvs_watch(GstClock*, GstClockTime, GstClockID, gpointer data) {
  GstPsnrHvs* self = GST_PSNR_HVS(data);
  GST_OBJECT_LOCK(self);
  const std::shared_ptr<Comparison> comparison = self->running ? self->comparison : nullptr;
  GST_OBJECT_UNLOCK(self);
  if (comparison) comparison->Watch();
  return TRUE;
}

static gboolean gst_psnr_hvs_start(GstAggregator* aggregator) {
  GstPsnrHvs* self = GST_PSNR_HVS(aggregator);
  GST_OBJECT_LOCK(self);
  const Settings settings = self->settings;
  GST_OBJECT_UNLOCK(self);
  const psnrhvs::Status status = self->backend->Start(settings.backend);
  if (!status.ok()) {
    GST_ELEMENT_ERROR(self, RESOURCE, NOT_FOUND, ("%s", status.message().c_str()), (nullptr));
    return FALSE;
  }
  auto comparison = std::make_shared<Comparison>(aggregator, self->ref_sink, self->dist_sink, self->backend, settings);
  if (!comparison->Start()) {
    self->backend->Stop();
    return FALSE;
  }
  GST_OBJECT_LOCK(self);
  self->comparison.swap(comparison);
  self->running = true;
  GST_OBJECT_UNLOCK(self);
  const GstPtr<GstClock> clock(gst_system_clock_obtain());
  self->watch =
      gst_clock_new_periodic_id(clock.get(), gst_clock_get_time(clock.get()) + kWatchInterval, kWatchInterval);
  gst_clock_id_wait_async(self->watch, gst_psnr_hvs_watch, gst_object_ref(self), gst_object_unref);
  return TRUE;
}

static gboolean gst_psnr_hvs_stop(GstAggregator* aggregator) {
  GstPsnrHvs* self = GST_PSNR_HVS(aggregator);
  if (!self->running) return TRUE;  // start() failed
  gst_clock_id_unschedule(self->watch);
  gst_clock_id_unref(self->watch);
  GST_OBJECT_LOCK(self);
  self->running = false;
  GST_OBJECT_UNLOCK(self);
  self->comparison->Stop();
  self->backend->Stop();
  return TRUE;
}

static GstStateChangeReturn gst_psnr_hvs_change_state(GstElement* element, GstStateChange transition) {
  psnrhvs::LeadGate& gate = GST_PSNR_HVS(element)->comparison->gate();
  switch (transition) {
    case GST_STATE_CHANGE_PAUSED_TO_PLAYING:
      gate.SetPlaying(true);
      break;
    case GST_STATE_CHANGE_PLAYING_TO_PAUSED:
      gate.SetPlaying(false);
      break;
    case GST_STATE_CHANGE_PAUSED_TO_READY:
      // Pads are deactivated next, which waits for their threads.
      GST_PSNR_HVS(element)->comparison->Interrupt();
      gate.Stop();
      break;
    default:
      break;
  }
  return GST_ELEMENT_CLASS(gst_psnr_hvs_parent_class)->change_state(element, transition);
}

// What GstAggregator chains buffers with: the same function for every pad.
static GstPadChainFunction gst_psnr_hvs_base_chain;

// Admits a buffer through the gate before GstAggregator queues it.
static GstFlowReturn gst_psnr_hvs_chain(GstPad* pad, GstObject* parent, GstBuffer* buffer) {
  GstPsnrHvs* self = GST_PSNR_HVS(parent);
  const Side side = gst_psnr_hvs_side(self, pad);
  if (Comparison::IsGap(buffer)) return gst_psnr_hvs_base_chain(pad, parent, buffer);  // like a GAP event
  self->comparison->NoteBuffer(GST_AGGREGATOR_PAD(pad));
  std::optional<gint64> running_time;
  if (GST_BUFFER_PTS_IS_VALID(buffer)) {
    if (const GstPtr<GstEvent> event{gst_pad_get_sticky_event(pad, GST_EVENT_SEGMENT, 0)}) {
      const GstSegment* segment;
      gst_event_parse_segment(event.get(), &segment);
      if (segment->format == GST_FORMAT_TIME) {
        const guint64 time = gst_segment_to_running_time(segment, GST_FORMAT_TIME, GST_BUFFER_PTS(buffer));
        if (GST_CLOCK_TIME_IS_VALID(time)) running_time = static_cast<gint64>(time);
      }
    }
  }
  if (self->comparison->gate().Admit(side, running_time)) return gst_psnr_hvs_base_chain(pad, parent, buffer);
  gst_buffer_unref(buffer);
  GST_ELEMENT_ERROR(self, STREAM, FAILED, ("%s", self->comparison->gate().StallText(side).c_str()), (nullptr));
  return GST_FLOW_ERROR;
}

static GstFlowReturn gst_psnr_hvs_sink_event_pre_queue(GstAggregator* aggregator, GstAggregatorPad* pad,
                                                       GstEvent* event) {
  GstPsnrHvs* self = GST_PSNR_HVS(aggregator);
  const Side side = gst_psnr_hvs_side(self, GST_PAD(pad));
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
      self->comparison->gate().Suspend(side);
      break;
    case GST_EVENT_FLUSH_STOP:
      self->comparison->NoteFlush(pad);
      self->comparison->gate().Resume(side);
      break;
    default:
      break;
  }
  return GST_AGGREGATOR_CLASS(gst_psnr_hvs_parent_class)->sink_event_pre_queue(aggregator, pad, event);
}

static gboolean gst_psnr_hvs_sink_event(GstAggregator* aggregator, GstAggregatorPad* pad, GstEvent* event) {
  GstPsnrHvs* self = GST_PSNR_HVS(aggregator);
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_CAPS: {
      GstCaps* caps;
      gst_event_parse_caps(event, &caps);
      self->comparison->SetCaps(pad, caps);
      break;
    }
    case GST_EVENT_SEGMENT: {
      const GstSegment* segment;
      gst_event_parse_segment(event, &segment);
      self->comparison->SetSegment(pad, *segment);
      break;
    }
    case GST_EVENT_STREAM_START:
      self->comparison->gate().SetEnded(gst_psnr_hvs_side(self, GST_PAD(pad)), false);
      break;
    case GST_EVENT_EOS:
      self->comparison->gate().SetEnded(gst_psnr_hvs_side(self, GST_PAD(pad)), true);
      break;
    case GST_EVENT_TAG:
      // GstAggregator drops tags.
      if (pad == self->ref_sink) self->comparison->AddTags(event);
      break;
    case GST_EVENT_FLUSH_START:
    case GST_EVENT_FLUSH_STOP:
    case GST_EVENT_GAP:
      break;
    default:
      // What leaves is the reference's stream: events about the other end here.
      if (pad == self->ref_sink) break;
      gst_event_unref(event);
      return TRUE;
  }
  return GST_AGGREGATOR_CLASS(gst_psnr_hvs_parent_class)->sink_event(aggregator, pad, event);
}

static GstCaps* gst_psnr_hvs_backend_caps(GstPsnrHvs* self) {
  GST_OBJECT_LOCK(self);
  const BackendChoice choice = self->settings.backend.choice;
  GST_OBJECT_UNLOCK(self);
  return self->backend->OfferedCaps(choice);
}

// What the backend takes. The reference's buffers go on downstream, so of that what downstream takes too,
// if there is any.
static GstCaps* gst_psnr_hvs_offered_caps(GstPsnrHvs* self, GstAggregatorPad* pad) {
  GstPtr<GstCaps> offered(gst_psnr_hvs_backend_caps(self));
  if (pad != self->ref_sink) return offered.release();
  GstPtr<GstCaps> passable(gst_pad_peer_query_caps(GST_AGGREGATOR_SRC_PAD(self), offered.get()));
  return gst_caps_is_empty(passable.get()) ? offered.release() : passable.release();
}

static GstCaps* gst_psnr_hvs_filter_caps(GstCaps* caps, GstCaps* filter) {
  return filter ? gst_caps_intersect_full(filter, caps, GST_CAPS_INTERSECT_FIRST) : gst_caps_ref(caps);
}

// What is offered, with the format limited to layouts of the other pad's samples if that leaves
// something of `filter`. Never the size: a mismatch has to arrive here to be explained.
static GstCaps* gst_psnr_hvs_query_caps(GstPsnrHvs* self, GstAggregatorPad* pad, GstCaps* filter) {
  const GstPtr<GstCaps> offered(gst_psnr_hvs_offered_caps(self, pad));
  const GstPtr<GstCaps> other(gst_pad_get_current_caps(GST_PAD(gst_psnr_hvs_other_pad(self, pad))));
  GstVideoInfo info;
  if (other && gst_video_info_from_caps(&info, other.get())) {
    const GstPtr<GstCaps> same_samples(psnrhvs::RestrictToLayoutsOf(offered.get(), GST_VIDEO_INFO_FORMAT(&info)));
    GstPtr<GstCaps> restricted(gst_psnr_hvs_filter_caps(same_samples.get(), filter));
    if (!gst_caps_is_empty(restricted.get())) return restricted.release();
  }
  return gst_psnr_hvs_filter_caps(offered.get(), filter);
}

static gboolean gst_psnr_hvs_sink_query(GstAggregator* aggregator, GstAggregatorPad* pad, GstQuery* query) {
  GstPsnrHvs* self = GST_PSNR_HVS(aggregator);
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_CAPS: {
      GstCaps* filter;
      gst_query_parse_caps(query, &filter);
      const GstPtr<GstCaps> caps(gst_psnr_hvs_query_caps(self, pad, filter));
      gst_query_set_caps_result(query, caps.get());
      return TRUE;
    }
    case GST_QUERY_ACCEPT_CAPS: {
      GstCaps* caps;
      gst_query_parse_accept_caps(query, &caps);
      const GstPtr<GstCaps> template_caps(gst_pad_get_pad_template_caps(GST_PAD(pad)));
      gst_query_set_accept_caps_result(query, gst_caps_is_subset(caps, template_caps.get()));
      return TRUE;
    }
    case GST_QUERY_CONTEXT:
      if (self->backend->AnswerContextQuery(query)) return TRUE;
      [[fallthrough]];
    default:
      return GST_AGGREGATOR_CLASS(gst_psnr_hvs_parent_class)->sink_query(aggregator, pad, query);
  }
}

static gboolean gst_psnr_hvs_src_query(GstAggregator* aggregator, GstQuery* query) {
  GstPsnrHvs* self = GST_PSNR_HVS(aggregator);
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_CAPS: {
      GstCaps* filter;
      gst_query_parse_caps(query, &filter);
      const GstPtr<GstCaps> offered(gst_psnr_hvs_backend_caps(self));
      const GstPtr<GstCaps> caps(gst_psnr_hvs_filter_caps(offered.get(), filter));
      gst_query_set_caps_result(query, caps.get());
      return TRUE;
    }
    case GST_QUERY_CONTEXT:
      if (self->backend->AnswerContextQuery(query)) return TRUE;
      [[fallthrough]];
    default:
      return GST_AGGREGATOR_CLASS(gst_psnr_hvs_parent_class)->src_query(aggregator, query);
  }
}

static void gst_psnr_hvs_set_context(GstElement* element, GstContext* context) {
  GstPsnrHvs* self = GST_PSNR_HVS(element);
  GST_OBJECT_LOCK(self);
  const gint device_id = self->settings.backend.cuda_device_id;
  GST_OBJECT_UNLOCK(self);
  self->backend->SetContext(context, device_id);
  GST_ELEMENT_CLASS(gst_psnr_hvs_parent_class)->set_context(element, context);
}

// Whether what feeds the pad says that it cannot seek.
static bool gst_psnr_hvs_cannot_seek(GstAggregatorPad* pad, GstFormat format) {
  const GstPtr<GstQuery> query(gst_query_new_seeking(format));
  gboolean seekable = TRUE;
  if (gst_pad_peer_query(GST_PAD(pad), query.get())) {
    gst_query_parse_seeking(query.get(), nullptr, &seekable, nullptr, nullptr);
  }
  return !seekable;
}

// Sends a seek to both inputs, which have to begin at the same place afterwards: their running times count from there.
// So each goes to the very position, not to a key frame of its own, and a seek is refused that would leave the place to
// the inputs (where they are now, their ends) or that only one of them can follow.
static gboolean gst_psnr_hvs_seek(GstPsnrHvs* self, GstEvent* event) {
  const GstPtr<GstEvent> seek(event);
  gdouble rate;
  GstFormat format;
  GstSeekFlags flags;
  GstSeekType start_type, stop_type;
  gint64 start, stop;
  gst_event_parse_seek(event, &rate, &format, &flags, &start_type, &start, &stop_type, &stop);
  const bool placed = rate > 0 ? start_type == GST_SEEK_TYPE_SET && start >= 0  //
                               : stop_type == GST_SEEK_TYPE_SET && stop >= 0;
  if (!placed || !(flags & GST_SEEK_FLAG_FLUSH)) {
    GST_WARNING_OBJECT(self, "refused a seek that does not flush or name a position: %" GST_PTR_FORMAT, event);
    return FALSE;
  }
  for (GstAggregatorPad* pad : {self->ref_sink, self->dist_sink}) {
    if (!gst_psnr_hvs_cannot_seek(pad, format)) continue;
    GST_WARNING_OBJECT(self, "refused a seek that the input on %s cannot follow", GST_PAD_NAME(pad));
    return FALSE;
  }
  constexpr int kNearby =
      GST_SEEK_FLAG_KEY_UNIT | GST_SEEK_FLAG_SNAP_BEFORE | GST_SEEK_FLAG_SNAP_AFTER | GST_SEEK_FLAG_SNAP_NEAREST;
  flags = static_cast<GstSeekFlags>((flags & ~kNearby) | GST_SEEK_FLAG_ACCURATE);
  GstEvent* exact = gst_event_new_seek(rate, format, flags, start_type, start, stop_type, stop);
  gst_event_set_seqnum(exact, gst_event_get_seqnum(event));
  GstClockTime trickmode_interval;
  gst_event_parse_seek_trickmode_interval(event, &trickmode_interval);
  gst_event_set_seek_trickmode_interval(exact, trickmode_interval);

  GST_OBJECT_LOCK(self);
  const std::shared_ptr<Comparison> comparison = self->comparison;
  GST_OBJECT_UNLOCK(self);
  // GstAggregator waits for the aggregate function before anything stops the inputs.
  comparison->BeginSeek();
  const gboolean handled = GST_AGGREGATOR_CLASS(gst_psnr_hvs_parent_class)->src_event(GST_AGGREGATOR(self), exact);
  comparison->EndSeek();
  if (!handled) {
    // One input may be elsewhere now, and GstAggregator does not go on.
    GST_ELEMENT_ERROR(self, STREAM, FAILED,
                      ("A seek failed on one of the inputs, so that they no longer belong together: let elements "
                       "upstream answer the query SEEKING with no if they cannot seek"),
                      (nullptr));
  }
  return handled;
}

static gboolean gst_psnr_hvs_src_event(GstAggregator* aggregator, GstEvent* event) {
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_QOS:
      // Forwarded, it would make decoders upstream skip frames, and those would not be scored.
      gst_event_unref(event);
      return TRUE;
    case GST_EVENT_SEEK:
      return gst_psnr_hvs_seek(GST_PSNR_HVS(aggregator), event);
    default:
      return GST_AGGREGATOR_CLASS(gst_psnr_hvs_parent_class)->src_event(aggregator, event);
  }
}

// The output's caps are the reference's and are set with its buffers; if downstream wants others later
// on, that is for the reference's upstream to see to.
static gboolean gst_psnr_hvs_negotiate(GstAggregator* aggregator) {
  if (gst_pad_has_current_caps(GST_AGGREGATOR_SRC_PAD(aggregator))) {
    gst_pad_push_event(GST_PAD(GST_PSNR_HVS(aggregator)->ref_sink), gst_event_new_reconfigure());
  }
  return TRUE;
}

// Strides and offsets of any kind are read where they are. What the reference's upstream may do is
// also downstream's business: its buffers go there.
static gboolean gst_psnr_hvs_propose_allocation(GstPsnrHvs* self, GstAggregatorPad* pad, GstQuery* query) {
  gboolean answered = TRUE;
  if (pad == self->ref_sink) {
    answered = gst_pad_peer_query(GST_AGGREGATOR_SRC_PAD(self), query);
  } else {
    gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);
  }
  return self->backend->ProposePool(query) || answered;
}

static gboolean gst_psnr_hvs_sink_query_pre_queue(GstAggregator* aggregator, GstAggregatorPad* pad, GstQuery* query) {
  // GstAggregator would queue it behind the pad's buffers. With a tee upstream these wait for the
  // other pad's, which wait for the answer.
  if (GST_QUERY_TYPE(query) == GST_QUERY_ALLOCATION) {
    return gst_psnr_hvs_propose_allocation(GST_PSNR_HVS(aggregator), pad, query);
  }
  return GST_AGGREGATOR_CLASS(gst_psnr_hvs_parent_class)->sink_query_pre_queue(aggregator, pad, query);
}

static GstClockTime gst_psnr_hvs_get_next_time(GstAggregator* aggregator) {
  return GST_PSNR_HVS(aggregator)->comparison->NextTime();
}

static GstFlowReturn gst_psnr_hvs_aggregate(GstAggregator* aggregator, gboolean timeout) {
  return GST_PSNR_HVS(aggregator)->comparison->Aggregate(timeout);
}

static void gst_psnr_hvs_finalize(GObject* object) {
  GstPsnrHvs* self = GST_PSNR_HVS(object);
  self->comparison.~shared_ptr();
  delete self->backend;
  self->settings.~Settings();
  G_OBJECT_CLASS(gst_psnr_hvs_parent_class)->finalize(object);
}

static void gst_psnr_hvs_install_properties(GObjectClass* klass) {
  const auto always = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING);
  const auto flags = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY);
  const Settings defaults;
  g_object_class_install_property(
      klass, PROP_FRAME_MESSAGE,
      g_param_spec_boolean("frame-message", "Frame message", "Post a message for each scored and each unpaired frame",
                           defaults.live.frame_message, always));
  g_object_class_install_property(klass, PROP_RESULTS_FILENAME,
                                  g_param_spec_string("results-filename", "Results filename",
                                                      "File to write the scores to (NULL = none)", nullptr, flags));
  g_object_class_install_property(
      klass, PROP_RESULTS_FORMAT,
      g_param_spec_enum("results-format", "Results format", "Format of the results file",
                        GST_TYPE_PSNR_HVS_RESULTS_FORMAT, static_cast<gint>(defaults.results_format), flags));
  g_object_class_install_property(
      klass, PROP_TOLERANCE,
      g_param_spec_uint64("tolerance", "Tolerance",
                          "Largest difference of running times of a pair in ns (-1 = less than half the shorter "
                          "frame duration)",
                          0, G_MAXUINT64, G_MAXUINT64, flags));
  g_object_class_install_property(
      klass, PROP_PAIRING,
      g_param_spec_enum("pairing", "Pairing", "How frames of the two inputs are matched", GST_TYPE_PSNR_HVS_PAIRING,
                        static_cast<gint>(defaults.pairing.mode), flags));
  g_object_class_install_property(
      klass, PROP_DIST_OFFSET,
      g_param_spec_int64("dist-offset", "Distorted offset",
                         "Added to the running times of the distorted input before pairing, in ns", G_MININT64,
                         G_MAXINT64, defaults.pairing.dist_offset_ns, flags));
  g_object_class_install_property(
      klass, PROP_ALIGN,
      g_param_spec_enum("align", "Align", "What the running times of the inputs are counted from",
                        GST_TYPE_PSNR_HVS_ALIGN, ALIGN_TIME, flags));
  g_object_class_install_property(
      klass, PROP_BACKEND,
      g_param_spec_enum("backend", "Backend", "What computes the scores", GST_TYPE_PSNR_HVS_BACKEND,
                        static_cast<gint>(defaults.backend.choice), flags));
  g_object_class_install_property(
      klass, PROP_CUDA_DEVICE_ID,
      g_param_spec_int("cuda-device-id", "CUDA device", "Number of the CUDA device (-1 = the pipeline's, or the first)",
                       -1, G_MAXINT, defaults.backend.cuda_device_id, flags));
  g_object_class_install_property(
      klass, PROP_CUDA_REDUCTION,
      g_param_spec_enum("cuda-reduction", "CUDA reduction", "Where the CUDA backend adds terms up, with equal bits",
                        GST_TYPE_PSNR_HVS_CUDA_REDUCTION, static_cast<gint>(defaults.backend.cuda_reduction), flags));
  g_object_class_install_property(
      klass, PROP_VERIFY,
      g_param_spec_boolean("verify", "Verify",
                           "Let the CUDA backend compute both reductions and end with an error if they differ: slow",
                           defaults.backend.verify, flags));
  g_object_class_install_property(
      klass, PROP_THREADS,
      g_param_spec_uint("threads", "Threads", "Threads of the CPU backend (0 = all cores the process may use)", 0, 1024,
                        0, flags));
  g_object_class_install_property(klass, PROP_MAX_LEAD_FRAMES,
                                  g_param_spec_uint("max-lead-frames", "Maximum lead in frames",
                                                    "Frames that one input may be ahead of the other (not live)", 1,
                                                    G_MAXINT, defaults.lead.frames, flags));
  g_object_class_install_property(klass, PROP_MAX_LEAD_TIME,
                                  g_param_spec_uint64("max-lead-time", "Maximum lead in time",
                                                      "Time that one input may be ahead of the other in ns (not live)",
                                                      0, G_MAXINT64, defaults.lead.time, flags));
  g_object_class_install_property(
      klass, PROP_STALL_TIMEOUT,
      g_param_spec_uint64("stall-timeout", "Stall timeout",
                          "Time after which an input that stands still at its maximum lead, while the other has "
                          "nothing, is an error, in ns (0 = never)",
                          0, G_MAXINT64, defaults.lead.stall_timeout, flags));
  g_object_class_install_property(
      klass, PROP_STRICT,
      g_param_spec_boolean("strict", "Strict",
                           "Inputs whose colour, chroma-site, interlacing or aspect labels differ are an error, not a "
                           "warning",
                           defaults.strict, flags));
  const AlarmSettings& alarm = defaults.live.alarm;
  g_object_class_install_property(
      klass, PROP_ALARM_BELOW,
      g_param_spec_double("alarm-below", "Alarm below",
                          "Post an alarm message when the mean over the window falls below this, in dB (-inf = never)",
                          -kInfinity, kInfinity, alarm.below_db, always));
  g_object_class_install_property(klass, PROP_ALARM_DURATION,
                                  g_param_spec_uint64("alarm-duration", "Alarm duration",
                                                      "How long the mean must have been below alarm-below, in ns", 0,
                                                      G_MAXINT64, alarm.duration_ns, always));
  g_object_class_install_property(
      klass, PROP_ALARM_HYSTERESIS,
      g_param_spec_double("alarm-hysteresis", "Alarm hysteresis",
                          "How far above alarm-below the mean must come to end an alarm, in dB", 0, G_MAXDOUBLE,
                          alarm.hysteresis_db, always));
  g_object_class_install_property(klass, PROP_WINDOW,
                                  g_param_spec_uint("window", "Window", "Frames of the mean that alarms watch", 1,
                                                    kMaxWindow, alarm.window_frames, always));
  g_object_class_install_property(
      klass, PROP_FAIL_BELOW,
      g_param_spec_double("fail-below", "Fail below",
                          "End with an error if the mean over all frames is below this, in dB (-inf = never)",
                          -kInfinity, kInfinity, defaults.live.fail_below_db, always));
  g_object_class_install_property(klass, PROP_FAIL_AT,
                                  g_param_spec_enum("fail-at", "Fail at", "When fail-below is looked at",
                                                    GST_TYPE_PSNR_HVS_FAIL_AT, FAIL_AT_END, always));
  g_object_class_install_property(
      klass, PROP_STATS,
      g_param_spec_boxed("stats", "Statistics", "Pooled scores so far, counts, queues and speed", GST_TYPE_STRUCTURE,
                         static_cast<GParamFlags>(G_PARAM_READABLE | G_PARAM_STATIC_STRINGS)));
}

static void gst_psnr_hvs_class_init(GstPsnrHvsClass* klass) {
  GST_DEBUG_CATEGORY_INIT(gst_psnr_hvs_debug, "psnrhvs", 0, "PSNR-HVS of video against a reference");

  GObjectClass* object_class = G_OBJECT_CLASS(klass);
  object_class->set_property = gst_psnr_hvs_set_property;
  object_class->get_property = gst_psnr_hvs_get_property;
  object_class->finalize = gst_psnr_hvs_finalize;
  gst_psnr_hvs_install_properties(object_class);

  GstElementClass* element_class = GST_ELEMENT_CLASS(klass);
  const GstPtr<GstCaps> caps(Backend::TemplateCaps());
  const auto add_template = [&](const char* name, GstPadDirection direction) {
    gst_element_class_add_pad_template(
        element_class,
        gst_pad_template_new_with_gtype(name, direction, GST_PAD_ALWAYS, caps.get(), GST_TYPE_AGGREGATOR_PAD));
  };
  add_template("ref_sink", GST_PAD_SINK);
  add_template("dist_sink", GST_PAD_SINK);
  add_template("src", GST_PAD_SRC);
  element_class->change_state = gst_psnr_hvs_change_state;
  element_class->set_context = gst_psnr_hvs_set_context;
  gst_element_class_set_static_metadata(element_class, "PSNR-HVS", "Filter/Analyzer/Video",
                                        "Scores a distorted video against its reference with exact PSNR-HVS",
                                        "The psnrhvs developers");

  GstAggregatorClass* aggregator_class = GST_AGGREGATOR_CLASS(klass);
  aggregator_class->start = gst_psnr_hvs_start;
  aggregator_class->stop = gst_psnr_hvs_stop;
  aggregator_class->aggregate = gst_psnr_hvs_aggregate;
  aggregator_class->get_next_time = gst_psnr_hvs_get_next_time;
  aggregator_class->sink_event_pre_queue = gst_psnr_hvs_sink_event_pre_queue;
  aggregator_class->sink_event = gst_psnr_hvs_sink_event;
  aggregator_class->sink_query = gst_psnr_hvs_sink_query;
  aggregator_class->src_query = gst_psnr_hvs_src_query;
  aggregator_class->src_event = gst_psnr_hvs_src_event;
  aggregator_class->negotiate = gst_psnr_hvs_negotiate;
  aggregator_class->sink_query_pre_queue = gst_psnr_hvs_sink_query_pre_queue;

  psnrhvs::RegisterMeta();
  gst_type_mark_as_plugin_api(GST_TYPE_PSNR_HVS_RESULTS_FORMAT, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_PSNR_HVS_BACKEND, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_PSNR_HVS_CUDA_REDUCTION, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_PSNR_HVS_PAIRING, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_PSNR_HVS_ALIGN, static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(GST_TYPE_PSNR_HVS_FAIL_AT, static_cast<GstPluginAPIFlags>(0));
}

static GstAggregatorPad* gst_psnr_hvs_add_sink(GstPsnrHvs* self, const char* name) {
  GstPadTemplate* pad_template = gst_element_class_get_pad_template(GST_ELEMENT_GET_CLASS(self), name);
  GstPad* pad = GST_PAD(g_object_new(GST_TYPE_AGGREGATOR_PAD, "name", name, "direction", GST_PAD_SINK, "template",
                                     pad_template, nullptr));
  gst_psnr_hvs_base_chain = GST_PAD_CHAINFUNC(pad);
  gst_pad_set_chain_function(pad, gst_psnr_hvs_chain);
  gst_element_add_pad(GST_ELEMENT(self), pad);
  return GST_AGGREGATOR_PAD(pad);
}

static void gst_psnr_hvs_init(GstPsnrHvs* self) {
  new (&self->settings) Settings;
  self->ref_sink = gst_psnr_hvs_add_sink(self, "ref_sink");
  self->dist_sink = gst_psnr_hvs_add_sink(self, "dist_sink");
  self->backend = new Backend(GST_ELEMENT(self));
  new (&self->comparison) std::shared_ptr<Comparison>(std::make_shared<Comparison>(
      GST_AGGREGATOR(self), self->ref_sink, self->dist_sink, self->backend, self->settings));
}
