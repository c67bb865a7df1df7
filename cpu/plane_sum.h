// The sum of all terms of a plane: one float accumulator that takes the terms of every block, in
// raster order. The reference below is the definition; any other version returns the same bits.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include "cpu/frame.h"

namespace psnrhvs {

// Sum over `reference` against `distorted`, two views of equal width and height (at least 8x8), host
// memory. `depth` in bits, 8 to 12; `plane` 0 Y, 1 Cb, 2 Cr selects the tables.
float PlaneSumReference(const PlaneView& reference, const PlaneView& distorted, int depth, int plane);

}  // namespace psnrhvs
