// What computes scores: the one interface between the element and a backend.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include "cpu/frame.h"
#include "cpu/score.h"
#include "cpu/status.h"

namespace psnrhvs {

// Scores frame pairs of the one geometry it was created for, first in, first out. Used by one
// thread at a time. The destructor waits for work that was submitted and not collected.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual const char* backend() const = 0;  // "cpu" or "cuda"

  // How many pairs may be submitted and not yet collected, at least 1.
  virtual int depth() const = 0;

  // Hands a pair over without waiting for its score. The planes stay lent to the engine, unchanged,
  // until the Collect that returns this pair's score has returned. On failure nothing is lent.
  virtual Status Submit(const FramePair& pair) = 0;

  // Waits for the score of the oldest pair that was submitted and not collected; there must be one.
  virtual Result<FrameScore> Collect() = 0;
};

}  // namespace psnrhvs
