// Every vector version of the plane sum against the reference, bit for bit, over sizes, depths, layouts and contents.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/plane_sum.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/support/frames.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace psnrhvs::testing {
namespace {

// How a plane's samples lie in memory.
struct Layout {
  int step = 1;
  int shift = 0;
  int row_padding = 0;   // bytes after a row
  int misalignment = 0;  // bytes
  bool bottom_up = false;
  bool dirty = false;  // bits that are no part of the sample are set at random
};

// A plane in memory of its own that ends at a page that cannot be read. Between rows lies what must not be read.
class StoredPlane {
 public:
  StoredPlane(const std::vector<uint16_t>& samples, int width, int height, int depth, const Layout& layout,
              uint32_t seed) {
    std::mt19937 random(seed);
    const int sample_bytes = depth > 8 ? 2 : 1;
    // Of semi-planar rows the last sample's neighbour is left out: it need not be there.
    const size_t row_bytes = static_cast<size_t>((width - 1) * layout.step + 1) * sample_bytes;
    const size_t stride = row_bytes + static_cast<size_t>(layout.row_padding);
    const size_t bytes = stride * static_cast<size_t>(height - 1) + row_bytes;
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_ = (bytes + static_cast<size_t>(layout.misalignment) + page - 1) / page * page + page;
    memory_ = static_cast<uint8_t*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED || mprotect(memory_ + size_ - page, page, PROT_NONE) != 0) std::abort();
    // The last row ends `misalignment` bytes before the page that cannot be read.
    first_ = memory_ + size_ - page - static_cast<size_t>(layout.misalignment) - bytes;
    for (uint8_t* byte = memory_; byte < memory_ + size_ - page; ++byte) *byte = static_cast<uint8_t>(random());
    for (int y = 0; y < height; ++y) {
      const int stored = layout.bottom_up ? height - 1 - y : y;
      for (int x = 0; x < width; ++x) {
        uint32_t value = static_cast<uint32_t>(samples[static_cast<size_t>(y) * width + x]) << layout.shift;
        if (layout.dirty && sample_bytes == 2) value |= random() & ~(((1u << depth) - 1) << layout.shift);
        uint8_t* at = first_ + stride * stored + static_cast<size_t>(x) * layout.step * sample_bytes;
        at[0] = static_cast<uint8_t>(value);
        if (sample_bytes == 2) at[1] = static_cast<uint8_t>(value >> 8);
      }
      if (y + 1 < height) ASAN_POISON_MEMORY_REGION(first_ + stride * y + row_bytes, stride - row_bytes);
    }
    ASAN_POISON_MEMORY_REGION(memory_, static_cast<size_t>(first_ - memory_));
    ASAN_POISON_MEMORY_REGION(first_ + bytes, static_cast<size_t>(layout.misalignment));
    view_.data = layout.bottom_up ? first_ + stride * static_cast<size_t>(height - 1) : first_;
    view_.stride_bytes = layout.bottom_up ? -static_cast<ptrdiff_t>(stride) : static_cast<ptrdiff_t>(stride);
    view_.width = width;
    view_.height = height;
    view_.step = layout.step;
    view_.shift = layout.shift;
  }
  ~StoredPlane() {
    ASAN_UNPOISON_MEMORY_REGION(memory_, size_);
    munmap(memory_, size_);
  }
  StoredPlane(const StoredPlane&) = delete;
  StoredPlane& operator=(const StoredPlane&) = delete;

  const PlaneView& view() const { return view_; }

 private:
  uint8_t* memory_;
  size_t size_;
  uint8_t* first_;
  PlaneView view_;
};

using Samples = std::vector<uint16_t>;

struct Content {
  const char* name;
  // A sample of either image; `max` is the largest.
  int (*sample)(std::mt19937& random, int image, int x, int y, int max);
};

const Content kContents[] = {
    {"noise", [](std::mt19937& random, int, int, int,
                 int max) { return static_cast<int>(random() % (static_cast<unsigned>(max) + 1)); }},
    {"soft texture with errors",
     [](std::mt19937& random, int image, int x, int y, int max) {
       const int base = max / 3 + (x * 3 + y * 5) * max / 1024 % (max / 3);
       return base + static_cast<int>(random() % 8) * image;
     }},
    {"extremes", [](std::mt19937& random, int, int, int, int max) { return random() % 2 ? max : 0; }},
    {"black against white", [](std::mt19937&, int image, int, int, int max) { return image ? max : 0; }},
    {"identical", [](std::mt19937&, int, int x, int y, int max) { return (x * 37 + y * 101) % (max + 1); }},
    {"brighter by one", [](std::mt19937&, int image, int x, int y, int max) { return (x * 7 + y) % max + image; }},
    {"one sample in 200 differs",
     [](std::mt19937& random, int image, int x, int y, int max) {
       const bool hit = image == 1 && random() % 200 == 0;
       return hit ? max : (x * 5 + y * 3) % (max / 2);
     }},
    // All but equally masked: which of the images hides more is for the last bits to say.
    {"mirrored blocks",
     [](std::mt19937&, int image, int x, int y, int max) {
       const int column = x % kBlockStep;
       const int mirrored = image && column > 0 ? kBlockStep - column : column;
       const uint32_t hash = static_cast<uint32_t>(mirrored * 31 + y + 7) * 2654435761u;
       return static_cast<int>((hash >> 12) % (static_cast<unsigned>(max) + 1));
     }},
    {"flat against noise", [](std::mt19937& random, int image, int, int,
                              int max) { return image ? max / 2 + static_cast<int>(random() % 5) : max / 2; }},
};

Samples MakeSamples(const Content& content, int image, int width, int height, int depth, uint32_t seed) {
  std::mt19937 random(seed + static_cast<uint32_t>(image));
  Samples samples(static_cast<size_t>(width) * height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      samples[static_cast<size_t>(y) * width + x] =
          static_cast<uint16_t>(content.sample(random, image, x, y, (1 << depth) - 1));
    }
  }
  return samples;
}

class PlaneSum : public ::testing::TestWithParam<std::string> {
 protected:
  const GroupKernel& kernel() const { return *FindGroupKernel(GetParam()); }

  void ExpectEqual(const PlaneView& reference, const PlaneView& distorted, int depth, int plane) const {
    const float expected = PlaneSumReference(reference, distorted, depth, plane);
    const float actual = PlaneSumSimd(reference, distorted, depth, plane, kernel());
    ASSERT_EQ(Bits(actual), Bits(expected)) << reference.width << "x" << reference.height << " depth " << depth
                                            << " plane " << plane << ": " << actual << " for " << expected;
  }

  void ExpectEqual(const Content& content, int width, int height, int depth, const Layout& reference_layout,
                   const Layout& distorted_layout, uint32_t seed) const {
    SCOPED_TRACE(content.name);
    const StoredPlane reference(MakeSamples(content, 0, width, height, depth, seed), width, height, depth,
                                reference_layout, seed);
    const StoredPlane distorted(MakeSamples(content, 1, width, height, depth, seed), width, height, depth,
                                distorted_layout, seed + 1);
    ExpectEqual(reference.view(), distorted.view(), depth, static_cast<int>(seed % 3));
  }
};

std::vector<std::string> Targets() {
  std::vector<std::string> targets;
  for (const GroupKernel& kernel : GroupKernels()) targets.emplace_back(kernel.target);
  return targets;
}

INSTANTIATE_TEST_SUITE_P(Targets, PlaneSum, ::testing::ValuesIn(Targets()),
                         [](const ::testing::TestParamInfo<std::string>& info) { return info.param; });

TEST_P(PlaneSum, EqualsTheReferenceAtEverySmallSize) {
  uint32_t seed = 1;
  for (int width = 8; width <= 40; ++width) {
    for (int height = 8; height <= 40; ++height) {
      for (int depth : {8, 10, 12}) {
        const Content& content = kContents[seed % std::size(kContents)];
        ASSERT_NO_FATAL_FAILURE(ExpectEqual(content, width, height, depth, Layout(), Layout(), seed));
        seed += 5;
      }
    }
  }
}

TEST_P(PlaneSum, EqualsTheReferenceAroundTheEdgesOfGroups) {
  uint32_t seed = 1;
  for (int blocks : {7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
    for (int extra : {0, 1, 2, 6}) {
      for (int depth = 8; depth <= 12; ++depth) {
        for (const Content& content : kContents) {
          ASSERT_NO_FATAL_FAILURE(
              ExpectEqual(content, 7 * blocks + 1 + extra, 15 + extra, depth, Layout(), Layout(), seed));
          ++seed;
        }
      }
    }
  }
}

TEST_P(PlaneSum, EqualsTheReferenceInEveryLayout) {
  uint32_t seed = 1;
  std::vector<Layout> layouts;
  for (int step : {1, 2}) {
    for (int row_padding : {0, 1, 13, 64}) {
      for (int misalignment : {0, 1, 2, 5, 31}) {
        for (bool bottom_up : {false, true}) layouts.push_back({step, 0, row_padding, misalignment, bottom_up, false});
      }
    }
  }
  for (const Layout& layout : layouts) {
    for (int depth : {8, 10, 12}) {
      for (int width : {8, 23, 121, 240}) {
        Layout padded = layout;
        padded.dirty = depth > 8;
        // Both alike, then one of them as P010 and P012 have it, then against a packed planar one.
        const Content& content = kContents[seed % std::size(kContents)];
        ASSERT_NO_FATAL_FAILURE(ExpectEqual(content, width, 29, depth, padded, padded, seed));
        Layout shifted = padded;
        shifted.shift = depth > 8 ? 16 - depth : 0;
        ASSERT_NO_FATAL_FAILURE(ExpectEqual(content, width, 22, depth, shifted, padded, seed));
        ASSERT_NO_FATAL_FAILURE(ExpectEqual(content, width, 22, depth, Layout(), shifted, seed));
        ++seed;
      }
    }
  }
}

TEST_P(PlaneSum, EqualsTheReferenceOnEverySignPatternAtFullSwing) {
  // One block a plane: the samples that drive one coefficient as high as it goes, and their negative.
  for (int depth = 8; depth <= 12; ++depth) {
    const int max = (1 << depth) - 1;
    for (int pattern = 0; pattern < kBlockTerms; ++pattern) {
      Samples images[2];
      for (int image = 0; image < 2; ++image) {
        for (int k = 0; k < kBlockTerms; ++k) {
          const int row = k / 8, vertical_frequency = pattern / 8;
          const int column = k % 8, horizontal_frequency = pattern % 8;
          const double vertical = std::cos(M_PI * (2 * row + 1) * vertical_frequency / 16);
          const double horizontal = std::cos(M_PI * (2 * column + 1) * horizontal_frequency / 16);
          images[image].push_back(static_cast<uint16_t>((vertical * horizontal >= 0) == (image == 0) ? max : 0));
        }
      }
      const StoredPlane reference(images[0], 8, 8, depth, Layout(), 1);
      const StoredPlane distorted(images[1], 8, 8, depth, Layout(), 2);
      SCOPED_TRACE(pattern);
      for (int plane = 0; plane < kMaxPlanes; ++plane) {
        ASSERT_NO_FATAL_FAILURE(ExpectEqual(reference.view(), distorted.view(), depth, plane));
        ASSERT_NO_FATAL_FAILURE(ExpectEqual(distorted.view(), reference.view(), depth, plane));
      }
    }
  }
}

TEST_P(PlaneSum, EqualsTheReferenceOnOrdinaryFrames) {
  for (int depth : {8, 10, 12}) {
    for (const char* distortion : {"quant:24:0:1", "grain:4:0:1", "shift:1:0:1", "onepix:0:0:1", "scene:0:0:1"}) {
      const Picture reference = GeneratePicture("scene:0:0:1", 533, 301, Chroma::k420, depth, 0);
      const Picture distorted = GeneratePicture(distortion, 533, 301, Chroma::k420, depth, 0);
      const FramePair pair = MakePair(reference, distorted);
      for (int plane = 0; plane < kMaxPlanes; ++plane) {
        SCOPED_TRACE(distortion);
        ASSERT_NO_FATAL_FAILURE(ExpectEqual(pair.reference.planes[plane], pair.distorted.planes[plane], depth, plane));
      }
    }
  }
}

TEST(PlaneSumLarge, EqualsTheReferenceAt4KAnd8K) {
  struct Case {
    int width, height, depth;
  };
  for (const Case& c : {Case{3840, 2160, 8}, Case{3840, 2160, 10}, Case{3840, 2160, 12}, Case{7680, 4320, 8}}) {
    const Picture reference = GeneratePicture("scene:0:0:1", c.width, c.height, Chroma::k420, c.depth, 0);
    const Picture distorted = GeneratePicture("quant:24:0:1", c.width, c.height, Chroma::k420, c.depth, 0);
    const FramePair pair = MakePair(reference, distorted);
    for (int plane = 0; plane < kMaxPlanes; ++plane) {
      const PlaneView& a = pair.reference.planes[plane];
      const PlaneView& b = pair.distorted.planes[plane];
      const uint32_t expected = Bits(PlaneSumReference(a, b, c.depth, plane));
      for (const GroupKernel& kernel : GroupKernels()) {
        if (std::string(kernel.target) == "SCALAR") continue;
        EXPECT_EQ(Bits(PlaneSumSimd(a, b, c.depth, plane, kernel)), expected)
            << kernel.target << " " << c.width << " depth " << c.depth << " plane " << plane;
      }
    }
  }
}

TEST(GroupKernels, AreFoundByNameAndTheFastestWithoutOne) {
  ASSERT_FALSE(GroupKernels().empty());
  EXPECT_EQ(FindGroupKernel(""), &GroupKernels().front());
  for (const GroupKernel& kernel : GroupKernels()) EXPECT_EQ(FindGroupKernel(kernel.target), &kernel);
  EXPECT_EQ(FindGroupKernel("MMX"), nullptr);
}

}  // namespace
}  // namespace psnrhvs::testing
