// Test frames: planar pictures from the generator formulas or from headerless files, and the golden
// values that belong to them.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cpu/frame.h"

namespace psnrhvs::testing {

// A planar frame as stored in a headerless file: rows packed, chroma of odd sizes rounded UP, samples
// above 8 bits as two little-endian bytes.
struct Picture {
  int width = 0;
  int height = 0;
  Chroma chroma = Chroma::k420;
  int depth = 8;
  std::array<std::vector<uint8_t>, kMaxPlanes> planes;

  int StoredWidth(int plane) const;
  int StoredHeight(int plane) const;
  int BytesPerSample() const { return depth > 8 ? 2 : 1; }
  size_t FrameBytes() const;
  FrameView View() const;  // of the samples that are scored
};

// An empty picture with its planes allocated.
Picture MakePicture(int width, int height, Chroma chroma, int depth);

// Frame `n` of formula `text`, as in tests/data/README.md, such as "quant:24:0:7".
Picture GeneratePicture(const std::string& text, int width, int height, Chroma chroma, int depth, int n);

// Frame `n` of a headerless file that starts at byte `offset` and whose frames have `header` bytes
// before each (6 in Y4M). Aborts if the file is too short.
Picture ReadPicture(const std::string& path, int width, int height, Chroma chroma, int depth, int n, size_t offset = 0,
                    size_t header = 0);

// 64-bit FNV-1a over the bytes of all planes, continued from `hash`.
constexpr uint64_t kFnvStart = 0xcbf29ce484222325u;
uint64_t Fnv1a64(const Picture& picture, uint64_t hash = kFnvStart);

// A line of a golden table: one frame of one pair, and what libvmaf computed for it.
struct Golden {
  std::string name;
  std::string ref, dis;  // file names, or formulas
  bool generated = false;
  int width = 0, height = 0, depth = 0, frame = 0, frames = 0;
  Chroma chroma = Chroma::k420;
  std::array<uint64_t, 4> score_bits{};  // doubles: Y, Cb, Cr, combined
  std::array<uint32_t, 3> sum_bits{};    // floats: the planes' sums
  uint64_t ref_hash = 0, dis_hash = 0;   // generated only: Fnv1a64 over all frames of the pair
};

// Rows of a golden table (golden.csv or generated.csv). Aborts if it cannot be read.
std::vector<Golden> ReadGoldens(const std::string& csv);

// The two pictures of a golden row; `directory` holds the stored files.
struct PicturePair {
  Picture reference;
  Picture distorted;
};
PicturePair LoadGolden(const Golden& golden, const std::string& directory);

// The folder with the large golden set (environment PSNRHVS_SHARED), if it exists.
std::optional<std::string> SharedDirectory();
// The project's own test data (environment PSNRHVS_TEST_DATA).
std::string DataDirectory();

inline FramePair MakePair(const Picture& reference, const Picture& distorted) {
  return FramePair{reference.View(), distorted.View()};
}

// Bit patterns, for comparisons that must not treat -0 or NaN specially.
uint64_t Bits(double value);
uint32_t Bits(float value);

}  // namespace psnrhvs::testing
