// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/frame.h"

#include "cpu/metric.h"

namespace psnrhvs {

const char* ChromaName(Chroma chroma) {
  switch (chroma) {
    case Chroma::k400:
      return "grey";
    case Chroma::k420:
      return "4:2:0";
    case Chroma::k422:
      return "4:2:2";
    case Chroma::k444:
      return "4:4:4";
  }
  return "unknown";
}

Result<FrameGeometry> FrameGeometry::Create(int width, int height, Chroma chroma, int depth) {
  const std::string size = std::to_string(width) + "x" + std::to_string(height);
  if (width < kBlockSize || height < kBlockSize) {
    return Status(StatusCode::kInvalidArgument,
                  size + " is too small: psnr_hvs needs a luma plane of at least 8x8 samples");
  }
  if (width > kMaxDimension || height > kMaxDimension) {
    return Status(StatusCode::kInvalidArgument, size + " is too large: at most " + std::to_string(kMaxDimension) +
                                                    " samples a dimension can be scored");
  }
  if (depth < kMinDepth || depth > kMaxDepth) {
    return Status(StatusCode::kInvalidArgument,
                  "a depth of " + std::to_string(depth) + " bits cannot be scored: 8 to 12 bits can");
  }
  return FrameGeometry(width, height, chroma, depth);
}

int FrameGeometry::scored_planes() const {
  return plane_count() == kMaxPlanes && plane_width(1) >= kBlockSize && plane_height(1) >= kBlockSize ? kMaxPlanes : 1;
}

int FrameGeometry::plane_width(int plane) const {
  return plane > 0 && (chroma_ == Chroma::k420 || chroma_ == Chroma::k422) ? width_ >> 1 : width_;
}

int FrameGeometry::plane_height(int plane) const {
  return plane > 0 && chroma_ == Chroma::k420 ? height_ >> 1 : height_;
}

}  // namespace psnrhvs
