// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/pairing.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <tuple>
#include <utility>

namespace psnrhvs {
namespace {

// The first frames of a side that the start offset is estimated from.
constexpr size_t kStartFrames = 32;

uint64_t Distance(int64_t a, int64_t b) {
  return a < b ? static_cast<uint64_t>(b) - static_cast<uint64_t>(a)
               : static_cast<uint64_t>(a) - static_cast<uint64_t>(b);
}

// 2 * distance < duration, without overflow.
bool LessThanHalf(uint64_t distance, uint64_t duration) {
  return distance < duration && distance < duration - distance;
}

std::optional<int64_t> Add(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

std::optional<int64_t> Subtract(int64_t a, int64_t b) {
  int64_t difference;
  if (__builtin_sub_overflow(a, b, &difference)) return std::nullopt;
  return difference;
}

Decision Need(Side side) {
  Decision decision;
  decision.kind = side == Side::kReference ? Decision::Kind::kNeedReference : Decision::Kind::kNeedDistorted;
  return decision;
}

// A frame that takes part in matching.
struct Point {
  int64_t time;
  bool duration_settled;             // false: the next frame of its side may still tell
  std::optional<uint64_t> duration;  // settled and absent: nobody will ever know
};

// The queued frames of one side's current run.
struct Window {
  std::vector<Point> points;
  bool closed;  // no further frame of this run is to be expected
};

// Matches two windows as far as no frame still to come can change it.
class Matcher {
 public:
  enum class Verdict { kNo, kYes, kOpen };
  struct Answer {
    Verdict verdict;
    Side need;  // kOpen: the side whose next frame is to be seen first
  };

  Matcher(const Window& reference, const Window& distorted, std::optional<uint64_t> tolerance)
      : windows_{&reference, &distorted}, tolerance_(tolerance) {
    CollectCandidates();
    for (Candidate& candidate : candidates_) candidate.answer = Judge(candidate);
  }

  // Whether the two fronts are a pair.
  Answer FrontsPair() const {
    for (const Candidate& candidate : candidates_) {
      if (candidate.index[0] == 0 && candidate.index[1] == 0) return candidate.answer;
    }
    return {Verdict::kNo, Side::kReference};
  }

  // Whether the front of `side` has a partner, known or to come.
  Answer FrontHasPartner(Side side) const {
    const int own = static_cast<int>(side);
    const Point& front = windows_[own]->points.front();
    bool cut_off = false;  // frames to come on the other side cannot be its partner
    for (const Candidate& candidate : candidates_) {
      if (candidate.index[own] == 0) {
        if (candidate.answer.verdict != Verdict::kNo) return candidate.answer;
        continue;
      }
      const int64_t rival = Time(own, candidate);
      cut_off |= candidate.answer.verdict == Verdict::kYes;
      cut_off |= candidate.certain && front.time < rival && rival <= Time(1 - own, candidate);
    }
    const Window& others = *windows_[1 - own];
    if (cut_off || others.closed) return {Verdict::kNo, side};
    const int64_t last = others.points.back().time;
    if (last <= front.time) return {Verdict::kOpen, Other(side)};
    if (!MayReach(front, Distance(last, front.time))) return {Verdict::kNo, side};
    return {Verdict::kOpen, front.duration_settled || tolerance_ ? Other(side) : side};
  }

 private:
  // Two frames within reach of each other.
  struct Candidate {
    uint64_t distance;
    size_t index[2];  // in the windows
    bool certain;     // false: a duration is missing that `unsettled` may still tell
    Side unsettled;
    Answer answer;
  };

  int64_t Time(int side, const Candidate& candidate) const {
    return windows_[side]->points[candidate.index[side]].time;
  }

  bool MayReach(const Point& point, uint64_t distance) const {
    if (tolerance_) return distance <= *tolerance_;
    if (distance == 0 || !point.duration_settled || !point.duration) return true;
    return LessThanHalf(distance, *point.duration);
  }

  void CollectCandidates() {
    const std::vector<Point>& references = windows_[0]->points;
    const std::vector<Point>& distorteds = windows_[1]->points;
    for (size_t r = 0; r < references.size(); ++r) {
      for (size_t d = 0; d < distorteds.size(); ++d) {
        const Point& reference = references[r];
        const Point& distorted = distorteds[d];
        const uint64_t distance = Distance(reference.time, distorted.time);
        if (!MayReach(reference, distance) || !MayReach(distorted, distance)) continue;
        const bool any_distance = tolerance_ || distance == 0;
        if (!any_distance && reference.duration_settled && distorted.duration_settled && !reference.duration &&
            !distorted.duration) {
          continue;
        }
        const bool certain = any_distance || (reference.duration_settled && distorted.duration_settled);
        candidates_.push_back({distance,
                               {r, d},
                               certain,
                               reference.duration_settled ? Side::kDistorted : Side::kReference,
                               {Verdict::kOpen, Side::kReference}});
      }
    }
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.distance, a.index[0], a.index[1]) < std::tie(b.distance, b.index[0], b.index[1]);
    });
  }

  // Whether another frame of `side`, between the two, is nearer to the partner: then, whatever becomes of that frame,
  // these two do not pair, because the partner's or that frame's nearer pair would be crossed.
  bool HasRivalBetween(const Candidate& candidate, int side) const {
    const int64_t own = Time(side, candidate);
    const int64_t partner = Time(1 - side, candidate);
    return std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& other) {
      if (!other.certain || other.index[1 - side] != candidate.index[1 - side]) return false;
      const int64_t rival = Time(side, other);
      return (own < rival && rival <= partner) || (partner <= rival && rival < own);
    });
  }

  static bool Exclude(const Candidate& a, const Candidate& b) {
    return (a.index[0] <= b.index[0] && a.index[1] >= b.index[1]) ||
           (a.index[0] >= b.index[0] && a.index[1] <= b.index[1]);
  }

  // Whether a frame of `side` still to come may be nearer to the candidate's partner, or to one before that.
  bool MayBeBeatenByNext(const Candidate& candidate, int side) const {
    if (windows_[side]->closed) return false;
    const int64_t last = windows_[side]->points.back().time;
    for (size_t i = 0; i <= candidate.index[1 - side]; ++i) {
      const Point& partner = windows_[1 - side]->points[i];
      const uint64_t distance = last > partner.time ? Distance(last, partner.time) : 0;
      if (distance < candidate.distance && MayReach(partner, distance)) return true;
    }
    return false;
  }

  // Nearer candidates have been judged before.
  Answer Judge(const Candidate& candidate) const {
    Answer answer{Verdict::kYes, Side::kReference};
    if (HasRivalBetween(candidate, 0) || HasRivalBetween(candidate, 1)) return {Verdict::kNo, Side::kReference};
    for (const Candidate* nearer = candidates_.data(); nearer != &candidate; ++nearer) {
      if (!Exclude(*nearer, candidate) || nearer->answer.verdict == Verdict::kNo) continue;
      if (nearer->answer.verdict == Verdict::kYes) return {Verdict::kNo, Side::kReference};
      if (answer.verdict == Verdict::kYes) answer = nearer->answer;
    }
    if (answer.verdict == Verdict::kOpen) return answer;
    if (!candidate.certain) return {Verdict::kOpen, candidate.unsettled};
    if (MayBeBeatenByNext(candidate, 0)) return {Verdict::kOpen, Side::kReference};
    if (MayBeBeatenByNext(candidate, 1)) return {Verdict::kOpen, Side::kDistorted};
    return answer;
  }

  const Window* windows_[2];
  std::optional<uint64_t> tolerance_;
  std::vector<Candidate> candidates_;  // nearest first, of equally near ones the earlier
};

// How many of two ascending lists of times pair when `shift` is taken off the second, within less than half of
// `duration`, and how far apart they are in all.
std::pair<size_t, uint64_t> CountPairs(const std::vector<int64_t>& reference, const std::vector<int64_t>& distorted,
                                       int64_t shift, uint64_t duration) {
  size_t pairs = 0;
  uint64_t total = 0;
  size_t r = 0;
  size_t d = 0;
  while (r < reference.size() && d < distorted.size()) {
    const std::optional<int64_t> time = Subtract(distorted[d], shift);
    const uint64_t distance = time ? Distance(reference[r], *time) : std::numeric_limits<uint64_t>::max();
    if (distance == 0 || LessThanHalf(distance, duration)) {
      ++pairs;
      total += distance;
      ++r;
      ++d;
    } else if (time && reference[r] < *time) {
      ++r;
    } else {
      ++d;
    }
  }
  return {pairs, total};
}

// How many times of the two lists have no partner although both lists reach there, of `pairs` pairs that CountPairs()
// found with this shift.
size_t UnpairedWithin(const std::vector<int64_t>& reference, const std::vector<int64_t>& distorted, int64_t shift,
                      size_t pairs) {
  std::vector<int64_t> shifted;
  for (int64_t time : distorted) {
    if (const std::optional<int64_t> moved = Subtract(time, shift)) shifted.push_back(*moved);
  }
  if (shifted.empty()) return 0;
  const int64_t first = std::max(reference.front(), shifted.front());
  const int64_t last = std::min(reference.back(), shifted.back());
  const auto within = [&](int64_t time) { return time >= first && time <= last; };
  const auto frames = static_cast<size_t>(std::count_if(reference.begin(), reference.end(), within) +
                                          std::count_if(shifted.begin(), shifted.end(), within));
  return frames - std::min(frames, 2 * pairs);
}

// The middle one of the distances between neighbours of an ascending list of at least two.
uint64_t MedianDistance(const std::vector<int64_t>& times) {
  std::vector<uint64_t> distances;
  for (size_t i = 1; i < times.size(); ++i) distances.push_back(Distance(times[i - 1], times[i]));
  const auto middle = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
  std::nth_element(distances.begin(), middle, distances.end());
  return *middle;
}

}  // namespace

void Pairing::Push(Side side, const FrameTime& frame) {
  Stream& own = stream(side);
  Frame entry{frame.index, own.next_ordinal++, frame.running_time_ns.has_value(), std::nullopt, std::nullopt, false};
  if (frame.duration_ns && *frame.duration_ns > 0) entry.duration = frame.duration_ns;
  ++own.seen;
  if (frame.running_time_ns) {
    own.timed = true;
    entry.time = frame.running_time_ns;
    if (settings_.align_start) {
      if (!own.base) own.base = frame.running_time_ns;
      entry.time = Subtract(*entry.time, *own.base);
    }
    if (entry.time && side == Side::kDistorted) entry.time = Add(*entry.time, settings_.dist_offset_ns);
  }
  if (entry.time) {
    entry.jumps_back = own.last_time && *entry.time < *own.last_time;
    own.last_time = entry.time;
    const std::vector<int64_t>& starts = own.start_times;
    if (starts.size() < kStartFrames && (starts.empty() || starts.back() <= *entry.time)) {
      own.start_times.push_back(*entry.time);
    }
  }
  own.queue.push_back(entry);
  if (own.queue.size() == 1) FrontChanged(side);
}

void Pairing::SetEnded(Side side, bool ended) { stream(side).ended = ended; }

Decision Pairing::Next(bool deadline_passed) {
  if (settings_.mode == PairingSettings::Mode::kOrder) return NextByOrder(deadline_passed);
  if (!settled_mode_) {
    if (std::optional<Decision> decision = SettleMode(deadline_passed)) return *decision;
  }
  if (settled_mode_ == PairingSettings::Mode::kTime) return NextByTime(deadline_passed);
  Decision decision = NextByOrder(deadline_passed);
  decision.order_fallback = !std::exchange(fallback_reported_, true);
  return decision;
}

// Finds out whether the sides carry times. One without is known by two frames, or by its end.
std::optional<Decision> Pairing::SettleMode(bool deadline_passed) {
  const auto untimed = [](const Stream& s) { return !s.timed && (s.seen >= 2 || (s.seen == 1 && s.ended)); };
  const Stream& reference = stream(Side::kReference);
  const Stream& distorted = stream(Side::kDistorted);
  if ((reference.timed && distorted.timed) || (reference.seen == 0 && reference.ended) ||
      (distorted.seen == 0 && distorted.ended)) {
    settled_mode_ = PairingSettings::Mode::kTime;
    return std::nullopt;
  }
  if (untimed(reference) && untimed(distorted)) {
    settled_mode_ = PairingSettings::Mode::kOrder;
    return std::nullopt;
  }
  for (Side side : {Side::kReference, Side::kDistorted}) {
    if (!untimed(stream(side)) || !stream(Other(side)).timed) continue;
    const bool is_reference = side == Side::kReference;
    Decision decision;
    decision.kind = Decision::Kind::kError;
    decision.error = std::string("The ") + (is_reference ? "reference" : "distorted") +
                     " input carries no timestamps while the " + (is_reference ? "distorted" : "reference") +
                     " input does, so frames cannot be paired by time. Let its source or parser set timestamps"
                     " (do-timestamp=true, a parser, a demuxer), or pair by arrival with pairing=order.";
    return decision;
  }
  if (deadline_passed && !reference.queue.empty()) return Unpaired(Side::kReference);
  // A side without times is a rare case, so its second frame is the last thing to wait for.
  for (Side side : {Side::kReference, Side::kDistorted}) {
    if (stream(side).seen == 0) return Need(side);
  }
  return Need(reference.timed || untimed(reference) ? Side::kDistorted : Side::kReference);
}

Decision Pairing::NextByOrder(bool deadline_passed) {
  const Stream& reference = stream(Side::kReference);
  const Stream& distorted = stream(Side::kDistorted);
  if (!reference.queue.empty() && !distorted.queue.empty()) {
    const uint64_t r = reference.queue.front().ordinal;
    const uint64_t d = distorted.queue.front().ordinal;
    return r == d ? Pair() : Unpaired(r < d ? Side::kReference : Side::kDistorted);
  }
  for (Side side : {Side::kReference, Side::kDistorted}) {
    if (stream(side).queue.empty()) continue;
    if (stream(Other(side)).ended || (deadline_passed && side == Side::kReference)) return Unpaired(side);
    return Need(Other(side));
  }
  if (!reference.ended) return Need(Side::kReference);
  if (!distorted.ended) return Need(Side::kDistorted);
  Decision decision;
  decision.kind = Decision::Kind::kEnd;
  return decision;
}

// Handles a run that only one side has started so far.
std::optional<Decision> Pairing::SettleRuns(bool deadline_passed) {
  if (!jumped_) return std::nullopt;
  const Side side = Other(*jumped_);
  const Stream& old = stream(side);
  if (std::any_of(old.queue.begin() + 1, old.queue.end(), [](const Frame& frame) { return frame.jumps_back; })) {
    return Unpaired(side);
  }
  if (old.queue.size() >= 2 || old.ended) {
    jumped_.reset();
  } else if (!deadline_passed) {
    return Need(side);
  }
  return std::nullopt;
}

Decision Pairing::NextByTime(bool deadline_passed) {
  for (Side side : {Side::kReference, Side::kDistorted}) {
    if (!stream(side).queue.empty() && !stream(side).queue.front().time) return Unpaired(side);
  }
  if (stream(Side::kReference).queue.empty() || stream(Side::kDistorted).queue.empty()) {
    return NextByOrder(deadline_passed);  // the same without a front to compare with
  }
  if (std::optional<Decision> decision = SettleRuns(deadline_passed)) return *decision;

  const auto window_of = [&](const Stream& own) {
    Window window;
    size_t frames = 0;
    for (; frames < own.queue.size() && (frames == 0 || !own.queue[frames].jumps_back); ++frames) {
      const Frame& frame = own.queue[frames];
      if (frame.time) window.points.push_back({*frame.time, frame.duration.has_value(), frame.duration});
    }
    window.closed = deadline_passed || own.ended || frames < own.queue.size() || own.queue.size() >= kMaxQueued;
    std::vector<Point>& points = window.points;
    for (size_t i = 0; i < points.size(); ++i) {
      if (points[i].duration_settled) continue;
      if (i + 1 < points.size()) {
        points[i].duration = Distance(points[i].time, points[i + 1].time);
      } else if (!window.closed) {
        continue;
      } else if (i > 0) {
        points[i].duration = Distance(points[i - 1].time, points[i].time);
      } else if (own.previous_time) {
        points[i].duration = Distance(*own.previous_time, points[i].time);
      }
      points[i].duration_settled = true;
    }
    return window;
  };
  const Window reference = window_of(stream(Side::kReference));
  const Window distorted = window_of(stream(Side::kDistorted));
  const Matcher matcher(reference, distorted, settings_.tolerance_ns);

  const Matcher::Answer pair = matcher.FrontsPair();
  if (pair.verdict == Matcher::Verdict::kYes) return Pair();
  if (pair.verdict == Matcher::Verdict::kOpen) return Need(pair.need);
  const Side earlier =
      reference.points.front().time <= distorted.points.front().time ? Side::kReference : Side::kDistorted;
  const Matcher::Answer first = matcher.FrontHasPartner(earlier);
  if (first.verdict == Matcher::Verdict::kNo) return Unpaired(earlier);
  const Matcher::Answer second = matcher.FrontHasPartner(Other(earlier));
  if (second.verdict == Matcher::Verdict::kNo) return Unpaired(Other(earlier));
  // The later front waits for the earlier side to come near, which decides more than piling up its own side would.
  return Need(second.verdict == Matcher::Verdict::kOpen ? second.need : first.need);
}

void Pairing::FrontChanged(Side side) {
  Stream& own = stream(side);
  if (own.queue.empty() || !own.queue.front().jumps_back) return;
  own.previous_time.reset();
  if (jumped_ == Other(side)) {
    jumped_.reset();
  } else {
    jumped_ = side;
  }
}

void Pairing::Pop(Side side) {
  Stream& own = stream(side);
  if (own.queue.front().time) own.previous_time = own.queue.front().time;
  own.queue.pop_front();
  FrontChanged(side);
}

Decision Pairing::Pair() {
  Decision decision;
  decision.kind = Decision::Kind::kPair;
  decision.reference_index = stream(Side::kReference).queue.front().index;
  decision.distorted_index = stream(Side::kDistorted).queue.front().index;
  Pop(Side::kReference);
  Pop(Side::kDistorted);
  return decision;
}

Decision Pairing::Unpaired(Side side) {
  Decision decision;
  const uint64_t index = stream(side).queue.front().index;
  if (side == Side::kReference) {
    decision.kind = Decision::Kind::kUnpairedReference;
    decision.reference_index = index;
  } else {
    decision.kind = Decision::Kind::kUnpairedDistorted;
    decision.distorted_index = index;
  }
  Pop(side);
  return decision;
}

void Pairing::Reset(Side side) {
  const Stream& other = stream(Other(side));
  Stream fresh;
  fresh.next_ordinal = other.queue.empty() ? other.next_ordinal : other.queue.front().ordinal;
  stream(side) = std::move(fresh);
  settled_mode_.reset();
  jumped_.reset();
}

void Pairing::Reset() {
  Reset(Side::kReference);
  Reset(Side::kDistorted);
}

std::optional<int64_t> Pairing::EstimatedStartOffset() const {
  const Stream& reference = stream(Side::kReference);
  const Stream& distorted = stream(Side::kDistorted);
  for (const Stream* own : {&reference, &distorted}) {
    if (own->start_times.size() < 2 || (own->start_times.size() < kStartFrames && !own->ended)) return std::nullopt;
  }
  const uint64_t duration = std::min(MedianDistance(reference.start_times), MedianDistance(distorted.start_times));
  const auto count = [&](int64_t shift) {
    return CountPairs(reference.start_times, distorted.start_times, shift, duration);
  };
  // Most pairs first, then the least distance left, then the smallest shift.
  const auto better = [](const std::pair<size_t, uint64_t>& a, int64_t a_shift, const std::pair<size_t, uint64_t>& b,
                         int64_t b_shift) {
    if (a.first != b.first) return a.first > b.first;
    if (a.second != b.second) return a.second < b.second;
    return std::make_pair(Distance(a_shift, 0), a_shift) < std::make_pair(Distance(b_shift, 0), b_shift);
  };
  const size_t unshifted = count(0).first;
  int64_t best_shift = 0;
  std::pair<size_t, uint64_t> best = count(0);
  for (int64_t r : reference.start_times) {
    for (int64_t d : distorted.start_times) {
      const std::optional<int64_t> shift = Subtract(d, r);
      if (!shift) continue;
      const std::pair<size_t, uint64_t> counted = count(*shift);
      if (!better(counted, *shift, best, best_shift)) continue;
      best = counted;
      best_shift = *shift;
    }
  }
  // Where frames are missing on either side any shift may happen to pair one more, or a few.
  if (best.first <= unshifted + UnpairedWithin(reference.start_times, distorted.start_times, best_shift, best.first))
    return std::nullopt;
  return best_shift;
}

}  // namespace psnrhvs
