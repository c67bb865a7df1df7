// The CPU engine against the reference: one frame shared by any number of threads keeps its bits.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/cpu_engine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "cpu/plane_sum.h"
#include "tests/support/frames.h"

namespace psnrhvs::testing {
namespace {

struct Pictures {
  Picture reference;
  Picture distorted;
};

Pictures Make(const std::string& reference, const std::string& distorted, int width, int height, Chroma chroma,
              int depth) {
  return {GeneratePicture(reference, width, height, chroma, depth, 0),
          GeneratePicture(distorted, width, height, chroma, depth, 0)};
}

FrameGeometry GeometryOf(const Picture& picture) {
  return *FrameGeometry::Create(picture.width, picture.height, picture.chroma, picture.depth);
}

FrameScore ReferenceScore(const Pictures& pictures) {
  const FrameGeometry geometry = GeometryOf(pictures.reference);
  const FramePair pair = MakePair(pictures.reference, pictures.distorted);
  std::array<float, kMaxPlanes> sums{};
  for (int plane = 0; plane < geometry.scored_planes(); ++plane) {
    sums[plane] =
        PlaneSumReference(pair.reference.planes[plane], pair.distorted.planes[plane], geometry.depth(), plane);
  }
  return ScoreFrame(geometry, sums);
}

std::unique_ptr<Engine> MakeEngine(const FrameGeometry& geometry, int threads, const std::string& target = "") {
  CpuEngineOptions options;
  options.threads = threads;
  options.target = target;
  auto engine = CreateCpuEngine(geometry, options);
  if (!engine.ok()) ADD_FAILURE() << engine.status().message();
  return std::move(*engine);
}

void ExpectScore(Engine* engine, const Pictures& pictures, const FrameScore& expected) {
  ASSERT_TRUE(engine->Submit(MakePair(pictures.reference, pictures.distorted)).ok());
  const Result<FrameScore> score = engine->Collect();
  ASSERT_TRUE(score.ok());
  ASSERT_EQ(score->scored_planes, expected.scored_planes);
  for (ScoreKind kind : kAllScoreKinds) {
    if (!expected.has(kind)) continue;
    ASSERT_EQ(Bits(score->error(kind)), Bits(expected.error(kind))) << static_cast<int>(kind);
    ASSERT_EQ(Bits(score->score_db(kind)), Bits(expected.score_db(kind))) << static_cast<int>(kind);
  }
}

constexpr int kThreadCounts[] = {1, 2, 3, 4, 7, 16, 100};

TEST(CpuEngine, EqualsTheReferenceWithAnyNumberOfThreads) {
  struct Case {
    int width, height;
    Chroma chroma;
    int depth;
  };
  for (const Case& c :
       {Case{8, 8, Chroma::k400, 8}, Case{16, 16, Chroma::k420, 8}, Case{1000, 15, Chroma::k400, 10},
        Case{15, 700, Chroma::k422, 8}, Case{353, 287, Chroma::k420, 8}, Case{353, 287, Chroma::k422, 10},
        Case{353, 287, Chroma::k444, 12}, Case{1280, 720, Chroma::k420, 8}}) {
    const Pictures pictures = Make("scene:0:0:1", "quant:24:0:1", c.width, c.height, c.chroma, c.depth);
    const FrameScore expected = ReferenceScore(pictures);
    for (int threads : kThreadCounts) {
      SCOPED_TRACE(std::to_string(c.width) + "x" + std::to_string(c.height) + " with " + std::to_string(threads) +
                   " threads");
      const auto engine = MakeEngine(GeometryOf(pictures.reference), threads);
      for (int frame = 0; frame < 3; ++frame) ASSERT_NO_FATAL_FAILURE(ExpectScore(engine.get(), pictures, expected));
    }
  }
}

TEST(CpuEngine, EqualsTheReferenceWithEveryTarget) {
  for (int depth : {8, 10, 12}) {
    const Pictures pictures = Make("scene:0:0:3", "grain:5:0:3", 641, 363, Chroma::k420, depth);
    const FrameScore expected = ReferenceScore(pictures);
    for (const GroupKernel& kernel : GroupKernels()) {
      for (int threads : {1, 4}) {
        SCOPED_TRACE(kernel.target);
        const auto engine = MakeEngine(GeometryOf(pictures.reference), threads, kernel.target);
        ASSERT_NO_FATAL_FAILURE(ExpectScore(engine.get(), pictures, expected));
      }
    }
  }
}

TEST(CpuEngine, KeepsItsBitsWhenEveryFrameRefutesWhatTheLastOnePredicts) {
  // Sums of consecutive frames that differ by many binades, and grow unevenly within a frame.
  std::vector<Pictures> frames;
  std::vector<FrameScore> expected;
  for (const char* distorted : {"noise:0:0:9", "scene:0:0:1", "onepix:0:0:1", "grain:1:0:1", "invnoise:0:0:1",
                                "const:3:0:0", "shift:1:0:1", "checker:8:0:0"}) {
    frames.push_back(Make("scene:0:0:1", distorted, 320, 240, Chroma::k444, 8));
    expected.push_back(ReferenceScore(frames.back()));
  }
  // Only the lower right quarter differs, so that the sum starts late.
  frames.push_back(Make("scene:0:0:1", "scene:0:0:1", 320, 240, Chroma::k444, 8));
  for (int y = 120; y < 240; ++y) {
    for (int x = 160; x < 320; ++x) frames.back().distorted.planes[0][y * 320 + x] ^= 0x55;
  }
  expected.push_back(ReferenceScore(frames.back()));
  for (int threads : kThreadCounts) {
    const auto engine = MakeEngine(GeometryOf(frames[0].reference), threads);
    for (int round = 0; round < 4; ++round) {
      for (size_t i = 0; i < frames.size(); ++i) {
        SCOPED_TRACE(i);
        ASSERT_NO_FATAL_FAILURE(ExpectScore(engine.get(), frames[(i * (round + 1)) % frames.size()],
                                            expected[(i * (round + 1)) % frames.size()]));
      }
    }
  }
}

TEST(CpuEngine, HoldsOnePairAndSaysSo) {
  const Pictures pictures = Make("scene:0:0:1", "quant:24:0:1", 64, 64, Chroma::k420, 8);
  const auto engine = MakeEngine(GeometryOf(pictures.reference), 2);
  EXPECT_EQ(engine->depth(), 1);
  EXPECT_STREQ(engine->backend(), "cpu");
  EXPECT_EQ(engine->Collect().status().code(), StatusCode::kInternal);
  const FramePair pair = MakePair(pictures.reference, pictures.distorted);
  EXPECT_TRUE(engine->Submit(pair).ok());
  EXPECT_EQ(engine->Submit(pair).code(), StatusCode::kInternal);
  EXPECT_TRUE(engine->Collect().ok());
  EXPECT_TRUE(engine->Submit(pair).ok());
  EXPECT_TRUE(engine->Collect().ok());
}

TEST(CpuEngine, IsDestroyedWithAPairInFlight) {
  for (int threads : {1, 2, 5}) {
    for (int round = 0; round < 20; ++round) {
      const Pictures pictures = Make("scene:0:0:1", "quant:24:0:1", 200, 100, Chroma::k420, 8);
      const auto engine = MakeEngine(GeometryOf(pictures.reference), threads);
      ASSERT_TRUE(engine->Submit(MakePair(pictures.reference, pictures.distorted)).ok());
    }
  }
}

// Lets the process have only this much more memory, and exits with the code that an engine's creation then gives.
[[noreturn]] void CreateWithin(size_t bytes, const FrameGeometry& geometry, int threads) {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t limit = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit limits = {limit, limit};
  if (setrlimit(RLIMIT_AS, &limits) != 0) std::_Exit(100);
  CpuEngineOptions options;
  options.threads = threads;
  const auto engine = CreateCpuEngine(geometry, options);
  std::fprintf(stderr, "%s\n", engine.status().message().c_str());
  std::_Exit(static_cast<int>(engine.status().code()));
}

TEST(CpuEngineDeathTest, SaysSoIfMemoryOrThreadsCannotBeHad) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take more memory than the limit";
#endif
  // A thread's stack takes 8 MiB, and this frame's maps as much.
  EXPECT_EXIT(CreateWithin(4 << 20, *FrameGeometry::Create(64, 64, Chroma::k420, 8), 4),
              ::testing::ExitedWithCode(static_cast<int>(StatusCode::kUnavailable)),
              "cannot start the cpu engine's threads: ");
  EXPECT_EXIT(CreateWithin(4 << 20, *FrameGeometry::Create(32768, 32768, Chroma::k444, 8), 4),
              ::testing::ExitedWithCode(static_cast<int>(StatusCode::kOutOfMemory)),
              "not enough memory to start the cpu engine's threads");
  EXPECT_EXIT(CreateWithin(1 << 30, *FrameGeometry::Create(64, 64, Chroma::k420, 8), 4), ::testing::ExitedWithCode(0),
              "");
}

TEST(CpuEngine, RefusesATargetThatTheProcessorDoesNotHave) {
  CpuEngineOptions options;
  options.target = "MMX";
  const auto engine = CreateCpuEngine(*FrameGeometry::Create(64, 64, Chroma::k420, 8), options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(engine.status().message().find("MMX"), std::string::npos);
}

}  // namespace
}  // namespace psnrhvs::testing
