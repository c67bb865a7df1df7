// The streaming side of the element: two inputs become pairs, pairs become scores, scores are
// published, and reference buffers leave. Everything here belongs to the aggregate thread, except
// where a function says otherwise; no lock is held while computing, mapping, posting or pushing.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/base/gstaggregator.h>
#include <gst/video/video.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

// The element's properties, copied when it starts.
struct Settings {
  bool frame_message = true;
  std::string results_filename;  // empty: no file
  ResultsFormat results_format = ResultsFormat::kAuto;
  PairingSettings pairing;
  BackendSettings backend;
  LeadSettings lead;
};

// One run of the element, from start to stop.
class Comparison {
 public:
  // The pads belong to `element` and live as long.
  Comparison(GstAggregator* element, GstAggregatorPad* reference, GstAggregatorPad* distorted,
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

  // A pad was flushed. Any thread.
  void NoteFlush(GstAggregatorPad* pad);
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
    guint64 unpaired = 0;
    std::atomic<unsigned> flushes{0};
    unsigned handled_flushes = 0;
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
  bool Feed(Input* input);
  bool AddFrame(Input* input, GstPtr<GstBuffer> buffer);
  Frame TakeFront(Input* input);
  void PassUncounted();

  GstFlowReturn Submit(Frame reference, Frame distorted);
  bool PrepareEngine(const Frame& reference, const Frame& distorted);
  bool TooLate(const Frame& reference) const;
  GstFlowReturn DrainOne();
  GstFlowReturn Drain();
  GstFlowReturn Publish(InFlight entry);
  GstFlowReturn Push(Frame frame);
  GstFlowReturn Finish();
  Summary CurrentSummary() const;

  void PostUnpaired(Input* input, const Frame& frame);
  bool WriteResults(const Status& status);
  bool Fail(const Status& status);
  void WarnOnce(bool* warned, const std::string& text, const std::string& detail);
  void CompareStreams();

  GstAggregator* const element_;
  const Settings settings_;
  Input reference_;
  Input distorted_;
  Pairing pairing_;
  LeadGate gate_;

  std::optional<FrameGeometry> engine_geometry_;
  std::unique_ptr<Engine> engine_;
  std::deque<InFlight> in_flight_;
  int pending_ = 0;  // of those, pairs submitted to the engine

  std::shared_ptr<const Format> src_format_;
  std::shared_ptr<const GstSegment> src_segment_;
  std::vector<GstPtr<GstEvent>> tags_;  // not yet sent

  Pooling pooling_;
  guint64 skipped_ = 0;
  std::string backend_ = "cpu";
  std::unique_ptr<ResultsWriter> results_;
  bool failed_ = false;
  bool live_ = false;

  bool warned_rate_ = false;
  bool warned_chroma_ = false;
  bool warned_order_ = false;
};

}  // namespace psnrhvs
