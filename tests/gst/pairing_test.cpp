// The pairing rule: by example, against a matcher that sees both whole streams, and by its promises.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/pairing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <tuple>

#include "tests/fuzz/pairing_ops.h"

namespace psnrhvs::testing {
namespace {

constexpr int64_t kMs = 1000000;
constexpr int64_t kHour = 3600 * 1000 * kMs;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

using Frames = std::vector<FrameTime>;
using Pairs = std::vector<std::pair<uint64_t, uint64_t>>;
using Indices = std::vector<uint64_t>;

Frames WithTimes(const std::vector<int64_t>& times, std::optional<uint64_t> duration) {
  Frames frames;
  for (int64_t time : times) frames.push_back({frames.size(), time, duration});
  return frames;
}

// Frame n at start + n * second * numerator / denominator, rounded down.
Frames AtRate(int count, int64_t numerator, int64_t denominator, int64_t start = 0, bool durations = true) {
  Frames frames;
  const int64_t second = 1000 * kMs;
  for (int n = 0; n < count; ++n) {
    const int64_t time = start + n * second * numerator / denominator;
    std::optional<uint64_t> duration;
    if (durations) duration = (n + 1) * second * numerator / denominator + start - time;
    frames.push_back({static_cast<uint64_t>(n), time, duration});
  }
  return frames;
}

Frames At25(int count, int64_t start = 0) { return AtRate(count, 1, 25, start); }

Frames WithoutTimes(int count) {
  Frames frames(count);
  for (int n = 0; n < count; ++n) frames[n].index = n;
  return frames;
}

struct Outcome {
  Pairs pairs = {};
  Indices unpaired_reference = {};
  Indices unpaired_distorted = {};
  size_t most_queued = 0;  // on one side
  int fallbacks = 0;
  std::string error = {};

  bool operator==(const Outcome& other) const {
    return std::tie(pairs, unpaired_reference, unpaired_distorted, error) ==
           std::tie(other.pairs, other.unpaired_reference, other.unpaired_distorted, other.error);
  }
};

void PrintTo(const Outcome& outcome, std::ostream* out) {
  for (auto [r, d] : outcome.pairs) *out << r << "-" << d << " ";
  for (uint64_t r : outcome.unpaired_reference) *out << "r" << r << " ";
  for (uint64_t d : outcome.unpaired_distorted) *out << "d" << d << " ";
  *out << outcome.error;
}

// Drives a Pairing as the element does: a frame is pushed when it is asked for.
class Driver {
 public:
  Driver(const PairingSettings& settings, Frames reference, Frames distorted)
      : pairing(settings), sources_{std::move(reference), std::move(distorted)} {}

  // One step; false at the end or after an error.
  bool Step(bool deadline_passed = false) {
    decision = pairing.Next(deadline_passed);
    switch (decision.kind) {
      case Decision::Kind::kNeedReference:
        Feed(Side::kReference);
        break;
      case Decision::Kind::kNeedDistorted:
        Feed(Side::kDistorted);
        break;
      case Decision::Kind::kPair:
        outcome.pairs.emplace_back(*decision.reference_index, *decision.distorted_index);
        break;
      case Decision::Kind::kUnpairedReference:
        outcome.unpaired_reference.push_back(*decision.reference_index);
        break;
      case Decision::Kind::kUnpairedDistorted:
        outcome.unpaired_distorted.push_back(*decision.distorted_index);
        break;
      case Decision::Kind::kEnd:
        return false;
      case Decision::Kind::kError:
        outcome.error = decision.error;
        return false;
    }
    if (decision.order_fallback) ++outcome.fallbacks;
    for (Side side : {Side::kReference, Side::kDistorted}) {
      outcome.most_queued = std::max(outcome.most_queued, pairing.queued(side));
    }
    return true;
  }

  Outcome Finish() {
    while (Step()) {
    }
    return outcome;
  }

  Pairing pairing;
  Decision decision;
  Outcome outcome;

 private:
  void Feed(Side side) {
    Frames& source = sources_[static_cast<int>(side)];
    size_t& fed = fed_[static_cast<int>(side)];
    if (fed < source.size()) {
      pairing.Push(side, source[fed++]);
    } else {
      pairing.SetEnded(side, true);
    }
  }

  Frames sources_[2];
  size_t fed_[2] = {0, 0};
};

Outcome PairUp(const Frames& reference, const Frames& distorted, const PairingSettings& settings = {}) {
  return Driver(settings, reference, distorted).Finish();
}

Outcome Swapped(Outcome outcome) {
  for (auto& [r, d] : outcome.pairs) std::swap(r, d);
  std::swap(outcome.unpaired_reference, outcome.unpaired_distorted);
  return outcome;
}

// Expects an outcome, and its mirror image when the sides are swapped.
void ExpectBothWays(const Frames& reference, const Frames& distorted, const Outcome& expected,
                    PairingSettings settings = {}) {
  EXPECT_EQ(PairUp(reference, distorted, settings), expected);
  ASSERT_EQ(settings.dist_offset_ns, 0);
  EXPECT_EQ(PairUp(distorted, reference, settings), Swapped(expected));  // NOLINT: swapped on purpose
}

Indices Range(uint64_t first, uint64_t end, uint64_t step = 1) {
  Indices indices;
  for (uint64_t n = first; n < end; n += step) indices.push_back(n);
  return indices;
}

// reference first..end with distorted first - lag and so on.
Pairs Lockstep(uint64_t first, uint64_t end, uint64_t lag = 0) {
  Pairs pairs;
  for (uint64_t n = first; n < end; ++n) pairs.emplace_back(n, n - lag);
  return pairs;
}

PairingSettings Tolerance(uint64_t tolerance_ns) {
  PairingSettings settings;
  settings.tolerance_ns = tolerance_ns;
  return settings;
}

PairingSettings AlignStart() {
  PairingSettings settings;
  settings.align_start = true;
  return settings;
}

PairingSettings Offset(int64_t offset_ns) {
  PairingSettings settings;
  settings.dist_offset_ns = offset_ns;
  return settings;
}

PairingSettings ByOrder() {
  PairingSettings settings;
  settings.mode = PairingSettings::Mode::kOrder;
  return settings;
}

TEST(Pairing, EqualTimesPairWithoutLookingAhead) {
  const Outcome outcome = PairUp(At25(100), At25(100));
  EXPECT_EQ(outcome, (Outcome{Lockstep(0, 100), {}, {}}));
  EXPECT_EQ(outcome.most_queued, 1u);
}

TEST(Pairing, TimesOfAThousandHoursPairLikeSmallOnes) {
  ExpectBothWays(At25(100, 1000 * kHour), At25(100, 1000 * kHour), {Lockstep(0, 100), {}, {}});
}

TEST(Pairing, AStart400MsLaterPairsWhatOverlaps) {
  ExpectBothWays(At25(50), At25(50, 400 * kMs), {Lockstep(10, 50, 10), Range(0, 10), Range(40, 50)});
}

TEST(Pairing, AlignedStartsPairEverything) {
  ExpectBothWays(At25(50), At25(50, 400 * kMs), {Lockstep(0, 50), {}, {}}, AlignStart());
  ExpectBothWays(At25(50, 7 * kHour), At25(50, -3 * kMs), {Lockstep(0, 50), {}, {}}, AlignStart());
}

TEST(Pairing, TheOffsetIsAddedToDistortedTimes) {
  EXPECT_EQ(PairUp(At25(50), At25(50, 400 * kMs), Offset(-400 * kMs)), (Outcome{Lockstep(0, 50), {}, {}}));
  EXPECT_EQ(PairUp(At25(50, 400 * kMs), At25(50), Offset(400 * kMs)), (Outcome{Lockstep(0, 50), {}, {}}));
}

TEST(Pairing, ALongLeadInIsNotStored) {
  const Outcome late_distorted = PairUp(At25(1100), At25(100, 40000 * kMs));
  EXPECT_EQ(late_distorted, (Outcome{Lockstep(1000, 1100, 1000), Range(0, 1000), {}}));
  EXPECT_EQ(late_distorted.most_queued, 1u);
  const Outcome late_reference = PairUp(At25(100, 40001 * kMs), At25(1100));
  EXPECT_EQ(late_reference.pairs.size(), 100u);
  EXPECT_LE(late_reference.most_queued, 2u);
}

TEST(Pairing, ALongLeadInIsNotStoredWithAToleranceOfSeconds) {
  const Outcome outcome = PairUp(At25(1100), At25(100, 40000 * kMs), Tolerance(5000 * kMs));
  EXPECT_EQ(outcome, (Outcome{Lockstep(1000, 1100, 1000), Range(0, 1000), {}}));
  EXPECT_LE(outcome.most_queued, 2u);
}

TEST(Pairing, OneLostFrameIsUnpairedAndTheRestStaysTogether) {
  Frames distorted = At25(30);
  distorted.erase(distorted.begin() + 7);
  Pairs pairs = Lockstep(0, 30);
  pairs.erase(pairs.begin() + 7);
  ExpectBothWays(At25(30), distorted, {pairs, {7}, {}});
}

TEST(Pairing, TheRestOfALongerSideIsUnpaired) {
  ExpectBothWays(At25(30), At25(20), {Lockstep(0, 20), Range(20, 30), {}});
}

TEST(Pairing, AnEmptySideLeavesEverythingUnpaired) {
  ExpectBothWays(At25(5), {}, {{}, Range(0, 5), {}});
  ExpectBothWays({}, {}, {});
}

TEST(Pairing, DoubleTheRatePairsEverySecondFrame) {
  Pairs pairs;
  for (uint64_t n = 0; n < 50; ++n) pairs.emplace_back(2 * n, n);
  ExpectBothWays(AtRate(100, 1, 50), At25(50), {pairs, Range(1, 100, 2), {}});
}

TEST(Pairing, RateConversionPairsTheNearestFramesOnly) {
  // 30 frames a second against 25: in each 200 ms five against six; of 0 33 67 100 133 167 and 0 40 80 120 160 the
  // reference frame at 100 ms has no one, as 80 is with 67 and 120 with 133.
  ExpectBothWays(WithTimes({0, 33 * kMs, 67 * kMs, 100 * kMs, 133 * kMs, 167 * kMs}, 33 * kMs),
                 WithTimes({0, 40 * kMs, 80 * kMs, 120 * kMs, 160 * kMs}, 40 * kMs),
                 {{{0, 0}, {1, 1}, {2, 2}, {4, 3}, {5, 4}}, {3}, {}});
}

TEST(Pairing, TimesRoundedToMillisecondsPairWithExactOnes) {
  for (const auto& [numerator, denominator] : {std::pair{1, 30}, {1001, 30000}, {1001, 60000}, {1001, 24000}}) {
    const Frames exact = AtRate(3000, numerator, denominator);
    for (bool up : {false, true}) {
      for (bool durations : {false, true}) {
        SCOPED_TRACE(::testing::Message() << numerator << "/" << denominator << up << durations);
        Frames rounded = exact;
        for (FrameTime& frame : rounded) {
          *frame.running_time_ns = (*frame.running_time_ns + (up ? kMs / 2 : 0)) / kMs * kMs;
          if (!durations) frame.duration_ns.reset();
        }
        ExpectBothWays(exact, rounded, {Lockstep(0, 3000), {}, {}});
        EXPECT_LE(PairUp(exact, rounded).most_queued, 2u);
      }
    }
  }
}

TEST(Pairing, OffsetsUnderHalfAFramePairAndLargerOnesSlipByWholeFrames) {
  ExpectBothWays(At25(50), At25(50, 10 * kMs), {Lockstep(0, 50), {}, {}});
  ExpectBothWays(At25(50), At25(50, 20 * kMs - 1), {Lockstep(0, 50), {}, {}});
  ExpectBothWays(At25(50), At25(50, 21 * kMs), {Lockstep(1, 50, 1), {0}, {49}});
  ExpectBothWays(At25(50), At25(50, 39 * kMs), {Lockstep(1, 50, 1), {0}, {49}});
  ExpectBothWays(At25(50), At25(50, 80 * kMs), {Lockstep(2, 50, 2), {0, 1}, {48, 49}});
}

TEST(Pairing, ExactlyHalfAFrameApartIsNotPaired) {
  ExpectBothWays(At25(20), At25(20, 20 * kMs), {{}, Range(0, 20), Range(0, 20)});
  ExpectBothWays(WithTimes({0}, 3), WithTimes({1}, 3), {{{0, 0}}, {}, {}});
  ExpectBothWays(WithTimes({0}, 2), WithTimes({1}, 2), {{}, {0}, {0}});
}

TEST(Pairing, TheShorterDurationLimitsTheReach) {
  ExpectBothWays(WithTimes({0}, 40), WithTimes({9}, 20), {{{0, 0}}, {}, {}});
  ExpectBothWays(WithTimes({0}, 40), WithTimes({10}, 20), {{}, {0}, {0}});
}

TEST(Pairing, AToleranceIsInclusiveAndReplacesDurations) {
  ExpectBothWays(WithTimes({0}, 1), WithTimes({50}, 1), {{{0, 0}}, {}, {}}, Tolerance(50));
  ExpectBothWays(WithTimes({0}, 1000), WithTimes({51}, 1000), {{}, {0}, {0}}, Tolerance(50));
}

TEST(Pairing, AToleranceOfZeroPairsEqualTimesOnly) {
  ExpectBothWays(WithTimes({0, 40, 80}, 40), WithTimes({0, 41, 80}, 40), {{{0, 0}, {2, 2}}, {1}, {1}}, Tolerance(0));
}

TEST(Pairing, OfSeveralWithinReachTheNearestIsTaken) {
  ExpectBothWays(WithTimes({0, 40}, 40), WithTimes({25, 41}, 40), {{{1, 1}}, {0}, {0}}, Tolerance(18));
  ExpectBothWays(WithTimes({10}, 40), WithTimes({0, 6, 9, 13}, 40), {{{0, 2}}, {}, {0, 1, 3}}, Tolerance(20));
}

TEST(Pairing, OfTwoEquallyNearTheEarlierIsTaken) {
  ExpectBothWays(WithTimes({10}, 40), WithTimes({0, 20}, 40), {{{0, 0}}, {}, {1}});
  ExpectBothWays(WithTimes({10, 30}, 40), WithTimes({0, 20}, 40), {{{0, 0}, {1, 1}}, {}, {}});
  ExpectBothWays(WithTimes({5, 5}, 40), WithTimes({5}, 40), {{{0, 0}}, {1}, {}});
}

TEST(Pairing, ANearerPartnerThatIsTakenLeavesTheNextNearest) {
  ExpectBothWays(WithTimes({0, 20}, 40), WithTimes({-15, 12}, 40), {{{0, 0}, {1, 1}}, {}, {}}, Tolerance(20));
  // Each is nearer to the next than to the one before, so that the last one decides about the first.
  ExpectBothWays(WithTimes({0, 19, 34}, 40), WithTimes({10, 27, 40}, 40), {Lockstep(0, 3), {}, {}}, Tolerance(10));
  ExpectBothWays(WithTimes({0, 19, 34}, 40), WithTimes({10, 27}, 40), {{{1, 0}, {2, 1}}, {0}, {}}, Tolerance(10));
}

TEST(Pairing, PairsDoNotCross) {
  ExpectBothWays(WithTimes({0, 20}, 40), WithTimes({21, 30}, 40), {{{1, 0}}, {0}, {1}}, Tolerance(50));
}

TEST(Pairing, JitterUnderHalfAFrameKeepsFramesTogether) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int64_t> jitter(-9 * kMs, 9 * kMs);
  Frames reference = At25(1000);
  Frames distorted = At25(1000);
  for (FrameTime& frame : reference) *frame.running_time_ns += jitter(random);
  for (FrameTime& frame : distorted) *frame.running_time_ns += jitter(random);
  ExpectBothWays(reference, distorted, {Lockstep(0, 1000), {}, {}});
}

TEST(Pairing, VariableFrameRatePairsByTheFramesOwnDurations) {
  Frames reference;
  Frames distorted;
  std::mt19937 random(2);
  int64_t time = 0;
  Outcome expected;
  for (uint64_t n = 0; n < 500; ++n) {
    const int64_t duration = std::uniform_int_distribution<int64_t>(5 * kMs, 500 * kMs)(random);
    reference.push_back({n, time, duration});
    if (random() % 4) {
      expected.pairs.emplace_back(n, distorted.size());
      distorted.push_back({distorted.size(), time + 2 * kMs, duration});
    } else {
      expected.unpaired_reference.push_back(n);
    }
    time += duration;
  }
  ExpectBothWays(reference, distorted, expected);
}

TEST(Pairing, AFrameWithoutDurationLastsUntilTheNextOfItsSide) {
  ExpectBothWays(WithTimes({0, 40, 80, 120}, std::nullopt), WithTimes({19, 59, 99, 139}, std::nullopt),
                 {Lockstep(0, 4), {}, {}});
  ExpectBothWays(WithTimes({0, 40, 80, 120}, std::nullopt), WithTimes({20, 60, 100, 140}, std::nullopt),
                 {{}, Range(0, 4), Range(0, 4)});
  ExpectBothWays(WithTimes({0, 40, 80, 120}, 0), WithTimes({19, 59, 99, 139}, 40), {Lockstep(0, 4), {}, {}});
}

TEST(Pairing, TheOtherSidesDurationCountsIfOneIsUnknowable) {
  ExpectBothWays(WithTimes({0}, std::nullopt), WithTimes({9}, 20), {{{0, 0}}, {}, {}});
  ExpectBothWays(WithTimes({0}, std::nullopt), WithTimes({10}, 20), {{}, {0}, {0}});
}

TEST(Pairing, WithoutAnyDurationOnlyEqualTimesPair) {
  ExpectBothWays(WithTimes({5}, std::nullopt), WithTimes({5}, std::nullopt), {{{0, 0}}, {}, {}});
  ExpectBothWays(WithTimes({5}, std::nullopt), WithTimes({6}, std::nullopt), {{}, {0}, {0}});
}

TEST(Pairing, AFrameWithoutTimeInATimedStreamIsUnpaired) {
  for (size_t untimed : {0u, 1u, 5u, 9u}) {
    Frames reference = At25(10);
    reference[untimed].running_time_ns.reset();
    Pairs pairs = Lockstep(0, 10);
    pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(untimed));
    ExpectBothWays(reference, At25(10), {pairs, {untimed}, {untimed}});
  }
}

TEST(Pairing, StreamsWithoutTimesPairByArrivalAndSaySoOnce) {
  const Outcome outcome = PairUp(WithoutTimes(10), WithoutTimes(8));
  EXPECT_EQ(outcome, (Outcome{Lockstep(0, 8), {8, 9}, {}}));
  EXPECT_EQ(outcome.fallbacks, 1);
  EXPECT_EQ(PairUp(WithoutTimes(1), WithoutTimes(1)), (Outcome{{{0, 0}}, {}, {}}));
}

TEST(Pairing, TimesOnOneSideOnlyAreAnErrorThatNamesTheSide) {
  const Outcome distorted = PairUp(At25(10), WithoutTimes(10));
  EXPECT_TRUE(distorted.pairs.empty());
  EXPECT_NE(distorted.error.find("The distorted input carries no timestamps"), std::string::npos) << distorted.error;
  EXPECT_NE(distorted.error.find("pairing=order"), std::string::npos);
  const Outcome reference = PairUp(WithoutTimes(10), At25(10));
  EXPECT_NE(reference.error.find("The reference input carries no timestamps"), std::string::npos) << reference.error;
}

TEST(Pairing, ByOrderTimesDoNotMatter) {
  const Outcome outcome = PairUp(At25(10, kHour), At25(12), ByOrder());
  EXPECT_EQ(outcome, (Outcome{Lockstep(0, 10), {}, {10, 11}}));
  EXPECT_EQ(outcome.fallbacks, 0);
  EXPECT_EQ(PairUp(At25(3), WithoutTimes(3), ByOrder()), (Outcome{Lockstep(0, 3), {}, {}}));
}

TEST(Pairing, ByOrderAFrameGivenUpLeavesItsPartnerUnpaired) {
  Pairing pairing(ByOrder());
  pairing.Push(Side::kReference, {0, {}, {}});
  EXPECT_EQ(pairing.Next(false).kind, Decision::Kind::kNeedDistorted);
  EXPECT_EQ(pairing.Next(true).kind, Decision::Kind::kUnpairedReference);
  pairing.Push(Side::kReference, {1, {}, {}});
  pairing.Push(Side::kDistorted, {0, {}, {}});
  EXPECT_EQ(pairing.Next(false).kind, Decision::Kind::kUnpairedDistorted);
  pairing.Push(Side::kDistorted, {1, {}, {}});
  EXPECT_EQ(pairing.Next(false).kind, Decision::Kind::kPair);
}

TEST(Pairing, ByOrderAFlushOfOneSideRestartsTheCount) {
  Driver driver(ByOrder(), At25(20), At25(20));
  while (driver.outcome.pairs.size() < 5) ASSERT_TRUE(driver.Step());
  driver.pairing.Reset(Side::kDistorted);
  const Outcome outcome = driver.Finish();
  EXPECT_EQ(outcome, (Outcome{Lockstep(0, 20), {}, {}}));
}

TEST(Pairing, TheDeadlineGivesUpAReferenceFrameWithoutPartner) {
  Pairing pairing({});
  EXPECT_EQ(pairing.Next(true).kind, Decision::Kind::kNeedReference);
  pairing.Push(Side::kReference, At25(1)[0]);
  EXPECT_EQ(pairing.Next(false).kind, Decision::Kind::kNeedDistorted);
  EXPECT_EQ(pairing.Next(true).kind, Decision::Kind::kUnpairedReference);
  EXPECT_EQ(pairing.queued(Side::kReference), 0u);
  // The partner comes too late, and goes alone; the next pair is made at once.
  pairing.Push(Side::kReference, At25(2)[1]);
  pairing.Push(Side::kDistorted, At25(1)[0]);
  EXPECT_EQ(pairing.Next(false).kind, Decision::Kind::kUnpairedDistorted);
  pairing.Push(Side::kDistorted, At25(2)[1]);
  EXPECT_EQ(pairing.Next(false).kind, Decision::Kind::kPair);
}

TEST(Pairing, TheDeadlineTakesThePartnerInHand) {
  Pairing pairing({});
  pairing.Push(Side::kReference, At25(1)[0]);
  pairing.Push(Side::kDistorted, At25(1, 5 * kMs)[0]);
  EXPECT_EQ(pairing.Next(false).kind, Decision::Kind::kNeedReference);
  EXPECT_EQ(pairing.Next(true).kind, Decision::Kind::kPair);
}

TEST(Pairing, TheDeadlineDoesNotGiveUpADistortedFrame) {
  Pairing pairing({});
  pairing.Push(Side::kDistorted, At25(1)[0]);
  EXPECT_EQ(pairing.Next(true).kind, Decision::Kind::kNeedReference);
  pairing.Push(Side::kReference, At25(1)[0]);
  EXPECT_EQ(pairing.Next(true).kind, Decision::Kind::kPair);
}

// Frames of the given runs, each a list of times in ms, 40 ms long.
Frames Runs(const std::vector<std::vector<int64_t>>& runs) {
  Frames frames;
  for (const auto& run : runs) {
    for (int64_t time : run) frames.push_back({frames.size(), time * kMs, 40 * kMs});
  }
  return frames;
}

TEST(Pairing, WhenBothSidesJumpBackRunsPairInStep) {
  const Frames twice = Runs({{0, 40, 80}, {0, 40, 80}});
  ExpectBothWays(twice, twice, {Lockstep(0, 6), {}, {}});
  // A frame lost before the jump, after it, and at it.
  ExpectBothWays(twice, Runs({{0, 40}, {0, 40, 80}}), {{{0, 0}, {1, 1}, {3, 2}, {4, 3}, {5, 4}}, {2}, {}});
  ExpectBothWays(twice, Runs({{0, 40, 80}, {40, 80}}), {{{0, 0}, {1, 1}, {2, 2}, {4, 3}, {5, 4}}, {3}, {}});
  // Slightly shifted, so that every decision looks ahead.
  ExpectBothWays(twice, Runs({{3, 43, 83}, {3, 43, 83}}), {Lockstep(0, 6), {}, {}});
}

TEST(Pairing, WhenOneSideJumpsBackItsFramesArePairedByTime) {
  ExpectBothWays(Runs({{0, 40, 80, 120, 160, 200}}), Runs({{0, 40, 80}, {40, 80, 120, 160, 200}}),
                 {{{0, 0}, {1, 1}, {2, 2}, {3, 5}, {4, 6}, {5, 7}}, {}, {3, 4}});
}

TEST(Pairing, AnEndlessStreamThatJumpsBackOnOneSideIsNotStored) {
  std::vector<std::vector<int64_t>> loops(200, {0, 40, 80, 120});
  Frames steady = At25(800);
  const Outcome outcome = PairUp(steady, Runs(loops));
  EXPECT_EQ(outcome.pairs, Lockstep(0, 4));
  EXPECT_EQ(outcome.unpaired_reference.size() + outcome.pairs.size(), 800u);
  EXPECT_EQ(outcome.unpaired_distorted.size() + outcome.pairs.size(), 800u);
  EXPECT_LE(outcome.most_queued, 3u);
}

TEST(Pairing, FramesThatAllHaveOneTimeStayBounded) {
  const Outcome outcome =
      PairUp(WithTimes(std::vector<int64_t>(500, 0), 40), WithTimes(std::vector<int64_t>(500, 5), 40));
  EXPECT_LE(outcome.most_queued, Pairing::kMaxQueued);
  EXPECT_EQ(outcome.pairs, Lockstep(0, 500));
}

TEST(Pairing, TimesAtTheEndsOfTheRangeDoNotOverflow) {
  ExpectBothWays(WithTimes({kMin, kMax - 1}, 40), WithTimes({kMin + 19, kMax}, 40), {Lockstep(0, 2), {}, {}});
  ExpectBothWays(WithTimes({kMin}, ~uint64_t{0}), WithTimes({kMax}, ~uint64_t{0}), {{}, {0}, {0}});
  ExpectBothWays(WithTimes({kMin}, 1), WithTimes({kMax}, 1), {{{0, 0}}, {}, {}}, Tolerance(~uint64_t{0}));
  // A time that an offset takes out of the range is none.
  EXPECT_EQ(PairUp(WithTimes({0, kMax}, 40), WithTimes({0, kMax}, 40), Offset(1)), (Outcome{{{0, 0}}, {1}, {1}}));
  EXPECT_EQ(PairUp(WithTimes({kMin, kMax}, 40), WithTimes({kMin, kMax}, 40), AlignStart()),
            (Outcome{{{0, 0}}, {1}, {1}}));
}

TEST(Pairing, AFlushForgetsQueuedFramesAndEnds) {
  Pairing pairing(AlignStart());
  pairing.Push(Side::kReference, At25(1, kHour)[0]);
  pairing.SetEnded(Side::kReference, true);
  pairing.SetEnded(Side::kDistorted, true);
  pairing.Reset();
  EXPECT_EQ(pairing.queued(Side::kReference), 0u);
  EXPECT_EQ(pairing.Next(false).kind, Decision::Kind::kNeedReference);
  // Starts are aligned anew, to earlier times than before.
  pairing.Push(Side::kReference, {0, 5, 40});
  pairing.Push(Side::kDistorted, {0, 900, 40});
  EXPECT_EQ(pairing.Next(false).kind, Decision::Kind::kPair);
}

TEST(Pairing, AFlushOfOneSideKeepsTheOther) {
  Pairing pairing({});
  pairing.Push(Side::kReference, At25(1)[0]);
  pairing.Push(Side::kDistorted, At25(1, 10 * kMs)[0]);
  pairing.Reset(Side::kDistorted);
  EXPECT_EQ(pairing.queued(Side::kReference), 1u);
  EXPECT_EQ(pairing.Next(false).kind, Decision::Kind::kNeedDistorted);
  pairing.Push(Side::kDistorted, At25(1)[0]);
  EXPECT_EQ(pairing.Next(false).kind, Decision::Kind::kPair);
}

std::optional<int64_t> Estimate(const Frames& reference, const Frames& distorted, const PairingSettings& settings) {
  Driver driver(settings, reference, distorted);
  driver.Finish();
  return driver.pairing.EstimatedStartOffset();
}

TEST(Pairing, TheStartOffsetIsEstimatedAndNotApplied) {
  EXPECT_EQ(Estimate(At25(50), At25(50, 400 * kMs), {}), 400 * kMs);
  EXPECT_EQ(Estimate(At25(50, 400 * kMs), At25(50), {}), -400 * kMs);
  EXPECT_EQ(Estimate(At25(50), At25(50, 413 * kMs), {}), 413 * kMs);
  EXPECT_EQ(Estimate(At25(1100), At25(100, 40000 * kMs), {}), 40000 * kMs);
  EXPECT_EQ(Estimate(At25(5), At25(5, 80 * kMs), {}), 80 * kMs);
  EXPECT_EQ(PairUp(At25(50), At25(50, 400 * kMs)).pairs, Lockstep(10, 50, 10));
}

TEST(Pairing, NoStartOffsetIsReportedWhereNoneHelps) {
  EXPECT_EQ(Estimate(At25(50), At25(50), {}), std::nullopt);
  EXPECT_EQ(Estimate(At25(50), At25(50, 10 * kMs), {}), std::nullopt);
  EXPECT_EQ(Estimate(At25(50), At25(50, 400 * kMs), Offset(-400 * kMs)), std::nullopt);
  EXPECT_EQ(Estimate(At25(50), At25(50, 400 * kMs), AlignStart()), std::nullopt);
  EXPECT_EQ(Estimate(WithoutTimes(50), WithoutTimes(50), {}), std::nullopt);
  EXPECT_EQ(Estimate(At25(1), At25(1, 400 * kMs), {}), std::nullopt);
}

// The frames whose numbers, by `period`, are not `phase`.
Frames Without(const Frames& frames, size_t phase, size_t period) {
  Frames kept;
  for (size_t n = 0; n < frames.size(); ++n) {
    if (n % period != phase) kept.push_back(frames[n]);
  }
  return kept;
}

TEST(Pairing, LostFramesLookLikeNoStartOffset) {
  for (size_t period : {2, 3, 7}) {
    for (size_t phase = 0; phase < period; ++phase) {
      const Frames all = At25(200), some = Without(all, phase, period);
      EXPECT_EQ(Estimate(all, some, {}), std::nullopt) << phase << " of " << period;
      EXPECT_EQ(Estimate(some, all, {}), std::nullopt) << phase << " of " << period;
    }
  }
  EXPECT_EQ(Estimate(At25(50), Without(At25(50, 400 * kMs), 7, 50), {}), 400 * kMs);
}

// The rule as it is stated, by a program that sees both whole streams: the nearest pair that crosses none made before,
// again and again.
Outcome MatchOffline(const Frames& reference, const Frames& distorted, std::optional<uint64_t> tolerance) {
  const auto duration = [](const Frames& frames, size_t n) -> int64_t {
    if (frames[n].duration_ns) return static_cast<int64_t>(*frames[n].duration_ns);
    if (n + 1 < frames.size()) return *frames[n + 1].running_time_ns - *frames[n].running_time_ns;
    return n > 0 ? *frames[n].running_time_ns - *frames[n - 1].running_time_ns : -1;
  };
  std::vector<std::tuple<int64_t, size_t, size_t>> candidates;
  for (size_t r = 0; r < reference.size(); ++r) {
    for (size_t d = 0; d < distorted.size(); ++d) {
      const int64_t distance = std::abs(*reference[r].running_time_ns - *distorted[d].running_time_ns);
      int64_t shorter = duration(reference, r);
      const int64_t other = duration(distorted, d);
      if (shorter < 0 || (other >= 0 && other < shorter)) shorter = other;
      const bool reached =
          tolerance ? distance <= static_cast<int64_t>(*tolerance) : distance == 0 || 2 * distance < shorter;
      if (reached) candidates.emplace_back(distance, r, d);
    }
  }
  std::sort(candidates.begin(), candidates.end());
  Outcome outcome;
  for (const auto& [distance, r, d] : candidates) {
    const bool free = std::none_of(outcome.pairs.begin(), outcome.pairs.end(), [r = r, d = d](const auto& pair) {
      return (pair.first <= r && pair.second >= d) || (pair.first >= r && pair.second <= d);
    });
    if (free) outcome.pairs.emplace_back(r, d);
  }
  std::sort(outcome.pairs.begin(), outcome.pairs.end());
  outcome.unpaired_reference = Range(0, reference.size());
  outcome.unpaired_distorted = Range(0, distorted.size());
  for (const auto& [r, d] : outcome.pairs) {
    const auto drop = [](Indices& from, uint64_t n) { from.erase(std::find(from.begin(), from.end(), n)); };
    drop(outcome.unpaired_reference, r);
    drop(outcome.unpaired_distorted, d);
  }
  return outcome;
}

class RandomStreams : public ::testing::Test {
 protected:
  int64_t Draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  // Up to 12 frames, `least` to `most` apart.
  Frames Draw(int64_t least, int64_t most, std::optional<uint64_t> duration) {
    Frames frames;
    int64_t time = Draw(0, 2 * most);
    for (int64_t n = Draw(0, 12); n > 0; --n) {
      frames.push_back({frames.size(), time, duration});
      time += Draw(least, most);
    }
    return frames;
  }

  static void ExpectAsOffline(const Frames& reference, const Frames& distorted,
                              std::optional<uint64_t> tolerance = std::nullopt) {
    PairingSettings settings;
    settings.tolerance_ns = tolerance;
    const Outcome outcome = PairUp(reference, distorted, settings);
    if (outcome == MatchOffline(reference, distorted, tolerance)) return;
    ::testing::Message trace;
    trace << "tolerance " << (tolerance ? static_cast<int64_t>(*tolerance) : -1);
    for (const Frames* frames : {&reference, &distorted}) {
      trace << "\n";
      for (const FrameTime& frame : *frames) {
        trace << " " << *frame.running_time_ns;
        if (frame.duration_ns) trace << "+" << *frame.duration_ns;
      }
    }
    SCOPED_TRACE(trace);
    EXPECT_EQ(outcome, MatchOffline(reference, distorted, tolerance));
  }

  std::mt19937 random_{20};
};

constexpr int kRandomCases = 20000;

TEST_F(RandomStreams, WithAToleranceMatchAsAWhole) {
  for (int i = 0; i < kRandomCases && !HasFailure(); ++i) {
    const int64_t most = Draw(1, 40);
    ExpectAsOffline(Draw(0, most, 5), Draw(0, Draw(1, 40), 5), Draw(0, 40));
  }
}

TEST_F(RandomStreams, WithJitterAndFixedDurationsMatchAsAWhole) {
  for (int i = 0; i < kRandomCases && !HasFailure(); ++i) {
    ExpectAsOffline(Draw(1, 60, Draw(1, 80)), Draw(1, 60, Draw(1, 80)));
  }
}

TEST_F(RandomStreams, WithoutDurationsMatchAsAWhole) {
  for (int i = 0; i < kRandomCases && !HasFailure(); ++i) {
    const int64_t least = Draw(1, 30);
    ExpectAsOffline(Draw(least, 40, {}),
                    Draw(1, 40, random_() % 2 ? std::optional<uint64_t>(Draw(1, 80)) : std::nullopt));
  }
}

TEST_F(RandomStreams, WithADurationForEachFrameMatchAsAWhole) {
  for (int i = 0; i < kRandomCases && !HasFailure(); ++i) {
    Frames reference = Draw(1, 40, 1);
    Frames distorted = Draw(1, 40, 1);
    for (FrameTime& frame : reference) frame.duration_ns = Draw(1, 80);
    for (FrameTime& frame : distorted) frame.duration_ns = Draw(1, 80);
    ExpectAsOffline(reference, distorted);
  }
}

TEST_F(RandomStreams, OperationsInAnyOrderKeepThePromises) {
  for (int i = 0; i < kRandomCases; ++i) {
    std::vector<uint8_t> bytes(Draw(0, 300));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_());
    ASSERT_EQ(CheckPairingOperations(bytes.data(), bytes.size()), "") << "case " << i;
  }
}

}  // namespace
}  // namespace psnrhvs::testing
