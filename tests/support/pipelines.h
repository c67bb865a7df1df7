// Runs pipelines around an element psnrhvs, and the element alone between two harnesses.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/check/gstharness.h>
#include <gst/video/video.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gst/psnrhvs/pairing.h"
#include "tests/support/frames.h"
#include "tests/support/recording.h"

namespace psnrhvs::testing {

// A pipeline in gst-launch's syntax. Aborts if it cannot be built.
class PipelineRun {
 public:
  // Records what the element psnrhvs of that name does.
  explicit PipelineRun(const std::string& description, const std::string& name = "m");
  ~PipelineRun();

  GstElement* pipeline() const { return pipeline_.get(); }
  GstPtr<GstElement> element(const std::string& name) const;
  Recorder& recorder() { return *recorder_; }

  // Changes the state and waits for that; false if the change failed.
  bool SetState(GstState state);
  // Plays until EOS or an error, then stops the pipeline (state NULL).
  Reports PlayToEnd();

 private:
  GstPtr<GstElement> pipeline_;
  GstPtr<GstBus> bus_;
  GstPtr<GstPad> src_;
  std::unique_ptr<Recorder> recorder_;
};

Reports RunPipeline(const std::string& description);

// The element alone, playing, not live; its pads are fed by the test.
class TwoPads {
 public:
  using Properties = std::vector<std::pair<std::string, std::string>>;
  explicit TwoPads(const Properties& properties = {});
  ~TwoPads();

  GstElement* element() const { return element_.get(); }
  GstPad* pad(Side side) const { return pads_[static_cast<int>(side)].get(); }
  GstHarness* harness(Side side) const { return harnesses_[static_cast<int>(side)]; }
  Recorder& recorder() { return *recorder_; }

  void SetCaps(Side side, const std::string& caps) const;
  void SetCaps(const std::string& caps) const;  // of both
  GstFlowReturn Push(Side side, GstPtr<GstBuffer> buffer) const;
  bool Push(Side side, GstEvent* event) const;  // takes it over
  // Ends the sides in that order, and waits for EOS downstream or an error.
  Reports End(Side first = Side::kReference);

 private:
  GstPtr<GstElement> element_;
  GstPtr<GstBus> bus_;
  GstPtr<GstPad> src_;
  GstPtr<GstPad> pads_[2];
  GstHarness* harnesses_[2];
  std::unique_ptr<Recorder> recorder_;
};

// Planar format of pictures of that kind.
GstVideoFormat PlanarFormat(Chroma chroma, int depth);

// Where the rows of a buffer lie.
struct Layout {
  bool custom = false;      // else GStreamer's default for the format and size
  int row_padding = 0;      // bytes after the samples of each row
  size_t plane_offset = 0;  // bytes before each plane
};

// The picture's samples in a buffer of that format, by GStreamer's own functions; what is not a sample is noise.
// A custom layout is described by a GstVideoMeta.
GstPtr<GstBuffer> BufferOf(const Picture& picture, GstVideoFormat format, const Layout& layout = {});

constexpr GstClockTime kPeriod = 40 * GST_MSECOND;  // 25 frames a second
constexpr char kSmallCaps[] = "video/x-raw,format=I420,width=16,height=16,framerate=25/1";

// A small picture of its own for every `n` (mod 251), due at `pts`. Buffers of equal `n` are equal.
GstPtr<GstBuffer> SmallFrame(int n, GstClockTime pts, GstClockTime duration = kPeriod);
inline GstPtr<GstBuffer> SmallFrame(int n) { return SmallFrame(n, n * kPeriod); }

// Caps of that format and size at 25 frames a second.
std::string CapsOf(GstVideoFormat format, int width, int height);

// A folder for the test's files, removed with what is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string ReadFile(const std::string& path);

// To be called first in a program of gst-check. Plugins that are loaded to be listed in a new registry may start
// threads, and with ThreadSanitizer gst-check cannot fork after that, so another process makes the registry then.
void InitChecks(int* argc, char*** argv);

// Whether gst-launch can run this build's element: with ThreadSanitizer it would have to be instrumented too.
bool GstLaunchRunsElement();

// Runs a command; false if it fails or does not exist.
bool RunCommand(const std::string& command);

}  // namespace psnrhvs::testing
