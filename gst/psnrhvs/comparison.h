// The streaming side of the element: two inputs become pairs, pairs become scores, scores are
// published, and reference buffers leave. Everything here belongs to the aggregate thread, except
// where a function says otherwise; no lock is held while computing, mapping, posting or pushing.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/base/gstaggregator.h>
#include <gst/video/video.h>

#include <atomic>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cpu/alarm.h"
#include "cpu/engine.h"
#include "cpu/score.h"
#include "gst/psnrhvs/backend.h"
#include "gst/psnrhvs/gstptr.h"
#include "gst/psnrhvs/lead_gate.h"
#include "gst/psnrhvs/mapped_frame.h"
#include "gst/psnrhvs/pairing.h"
#include "gst/psnrhvs/publish.h"
#include "gst/psnrhvs/results.h"

namespace psnrhvs {

// What may change while the element runs.
struct LiveSettings {
  bool frame_message = true;
  AlarmSettings alarm;
  double fail_below_db = -std::numeric_limits<double>::infinity();  // -infinity = off
  bool fail_now = false;                                            // else at the end of the streams
};

// The element's properties, copied when it starts.
struct Settings {
  std::string results_filename;  // empty: no file
  ResultsFormat results_format = ResultsFormat::kAuto;
  PairingSettings pairing;
  BackendSettings backend;
  LeadSettings lead;
  bool strict = false;  // differing labels are errors, not warnings
  LiveSettings live;
};

// One run of the element, from start to stop.
class Comparison {
 public:
  // The pads and the backend, which has been started, belong to `element` and live as long.
  Comparison(GstAggregator* element, GstAggregatorPad* reference, GstAggregatorPad* distorted, const Backend* backend,
             const Settings& settings);

  // Opens the results file. On failure an error was posted and the element must not start.
  bool Start();
  // Completes the results file with what was scored. Nothing is posted but errors.
  void Stop();

  // A caps or segment event of a pad, in stream order.
  void SetCaps(GstAggregatorPad* pad, GstCaps* caps);
  void SetSegment(GstAggregatorPad* pad, const GstSegment& segment);

  // A tag event of the reference, which goes on downstream.
  void AddTags(GstEvent* event) { tags_.emplace_back(gst_event_ref(event)); }

  // Decides about the frames that are there, scores pairs and pushes reference buffers.
  GstFlowReturn Aggregate(bool timeout);

  // Running time of the oldest frame that waits for a decision; GST_CLOCK_TIME_NONE if there is none.
  GstClockTime NextTime();

  // Makes Aggregate() return soon, and do nothing from then on. Any thread.
  void Interrupt() { stopping_ = true; }
  // Around a seek that flushes: meanwhile Aggregate() returns soon, and nothing is told or pushed. Any thread.
  void BeginSeek() { ++seeks_; }
  void EndSeek() { --seeks_; }
  // A flush of a pad begins or ends. Any thread.
  void NoteFlush(GstAggregatorPad* pad);
  // Whether a buffer stands for a GAP event, which is how GstAggregator hands it on.
  static bool IsGap(GstBuffer* buffer);
  // A buffer came to a pad. Any thread.
  void NoteBuffer(GstAggregatorPad* pad);
  // To be called about every second: warns if one input flows and the other has not begun, or everything waits for a
  // frame that does not come. Any thread.
  void Watch();
  // Takes effect with the next frame. Any thread.
  void Update(const LiveSettings& live);
  // The pooled message's fields so far, and the state of the queues. Any thread.
  GstPtr<GstStructure> Stats() const;
  // Admission of buffers into a pad's queue. Any thread.
  LeadGate& gate() { return gate_; }

 private:
  // What a CAPS event says.
  struct Format {
    GstPtr<GstCaps> caps;
    GstVideoInfo info;
    FrameGeometry geometry;
  };

  // A buffer with everything that was true of its stream when it arrived.
  struct Frame {
    GstPtr<GstBuffer> buffer;
    std::shared_ptr<const Format> format;
    std::shared_ptr<const GstSegment> segment;
    FrameTiming timing;
    bool gap = false;      // a GAP event, which holds no picture
    bool in_pad = false;   // the pad's queue holds it too
    bool counted = false;  // takes part in pairing; else a gap, or a buffer outside its segment
    unsigned flushes = 0;  // Input::flushes when it came
  };

  struct Input {
    Input(GstAggregatorPad* pad_in, const char* name_in, Side side_in) : pad(pad_in), name(name_in), side(side_in) {}

    GstAggregatorPad* const pad;
    const char* const name;
    const Side side;
    std::shared_ptr<const Format> format;
    std::shared_ptr<const GstSegment> segment;
    std::deque<Frame> frames;  // those known to pairing, and uncounted ones between them
    guint64 next_index = 0;
    std::atomic<unsigned> flushes{0};  // begun and ended
    unsigned handled_flushes = 0;
    bool flushed = false;  // and no segment came since: GstAggregator may still show a buffer from before
    std::atomic<gint64> first_buffer_us{0};  // monotonic; 0 = none yet
  };

  // What has been counted and pooled. Written by the aggregate thread, read by all.
  struct Totals {
    Pooling pooling;
    guint64 unpaired[2] = {0, 0};  // by Side
    guint64 skipped = 0;
    std::string backend = "cpu";
    std::optional<double> last_score_db;
    std::optional<gint64> start_offset_ns;  // estimated: distorted later than reference
    double engine_ms = 0;                   // spent in submitting and collecting
  };

  enum class Outcome { kScored, kUnpairedReference, kUnpairedDistorted, kSkipped, kPassed };

  // A decision on its way out, in the order in which decisions were made.
  struct InFlight {
    Outcome outcome;
    Frame reference;  // empty for kUnpairedDistorted
    Frame distorted;  // kScored and kUnpairedDistorted
    std::optional<MappedFrame> reference_mapping;
    std::optional<MappedFrame> distorted_mapping;
  };

  Input& input(GstAggregatorPad* pad) { return pad == reference_.pad ? reference_ : distorted_; }

  GstFlowReturn Decide(bool timeout);
  void HandleFlushes();
  bool Feed(Input* fed);
  bool AddFrame(Input* owner, GstPtr<GstBuffer> buffer);
  Frame TakeFront(Input* owner);
  // Whether the reference was flushed after this frame had come from it, or is about to be.
  bool Flushed(const Frame& reference) const { return reference.flushes != reference_.flushes || seeks_ > 0; }
  void PassUncounted();

  GstFlowReturn Submit(Frame reference, Frame distorted);
  void DropLateDistorted();
  bool PrepareEngine(const Frame& reference, const Frame& distorted);
  bool TooLate(const Frame& reference) const;
  bool ReferenceIsOver() const;
  void Record(FrameReport* report);
  bool FailsQuality(const LiveSettings& live);
  void Salvage();
  Result<FrameScore> Collect();
  GstFlowReturn DrainOne();
  GstFlowReturn Drain();
  GstFlowReturn Publish(InFlight entry);
  GstFlowReturn Push(Frame frame);
  void FailDownstream(GstFlowReturn flow);
  GstFlowReturn Finish();
  Summary CurrentSummary() const;
  LiveSettings live_settings() const;

  void SettleLiveness(const GstVideoInfo& info);
  void SettleLivenessIfUnknown(GstAggregatorPad* pad);
  void OpenPads(bool open);
  void Post(GstPtr<GstStructure> structure);
  void PostUnpaired(const Input& owner, const Frame& frame);
  void AddEngineTime(gint64 start_us);
  bool WriteResults(const Status& status);
  bool Fail(const Status& status);
  void WarnOnce(bool* warned, const std::string& text, const std::string& detail);
  void CompareStreams();
  void CompareLabels();

  GstAggregator* const element_;
  const Backend* const backend_;
  const Settings settings_;
  Input reference_;
  Input distorted_;
  std::optional<gint64> reference_end_;  // running time at which the last reference frame ends
  Pairing pairing_;
  LeadGate gate_;

  std::deque<InFlight> in_flight_;
  std::optional<FrameGeometry> engine_geometry_;
  std::unique_ptr<Engine> engine_;  // ends before the buffers that it may still be reading
  int pending_ = 0;                 // of those, pairs submitted to the engine

  std::shared_ptr<const Format> src_format_;
  std::shared_ptr<const GstSegment> src_segment_;
  std::vector<GstPtr<GstEvent>> tags_;  // not yet sent

  mutable std::mutex mutex_;  // held for copies only
  LiveSettings live_settings_;
  Totals totals_;

  Alarm alarm_;
  std::unique_ptr<ResultsWriter> results_;
  bool failed_ = false;
  bool downstream_ended_ = false;  // it takes no more buffers; what is decided is only counted
  std::atomic<bool> stopping_{false};
  std::atomic<int> seeks_{0};                // under way
  std::mutex liveness_mutex_;                // held while the property `latency` changes
  std::atomic<bool> liveness_known_{false};  // upstream has answered
  std::atomic<bool> live_{false};
  std::optional<guint64> users_latency_;  // what the property `latency` was before OpenPads raised it

  bool warned_rate_ = false;
  bool warned_chroma_ = false;
  bool warned_order_ = false;
  std::set<std::string> warned_labels_;
  std::atomic<bool> warned_missing_{false};
};

}  // namespace psnrhvs
