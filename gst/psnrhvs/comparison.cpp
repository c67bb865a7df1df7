// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/comparison.h"

#include <cmath>
#include <utility>

#include "gst/psnrhvs/labels.h"

GST_DEBUG_CATEGORY_EXTERN(gst_psnr_hvs_debug);
#define GST_CAT_DEFAULT gst_psnr_hvs_debug

namespace psnrhvs {
namespace {

// Time of a position relative to running time 0; negative before it. nullopt if unknown.
std::optional<gint64> SignedRunningTime(const GstSegment& segment, GstClockTime position) {
  if (!GST_CLOCK_TIME_IS_VALID(position) || segment.format != GST_FORMAT_TIME) return std::nullopt;
  guint64 distance;
  const int sign = gst_segment_to_running_time_full(&segment, GST_FORMAT_TIME, position, &distance);
  if (sign == 0 || distance > static_cast<guint64>(G_MAXINT64)) return std::nullopt;
  return sign * static_cast<gint64>(distance);
}

// How long a frame of that duration is shown.
std::optional<guint64> RunningDuration(const GstSegment& segment, GstClockTime duration) {
  if (!GST_CLOCK_TIME_IS_VALID(duration)) return std::nullopt;
  const double rate = std::abs(segment.rate);
  if (rate == 1) return duration;
  const double shown = static_cast<double>(duration) / rate;
  return shown < static_cast<double>(G_MAXINT64) ? static_cast<guint64>(shown) : guint64{G_MAXINT64};
}

GstClockTime FramePeriod(const GstVideoInfo& info) {
  if (GST_VIDEO_INFO_FPS_N(&info) <= 0 || GST_VIDEO_INFO_FPS_D(&info) <= 0) return GST_CLOCK_TIME_NONE;
  return gst_util_uint64_scale_int(GST_SECOND, GST_VIDEO_INFO_FPS_D(&info), GST_VIDEO_INFO_FPS_N(&info));
}

// What to add in front of a pad so that its frames become like `info`.
std::string ConversionAdvice(const char* pad, const GstVideoInfo& have, const GstVideoInfo& want) {
  const bool size = GST_VIDEO_INFO_WIDTH(&have) != GST_VIDEO_INFO_WIDTH(&want) ||
                    GST_VIDEO_INFO_HEIGHT(&have) != GST_VIDEO_INFO_HEIGHT(&want);
  std::string elements, caps = "video/x-raw";
  if (size) {
    elements = "videoscale ! ";
    caps += ",width=" + std::to_string(GST_VIDEO_INFO_WIDTH(&want)) +
            ",height=" + std::to_string(GST_VIDEO_INFO_HEIGHT(&want));
  }
  if (GST_VIDEO_INFO_FORMAT(&have) != GST_VIDEO_INFO_FORMAT(&want)) {
    elements = "videoconvert ! " + elements;
    caps += std::string(",format=") + GST_VIDEO_INFO_NAME(&want);
  }
  return std::string("To compare them all the same, convert one side, for instance with \"") + elements + caps +
         "\" before " + pad;
}

bool InsideSegment(const GstSegment& segment, const GstBuffer* buffer, GstClockTime duration) {
  const GstClockTime start = GST_BUFFER_PTS(buffer);
  if (!GST_CLOCK_TIME_IS_VALID(start) || segment.format != GST_FORMAT_TIME) return true;
  GstClockTime stop = start;
  if (GST_CLOCK_TIME_IS_VALID(duration) && __builtin_add_overflow(start, duration, &stop)) stop = GST_CLOCK_TIME_NONE;
  return gst_segment_clip(&segment, GST_FORMAT_TIME, start, stop, nullptr, nullptr);
}

// Asks through the element itself, because GstAggregator goes by the last answer that it saw. nullopt if upstream has
// none.
std::optional<bool> IsLive(GstAggregator* element) {
  const GstPtr<GstQuery> query(gst_query_new_latency());
  if (!gst_pad_query(GST_AGGREGATOR_SRC_PAD(element), query.get())) return std::nullopt;
  gboolean live = FALSE;
  gst_query_parse_latency(query.get(), &live, nullptr, nullptr);
  return live;
}

}  // namespace

Comparison::Comparison(GstAggregator* element, GstAggregatorPad* reference, GstAggregatorPad* distorted,
                       const Backend* backend, const Settings& settings)
    : element_(element),
      backend_(backend),
      settings_(settings),
      reference_(reference, "ref_sink", Side::kReference),
      distorted_(distorted, "dist_sink", Side::kDistorted),
      pairing_(settings.pairing),
      gate_(settings.lead),
      live_settings_(settings.live) {}

bool Comparison::Start() {
  if (settings_.results_filename.empty()) return true;
  auto results = ResultsWriter::Open(settings_.results_filename, settings_.results_format);
  if (!results.ok()) {
    GST_ELEMENT_ERROR(element_, RESOURCE, OPEN_WRITE, ("%s", results.status().message().c_str()), (nullptr));
    return false;
  }
  results_ = std::move(*results);
  return true;
}

void Comparison::Stop() {
  {
    const std::lock_guard<std::mutex> lock(liveness_mutex_);
    liveness_known_ = true;
    OpenPads(false);
  }
  Salvage();
  engine_.reset();
  if (results_) WriteResults(results_->Complete(CurrentSummary()));
  results_.reset();
}

// Saves the scores of pairs that are still with the engine when the run ends early.
void Comparison::Salvage() {
  while (!in_flight_.empty()) {
    InFlight entry = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (entry.outcome != Outcome::kScored || pending_ == 0) continue;
    const Result<FrameScore> score = Collect();
    if (!score.ok()) break;
    if (Flushed(entry.reference)) continue;
    FrameReport report{entry.reference.timing, entry.distorted.timing.running_time, *score, {}};
    Record(&report);
  }
  in_flight_.clear();
}

// The score of the oldest pair that is with the engine. After a failure there is no engine any more, because it might
// still be reading buffers; its destructor waits until it is not.
Result<FrameScore> Comparison::Collect() {
  --pending_;
  const gint64 start_us = g_get_monotonic_time();
  Result<FrameScore> score = CatchAll("compute a score", [this] { return engine_->Collect(); });
  AddEngineTime(start_us);
  if (!score.ok()) {
    engine_.reset();
    engine_geometry_.reset();
    pending_ = 0;
  }
  return score;
}

void Comparison::Update(const LiveSettings& live) {
  const std::lock_guard<std::mutex> lock(mutex_);
  live_settings_ = live;
}

LiveSettings Comparison::live_settings() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return live_settings_;
}

GstPtr<GstStructure> Comparison::Stats() const {
  const Summary summary = CurrentSummary();
  std::optional<double> last;
  double engine_ms;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    last = totals_.last_score_db;
    engine_ms = totals_.engine_ms;
  }
  GstPtr<GstStructure> stats = ToStructure(summary);
  gst_structure_remove_field(stats.get(), "type");
  gst_structure_set(stats.get(), "queue-ref", G_TYPE_UINT, gate_.Queued(Side::kReference), "queue-dist", G_TYPE_UINT,
                    gate_.Queued(Side::kDistorted), nullptr);
  if (last) gst_structure_set(stats.get(), "last-psnr-hvs", G_TYPE_DOUBLE, *last, nullptr);
  if (summary.frames > 0) {
    gst_structure_set(stats.get(), "ms-per-frame", G_TYPE_DOUBLE, engine_ms / static_cast<double>(summary.frames),
                      nullptr);
  }
  return stats;
}

bool Comparison::IsGap(GstBuffer* buffer) {
  return GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_GAP) && gst_buffer_get_size(buffer) == 0;
}

void Comparison::NoteBuffer(GstAggregatorPad* pad) {
  gint64 none = 0;
  input(pad).first_buffer_us.compare_exchange_strong(none, g_get_monotonic_time());
  SettleLivenessIfUnknown(pad);
}

void Comparison::Watch() {
  constexpr gint64 kPatienceUs = 5 * G_USEC_PER_SEC;
  for (const auto& [flowing, missing] : {std::pair(&reference_, &distorted_), std::pair(&distorted_, &reference_)}) {
    const gint64 first = flowing->first_buffer_us;
    if (first == 0 || g_get_monotonic_time() - first < kPatienceUs || missing->first_buffer_us != 0 ||
        gst_pad_has_current_caps(GST_PAD(missing->pad)) || warned_missing_.exchange(true)) {
      continue;
    }
    GST_ELEMENT_WARNING(element_, STREAM, FAILED,
                        ("Nothing has come to %s for %d s while %s has data: is %s linked, and does its source run?",
                         missing->name, static_cast<int>(kPatienceUs / G_USEC_PER_SEC), flowing->name, missing->name),
                        (nullptr));
    return;
  }
  if (const std::optional<Side> missing = gate_.NewStandstill(); missing && !warned_missing_) {
    GST_ELEMENT_WARNING(element_, STREAM, FAILED, ("%s", gate_.StandstillText(*missing).c_str()), (nullptr));
  }
}

void Comparison::SetCaps(GstAggregatorPad* pad, GstCaps* caps) {
  Input& own = input(pad);
  GstVideoInfo info;
  if (!gst_video_info_from_caps(&info, caps)) {
    Fail(Status(StatusCode::kInvalidArgument, std::string("Caps on ") + own.name + " are no raw video"));
    return;
  }
  if (const Status status = backend_->CheckCaps(caps); !status.ok()) {
    Fail(Status(status.code(), std::string("On ") + own.name + " " + status.message()));
    return;
  }
  const Result<FrameGeometry> geometry = GeometryOf(info);
  if (!geometry.ok()) {
    Fail(Status(StatusCode::kInvalidArgument,
                std::string("Frames on ") + own.name + " cannot be scored: " + geometry.status().message()));
    return;
  }
  own.format = std::make_shared<const Format>(Format{GstPtr<GstCaps>(gst_caps_ref(caps)), info, *geometry});
  CompareStreams();
  if (failed_) return;

  SettleLiveness(info);
}

// Finds out whether the pipeline is live, and how far the pads open.
void Comparison::SettleLiveness(const GstVideoInfo& info) {
  const std::optional<bool> live = IsLive(element_);
  const std::lock_guard<std::mutex> lock(liveness_mutex_);
  liveness_known_ = live.has_value();
  live_ = live.value_or(false);
  gate_.SetLive(live_);
  if (live_) {
    // Arrival a little apart and the computing itself take time too: allow a frame's.
    const GstClockTime period = FramePeriod(info);
    if (GST_CLOCK_TIME_IS_VALID(period)) {
      gst_aggregator_set_latency(element_, period, gst_util_uint64_scale(period, settings_.lead.frames, 1));
    }
  }
  OpenPads(!live_);
}

// While a pipeline starts, one of its sources may not answer yet; and if nothing ever comes from there, no caps do that
// would raise the question again.
void Comparison::SettleLivenessIfUnknown(GstAggregatorPad* pad) {
  if (liveness_known_) return;
  const GstPtr<GstCaps> caps(gst_pad_get_current_caps(GST_PAD(pad)));
  GstVideoInfo info;
  if (caps && gst_video_info_from_caps(&info, caps.get())) SettleLiveness(info);
}

// GstAggregator admits one buffer a pad, or as many as its property `latency` holds. A pipeline that is not live has
// no latency to keep, so there the property opens the pads while the element runs, and the gate sets the bound.
void Comparison::OpenPads(bool open) {
  const guint64 enough = settings_.lead.time + GST_SECOND;
  guint64 latency = 0;
  g_object_get(element_, "latency", &latency, nullptr);
  if (open && latency < enough) {
    users_latency_ = latency;
    g_object_set(element_, "latency", enough, nullptr);
  } else if (!open && users_latency_) {
    if (latency == enough) g_object_set(element_, "latency", *users_latency_, nullptr);
    users_latency_.reset();
  }
}

// What can be said of both streams as soon as both have caps.
void Comparison::CompareStreams() {
  if (!reference_.format || !distorted_.format) return;
  const GstVideoInfo& reference = reference_.format->info;
  const GstVideoInfo& distorted = distorted_.format->info;
  const int ref_n = GST_VIDEO_INFO_FPS_N(&reference), ref_d = GST_VIDEO_INFO_FPS_D(&reference);
  const int dist_n = GST_VIDEO_INFO_FPS_N(&distorted), dist_d = GST_VIDEO_INFO_FPS_D(&distorted);
  if (ref_n > 0 && dist_n > 0 && gst_util_fraction_compare(ref_n, ref_d, dist_n, dist_d) != 0) {
    WarnOnce(&warned_rate_,
             "The inputs have different frame rates: only frames of equal time are compared, the others are counted "
             "as unpaired",
             "ref_sink " + std::to_string(ref_n) + "/" + std::to_string(ref_d) + ", dist_sink " +
                 std::to_string(dist_n) + "/" + std::to_string(dist_d));
  }
  CompareLabels();
}

void Comparison::CompareLabels() {
  for (const LabelDifference& difference :
       DifferingLabels(reference_.format->caps.get(), distorted_.format->caps.get())) {
    if (!warned_labels_.insert(difference.label).second) continue;
    const std::string text = std::string("The inputs differ in ") + difference.label + ": ref_sink has " +
                             difference.reference + ", dist_sink has " + difference.distorted;
    if (settings_.strict) {
      Fail(Status(StatusCode::kInvalidArgument,
                  text + ". Convert one side (videoconvert) or correct its label (capssetter), or set strict=false"));
      return;
    }
    GST_ELEMENT_WARNING(element_, STREAM, FORMAT, ("%s", text.c_str()), (nullptr));
  }
}

void Comparison::SetSegment(GstAggregatorPad* pad, const GstSegment& segment) {
  HandleFlushes();
  Input& own = input(pad);
  own.flushed = false;
  own.segment = std::make_shared<const GstSegment>(segment);
}

void Comparison::NoteFlush(GstAggregatorPad* pad) { ++input(pad).flushes; }

// Forgets what a flushed input had queued. Frames of the other input stay.
void Comparison::HandleFlushes() {
  for (Input* flushed : {&reference_, &distorted_}) {
    const unsigned flushes = flushed->flushes.load();
    if (flushes == flushed->handled_flushes) continue;
    flushed->handled_flushes = flushes;
    flushed->flushed = true;
    flushed->frames.clear();
    pairing_.Reset(flushed->side);
    // Reference frames on their way out belong to the stream that was flushed, so none of them is pushed or told.
    if (flushed == &reference_) Drain();
  }
}

// Whether the reference has ended and all its frames are decided.
bool Comparison::ReferenceIsOver() const {
  return reference_.frames.empty() && gst_aggregator_pad_is_eos(reference_.pad);
}

GstClockTime Comparison::NextTime() {
  std::optional<gint64> next;
  const auto consider = [&next](std::optional<gint64> time) {
    if (time && (!next || *time < *next)) next = time;
  };
  for (Input* waiting : {&reference_, &distorted_}) {
    // A distorted frame waits for its reference as long as the shift between the two is known.
    const bool distorted = waiting == &distorted_;
    if (distorted && (settings_.pairing.align_start || settings_.pairing.mode == PairingSettings::Mode::kOrder)) break;
    std::optional<gint64> time;
    if (!waiting->frames.empty()) {
      const Frame& front = waiting->frames.front();
      time = SignedRunningTime(*front.segment, GST_BUFFER_PTS(front.buffer.get()));
    } else if (const GstPtr<GstBuffer> head{gst_aggregator_pad_peek_buffer(waiting->pad)}; head && waiting->segment) {
      time = SignedRunningTime(*waiting->segment, GST_BUFFER_PTS(head.get()));
    }
    if (time && distorted && __builtin_add_overflow(*time, settings_.pairing.dist_offset_ns, &*time)) time.reset();
    consider(time);
  }
  if (!next && ReferenceIsOver()) next = reference_end_;
  if (!next) return GST_CLOCK_TIME_NONE;
  return *next > 0 ? static_cast<GstClockTime>(*next) : 0;
}

// Makes the next buffer of an input known to pairing, if there is one. The last buffer that is known
// stays in the pad's queue, because GstAggregator calls only while every pad has one.
bool Comparison::Feed(Input* fed) {
  for (;;) {
    if (!fed->frames.empty() && fed->frames.back().in_pad) {
      gst_aggregator_pad_drop_buffer(fed->pad);
      fed->frames.back().in_pad = false;
    }
    GstPtr<GstBuffer> buffer(fed->flushed ? nullptr : gst_aggregator_pad_peek_buffer(fed->pad));
    if (!buffer) {
      if (gst_aggregator_pad_is_eos(fed->pad)) pairing_.SetEnded(fed->side, true);
      return false;
    }
    if (AddFrame(fed, std::move(buffer))) return true;
    if (failed_) return false;
  }
}

// Whether the buffer takes part in pairing.
bool Comparison::AddFrame(Input* owner, GstPtr<GstBuffer> buffer) {
  if (!owner->format || !owner->segment) {
    Fail(Status(StatusCode::kInvalidArgument, std::string("A buffer came on ") + owner->name +
                                                  " before caps or a segment: put a parser or a capsfilter before it"));
    return false;
  }
  Frame frame;
  frame.format = owner->format;
  frame.segment = owner->segment;
  frame.in_pad = true;
  frame.flushes = owner->handled_flushes;
  frame.gap = IsGap(buffer.get());
  FrameTiming& timing = frame.timing;
  timing.timestamp = GST_BUFFER_PTS(buffer.get());
  timing.duration = GST_BUFFER_DURATION(buffer.get());
  if (!GST_CLOCK_TIME_IS_VALID(timing.duration)) timing.duration = FramePeriod(owner->format->info);
  frame.counted = !frame.gap && InsideSegment(*owner->segment, buffer.get(), timing.duration);

  const std::optional<gint64> running_time = SignedRunningTime(*owner->segment, timing.timestamp);
  const std::optional<guint64> duration = RunningDuration(*owner->segment, timing.duration);
  if (running_time && *running_time >= 0) timing.running_time = static_cast<guint64>(*running_time);
  if (owner->segment->format == GST_FORMAT_TIME && GST_CLOCK_TIME_IS_VALID(timing.timestamp)) {
    timing.stream_time = gst_segment_to_stream_time(owner->segment.get(), GST_FORMAT_TIME, timing.timestamp);
  }
  if (frame.counted) {
    timing.index = owner->next_index++;
    FrameTime time;
    time.index = timing.index;
    time.running_time_ns = running_time;
    time.duration_ns = duration;
    pairing_.SetEnded(owner->side, false);
    pairing_.Push(owner->side, time);
  }
  if (owner == &reference_ && running_time) {
    if (__builtin_add_overflow(*running_time, duration.value_or(0), &reference_end_.emplace())) {
      reference_end_ = G_MAXINT64;
    }
  }
  frame.buffer = std::move(buffer);
  const bool counted = frame.counted;
  owner->frames.push_back(std::move(frame));
  return counted;
}

Comparison::Frame Comparison::TakeFront(Input* owner) {
  Frame frame = std::move(owner->frames.front());
  owner->frames.pop_front();
  if (frame.in_pad) {
    gst_aggregator_pad_drop_buffer(owner->pad);
    frame.in_pad = false;
  }
  // A flush has made the gate forget it.
  if (!frame.gap && frame.flushes == owner->flushes) gate_.Release(owner->side);
  return frame;
}

// Sends uncounted buffers at the front on their way: the reference's pass, the distorted's end here.
void Comparison::PassUncounted() {
  while (!reference_.frames.empty() && !reference_.frames.front().counted) {
    in_flight_.push_back({Outcome::kPassed, TakeFront(&reference_), {}, {}, {}});
  }
  while (!distorted_.frames.empty() && !distorted_.frames.front().counted) TakeFront(&distorted_);
}

GstFlowReturn Comparison::Aggregate(bool timeout) {
  struct BusyScope {
    explicit BusyScope(LeadGate* gate_in) : gate(gate_in) { gate->SetBusy(true); }
    ~BusyScope() { gate->SetBusy(false); }
    LeadGate* gate;
  } busy(&gate_);
  GstFlowReturn flow = Decide(timeout);
  if (downstream_ended_) {
    // What follows has all that it wants, which is an end like any other.
    flow = Finish();
    downstream_ended_ = false;
  }
  // From here on the pads themselves tell upstream how it ended.
  if (flow != GST_FLOW_OK && flow != GST_AGGREGATOR_FLOW_NEED_DATA) {
    FailDownstream(flow);
    if (failed_) Salvage();
    gate_.SetOver();
  }
  return flow;
}

GstFlowReturn Comparison::Decide(bool timeout) {
  HandleFlushes();
  // The deadline of frames up to this time has passed, and not that of others which arrive meanwhile.
  const GstClockTime due = timeout ? NextTime() : GST_CLOCK_TIME_NONE;
  const auto is_due = [&] { return GST_CLOCK_TIME_IS_VALID(due) && NextTime() <= due; };
  bool deadline_passed = false;
  // Inputs that are faster than the engine never starve it, so this loop also has to look whether to stop.
  while (!failed_ && !stopping_ && seeks_ == 0) {
    HandleFlushes();
    const Decision decision = pairing_.Next(deadline_passed);
    PassUncounted();
    if (decision.order_fallback) {
      WarnOnce(&warned_order_, "The inputs carry no timestamps: frames are paired in the order in which they arrive",
               "");
    }
    bool starved = false;
    switch (decision.kind) {
      case Decision::Kind::kNeedReference:
        starved = !Feed(&reference_) && !gst_aggregator_pad_is_eos(reference_.pad);
        break;
      case Decision::Kind::kNeedDistorted:
        starved = !Feed(&distorted_) && !gst_aggregator_pad_is_eos(distorted_.pad);
        break;
      case Decision::Kind::kPair: {
        Frame reference = TakeFront(&reference_);
        const GstFlowReturn flow = Submit(std::move(reference), TakeFront(&distorted_));
        if (flow != GST_FLOW_OK) return flow;
        break;
      }
      case Decision::Kind::kUnpairedReference:
        in_flight_.push_back({Outcome::kUnpairedReference, TakeFront(&reference_), {}, {}, {}});
        break;
      case Decision::Kind::kUnpairedDistorted:
        in_flight_.push_back({Outcome::kUnpairedDistorted, {}, TakeFront(&distorted_), {}, {}});
        break;
      case Decision::Kind::kEnd:
        return Finish();
      case Decision::Kind::kError:
        Fail(Status(StatusCode::kInvalidArgument, decision.error));
        break;
    }
    if (failed_) break;
    if (starved && !deadline_passed && is_due()) {
      // What is there now is all that the oldest frame may wait for. It may be one that nobody has asked for yet.
      if (reference_.frames.empty()) Feed(&reference_);
      if (ReferenceIsOver()) {
        // Live, nothing more can be scored.
        pairing_.SetEnded(Side::kDistorted, true);
      } else if (reference_.frames.empty()) {
        DropLateDistorted();
      }
      deadline_passed = is_due();
      continue;
    }
    deadline_passed = deadline_passed && starved;
    // Results that nothing waits behind leave at once; pairs overlap only while more are at hand.
    const bool drain_all = starved || live_;
    if (starved) PassUncounted();
    while (!in_flight_.empty() && (drain_all || pending_ >= (engine_ ? engine_->depth() : 1) ||
                                   in_flight_.front().outcome != Outcome::kScored)) {
      const GstFlowReturn flow = DrainOne();
      if (flow != GST_FLOW_OK) return flow;
    }
    if (starved) {
      gate_.SetNeeded(decision.kind == Decision::Kind::kNeedReference ? Side::kReference : Side::kDistorted);
      return GST_AGGREGATOR_FLOW_NEED_DATA;
    }
  }
  return failed_ ? GST_FLOW_ERROR : GST_FLOW_OK;
}

// Gives up waiting for the reference of the oldest distorted frame, so that a reference that stands
// still does not hold a live distorted input up.
void Comparison::DropLateDistorted() {
  if (distorted_.frames.empty()) Feed(&distorted_);
  if (distorted_.frames.empty()) return;
  pairing_.SetEnded(Side::kReference, true);
  const Decision decision = pairing_.Next(true);
  pairing_.SetEnded(Side::kReference, false);
  if (decision.kind == Decision::Kind::kUnpairedDistorted) {
    in_flight_.push_back({Outcome::kUnpairedDistorted, {}, TakeFront(&distorted_), {}, {}});
  }
}

// Makes the engine, which is idle, fit the pair's frames. False, with an error posted, if they cannot
// be compared.
bool Comparison::PrepareEngine(const Frame& reference, const Frame& distorted) {
  const Format& ref = *reference.format;
  const Format& dist = *distorted.format;
  if (ref.geometry != dist.geometry) {
    const GstPtr<gchar> ref_caps(gst_caps_to_string(ref.caps.get()));
    const GstPtr<gchar> dist_caps(gst_caps_to_string(dist.caps.get()));
    failed_ = true;
    GST_ELEMENT_ERROR(
        element_, STREAM, FORMAT,
        ("The frames to compare differ: ref_sink has %s (%s, %d bits), dist_sink has %s (%s, %d bits). %s",
         DescribeVideo(ref.info).c_str(), ChromaName(ref.geometry.chroma()), ref.geometry.depth(),
         DescribeVideo(dist.info).c_str(), ChromaName(dist.geometry.chroma()), dist.geometry.depth(),
         ConversionAdvice("dist_sink", dist.info, ref.info).c_str()),
        ("ref_sink caps: %s; dist_sink caps: %s", ref_caps.get(), dist_caps.get()));
    return false;
  }
  engine_.reset();
  engine_geometry_.reset();
  auto engine =
      CatchAll("make an engine", [&] { return backend_->CreateEngine(ref.geometry, ref.caps.get(), dist.caps.get()); });
  if (!engine.ok()) return Fail(engine.status());
  engine_ = std::move(*engine);
  engine_geometry_ = ref.geometry;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    totals_.backend = engine_->backend();
  }
  if (ref.geometry.plane_count() > ref.geometry.scored_planes()) {
    WarnOnce(&warned_chroma_, "The chroma planes are smaller than 8x8: only luma is scored",
             DescribeVideo(ref.info) + ", " + ChromaName(ref.geometry.chroma()));
  }
  return true;
}

// Whether a live pair has missed its deadline, so that scoring it would only delay those behind it.
bool Comparison::TooLate(const Frame& reference) const {
  if (!live_ || !GST_CLOCK_TIME_IS_VALID(reference.timing.running_time)) return false;
  const GstClockTime now = gst_element_get_current_running_time(GST_ELEMENT(element_));
  const GstClockTime latency = gst_aggregator_get_latency(element_);
  if (!GST_CLOCK_TIME_IS_VALID(now) || !GST_CLOCK_TIME_IS_VALID(latency)) return false;
  const GstClockTime grace = GST_CLOCK_TIME_IS_VALID(reference.timing.duration) ? reference.timing.duration : 0;
  return now > reference.timing.running_time + latency + grace;
}

GstFlowReturn Comparison::Submit(Frame reference, Frame distorted) {
  if (engine_geometry_ != reference.format->geometry || engine_geometry_ != distorted.format->geometry) {
    const GstFlowReturn flow = Drain();
    if (flow != GST_FLOW_OK) return flow;
    if (!PrepareEngine(reference, distorted)) return GST_FLOW_ERROR;
  }
  InFlight entry{Outcome::kScored, std::move(reference), std::move(distorted), {}, {}};
  if (TooLate(entry.reference)) {
    entry.outcome = Outcome::kSkipped;
    in_flight_.push_back(std::move(entry));
    return GST_FLOW_OK;
  }
  const auto map = [&](const Frame& frame, const char* pad, std::optional<MappedFrame>* mapping) {
    const auto fail = [&](const Status& status) {
      return Fail(Status(status.code(), std::string("On ") + pad + " " + status.message()));
    };
    const auto access = backend_->Access(frame.buffer.get());
    if (!access.ok()) return fail(access.status());
    auto mapped = MappedFrame::Map(frame.buffer.get(), frame.format->info, *engine_geometry_, *access);
    if (!mapped.ok()) return fail(mapped.status());
    *mapping = std::move(*mapped);
    return true;
  };
  if (!map(entry.reference, reference_.name, &entry.reference_mapping) ||
      !map(entry.distorted, distorted_.name, &entry.distorted_mapping)) {
    return GST_FLOW_ERROR;
  }
  if (results_) results_->NotePair();
  const gint64 start_us = g_get_monotonic_time();
  const Status status = CatchAll("take a pair", [&] {
    return engine_->Submit({entry.reference_mapping->view(), entry.distorted_mapping->view()});
  });
  AddEngineTime(start_us);
  if (!status.ok()) {
    Fail(status);
    return GST_FLOW_ERROR;
  }
  ++pending_;
  in_flight_.push_back(std::move(entry));
  return GST_FLOW_OK;
}

GstFlowReturn Comparison::Drain() {
  GstFlowReturn flow = GST_FLOW_OK;
  while (flow == GST_FLOW_OK && !in_flight_.empty()) flow = DrainOne();
  return flow;
}

GstFlowReturn Comparison::DrainOne() {
  InFlight entry = std::move(in_flight_.front());
  in_flight_.pop_front();
  return Publish(std::move(entry));
}

GstFlowReturn Comparison::Publish(InFlight entry) {
  std::optional<FrameScore> collected;
  if (entry.outcome == Outcome::kScored) {
    const Result<FrameScore> score = Collect();
    entry.reference_mapping.reset();
    entry.distorted_mapping.reset();
    if (!score.ok()) {
      Fail(score.status());
      return GST_FLOW_ERROR;
    }
    collected = *score;
  }
  if (entry.outcome != Outcome::kUnpairedDistorted && Flushed(entry.reference)) return GST_FLOW_OK;
  switch (entry.outcome) {
    case Outcome::kPassed:
      break;
    case Outcome::kSkipped: {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++totals_.skipped;
      break;
    }
    case Outcome::kUnpairedReference:
      PostUnpaired(reference_, entry.reference);
      break;
    case Outcome::kUnpairedDistorted:
      PostUnpaired(distorted_, entry.distorted);
      return failed_ ? GST_FLOW_ERROR : GST_FLOW_OK;
    case Outcome::kScored: {
      entry.distorted.buffer.reset();
      FrameReport report{entry.reference.timing, entry.distorted.timing.running_time, *collected, {}};
      Record(&report);
      entry.reference.buffer.reset(gst_buffer_make_writable(entry.reference.buffer.release()));
      AttachMeta(entry.reference.buffer.get(), report);
      break;
    }
  }
  if (failed_) return GST_FLOW_ERROR;
  if (entry.outcome != Outcome::kScored) entry.reference.buffer = WithoutMeta(std::move(entry.reference.buffer));
  return Push(std::move(entry.reference));
}

// Counts, writes and posts a score.
void Comparison::Record(FrameReport* report) {
  const LiveSettings live = live_settings();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    totals_.pooling.Add(report->reference.index, report->score);
    totals_.last_score_db = WatchedScore(report->score);
  }
  const std::optional<Alarm::Change> change =
      alarm_.Add(live.alarm, report->reference.running_time, WatchedScore(report->score));
  if (live.alarm.watching() || live.alarm.window_frames > 1) report->window_mean = alarm_.window_mean_db();
  if (results_) WriteResults(results_->AddFrame(*report));
  if (live.frame_message) Post(ToStructure(*report));
  if (change) {
    Post(ToStructure(
        AlarmReport{change->raised, report->reference, change->value_db, change->threshold_db, change->since_ns}));
  }
  if (live.fail_now) FailsQuality(live);
}

// Whether the mean so far is below what the user accepts; an error was posted then.
bool Comparison::FailsQuality(const LiveSettings& live) {
  const Summary summary = CurrentSummary();
  const std::optional<PooledScore>& combined = summary.pooled[static_cast<int>(ScoreKind::kCombined)];
  const std::optional<PooledScore>& pooled = combined ? combined : summary.pooled[static_cast<int>(ScoreKind::kY)];
  if (failed_ || !(live.fail_below_db > -std::numeric_limits<double>::infinity())) return failed_;
  if (pooled && pooled->mean >= live.fail_below_db) return false;
  failed_ = true;
  if (!pooled) {
    GST_ELEMENT_ERROR(element_, STREAM, FAILED,
                      ("No frame was compared, so fail-below=%g is not met: the inputs hold "
                       "no frames of equal time",
                       live.fail_below_db),
                      (nullptr));
    return true;
  }
  GST_ELEMENT_ERROR(
      element_, STREAM, FAILED,
      ("The quality is too low: the mean of %s over %" G_GUINT64_FORMAT " frames is %.4f dB, below fail-below=%g",
       combined ? "psnr-hvs" : "psnr-hvs-y", summary.frames, pooled->mean, live.fail_below_db),
      (nullptr));
  return true;
}

void Comparison::Post(GstPtr<GstStructure> structure) {
  gst_element_post_message(GST_ELEMENT(element_), gst_message_new_element(GST_OBJECT(element_), structure.release()));
}

void Comparison::AddEngineTime(gint64 start_us) {
  const double ms = static_cast<double>(g_get_monotonic_time() - start_us) / 1000;
  const std::lock_guard<std::mutex> lock(mutex_);
  totals_.engine_ms += ms;
}

// Sends a reference buffer on, as it came, under the caps and segment it came with.
GstFlowReturn Comparison::Push(Frame frame) {
  if (downstream_ended_) return GST_FLOW_OK;
  if (frame.gap) {
    // Before the first buffer nothing downstream knows the stream yet.
    if (src_segment_ == frame.segment && src_format_ == frame.format) {
      gst_pad_push_event(GST_AGGREGATOR_SRC_PAD(element_), gst_event_new_gap(GST_BUFFER_PTS(frame.buffer.get()),
                                                                             GST_BUFFER_DURATION(frame.buffer.get())));
    }
    return GST_FLOW_OK;
  }
  if (src_format_ != frame.format) {
    gst_aggregator_set_src_caps(element_, frame.format->caps.get());
    src_format_ = frame.format;
  }
  if (src_segment_ != frame.segment) {
    gst_aggregator_update_segment(element_, frame.segment.get());
    src_segment_ = frame.segment;
  }
  const GstFlowReturn flow = gst_aggregator_finish_buffer(element_, frame.buffer.release());
  // Only now are the stream's start, caps and segment sure to have been sent.
  for (GstPtr<GstEvent>& event : tags_) gst_pad_push_event(GST_AGGREGATOR_SRC_PAD(element_), event.release());
  tags_.clear();
  gate_.NoteOutput();
  downstream_ended_ = flow == GST_FLOW_EOS;
  return flow;
}

// Posts the error for a refusal of downstream's that nobody else may tell: sources that have sent everything never see
// it, and the elements that refuse say nothing.
void Comparison::FailDownstream(GstFlowReturn flow) {
  if (flow == GST_FLOW_NOT_LINKED) {
    Fail(Status(StatusCode::kInternal, "Nothing takes what leaves on src: link it to a sink, such as fakesink"));
  } else if (flow == GST_FLOW_NOT_NEGOTIATED) {
    Fail(Status(StatusCode::kInvalidArgument, "What follows src does not take the reference's format, " +
                                                  (src_format_ ? DescribeVideo(src_format_->info) : "raw video") +
                                                  ": put videoconvert after src"));
  } else if (flow < GST_FLOW_EOS && flow != GST_FLOW_ERROR) {
    Fail(Status(StatusCode::kInternal, std::string("What follows src stopped with ") + gst_flow_get_name(flow)));
  }
}

void Comparison::PostUnpaired(const Input& owner, const Frame& frame) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++totals_.unpaired[static_cast<int>(owner.side)];
  }
  const UnpairedReport report{owner.name, frame.timing};
  if (results_) WriteResults(results_->AddUnpaired(report));
  if (live_settings().frame_message) Post(ToStructure(report));
}

GstFlowReturn Comparison::Finish() {
  PassUncounted();
  const GstFlowReturn flow = Drain();
  if (flow != GST_FLOW_OK) return flow;
  // A seek began meanwhile: this is not the end.
  if (seeks_ > 0) return GST_FLOW_OK;
  const std::optional<gint64> start_offset = pairing_.EstimatedStartOffset();
  if (start_offset && *start_offset != 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    totals_.start_offset_ns = start_offset;
  }
  const Summary summary = CurrentSummary();
  if (results_ && !WriteResults(results_->Complete(summary))) return GST_FLOW_ERROR;
  Post(ToStructure(summary));
  // gst-launch prints only the second text of an INFO message.
  const std::string text = SummaryText(summary);
  GST_ELEMENT_INFO(element_, STREAM, DECODE, ("%s", text.c_str()), ("%s", text.c_str()));
  if (summary.unpaired_ref > 0 || summary.unpaired_dist > 0 || summary.skipped > 0) {
    std::string unpaired = "Not everything was compared: " + std::to_string(summary.unpaired_ref) + " reference and " +
                           std::to_string(summary.unpaired_dist) + " distorted frames found no partner";
    if (summary.skipped > 0) unpaired += ", " + std::to_string(summary.skipped) + " pairs were too late";
    if (summary.start_offset) {
      unpaired += ". The distorted input seems to start " + std::to_string(*summary.start_offset) +
                  " ns later than the reference: dist-offset=" +
                  std::to_string(settings_.pairing.dist_offset_ns - *summary.start_offset) + " would pair more frames";
    }
    GST_ELEMENT_WARNING(element_, STREAM, DECODE, ("%s", unpaired.c_str()), (nullptr));
  }
  return FailsQuality(live_settings()) ? GST_FLOW_ERROR : GST_FLOW_EOS;
}

Summary Comparison::CurrentSummary() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Summary summary =
      Summarize(totals_.pooling, totals_.unpaired[0], totals_.unpaired[1], totals_.skipped, totals_.backend);
  summary.start_offset = totals_.start_offset_ns;
  return summary;
}

bool Comparison::WriteResults(const Status& status) {
  if (status.ok()) return true;
  if (failed_) return false;
  failed_ = true;
  GST_ELEMENT_ERROR(element_, RESOURCE, WRITE, ("%s", status.message().c_str()), (nullptr));
  return false;
}

// Posts the error that ends this run; always false.
bool Comparison::Fail(const Status& status) {
  if (failed_) return false;
  failed_ = true;
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      GST_ELEMENT_ERROR(element_, STREAM, FORMAT, ("%s", status.message().c_str()), (nullptr));
      break;
    case StatusCode::kOutOfMemory:
      GST_ELEMENT_ERROR(element_, RESOURCE, NO_SPACE_LEFT, ("%s", status.message().c_str()), (nullptr));
      break;
    case StatusCode::kUnavailable:
      GST_ELEMENT_ERROR(element_, RESOURCE, NOT_FOUND, ("%s", status.message().c_str()), (nullptr));
      break;
    default:
      GST_ELEMENT_ERROR(element_, STREAM, FAILED, ("%s", status.message().c_str()), (nullptr));
      break;
  }
  return false;
}

void Comparison::WarnOnce(bool* warned, const std::string& text, const std::string& detail) {
  if (*warned) return;
  *warned = true;
  GST_ELEMENT_WARNING(element_, STREAM, FORMAT, ("%s", text.c_str()), ("%s", detail.c_str()));
}

}  // namespace psnrhvs
