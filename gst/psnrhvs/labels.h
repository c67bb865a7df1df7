// What caps say of how samples are meant: colour, chroma site, interlacing, aspect. The metric does
// not look at it, but pictures whose labels differ may not be what they seem.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/gst.h>

#include <string>
#include <vector>

namespace psnrhvs {

struct LabelDifference {
  const char* label;  // "colour range" and so on
  std::string reference;
  std::string distorted;
};

// Labels that both caps (fixed raw video) state and that differ. What one leaves open is no difference.
std::vector<LabelDifference> DifferingLabels(const GstCaps* reference, const GstCaps* distorted);

}  // namespace psnrhvs
