// The engine that computes on the processor.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <memory>
#include <string>

#include "cpu/engine.h"

namespace psnrhvs {

struct CpuEngineOptions {
  int threads = 0;     // 0 = as many as the process may use
  std::string target;  // a GroupKernel's name; empty = the fastest
};

// An engine for host memory. Fails only if threads or memory cannot be had.
Result<std::unique_ptr<Engine>> CreateCpuEngine(const FrameGeometry& geometry, const CpuEngineOptions& options);

}  // namespace psnrhvs
