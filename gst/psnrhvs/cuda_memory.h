// CUDA in GStreamer's terms: the shared context, buffers in device and page-locked memory, and pools of
// them. Only in builds with CUDA. Nothing here needs a driver until Start.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/gst.h>

#include <memory>
#include <mutex>
#include <optional>

#include "cuda/cuda_engine.h"
#include "gst/psnrhvs/backend.h"

using GstCudaContext = struct _GstCudaContext;  // NOLINT(bugprone-reserved-identifier): GStreamer's name

namespace psnrhvs {

class CudaMemory {
 public:
  explicit CudaMemory(GstElement* element) : element_(element) {}
  ~CudaMemory();

  // Whether a driver and a device are there; asks the driver once a process.
  static bool DevicePresent();

  // Gets a context, the pipeline's if it has one, and proves that an engine can be made in it.
  Status Start(const BackendSettings& settings);
  void Stop();
  // `on_device`: both frames of every pair will be in device memory.
  Result<std::unique_ptr<Engine>> CreateEngine(const FrameGeometry& geometry, const BackendSettings& settings,
                                               bool on_device) const;

  // See Backend.
  Result<BufferAccess> Access(GstBuffer* buffer) const;
  bool ProposePool(GstQuery* query) const;
  void SetContext(GstContext* context, int cuda_device_id);
  bool AnswerContextQuery(GstQuery* query) const;

 private:
  struct Unref {
    void operator()(void* object) const { gst_object_unref(object); }
  };
  // A context in use, and the allocator of page-locked memory that belongs to it.
  struct Session {
    std::unique_ptr<GstCudaContext, Unref> context;
    std::unique_ptr<GstAllocator, Unref> pinned;
  };

  std::shared_ptr<const Session> session() const;
  void ForgetElementContext();

  GstElement* const element_;
  GstCudaContext* element_context_ = nullptr;  // written by libgstcuda's helpers only
  mutable std::mutex mutex_;
  std::shared_ptr<const Session> session_;  // from Start to Stop; under the mutex
};

}  // namespace psnrhvs
