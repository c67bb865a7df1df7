// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/lead_gate.h"

#include <algorithm>
#include <chrono>

namespace psnrhvs {
namespace {

// Frames of an input that wait while the other has some too: enough to keep the engine fed.
constexpr size_t kBalancedFrames = 4;
// What a stall timeout is cut to, so that it can be added to a time.
constexpr GstClockTime kForever = GstClockTime{100} * 365 * 24 * 60 * 60 * GST_SECOND;

size_t Index(Side side) { return static_cast<size_t>(side); }

std::string Seconds(GstClockTime time) {
  gchar text[32];
  g_snprintf(text, sizeof(text), "%.3g s", static_cast<double>(time) / GST_SECOND);
  return text;
}

}  // namespace

bool LeadGate::AtLeadBound(const State& state, std::optional<gint64> running_time) const {
  if (state.queued.empty()) return false;
  if (state.queued.size() >= settings_.frames) return true;
  const std::optional<gint64>& oldest = state.queued.front();
  return oldest && running_time && *running_time > *oldest &&
         static_cast<guint64>(*running_time) - static_cast<guint64>(*oldest) >= settings_.time;
}

// Whether both sides have what the next decision takes, so that running ahead would gain nothing.
bool LeadGate::Balanced(Side side) const {
  const State& other = states_[Index(Other(side))];
  return other.ended || (!other.queued.empty() && needed_ != Other(side));
}

// With the mutex held: wakes up who waits.
void LeadGate::Changed() {
  last_change_ = std::chrono::steady_clock::now();
  standstill_told_ = false;
  changed_.notify_all();
}

std::optional<Side> LeadGate::NewStandstill() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (standstill_told_ || stopped_ || MayStandStill() || settings_.stall_timeout == 0) return std::nullopt;
  const auto timeout = std::chrono::nanoseconds(std::min(settings_.stall_timeout, kForever));
  if (std::chrono::steady_clock::now() - last_change_ < timeout) return std::nullopt;
  for (Side side : {Side::kReference, Side::kDistorted}) {
    const State& own = states_[Index(side)];
    const State& other = states_[Index(Other(side))];
    const bool awaited = needed_ ? needed_ == side : own.queued.empty();
    if (!awaited || own.ended || own.suspended || own.over || (other.queued.empty() && !other.ended)) continue;
    standstill_told_ = true;
    return side;
  }
  return std::nullopt;
}

bool LeadGate::Admit(Side side, std::optional<gint64> running_time) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock<std::mutex> lock(mutex_);
  State& own = states_[Index(side)];
  bool stalled = false;
  Clock::time_point deadline;
  for (;;) {
    const bool balanced = Balanced(side);
    const bool granted = grant_ && needed_ == side;
    const bool full = !granted && (balanced ? own.queued.size() >= kBalancedFrames : AtLeadBound(own, running_time));
    if (stopped_ || own.suspended || own.over || (live_ ? own.queued.size() < settings_.frames : !full)) {
      if (granted) grant_ = false;
      own.queued.push_back(running_time);
      Changed();
      return true;
    }
    if (MayStandStill() || balanced || settings_.stall_timeout == 0) {
      stalled = false;
      changed_.wait(lock);
      continue;
    }
    if (!stalled) deadline = Clock::now() + std::chrono::nanoseconds(std::min(settings_.stall_timeout, kForever));
    stalled = true;
    const bool timed_out = changed_.wait_until(lock, deadline) == std::cv_status::timeout && Clock::now() >= deadline;
    if (timed_out && !MayStandStill() && !Balanced(side) && !stopped_ && !own.suspended &&
        AtLeadBound(own, running_time)) {
      standstill_told_ = true;
      return false;
    }
  }
}

void LeadGate::Release(Side side) {
  const std::lock_guard<std::mutex> lock(mutex_);
  State& own = states_[Index(side)];
  if (!own.queued.empty()) own.queued.pop_front();
  Changed();
}

void LeadGate::SetLive(bool live) {
  const std::lock_guard<std::mutex> lock(mutex_);
  live_ = live;
  Changed();
}

void LeadGate::SetBusy(bool busy) {
  const std::lock_guard<std::mutex> lock(mutex_);
  busy_ = busy;
  if (busy) needed_.reset();
  Changed();
}

void LeadGate::SetNeeded(Side side) {
  const std::lock_guard<std::mutex> lock(mutex_);
  needed_ = side;
  grant_ = true;
  Changed();
}

void LeadGate::SetPlaying(bool playing) {
  const std::lock_guard<std::mutex> lock(mutex_);
  playing_ = playing;
  Changed();
}

void LeadGate::NoteOutput() {
  const std::lock_guard<std::mutex> lock(mutex_);
  output_ = true;
}

void LeadGate::SetEnded(Side side, bool ended) {
  const std::lock_guard<std::mutex> lock(mutex_);
  State& own = states_[Index(side)];
  own.ended = ended;
  if (!ended) own.over = false;
  Changed();
}

void LeadGate::SetOver() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (State& state : states_) state.over = true;
  Changed();
}

void LeadGate::Suspend(Side side) {
  const std::lock_guard<std::mutex> lock(mutex_);
  State& own = states_[Index(side)];
  own.suspended = true;
  Changed();
}

void LeadGate::Resume(Side side) {
  const std::lock_guard<std::mutex> lock(mutex_);
  State& own = states_[Index(side)];
  own.queued.clear();
  own.suspended = false;
  own.over = false;
  own.ended = false;
  Changed();
}

void LeadGate::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  Changed();
}

guint LeadGate::Queued(Side side) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<guint>(states_[Index(side)].queued.size());
}

std::string LeadGate::StallText(Side side) const {
  const bool reference = side == Side::kReference;
  const std::string own = reference ? "ref_sink" : "dist_sink";
  const std::string other = reference ? "dist_sink" : "ref_sink";
  return "The input on " + own + " is " + std::to_string(settings_.frames) + " frames or " + Seconds(settings_.time) +
         " ahead, and " + other + " has had no frame for " + Seconds(settings_.stall_timeout) +
         ". If both inputs come from one tee, the branch to " + other +
         " holds more frames back than the lead that is allowed: raise max-lead-frames and max-lead-time, or put "
         "\"queue max-size-buffers=0 max-size-bytes=0 max-size-time=0\" before " +
         own + ". If " + other + " is only slow, raise stall-timeout (0 = wait for ever)";
}

std::string LeadGate::StandstillText(Side side) const {
  const bool reference = side == Side::kReference;
  const std::string own = reference ? "ref_sink" : "dist_sink";
  const std::string other = reference ? "dist_sink" : "ref_sink";
  return "The frames of " + other + " are waiting, and nothing has come to " + own + " for " +
         Seconds(settings_.stall_timeout) + ": does its source still run, and does it send EOS when it ends?";
}

}  // namespace psnrhvs
