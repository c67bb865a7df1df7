// The kernels themselves, compiled for the host and run by the emulated device: against the CPU engine, bit
// for bit, whatever is predicted, kept or missing.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cuda/kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/plane_sum.h"
#include "tests/cuda/emulated_device.h"
#include "tests/support/frames.h"
// The device code, after what stands for its language.
#include "cuda/kernels.cu"

namespace psnrhvs::testing {
namespace {

struct Guesses {
  int exponent_error = 0;
  int max_kept = 1000;
  int resident = 3;  // thread blocks
};

// What the engine keeps on the device for one slot.
class EmulatedSlot {
 public:
  explicit EmulatedSlot(const FrameGeometry& geometry) : geometry_(geometry) {
    tiles_ = LayOutTiles(geometry, &layout_);
    records_.resize(static_cast<size_t>(tiles_.total));
    tile_sums_.resize(static_cast<size_t>(tiles_.total));
    group_sums_.resize(2 * static_cast<size_t>(tiles_.groups));
    kept_.resize(static_cast<size_t>(tiles_.total) * kKeptTileBytes / sizeof(float4));
    tile_terms_.resize(static_cast<size_t>(tiles_.total) * kTileBlocks * kBlockTerms);
    tile_counts_.resize(static_cast<size_t>(tiles_.total));
  }

  // The planes' sums by the device's reduction.
  std::array<uint32_t, kMaxPlanes> Sums(const FramePair& pair, const Guesses& guesses) {
    KernelParams params = Params(pair);
    params.exponent_error = guesses.exponent_error;
    params.max_kept = std::min(guesses.max_kept, tiles_.total);
    Run(params, guesses.resident);
    std::array<uint32_t, kMaxPlanes> sums{};
    for (int p = 0; p < geometry_.scored_planes(); ++p) {
      EXPECT_EQ(results_[p] >> 32, epoch_) << "no result";
      sums[p] = static_cast<uint32_t>(results_[p]);
    }
    return sums;
  }

  // The same by the host's reduction.
  std::array<uint32_t, kMaxPlanes> HostSums(const FramePair& pair) {
    KernelParams params = Params(pair);
    params.tile_terms = tile_terms_.data();
    params.tile_counts = tile_counts_.data();
    Run(params, 1);
    GatherParams gather{};
    gather.tile_terms = tile_terms_.data();
    gather.tile_counts = tile_counts_.data();
    std::copy(tiles_.first.begin(), tiles_.first.end(), gather.first_tiles);
    std::vector<float> terms(tile_terms_.size());
    std::array<uint32_t, kMaxPlanes> counts{};
    gather.terms = terms.data();
    gather.counts = counts.data();
    emulated_device::Launch(static_cast<unsigned>(tiles_.total), kTileBlocks, 1, nullptr, 0,
                            [&] { psnrhvs_gather_terms(gather); });
    std::array<uint32_t, kMaxPlanes> sums{};
    const float* next = terms.data();
    for (int p = 0; p < geometry_.scored_planes(); ++p) {
      for (uint32_t i = 0; i < counts[p]; ++i) EXPECT_NE(next[i], 0.0f);
      sums[p] = FloatBits(AddSerially(0.0f, next, static_cast<int>(counts[p])));
      next += counts[p];
    }
    return sums;
  }

  int tiles() const { return tiles_.total; }

 private:
  KernelParams Params(const FramePair& pair) {
    KernelParams params = layout_;
    const FrameView* frames[] = {&pair.reference, &pair.distorted};
    for (int image = 0; image < 2; ++image) {
      for (int p = 0; p < geometry_.scored_planes(); ++p) {
        const PlaneView& view = frames[image]->planes[p];
        DevicePlane& plane = params.planes[p].images[image];
        const ptrdiff_t row_bytes =
            (static_cast<ptrdiff_t>(view.width - 1) * view.step + 1) * geometry_.bytes_per_sample();
        plane.data = view.data;
        plane.stride = static_cast<int32_t>(view.stride_bytes);
        plane.end = view.Row(view.stride_bytes < 0 ? 0 : view.height - 1) + row_bytes;
        plane.step = static_cast<int16_t>(view.step);
        plane.shift = static_cast<int16_t>(view.shift);
      }
    }
    params.epoch = ++epoch_;
    params.ticket_base = ticket_base_;
    ticket_base_ += tiles_.grid;
    params.tickets = counters_.data();
    params.stored = counters_.data() + 1;
    params.tile_sums = tile_sums_.data();
    params.group_sums = group_sums_.data();
    params.records = records_.data();
    params.kept_terms = reinterpret_cast<float*>(kept_.data());
    params.team_sums = team_sums_.data();
    params.results = results_.data();
    return params;
  }

  void Run(const KernelParams& params, int resident) {
    emulated_device::Launch(tiles_.grid, kTileBlocks, resident, &shared, sizeof(shared), [&] {
      geometry_.bytes_per_sample() == 1 ? psnrhvs_score_8(params) : psnrhvs_score_16(params);
    });
  }

  const FrameGeometry geometry_;
  KernelParams layout_{};
  TileLayout tiles_;
  uint32_t epoch_ = 0;
  uint32_t ticket_base_ = 0;
  std::array<uint32_t, 3> counters_{};
  std::array<uint64_t, kMaxSegments> team_sums_{};
  std::array<uint64_t, kMaxPlanes> results_{};
  std::vector<PackedRecord> records_;
  std::vector<uint64_t> tile_sums_;
  std::vector<uint64_t> group_sums_;
  std::vector<float4> kept_;
  std::vector<float> tile_terms_;
  std::vector<uint32_t> tile_counts_;
};

std::array<uint32_t, kMaxPlanes> ReferenceSums(const FrameGeometry& geometry, const FramePair& pair) {
  std::array<uint32_t, kMaxPlanes> sums{};
  for (int p = 0; p < geometry.scored_planes(); ++p) {
    sums[p] = FloatBits(PlaneSumReference(pair.reference.planes[p], pair.distorted.planes[p], geometry.depth(), p));
  }
  return sums;
}

struct Content {
  const char* reference;
  const char* distorted;
};
constexpr Content kContents[] = {
    {"scene:0:0:1", "quant:24:0:1"},    {"noise:0:0:1", "invnoise:0:0:1"}, {"checker:1:0:0", "checker:1:1:0"},
    {"const:16:0:0", "const:17:0:0"},   {"scene:0:0:1", "scene:0:0:1"},    {"scene:0:0:1", "onepix:0:0:1"},
    {"checker:8:0:0", "checker:8:1:0"},
};

TEST(Kernels, BothReductionsEqualTheReferenceForEveryChromaAndDepth) {
  for (int depth : {8, 9, 10, 12}) {
    for (Chroma chroma : {Chroma::k400, Chroma::k420, Chroma::k444}) {
      const FrameGeometry geometry = *FrameGeometry::Create(131, 93, chroma, depth);
      EmulatedSlot slot(geometry);
      for (const Content& content : kContents) {
        SCOPED_TRACE(std::string(content.distorted) + " " + ChromaName(chroma) + " " + std::to_string(depth));
        const Picture reference = GeneratePicture(content.reference, 131, 93, chroma, depth, 0);
        const Picture distorted = GeneratePicture(content.distorted, 131, 93, chroma, depth, 0);
        const FramePair pair = MakePair(reference, distorted);
        const auto expected = ReferenceSums(geometry, pair);
        EXPECT_EQ(slot.Sums(pair, Guesses{}), expected);
        EXPECT_EQ(slot.HostSums(pair), expected);
      }
    }
  }
}

TEST(Kernels, WrongPredictionsAndMissingTermsCostNoBits) {
  for (int depth : {8, 10}) {
    const FrameGeometry geometry = *FrameGeometry::Create(520, 300, Chroma::k420, depth);
    EmulatedSlot slot(geometry);
    EXPECT_GT(slot.tiles(), 32);  // more than one segment of the luma plane would need
    for (const char* formula : {"quant:24:0:1", "noise:0:0:2"}) {
      const Picture reference = GeneratePicture("scene:0:0:1", 520, 300, Chroma::k420, depth, 0);
      const Picture distorted = GeneratePicture(formula, 520, 300, Chroma::k420, depth, 0);
      const FramePair pair = MakePair(reference, distorted);
      const auto expected = ReferenceSums(geometry, pair);
      for (const Guesses& guesses : {Guesses{}, Guesses{0, 0, 1}, Guesses{0, 2, 7}, Guesses{-1, 1000, 3},
                                     Guesses{1, 1000, 5}, Guesses{300, 1000, 2}, Guesses{-300, 0, 4}}) {
        SCOPED_TRACE(std::string(formula) + ", error " + std::to_string(guesses.exponent_error) + ", kept " +
                     std::to_string(guesses.max_kept) + ", resident " + std::to_string(guesses.resident));
        EXPECT_EQ(slot.Sums(pair, guesses), expected);
      }
    }
  }
}

TEST(Kernels, ManyThreadBlocksInFlightAndManySegmentsGiveTheSameSum) {
  const FrameGeometry geometry = *FrameGeometry::Create(1150, 640, Chroma::k400, 8);
  EmulatedSlot slot(geometry);
  const Picture reference = GeneratePicture("scene:0:0:1", 1150, 640, Chroma::k400, 8, 0);
  const Picture distorted = GeneratePicture("quant:24:0:1", 1150, 640, Chroma::k400, 8, 0);
  const FramePair pair = MakePair(reference, distorted);
  const auto expected = ReferenceSums(geometry, pair);
  for (int resident : {1, 2, 13, 60}) {
    SCOPED_TRACE(resident);
    EXPECT_EQ(slot.Sums(pair, Guesses{0, 1000, resident}), expected);
  }
}

// Every address is checked if the suite is built with AddressSanitizer; here the values.
TEST(Kernels, ReadEveryLayout) {
  constexpr int kWidth = 60, kHeight = 37;
  for (int depth : {8, 10}) {
    const int bytes = depth > 8 ? 2 : 1;
    const FrameGeometry geometry = *FrameGeometry::Create(kWidth, kHeight, Chroma::k400, depth);
    const Picture reference = GeneratePicture("scene:0:0:1", kWidth, kHeight, Chroma::k400, depth, 0);
    const Picture distorted = GeneratePicture("quant:16:0:1", kWidth, kHeight, Chroma::k400, depth, 0);
    const auto expected = ReferenceSums(geometry, MakePair(reference, distorted));
    EmulatedSlot slot(geometry);
    for (int step : {1, 2}) {
      for (int padding : {0, 1, 4}) {
        for (int offset : {0, 1, 2, 3}) {
          for (bool upwards : {false, true}) {
            SCOPED_TRACE("depth " + std::to_string(depth) + ", step " + std::to_string(step) + ", padding " +
                         std::to_string(padding) + ", offset " + std::to_string(offset) + (upwards ? ", upwards" : ""));
            const int shift = depth > 8 ? 6 : 0;
            const size_t stride = static_cast<size_t>(kWidth) * step * bytes + padding;
            const size_t row_bytes = (static_cast<size_t>(kWidth - 1) * step + 1) * bytes;
            // Ends with the last sample; one aligned word may begin before `offset`.
            std::vector<uint8_t> memory(static_cast<size_t>(offset) + stride * (kHeight - 1) + row_bytes, 0x5a);
            for (int y = 0; y < kHeight; ++y) {
              uint8_t* row = memory.data() + offset + stride * static_cast<size_t>(upwards ? kHeight - 1 - y : y);
              for (int x = 0; x < kWidth; ++x) {
                const uint8_t* sample = reference.planes[0].data() + (y * kWidth + x) * bytes;
                const uint32_t value = bytes == 1 ? sample[0] : (sample[0] | sample[1] << 8) << shift | 0x15;
                row[x * step * bytes] = static_cast<uint8_t>(value);
                if (bytes == 2) row[x * step * bytes + 1] = static_cast<uint8_t>(value >> 8);
              }
            }
            FramePair pair = MakePair(reference, distorted);
            PlaneView& view = pair.reference.planes[0];
            view.step = step;
            view.shift = shift;
            view.data = memory.data() + offset + (upwards ? stride * (kHeight - 1) : 0);
            view.stride_bytes = upwards ? -static_cast<ptrdiff_t>(stride) : static_cast<ptrdiff_t>(stride);
            EXPECT_EQ(slot.Sums(pair, Guesses{}), expected);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace psnrhvs::testing
