// How far one input may run ahead of the other: admission of buffers into the pads' queues.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/gst.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "gst/psnrhvs/pairing.h"

namespace psnrhvs {

struct LeadSettings {
  guint frames = 64;                            // of one input, while the other has none
  GstClockTime time = 5 * GST_SECOND;           // likewise
  GstClockTime stall_timeout = 8 * GST_SECOND;  // standing still at a bound for this long is an error; 0 = never
};

// GstAggregator waits for both inputs and then takes a buffer of each, so an encoder in one branch
// that wants fifty frames before it gives one would wait for ever. This gate lets one input run ahead
// within bounds while the other has nothing, and holds it back when both have frames.
class LeadGate {
 public:
  explicit LeadGate(const LeadSettings& settings) : settings_(settings) {}

  // Waits until a buffer of `side` may enter. `running_time` is its own, if known. Called by the
  // side's streaming thread. False: the bound held for the stall timeout; StallText() says so.
  bool Admit(Side side, std::optional<gint64> running_time);
  // A buffer of `side` has been decided, or was dropped.
  void Release(Side side);

  // A live pipeline bounds the time by its latency, and the frames here; late data is no stall.
  void SetLive(bool live);
  // Whether the element is deciding, computing or pushing: then a side that waits is not stalled.
  void SetBusy(bool busy);
  // Nothing can be decided without another buffer of `side`, so that one is let in whatever the bounds are, and the
  // other may run ahead, until the element is busy again.
  void SetNeeded(Side side);
  // Whether the pipeline plays, and that something has left the element: a pipeline that is paused may stand still
  // once it has shown its first frame.
  void SetPlaying(bool playing);
  void NoteOutput();
  // An ended side is never waited for; one that begins again is bounded again.
  void SetEnded(Side side, bool ended);
  // The run is over, well or with an error: the pads themselves tell upstream. A side that begins again is bounded
  // again.
  void SetOver();
  // A flush of `side` begins: lets everything through, so that the pad itself can refuse it, until Resume().
  void Suspend(Side side);
  // Forgets the side's buffers and bounds it again.
  void Resume(Side side);

  // The side whose next frame is waited for, if nothing at all has happened for the stall timeout while the other has
  // frames or has ended. Told once for each such wait, and not if Admit() has told of it.
  std::optional<Side> NewStandstill();

  // Lets everything through for good: what is still done with events of the stream does not bind it again.
  void Stop();

  // Buffers of `side` that were admitted and not yet decided.
  guint Queued(Side side) const;

  // What to tell the user when `side` has stood still at its bound, and when nothing comes to `side`.
  std::string StallText(Side side) const;
  std::string StandstillText(Side side) const;

 private:
  struct State {
    std::deque<std::optional<gint64>> queued;  // running times of the buffers that were admitted
    bool suspended = false;
    bool over = false;
    bool ended = false;
  };

  void Changed();
  bool MayStandStill() const { return live_ || busy_ || (output_ && !playing_); }
  bool Balanced(Side side) const;
  bool AtLeadBound(const State& state, std::optional<gint64> running_time) const;

  const LeadSettings settings_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  bool live_ = false;
  bool busy_ = false;
  std::optional<Side> needed_;
  bool grant_ = false;  // a buffer of that side may enter whatever the bounds are
  bool playing_ = false;
  bool output_ = false;
  std::array<State, 2> states_;
  std::chrono::steady_clock::time_point last_change_ = std::chrono::steady_clock::now();
  bool standstill_told_ = false;  // since then
};

}  // namespace psnrhvs
