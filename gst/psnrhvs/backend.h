// Which engine computes, and what that means for buffers: their memory, their pools, the CUDA context.
// backend.cpp is the only place that knows which backends this build has.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <memory>

#include "cpu/engine.h"
#include "cuda/cuda_engine.h"

namespace psnrhvs {

enum class BackendChoice { kAuto, kCpu, kCuda };

struct BackendSettings {
  BackendChoice choice = BackendChoice::kAuto;
  int threads = 0;          // of the CPU backend; 0 = all the process may use
  int cuda_device_id = -1;  // the driver's ordinal; -1 = the device of a context that is shared, or the first
  CudaReduction cuda_reduction = CudaReduction::kDevice;
  bool verify = false;  // of the CUDA backend: compute both reductions, fail on a difference
};

// How the engine reads a buffer.
struct BufferAccess {
  Memory memory = Memory::kHost;
  GstMapFlags map_flags = GST_MAP_READ;
};

class CudaMemory;

// Belongs to an element and outlives its runs. Start, Stop, CreateEngine and Access are called by one
// thread at a time; the other functions by any.
class Backend {
 public:
  // `element` owns this.
  explicit Backend(GstElement* element);
  ~Backend();

  // What pads may ever have, the same in every process that loads this build. Transfer full.
  static GstCaps* TemplateCaps();

  // Picks the backend. kAuto takes CUDA if a device works, else the CPU; with kCuda, kUnavailable says
  // what is missing.
  Status Start(const BackendSettings& settings);
  // Lets go of the device. Engines must be gone.
  void Stop();

  // An engine for frames of this geometry, which come with caps of these features.
  Result<std::unique_ptr<Engine>> CreateEngine(const FrameGeometry& geometry, const GstCaps* reference_caps,
                                               const GstCaps* distorted_caps) const;

  // The template's caps that the backend can take: without CUDA memory where the CPU computes, or would
  // after a start with `choice`. Transfer full.
  GstCaps* OfferedCaps(BackendChoice choice) const;
  // kInvalidArgument, with what to add to the pipeline, if buffers of these caps cannot be read.
  Status CheckCaps(const GstCaps* caps) const;
  // How to map this buffer; device memory is ready to be read when this returns.
  Result<BufferAccess> Access(GstBuffer* buffer) const;

  // Adds a pool from which the engine reads fastest to an ALLOCATION query that has none yet.
  // False if it added nothing.
  bool ProposePool(GstQuery* query) const;

  // GStreamer's ways of sharing a CUDA context: GstElement::set_context, and CONTEXT queries, which are
  // answered if this returns true.
  void SetContext(GstContext* context, int cuda_device_id);
  bool AnswerContextQuery(GstQuery* query) const;

 private:
  enum class State { kStopped, kCpu, kCuda };

  GstElement* const element_;
  const std::unique_ptr<CudaMemory> cuda_;
  BackendSettings settings_;
  std::atomic<State> state_{State::kStopped};
};

}  // namespace psnrhvs
