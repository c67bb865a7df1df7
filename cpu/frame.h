// What a frame is to the metric: its geometry, and borrowed views of its planes.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/status.h"

namespace psnrhvs {

enum class Chroma { k400, k420, k422, k444 };

// "4:2:0" and so on; "grey" for k400.
const char* ChromaName(Chroma chroma);

constexpr int kMaxPlanes = 3;         // Y, Cb, Cr, in this order everywhere
constexpr int kMinDepth = 8;          // bits
constexpr int kMaxDepth = 12;         // bits; the integer transform is defined on 32 bits up to here
constexpr int kMaxDimension = 32768;  // samples; keeps the number of terms of a plane in an int

// Size, chroma layout and depth of frames that can be scored. Exists only if valid; two frames can
// be compared if and only if their geometries are equal.
class FrameGeometry {
 public:
  // `width` and `height` in luma samples, `depth` in bits. kInvalidArgument if the luma plane is
  // smaller than 8x8, a dimension exceeds kMaxDimension, or the depth is not 8 to 12.
  static Result<FrameGeometry> Create(int width, int height, Chroma chroma, int depth);

  int width() const { return width_; }
  int height() const { return height_; }
  Chroma chroma() const { return chroma_; }
  int depth() const { return depth_; }
  int bytes_per_sample() const { return depth_ > 8 ? 2 : 1; }

  // Planes that the format has: 1 for grey, else 3.
  int plane_count() const { return chroma_ == Chroma::k400 ? 1 : 3; }
  // Planes that get a score: 3, or 1 (luma) where there is no chroma or it is smaller than 8x8.
  int scored_planes() const;

  // Samples of a plane that are scored: chroma is halved rounding DOWN (METRIC: libvmaf's rule;
  // GStreamer stores one more column or row for odd sizes).
  int plane_width(int plane) const;
  int plane_height(int plane) const;

  friend bool operator==(const FrameGeometry& a, const FrameGeometry& b) {
    return a.width_ == b.width_ && a.height_ == b.height_ && a.chroma_ == b.chroma_ && a.depth_ == b.depth_;
  }
  friend bool operator!=(const FrameGeometry& a, const FrameGeometry& b) { return !(a == b); }

 private:
  FrameGeometry(int width, int height, Chroma chroma, int depth)
      : width_(width), height_(height), chroma_(chroma), depth_(depth) {}

  int width_;
  int height_;
  Chroma chroma_;
  int depth_;
};

// A borrowed plane. A sample is 1 byte at depth 8 and 2 bytes, little-endian, above; its value is
// `(stored >> shift)` limited to the low `depth` bits, so padding bits never count.
struct PlaneView {
  const uint8_t* data = nullptr;  // first sample of the first row; any alignment
  ptrdiff_t stride_bytes = 0;     // from a row to the next; may be negative
  int width = 0;                  // in samples that are scored
  int height = 0;
  int step = 1;   // samples from one of this plane to the next: 1 planar, 2 semi-planar chroma
  int shift = 0;  // unused low bits: 6 in P010, 4 in P012, else 0

  const uint8_t* Row(int y) const { return data + y * stride_bytes; }
};

// Stored sample `index` of a row; `T` is uint8_t or uint16_t.
template <typename T>
inline T LoadSample(const uint8_t* row, ptrdiff_t index) {
  T value;
  std::memcpy(&value, row + index * static_cast<ptrdiff_t>(sizeof(T)), sizeof(T));
  return value;
}

// Where the planes lie.
enum class Memory {
  kHost,        // pageable
  kPinnedHost,  // page-locked: a device copies from it at bus speed
  kDevice,      // device pointers of the engine's context
};

// Borrowed planes of one frame; planes at and beyond the geometry's scored_planes() are not read.
struct FrameView {
  std::array<PlaneView, kMaxPlanes> planes;
  Memory memory = Memory::kHost;
};

struct FramePair {
  FrameView reference;
  FrameView distorted;
};

}  // namespace psnrhvs
