// The engine that computes on a CUDA device, and what its callers need around it. No CUDA type appears
// here, and nothing links to a CUDA library: the driver is loaded at run time, and a machine without
// one gets a Status that says so.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cpu/engine.h"

namespace psnrhvs {

// A device that the driver shows.
struct CudaDevice {
  int id = 0;  // the driver's ordinal
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
};

// All devices, at least one. kUnavailable says what is missing: the driver's library, a driver that is
// new enough, or a device. Cheap after the first call; makes no context.
Result<std::vector<CudaDevice>> ProbeCudaDevices();

// Where to work. `context` is a CUcontext that the caller keeps alive for as long as anything made from
// it exists; null means the primary context of device `device_id`, which is retained as long as needed.
struct CudaTarget {
  void* context = nullptr;
  int device_id = 0;
};

// Where the terms are added up. Both give the same bits.
enum class CudaReduction {
  kDevice,  // on the device; one float a plane comes back
  kHost,    // all non-zero terms come back and the host adds them in order: slow, a cross-check
};

struct CudaEngineOptions {
  CudaTarget target;
  CudaReduction reduction = CudaReduction::kDevice;
  bool verify = false;  // computes both reductions; Collect fails with kInternal if they differ
  int depth = 0;        // pairs in flight, 1 to 16; 0 = kDefaultCudaDepth

  // For tests: makes the device's guesses wrong, which must cost time and never bits.
  int exponent_error = 0;     // added to every predicted exponent
  int max_stored_tiles = -1;  // tiles whose terms may be kept for the resolve step; -1 = as many as is good
  // For measurements: computes the terms and no sums, so that scores mean nothing.
  bool terms_only = false;
};

// Pairs in flight that keep the bus busy; more would only spread the copies over more memory.
constexpr int kDefaultCudaDepth = 4;
constexpr int kMaxCudaDepth = 16;
// Pairs in flight that keep a device busy with frames that lie there already: a small pair spends most of its time in
// its sum, in which it leaves the device idle.
int DeviceFramesDepth(const FrameGeometry& geometry);

// An engine for `geometry`. It reads planes from host memory (Memory::kHost is copied within Submit into
// page-locked memory of the engine; Memory::kPinnedHost is read by the device until Collect), and in
// place from device memory of its context (Memory::kDevice: any stride and alignment, no byte outside
// the planes is read; all work that writes the planes must be finished before Submit). Both frames of a
// pair may lie in different memories. Work runs in streams of the engine's own.
// kUnavailable: no device, or one without code for it. kOutOfMemory. kInvalidArgument: bad options.
// A device error inside Submit or Collect is kInternal (or kOutOfMemory), names the CUDA error, and is
// repeated by every later call: the engine has to be made anew.
Result<std::unique_ptr<Engine>> CreateCudaEngine(const FrameGeometry& geometry, const CudaEngineOptions& options);

// Page-locked host memory, usable with every context of the process. The target's context must be alive
// in both calls. FreePinned takes what AllocatePinned gave, or null.
Result<void*> AllocatePinned(const CudaTarget& target, size_t bytes);
void FreePinned(const CudaTarget& target, void* memory);

}  // namespace psnrhvs
