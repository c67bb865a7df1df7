// Which engine computes: the only place that knows which backends this build has.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <memory>

#include "cpu/engine.h"

namespace psnrhvs {

struct BackendSettings {
  int threads = 0;  // of the CPU backend; 0 = all the process may use
};

// An engine for frames of this geometry.
Result<std::unique_ptr<Engine>> CreateEngine(const FrameGeometry& geometry, const BackendSettings& settings);

}  // namespace psnrhvs
