// What the host hands to the kernels of kernels.cu. Pointers are the device's; host code fills them from
// CUdeviceptr values.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cstdint>

#include "cpu/frame.h"
#include "cuda/tile_sum.h"

namespace psnrhvs {

// The kernels' names in the module. ScoreFrame kernels by sample size; both take a KernelParams.
constexpr char kScore8Kernel[] = "psnrhvs_score_8";
constexpr char kScore16Kernel[] = "psnrhvs_score_16";
constexpr char kGatherKernel[] = "psnrhvs_gather_terms";

constexpr int kMaxSegments = 30;  // at least 9 a plane: sizes grow by 4 from kFirstSegmentTiles
constexpr int kFirstSegmentTiles = 32;

// One image's plane.
struct DevicePlane {
  const uint8_t* data;
  const uint8_t* end;  // behind the last byte that may be read
  int32_t stride;      // bytes, may be negative
  int16_t step;        // 1 or 2 samples
  int16_t shift;
};

// A plane of both images, cut into blocks and tiles.
struct DevicePlanePair {
  DevicePlane images[2];  // reference, distorted
  int32_t blocks_wide;
  int32_t blocks;
  int32_t first_tile;  // of this plane among the tiles of all planes
};

// Consecutive tiles of one plane, and after them one team that takes the plane's sum through them. Thread
// blocks take tickets in the order in which they start, so a team only waits for tiles and for the team
// before it, all of which have started: no order of dispatch can make it wait for ever.
struct Segment {
  int32_t end_ticket;  // the team's ticket is the one before
  int16_t plane;
  int16_t last;        // of its plane
  int32_t first_tile;  // in the plane
  int32_t end_tile;
};

struct KernelParams {
  DevicePlanePair planes[kMaxPlanes];
  Segment segments[kMaxSegments];
  uint32_t sample_mask;  // depth bits, in both halves of the word for 16-bit samples

  uint32_t epoch;        // differs from that of the launch before in the same buffers
  uint32_t ticket_base;  // value of the ticket counter before this launch
  uint32_t* tickets;     // 1 counter
  uint32_t* stored;      // 2 counters of kept tiles, used by even and odd epochs
  uint64_t* prefixes;    // a word a tile: see PrefixBefore
  TileRecord* records;   // one a tile
  float* kept_terms;     // kTileBlocks * 64 a kept tile
  int32_t max_kept;
  int32_t exponent_error;
  uint64_t* team_sums;  // a word a segment: epoch, sum
  float* sums;          // a float a plane, in host memory: the result

  // The host's reduction: instead of all of the above but the tickets, each tile's non-zero terms in
  // order, kTileBlocks * 64 places a tile, and how many they are. Null for the device's reduction.
  float* tile_terms;
  uint32_t* tile_counts;
};

// Of the gather kernel: writes all tiles' terms without gaps to host memory, and each plane's count.
struct GatherParams {
  const float* tile_terms;
  const uint32_t* tile_counts;
  int32_t first_tiles[kMaxPlanes + 1];  // of each plane, and behind the last
  float* terms;
  uint32_t* counts;  // a number a plane
};

}  // namespace psnrhvs
