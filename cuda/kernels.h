// What the host hands to the kernels of kernels.cu. Pointers are the device's; host code fills them from
// CUdeviceptr values.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <array>
#include <cstdint>

#include "cpu/frame.h"
#include "cpu/metric.h"
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
  int32_t first_group;
};

// Consecutive tiles of one plane, and after them one team that takes the plane's sum through them. Thread
// blocks take tickets in the order in which they start, so a team only waits for tiles and for the team
// before it, all of which have started: no order of dispatch can make it wait for ever. The planes' first
// segments come first, because most binades are left there and that takes a team longest.
struct Segment {
  int32_t end_ticket;  // the team's ticket is the one before
  int16_t plane;
  int16_t last;        // of its plane
  int32_t previous;    // segment of the plane, if first_tile > 0
  int32_t first_tile;  // in the plane
  int32_t end_tile;
};

// Tiles that publish one sum together; the last group of a plane may have fewer.
constexpr int kGroupTiles = 64;

// Of a kept tile: its terms, and two maps a block.
constexpr size_t kKeptTileBytes = kTileBlocks * (kBlockTerms * sizeof(float) + 2 * sizeof(SumMap));

struct KernelParams {
  DevicePlanePair planes[kMaxPlanes];
  Segment segments[kMaxSegments];
  uint32_t sample_mask;  // depth bits, in both halves of the word for 16-bit samples

  uint32_t epoch;        // differs from that of the launch before in the same buffers
  uint32_t ticket_base;  // value of the ticket counter before this launch
  uint32_t* tickets;     // 1 counter
  uint32_t* stored;      // 2 counters of kept tiles, used by even and odd epochs
  uint64_t* tile_sums;   // a word a tile, and
  uint64_t* group_sums;  // groups words for odd epochs, then as many for even ones: see LookBack
  int32_t groups;
  PackedRecord* records;  // one a tile
  float* kept_terms;      // kKeptTileBytes a kept tile
  int32_t max_kept;
  int32_t exponent_error;
  int32_t terms_only;   // no sums are made
  uint64_t* team_sums;  // a word a segment: epoch, sum
  uint64_t* results;    // the same a plane, in host memory: the plane's sum

  // The host's reduction: instead of all of the above but the tickets, each tile's non-zero terms in
  // order, kTileBlocks * 64 places a tile, and how many they are. Null for the device's reduction.
  float* tile_terms;
  uint32_t* tile_counts;
};

// How a frame's planes are cut.
struct TileLayout {
  int total = 0;  // tiles of all planes
  int groups = 0;
  std::array<int, kMaxPlanes + 1> first = {};  // of each plane, and behind the last
  int segments = 0;
  unsigned grid = 0;  // thread blocks of a launch: one a tile and one a team
};

// Fills what depends on the geometry alone: the planes' blocks, the segments and the mask.
inline TileLayout LayOutTiles(const FrameGeometry& geometry, KernelParams* params) {
  TileLayout layout;
  std::array<int, kMaxPlanes> plane_tiles = {};
  for (int p = 0; p < geometry.scored_planes(); ++p) {
    DevicePlanePair& plane = params->planes[p];
    plane.blocks_wide = BlockCount(geometry.plane_width(p));
    plane.blocks = plane.blocks_wide * BlockCount(geometry.plane_height(p));
    plane.first_tile = layout.total;
    plane.first_group = layout.groups;
    plane_tiles[p] = (plane.blocks + kTileBlocks - 1) / kTileBlocks;
    layout.total += plane_tiles[p];
    layout.groups += (plane_tiles[p] + kGroupTiles - 1) / kGroupTiles;
    for (int next = p + 1; next <= kMaxPlanes; ++next) layout.first[next] = layout.total;
  }
  int ticket = 0;
  std::array<int, kMaxPlanes> covered = {};  // tiles in segments
  std::array<int, kMaxPlanes> previous = {};
  for (int size = kFirstSegmentTiles, left = layout.total; left > 0; size *= 4) {
    for (int p = 0; p < geometry.scored_planes(); ++p) {
      if (covered[p] == plane_tiles[p]) continue;
      Segment& segment = params->segments[layout.segments];
      segment.plane = static_cast<int16_t>(p);
      segment.previous = previous[p];
      segment.first_tile = covered[p];
      segment.end_tile = size < plane_tiles[p] ? size : plane_tiles[p];
      segment.last = segment.end_tile == plane_tiles[p];
      const int tiles = segment.end_tile - segment.first_tile;
      ticket += tiles + 1;
      segment.end_ticket = ticket;
      left -= tiles;
      covered[p] = segment.end_tile;
      previous[p] = layout.segments++;
    }
  }
  layout.grid = static_cast<unsigned>(ticket);
  params->groups = layout.groups;
  const uint32_t mask = (1u << geometry.depth()) - 1;
  params->sample_mask = mask | mask << 16;
  return layout;
}

// Of the gather kernel: writes all tiles' terms without gaps to host memory, and each plane's count.
struct GatherParams {
  const float* tile_terms;
  const uint32_t* tile_counts;
  int32_t first_tiles[kMaxPlanes + 1];  // of each plane, and behind the last
  float* terms;
  uint32_t* counts;  // a number a plane
};

}  // namespace psnrhvs
