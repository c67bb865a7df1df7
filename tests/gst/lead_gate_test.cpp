// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/lead_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

namespace psnrhvs {
namespace {

using std::chrono::milliseconds;

constexpr GstClockTime kNever = 0;
constexpr GstClockTime kSoon = 50 * GST_MSECOND;

LeadSettings Lead(guint frames, GstClockTime time, GstClockTime stall_timeout) { return {frames, time, stall_timeout}; }

// An Admit in a thread of its own.
class Waiting {
 public:
  Waiting(LeadGate* gate, Side side, std::optional<gint64> time)
      : admitted_(std::async(std::launch::async, [=] { return gate->Admit(side, time); })) {}
  bool waits() const { return admitted_.wait_for(milliseconds(150)) == std::future_status::timeout; }
  bool Get() { return admitted_.get(); }

 private:
  std::future<bool> admitted_;
};

TEST(LeadGate, LetsOneInputRunAheadByTheNumberOfFramesAndNoFurther) {
  LeadGate gate(Lead(5, GST_SECOND, kNever));
  for (int n = 0; n < 5; ++n) ASSERT_TRUE(gate.Admit(Side::kReference, n));
  EXPECT_EQ(gate.Queued(Side::kReference), 5u);
  Waiting sixth(&gate, Side::kReference, 5);
  EXPECT_TRUE(sixth.waits());
  gate.Release(Side::kReference);
  EXPECT_TRUE(sixth.Get());
  EXPECT_EQ(gate.Queued(Side::kReference), 5u);
}

TEST(LeadGate, LetsOneInputRunAheadByTheTimeAndNoFurther) {
  LeadGate gate(Lead(1000, 100, kNever));
  ASSERT_TRUE(gate.Admit(Side::kDistorted, 1000));
  ASSERT_TRUE(gate.Admit(Side::kDistorted, 1099));
  Waiting late(&gate, Side::kDistorted, 1100);
  EXPECT_TRUE(late.waits());
  gate.Release(Side::kDistorted);  // the oldest is 1099 now
  EXPECT_TRUE(late.Get());
}

TEST(LeadGate, BoundsFramesWithoutTimesByTheirNumber) {
  LeadGate gate(Lead(3, 1, kNever));
  for (int n = 0; n < 3; ++n) ASSERT_TRUE(gate.Admit(Side::kReference, std::nullopt));
  Waiting fourth(&gate, Side::kReference, std::nullopt);
  EXPECT_TRUE(fourth.waits());
  gate.Suspend(Side::kReference);
  EXPECT_TRUE(fourth.Get());
}

TEST(LeadGate, HoldsAnInputBackAtFourFramesWhenTheOtherHasSomeOrHasEnded) {
  for (bool ended : {false, true}) {
    LeadGate gate(Lead(100, GST_SECOND, kNever));
    if (ended) {
      gate.SetEnded(Side::kDistorted, true);
    } else {
      ASSERT_TRUE(gate.Admit(Side::kDistorted, 0));
    }
    for (int n = 0; n < 4; ++n) ASSERT_TRUE(gate.Admit(Side::kReference, n));
    Waiting fifth(&gate, Side::kReference, 4);
    EXPECT_TRUE(fifth.waits()) << ended;
    gate.Release(Side::kReference);
    EXPECT_TRUE(fifth.Get()) << ended;
  }
}

TEST(LeadGate, LetsAnInputRunAheadWhileTheOtherNeedsFurtherFrames) {
  LeadGate gate(Lead(8, GST_SECOND, kSoon));
  ASSERT_TRUE(gate.Admit(Side::kReference, 0));
  gate.SetNeeded(Side::kReference);
  for (int n = 0; n < 8; ++n) ASSERT_TRUE(gate.Admit(Side::kDistorted, n));
  EXPECT_FALSE(gate.Admit(Side::kDistorted, 8));  // and that is a stall
}

TEST(LeadGate, LetsInTheOneBufferThatTheNextDecisionNeeds) {
  for (guint frames : {1u, 100u}) {
    LeadGate gate(Lead(frames, 10, kSoon));
    ASSERT_TRUE(gate.Admit(Side::kReference, 0));
    for (size_t n = 0; n < Pairing::kMaxQueued; ++n) {
      gate.SetNeeded(Side::kDistorted);
      ASSERT_TRUE(gate.Admit(Side::kDistorted, static_cast<gint64>(10 * n))) << n;
      gate.SetBusy(true);
      gate.SetBusy(false);
    }
    gate.SetNeeded(Side::kDistorted);
    ASSERT_TRUE(gate.Admit(Side::kDistorted, 1000));
    Waiting another(&gate, Side::kDistorted, 1001);
    EXPECT_TRUE(another.waits());
    gate.Suspend(Side::kDistorted);
    EXPECT_TRUE(another.Get());
  }
}

TEST(LeadGate, TellsOnceThatEverythingWaitsForAFrame) {
  const auto after_a_while = [](LeadGate* gate) {
    std::this_thread::sleep_for(milliseconds(80));
    return gate->NewStandstill();
  };
  LeadGate gate(Lead(5, GST_SECOND, kSoon));
  EXPECT_EQ(after_a_while(&gate), std::nullopt);  // nothing has begun
  ASSERT_TRUE(gate.Admit(Side::kReference, 0));
  EXPECT_EQ(gate.NewStandstill(), std::nullopt);  // not yet
  EXPECT_EQ(after_a_while(&gate), Side::kDistorted);
  EXPECT_EQ(after_a_while(&gate), std::nullopt);
  ASSERT_TRUE(gate.Admit(Side::kDistorted, 0));
  gate.SetNeeded(Side::kReference);
  EXPECT_EQ(after_a_while(&gate), Side::kReference);
  gate.SetBusy(true);
  EXPECT_EQ(after_a_while(&gate), std::nullopt);
  gate.Release(Side::kReference);
  gate.Release(Side::kDistorted);
  gate.SetBusy(false);
  gate.SetNeeded(Side::kReference);
  EXPECT_EQ(after_a_while(&gate), std::nullopt);  // both have nothing
  gate.SetEnded(Side::kDistorted, true);
  EXPECT_EQ(after_a_while(&gate), Side::kReference);
  gate.SetEnded(Side::kReference, true);
  EXPECT_EQ(after_a_while(&gate), std::nullopt);
  EXPECT_NE(gate.StandstillText(Side::kReference).find("nothing has come to ref_sink for 0.05 s"), std::string::npos);
}

TEST(LeadGate, TellsOfNoStandstillThatIsAllowedOrThatAdmitHasTold) {
  for (int i = 0; i < 4; ++i) {
    LeadGate gate(Lead(1, GST_SECOND, i == 0 ? kNever : kSoon));
    ASSERT_TRUE(gate.Admit(Side::kReference, 0));
    gate.SetLive(i == 1);
    if (i == 2) gate.NoteOutput();  // and paused
    if (i == 3) {
      EXPECT_FALSE(gate.Admit(Side::kReference, 1));
    }
    std::this_thread::sleep_for(milliseconds(80));
    EXPECT_EQ(gate.NewStandstill(), std::nullopt) << i;
  }
}

TEST(LeadGate, CallsItAStallWhenTheBoundHoldsForTheTimeoutAndNamesTheSettings) {
  LeadGate gate(Lead(1, GST_SECOND, kSoon));
  ASSERT_TRUE(gate.Admit(Side::kReference, 0));
  EXPECT_FALSE(gate.Admit(Side::kReference, 1));
  const std::string text = gate.StallText(Side::kReference);
  for (const char* word : {"ref_sink", "dist_sink", "max-lead-frames", "max-lead-time", "stall-timeout", "queue"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
  }
}

TEST(LeadGate, SeesNoStallWhileTheElementIsBusyOrLive) {
  for (bool live : {false, true}) {
    LeadGate gate(Lead(1, GST_SECOND, kSoon));
    gate.SetLive(live);
    gate.SetBusy(!live);
    ASSERT_TRUE(gate.Admit(Side::kReference, 0));
    Waiting second(&gate, Side::kReference, 1);
    EXPECT_TRUE(second.waits()) << live;
    gate.Release(Side::kReference);
    EXPECT_TRUE(second.Get()) << live;
  }
}

TEST(LeadGate, SeesNoStallInAPausedPipelineThatHasShownItsFirstFrame) {
  LeadGate gate(Lead(1, GST_SECOND, kSoon));
  gate.SetPlaying(true);
  gate.SetPlaying(false);
  gate.NoteOutput();
  ASSERT_TRUE(gate.Admit(Side::kReference, 0));
  Waiting second(&gate, Side::kReference, 1);
  EXPECT_TRUE(second.waits());
  gate.SetPlaying(true);
  EXPECT_FALSE(second.Get());
}

TEST(LeadGate, SeesAStallInAPausedPipelineThatWaitsForItsFirstFrame) {
  LeadGate gate(Lead(1, GST_SECOND, kSoon));
  ASSERT_TRUE(gate.Admit(Side::kReference, 0));
  EXPECT_FALSE(gate.Admit(Side::kReference, 1));
}

TEST(LeadGate, TakesTheLongestTimeoutAsItIs) {
  LeadGate gate(Lead(1, GST_SECOND, static_cast<GstClockTime>(G_MAXINT64)));
  ASSERT_TRUE(gate.Admit(Side::kReference, 0));
  Waiting second(&gate, Side::kReference, 1);
  EXPECT_TRUE(second.waits());
  gate.Release(Side::kReference);
  EXPECT_TRUE(second.Get());
}

TEST(LeadGate, HoldsNothingBackAnyMoreOnceItIsStopped) {
  LeadGate gate(Lead(1, GST_SECOND, kNever));
  ASSERT_TRUE(gate.Admit(Side::kReference, 0));
  ASSERT_TRUE(gate.Admit(Side::kDistorted, 0));
  Waiting second(&gate, Side::kReference, 1);
  gate.Stop();
  EXPECT_TRUE(second.Get());
  // The beginning of a stream and the end of a flush that are seen late.
  gate.SetEnded(Side::kReference, false);
  gate.Resume(Side::kDistorted);
  for (int n = 0; n < 10; ++n) {
    ASSERT_TRUE(gate.Admit(Side::kReference, n));
    ASSERT_TRUE(gate.Admit(Side::kDistorted, n));
  }
}

TEST(LeadGate, HoldsNothingBackOnceTheRunIsOverUntilAStreamBegins) {
  LeadGate gate(Lead(2, GST_SECOND, kNever));
  gate.SetOver();
  for (int n = 0; n < 5; ++n) ASSERT_TRUE(gate.Admit(Side::kReference, n));
  gate.SetEnded(Side::kReference, false);
  Waiting bounded(&gate, Side::kReference, 5);
  EXPECT_TRUE(bounded.waits());
  gate.SetOver();
  EXPECT_TRUE(bounded.Get());
}

TEST(LeadGate, LetsEverythingThroughDuringAFlushWhateverBeginsMeanwhile) {
  LeadGate gate(Lead(1, GST_SECOND, kNever));
  gate.Suspend(Side::kReference);
  gate.SetEnded(Side::kReference, false);
  for (int n = 0; n < 5; ++n) ASSERT_TRUE(gate.Admit(Side::kReference, n));
}

TEST(LeadGate, ForgetsTheFramesOfAFlushedInput) {
  LeadGate gate(Lead(2, GST_SECOND, kNever));
  ASSERT_TRUE(gate.Admit(Side::kReference, 0));
  ASSERT_TRUE(gate.Admit(Side::kReference, 1));
  Waiting third(&gate, Side::kReference, 2);
  EXPECT_TRUE(third.waits());
  gate.Suspend(Side::kReference);
  EXPECT_TRUE(third.Get());
  gate.Resume(Side::kReference);
  EXPECT_EQ(gate.Queued(Side::kReference), 0u);
  ASSERT_TRUE(gate.Admit(Side::kReference, 0));
  ASSERT_TRUE(gate.Admit(Side::kReference, 1));
  Waiting bounded(&gate, Side::kReference, 2);
  EXPECT_TRUE(bounded.waits());
  gate.Release(Side::kReference);
  EXPECT_TRUE(bounded.Get());
}

}  // namespace
}  // namespace psnrhvs
