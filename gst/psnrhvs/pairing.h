// Decides which reference frame is compared with which distorted frame. Knows times only: no buffers, no clock, no
// threads, no GStreamer type. The caller keeps its frames in two queues parallel to the ones in here.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace psnrhvs {

enum class Side { kReference, kDistorted };

constexpr Side Other(Side side) { return side == Side::kReference ? Side::kDistorted : Side::kReference; }

// What pairing has to know about a frame.
struct FrameTime {
  uint64_t index = 0;                      // the caller's number for it, handed back in decisions
  std::optional<int64_t> running_time_ns;  // absent: a buffer without a timestamp
  std::optional<uint64_t> duration_ns;     // the buffer's own, else from caps, else absent; 0 counts as absent
};

struct PairingSettings {
  enum class Mode {
    kTime,   // by running time; by arrival if neither side carries times
    kOrder,  // the n-th with the n-th since start or flush
  };
  Mode mode = Mode::kTime;
  // Frames at most this far apart may be paired, so 0 pairs equal times only. Absent: frames less than half the
  // shorter of their durations apart (exactly half: not).
  std::optional<uint64_t> tolerance_ns;
  int64_t dist_offset_ns = 0;  // added to the distorted times
  bool align_start = false;    // count each side's times from its first frame since start or flush
};

// What to do next. A decision about frames has removed them from the front of Pairing's queues.
struct Decision {
  enum class Kind {
    kNeedReference,      // push one more reference frame, or mark that side ended
    kNeedDistorted,      // likewise
    kPair,               // both fronts belong together
    kUnpairedReference,  // the front of the reference queue has no partner
    kUnpairedDistorted,  // likewise
    kEnd,                // both sides have ended and are empty
    kError,              // nothing can be paired; `error` says why and what to change
  };
  Kind kind = Kind::kNeedReference;
  std::optional<uint64_t> reference_index;  // FrameTime::index of the frames decided
  std::optional<uint64_t> distorted_index;
  std::string error;
  bool order_fallback = false;  // set once: neither side carries times, so frames are paired by arrival from here on
};

// Pairs two streams of frames, each in the order of its times.
//
// By time: frames within reach of each other are candidates (PairingSettings::tolerance_ns). The nearest candidates
// are paired first, of equally near ones the earlier; then the nearest of the rest that does not cross a pair made
// before. No frame is used twice. A frame without a duration lasts until the next one of its side; the last one as
// long as the one before it; if that is unknown too the other side's duration alone counts, and without any only
// equal times pair. A frame without a time on a side that carries times is unpaired.
//
// Decisions are made as early as the rule allows. Frames at equal times pair at once; otherwise a further frame is
// asked for only while it could change the decision, and no side ever holds more than kMaxQueued frames: if that many
// do not settle the matter, those in hand decide.
//
// A time before the previous one of its side starts a new run. Runs that both sides start are matched in step: what is
// left of the old run on one side is not paired with the new run of the other. To tell, the side that has not jumped
// is asked for one frame beyond its front; if that does not jump, its times are compared as they are.
class Pairing {
 public:
  // The most frames a side holds if the caller pushes only what is asked for.
  static constexpr size_t kMaxQueued = 16;

  explicit Pairing(const PairingSettings& settings) : settings_(settings) {}

  // Appends a frame in order of arrival.
  void Push(Side side, const FrameTime& frame);

  // Whether no more frames of `side` will come.
  void SetEnded(Side side, bool ended);

  // Decides about the oldest frames. `deadline_passed`: the time to wait for partners of the front reference frame is
  // over, so it is decided with what is queued; ask with false first, and push what is at hand, so that a partner
  // that has arrived is used. Frames without a front reference frame still wait: kNeedReference.
  Decision Next(bool deadline_passed);

  // Forgets the queued frames of one side, or of both, after a flush; the side has not ended any more.
  void Reset(Side side);
  void Reset();

  size_t queued(Side side) const { return stream(side).queue.size(); }

  // How much later the distorted times are than the reference's, by the shift that pairs most of the first frames of
  // both sides; on top of `dist_offset_ns` and `align_start`. Only an estimate to report: never applied here. Absent
  // until both sides have shown enough frames or ended, and if no shift pairs more frames than none.
  std::optional<int64_t> EstimatedStartOffset() const;

 private:
  struct Frame {
    uint64_t index;
    uint64_t ordinal;  // arrival number, the "time" of pairing by order
    bool has_time;
    std::optional<int64_t> time;  // adjusted by offset and alignment; absent also if out of the range of 64 bits
    std::optional<uint64_t> duration;
    bool jumps_back;  // starts a new run
  };

  struct Stream {
    std::deque<Frame> queue;
    bool ended = false;
    bool timed = false;                    // a frame with a time was seen
    uint64_t seen = 0;                     // frames since start or flush
    uint64_t next_ordinal = 0;             // of the next frame pushed
    std::optional<int64_t> base;           // the first frame's time, if starts are aligned
    std::optional<int64_t> last_time;      // of the last frame pushed that had one
    std::optional<int64_t> previous_time;  // of the last frame removed in the run of the front
    std::vector<int64_t> start_times;      // the first times, for the estimate
  };

  Stream& stream(Side side) { return streams_[static_cast<int>(side)]; }
  const Stream& stream(Side side) const { return streams_[static_cast<int>(side)]; }

  Decision NextByTime(bool deadline_passed);
  Decision NextByOrder(bool deadline_passed);
  std::optional<Decision> SettleMode(bool deadline_passed);
  std::optional<Decision> SettleRuns(bool deadline_passed);
  void FrontChanged(Side side);
  void Pop(Side side);
  Decision Pair();
  Decision Unpaired(Side side);

  PairingSettings settings_;
  Stream streams_[2];
  std::optional<PairingSettings::Mode> settled_mode_;  // what the frames seen since the last reset call for
  std::optional<Side> jumped_;                         // the side that started a run which the other has not
  bool fallback_reported_ = false;
};

}  // namespace psnrhvs
