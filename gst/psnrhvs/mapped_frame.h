// From GStreamer's buffers and formats to the planes and geometry of cpu/frame.h: the only file that
// knows pixel formats.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/video/video.h>

#include <memory>
#include <optional>
#include <string>

#include "cpu/frame.h"
#include "cpu/status.h"
#include "gst/psnrhvs/backend.h"

namespace psnrhvs {

// Formats that can be scored, as the value list that GST_VIDEO_CAPS_MAKE takes.
#define PSNRHVS_FORMATS                                                                      \
  "{ I420, YV12, NV12, NV21, Y42B, NV16, Y444, I420_10LE, I422_10LE, Y444_10LE, I420_12LE, " \
  "I422_12LE, Y444_12LE, P010_10LE, P012_LE, GRAY8 }"

// Those of them that buffers in CUDA memory can have: what GStreamer's CUDA library knows.
#define PSNRHVS_CUDA_FEATURE "memory:CUDAMemory"
#if GST_CHECK_VERSION(1, 28, 0)
#define PSNRHVS_CUDA_FORMATS                                                           \
  "{ I420, YV12, NV12, NV21, Y42B, Y444, I420_10LE, I422_10LE, Y444_10LE, I420_12LE, " \
  "I422_12LE, Y444_12LE, P010_10LE, P012_LE }"
#else
#define PSNRHVS_CUDA_FORMATS "{ I420, YV12, NV12, NV21, Y42B, Y444, I420_10LE, I422_10LE, I422_12LE, P010_10LE }"
#endif

// Geometry of frames with these caps; kInvalidArgument says why they cannot be scored.
Result<FrameGeometry> GeometryOf(const GstVideoInfo& info);

// `caps` with the format of every structure limited to those that hold the same samples (chroma
// subsampling and depth) as `format`, in any layout. Transfer full; may be empty.
GstCaps* RestrictToLayoutsOf(const GstCaps* caps, GstVideoFormat format);

// "I420 320x240" for messages to people.
std::string DescribeVideo(const GstVideoInfo& info);

// A buffer mapped for reading; unmapped when the last copy goes.
class MappedFrame {
 public:
  // Maps `buffer`, whose caps are `info`, where it lies; of a GstVideoCropMeta, the part that is shown.
  // kInvalidArgument if it cannot be mapped or is too small.
  static Result<MappedFrame> Map(GstBuffer* buffer, const GstVideoInfo& info, const FrameGeometry& geometry,
                                 const BufferAccess& access);

  const FrameView& view() const { return view_; }

 private:
  struct Unmap {
    void operator()(GstVideoFrame* frame) const {
      gst_video_frame_unmap(frame);
      delete frame;
    }
  };

  MappedFrame(std::unique_ptr<GstVideoFrame, Unmap> frame, const FrameGeometry& geometry);
  static std::optional<MappedFrame> Open(GstBuffer* buffer, const GstVideoInfo& info, const GstVideoCropMeta* crop,
                                         const FrameGeometry& geometry, GstMapFlags flags);

  std::unique_ptr<GstVideoFrame, Unmap> frame_;
  FrameView view_;
};

}  // namespace psnrhvs
