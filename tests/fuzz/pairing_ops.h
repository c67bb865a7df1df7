// Drives a Pairing by a string of bytes and checks what it promises whatever comes in.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>

#include "gst/psnrhvs/pairing.h"

namespace psnrhvs::testing {

// What was fed and is not decided, kept beside a Pairing as its caller keeps buffers.
class PairingOperations {
 public:
  PairingOperations(const uint8_t* data, size_t size) : data_(data), size_(size), settings_(ReadSettings()) {}

  // Empty, or the promise that was broken.
  std::string Check() {
    Pairing pairing(settings_);
    while (size_ > 0) {
      const uint8_t operation = Byte();
      const Side side = operation & 1 ? Side::kDistorted : Side::kReference;
      switch (operation >> 1 & 15) {
        case 0:
          pairing.Reset(side);
          Forget(side);
          break;
        case 1:
          pairing.Reset();
          Forget(Side::kReference);
          Forget(Side::kDistorted);
          break;
        case 2:
          pairing.SetEnded(side, true);
          ended_[Number(side)] = true;
          break;
        case 3:
          pairing.EstimatedStartOffset();
          break;
        default:
          if (!Decide(pairing, (operation & 0xe0) == 0)) return broken_;
      }
    }
    return Drain(pairing);
  }

 private:
  struct Fed {
    FrameTime frame;
    std::optional<int64_t> time;  // with the offset
  };

  static int Number(Side side) { return static_cast<int>(side); }

  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }

  int64_t Word() {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word = word << 8 | Byte();
    int64_t value;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }

  PairingSettings ReadSettings() {
    const uint8_t flags = Byte();
    PairingSettings settings;
    if ((flags & 15) == 0) settings.mode = PairingSettings::Mode::kOrder;
    if (flags & 16) settings.tolerance_ns = Byte();
    settings.align_start = flags & 32;
    if (flags & 64) settings.dist_offset_ns = Byte() == 0 ? Word() : static_cast<int8_t>(Byte());
    return settings;
  }

  // Mostly small steps forward, now and then a jump, an extreme or no time.
  FrameTime ReadFrame(Side side) {
    FrameTime frame;
    frame.index = next_index_++;
    const uint8_t how = Byte();
    int64_t& last = last_[Number(side)];
    switch (how & 15) {
      case 0:
        break;
      case 1:
        frame.running_time_ns = Word();
        break;
      case 2:
        frame.running_time_ns = last = static_cast<int8_t>(Byte());
        break;
      default:
        frame.running_time_ns = last += Byte() & 63;
    }
    if (how & 16) frame.duration_ns = how & 32 ? Byte() : 40;
    if (how == 0xf0) frame.duration_ns = static_cast<uint64_t>(Word());
    return frame;
  }

  void Feed(Pairing& pairing, Side side) {
    Fed fed{ReadFrame(side), std::nullopt};
    if (fed.frame.running_time_ns) {
      std::optional<int64_t>& base = base_[Number(side)];
      if (!base) base = settings_.align_start ? *fed.frame.running_time_ns : 0;
      int64_t time;
      const int64_t offset = side == Side::kDistorted ? settings_.dist_offset_ns : 0;
      if (!__builtin_sub_overflow(*fed.frame.running_time_ns, *base, &time) &&
          !__builtin_add_overflow(time, offset, &time)) {
        fed.time = time;
      }
    }
    queues_[Number(side)].push_back(fed);
    pairing.Push(side, fed.frame);
  }

  void Forget(Side side) {
    queues_[Number(side)].clear();
    ended_[Number(side)] = false;
    base_[Number(side)].reset();
    failed_ = false;
  }

  bool Broken(const char* promise) {
    broken_ = promise;
    return false;
  }

  bool CheckFront(Side side, std::optional<uint64_t> index) {
    std::deque<Fed>& queue = queues_[Number(side)];
    if (!index || queue.empty()) return Broken("a decision is about a frame that was fed");
    if (queue.front().frame.index != *index) return Broken("the oldest frame of a side is decided first");
    return true;
  }

  bool CheckPair(const Fed& reference, const Fed& distorted) {
    if (settings_.mode == PairingSettings::Mode::kOrder || by_order_) return true;
    if (!reference.time || !distorted.time) return Broken("frames without times do not pair by time");
    const int64_t r = *reference.time;
    const int64_t d = *distorted.time;
    const uint64_t distance = r < d ? static_cast<uint64_t>(d) - static_cast<uint64_t>(r)
                                    : static_cast<uint64_t>(r) - static_cast<uint64_t>(d);
    if (settings_.tolerance_ns) {
      return distance <= *settings_.tolerance_ns || Broken("a pair is within the tolerance");
    }
    for (const Fed* fed : {&reference, &distorted}) {
      const std::optional<uint64_t>& duration = fed->frame.duration_ns;
      if (distance > 0 && duration && *duration > 0 && (distance >= *duration || distance >= *duration - distance)) {
        return Broken("a pair is less than half a duration apart");
      }
    }
    return true;
  }

  // One decision, and the frame it asks for.
  bool Decide(Pairing& pairing, bool deadline_passed) {
    const size_t before = queues_[0].size() + queues_[1].size();
    const bool waiting = !queues_[0].empty();
    decision_ = pairing.Next(deadline_passed);
    if (failed_ && decision_.kind != Decision::Kind::kError) return Broken("an error stays until a flush");
    by_order_ |= decision_.order_fallback;
    switch (decision_.kind) {
      case Decision::Kind::kNeedReference:
      case Decision::Kind::kNeedDistorted: {
        const Side side = decision_.kind == Decision::Kind::kNeedReference ? Side::kReference : Side::kDistorted;
        if (ended_[Number(side)]) return Broken("nothing is asked of a side that has ended");
        if (deadline_passed && waiting) return Broken("after the deadline a reference frame does not wait");
        Feed(pairing, side);
        if (pairing.queued(side) > Pairing::kMaxQueued) return Broken("a side's queue is bounded");
        break;
      }
      case Decision::Kind::kPair:
        if (!CheckFront(Side::kReference, decision_.reference_index)) return false;
        if (!CheckFront(Side::kDistorted, decision_.distorted_index)) return false;
        if (!CheckPair(queues_[0].front(), queues_[1].front())) return false;
        queues_[0].pop_front();
        queues_[1].pop_front();
        break;
      case Decision::Kind::kUnpairedReference:
        if (!CheckFront(Side::kReference, decision_.reference_index)) return false;
        queues_[0].pop_front();
        break;
      case Decision::Kind::kUnpairedDistorted:
        if (!CheckFront(Side::kDistorted, decision_.distorted_index)) return false;
        queues_[1].pop_front();
        break;
      case Decision::Kind::kEnd:
        if (before > 0 || !ended_[0] || !ended_[1]) return Broken("the end comes when all frames are decided");
        break;
      case Decision::Kind::kError:
        if (decision_.error.empty()) return Broken("an error says why");
        failed_ = true;
        break;
    }
    for (Side side : {Side::kReference, Side::kDistorted}) {
      if (pairing.queued(side) != queues_[Number(side)].size()) return Broken("queues stay parallel");
    }
    return true;
  }

  // Once both sides have ended every frame is decided, one a call.
  std::string Drain(Pairing& pairing) {
    for (Side side : {Side::kReference, Side::kDistorted}) {
      pairing.SetEnded(side, true);
      ended_[Number(side)] = true;
    }
    for (size_t left = queues_[0].size() + queues_[1].size() + 1; left > 0; --left) {
      if (!Decide(pairing, false)) return broken_;
      if (decision_.kind == Decision::Kind::kEnd || decision_.kind == Decision::Kind::kError) return "";
    }
    return "both sides' ends lead to the end";
  }

  const uint8_t* data_;
  size_t size_;
  PairingSettings settings_;
  uint64_t next_index_ = 0;
  int64_t last_[2] = {0, 0};
  std::deque<Fed> queues_[2];
  bool ended_[2] = {false, false};
  std::optional<int64_t> base_[2];
  bool by_order_ = false;  // has been, at least
  bool failed_ = false;
  Decision decision_;
  std::string broken_;
};

// Empty, or the promise that this string of operations breaks.
inline std::string CheckPairingOperations(const uint8_t* data, size_t size) {
  return PairingOperations(data, size).Check();
}

}  // namespace psnrhvs::testing
