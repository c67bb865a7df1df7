// What an element psnrhvs reported and sent, recorded in the order in which it happened.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/gst.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gst/psnrhvs/gstptr.h"
#include "gst/psnrhvs/publish.h"

namespace psnrhvs::testing {

// An error, warning or info of the bus.
struct Notice {
  std::string source;  // name of the element that posted it
  std::string text;
  std::string debug;
};

// A buffer that left the source pad.
struct Output {
  GstClockTime pts, dts, duration;
  guint64 offset, offset_end;
  guint flags;
  const GstMemory* memory;          // of its first block; to be compared, not read
  int metas;                        // metadata named GstPsnrHvsMeta
  std::optional<FrameReport> meta;  // the first of them
};

struct Reports {
  std::vector<FrameReport> frames;
  std::vector<UnpairedReport> unpaired;
  std::vector<Summary> pooled;
  std::vector<AlarmReport> alarms;
  std::vector<Notice> errors, warnings, infos;
  std::vector<Output> outputs;
  // All of the above by one word each, with what left the source pad: "frame 3", "unpaired ref_sink 7", "pooled",
  // "alarm", "recovered", "error", "warning", "info", "buffer 120000000", "caps", "tag", "gap", "eos".
  std::vector<std::string> order;
  bool eos_posted = false;  // by a pipeline

  // Position in `order`; -1 if it did not happen.
  int Position(const std::string& what) const;
  int Count(const std::string& what) const;
};

// Listens to a bus, as its synchronous handler, and to the source pad of the element. Aborts on a message or metadata
// of the element that lacks a field or has one of another type.
class Recorder {
 public:
  // Both live longer.
  Recorder(GstBus* bus, GstPad* src);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Reports reports() const;
  void Clear();
  // Waits until something is in Reports::order or an error was posted; whether it is there. Aborts, as the next does,
  // when nothing has happened for half a minute.
  bool WaitFor(const std::string& what);
  // Waits until a message EOS or an error was posted.
  void WaitForEnd();

 private:
  void WaitUntil(std::unique_lock<std::mutex>* lock, const std::string& what, const std::function<bool()>& there);
  void Take(GstMessage* message);
  void Take(GstPadProbeInfo* info);

  GstBus* const bus_;
  GstPad* const src_;
  const gulong probe_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Reports reports_;
};

}  // namespace psnrhvs::testing
