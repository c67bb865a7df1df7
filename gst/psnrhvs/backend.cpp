// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/backend.h"

#include "cpu/cpu_engine.h"

namespace psnrhvs {

Result<std::unique_ptr<Engine>> CreateEngine(const FrameGeometry& geometry, const BackendSettings& settings) {
  CpuEngineOptions options;
  options.threads = settings.threads;
  return CreateCpuEngine(geometry, options);
}

}  // namespace psnrhvs
