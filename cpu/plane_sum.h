// The sum of all terms of a plane: one float accumulator that takes the terms of every block, in
// raster order. The reference below is the definition; any other version returns the same bits.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cpu/exact_sum.h"
#include "cpu/frame.h"
#include "cpu/metric.h"

namespace psnrhvs {

// Sum over `reference` against `distorted`, two views of equal width and height (at least 8x8), host
// memory. `depth` in bits, 8 to 12; `plane` 0 Y, 1 Cb, 2 Cr selects the tables.
float PlaneSumReference(const PlaneView& reference, const PlaneView& distorted, int depth, int plane);

// The vector version's view of a plane: its blocks, in raster order, are cut into groups, one block a lane. A group may
// begin in one row of blocks and end in another. What the functions below take is what PlaneSumReference takes.
struct PlanePair {
  PlaneView reference;
  PlaneView distorted;
  int depth = 8;
  int plane = 0;

  int rows() const { return BlockCount(reference.height); }    // of blocks
  int columns() const { return BlockCount(reference.width); }  // blocks in a row
  int blocks() const { return rows() * columns(); }
};

constexpr int kMaxGroupBlocks = 32;

// A thread's working memory: the group at hand. Too large for a stack.
struct GroupScratch {
  alignas(64) uint16_t samples[kBlockTerms * 2 * kMaxGroupBlocks] = {};  // [row][column][image][lane]
  // Sample rows of blocks that cannot be loaded from where they lie, one block after the other.
  alignas(64) uint8_t copied[kBlockSize][kBlockSize * kMaxGroupBlocks * sizeof(uint16_t)] = {};
  alignas(64) int16_t coefficients[2][kBlockTerms * kMaxGroupBlocks];  // [image][coefficient][lane]
  alignas(64) float threshold[kMaxGroupBlocks];                        // [float lane]
  alignas(64) uint32_t even[kMaxGroupBlocks];                          // the last maps: [float lane]
  alignas(64) uint32_t odd[kMaxGroupBlocks];
  const PlanePair* pair = nullptr;  // of the group at hand
  int blocks = 0;                   // in it
  uint64_t live_terms = 0;          // bit k: not all of its blocks' terms k are known to be zero
};

// The arithmetic of a group for one instruction set.
struct GroupKernel {
  const char* target;  // Highway's name: "AVX3" (which is AVX-512), "AVX2", "SSE4", "SSSE3", "NEON", "SCALAR"
  int blocks;          // in a group, but for a plane's last

  // Computes all but the terms of group `group`. False if all terms are zero, and then nothing is left to do.
  bool (*prepare)(const PlanePair& pair, int group, GroupScratch* scratch);
  // Map of the prepared group's blocks from `first_block` on, for sums in binade `exponent` (0 to 254).
  SumMap (*map)(GroupScratch* scratch, uint32_t exponent, int first_block);
  // That of one block of the last call's.
  SumMap (*block_map)(const GroupScratch& scratch, int block);
  // The terms of a block of the prepared group.
  void (*terms)(const GroupScratch& scratch, int block, float terms[kBlockTerms]);

  int groups(const PlanePair& pair) const { return (pair.blocks() + blocks - 1) / blocks; }
};

// The kernels that this processor runs, fastest first; never empty. "SCALAR" is plain code, where it was built.
const std::vector<GroupKernel>& GroupKernels();

// The kernel of that name, or the fastest if it is empty; null if this processor has none.
const GroupKernel* FindGroupKernel(const std::string& target);

// Adds the terms of a group to a sum's pattern.
uint32_t AddGroup(const GroupKernel& kernel, const PlanePair& pair, int group, GroupScratch* scratch, uint32_t bits);

// PlaneSumReference's value, computed with `kernel`.
float PlaneSumSimd(const PlaneView& reference, const PlaneView& distorted, int depth, int plane,
                   const GroupKernel& kernel);

}  // namespace psnrhvs
