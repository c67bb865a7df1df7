// The CPU engine against values that libvmaf computed, bit for bit.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>

#include "cpu/cpu_engine.h"
#include "cpu/score.h"
#include "tests/support/frames.h"

namespace psnrhvs::testing {
namespace {

// Scores one golden row and compares every double. A plane without a block is absent here where
// libvmaf reports NaN.
void ExpectGolden(const Golden& golden, const PicturePair& pictures) {
  SCOPED_TRACE(golden.name + " frame " + std::to_string(golden.frame));
  const auto geometry = FrameGeometry::Create(golden.width, golden.height, golden.chroma, golden.depth);
  double y;
  std::memcpy(&y, golden.score_bits.data(), sizeof(y));
  ASSERT_EQ(geometry.ok(), !std::isnan(y));
  if (!geometry.ok()) return;
  auto engine = CreateCpuEngine(*geometry, CpuEngineOptions{});
  ASSERT_TRUE(engine.ok());
  ASSERT_TRUE((*engine)->Submit(MakePair(pictures.reference, pictures.distorted)).ok());
  const Result<FrameScore> score = (*engine)->Collect();
  ASSERT_TRUE(score.ok());
  for (ScoreKind kind : kAllScoreKinds) {
    const uint64_t expected = golden.score_bits[static_cast<int>(kind)];
    double expected_db;
    std::memcpy(&expected_db, &expected, sizeof(expected_db));
    ASSERT_EQ(score->has(kind), !std::isnan(expected_db)) << static_cast<int>(kind);
    if (score->has(kind)) {
      EXPECT_EQ(Bits(score->score_db(kind)), expected) << score->score_db(kind);
    }
  }
}

// Scores all rows of a table; generated pictures are checked by their hash first.
void ExpectTable(const std::string& csv, const std::string& directory) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> hashes;
  for (const Golden& golden : ReadGoldens(csv)) {
    const PicturePair pictures = LoadGolden(golden, directory);
    if (golden.generated) {
      auto& [ref_hash, dis_hash] = hashes.try_emplace(golden.name, kFnvStart, kFnvStart).first->second;
      ref_hash = Fnv1a64(pictures.reference, ref_hash);
      dis_hash = Fnv1a64(pictures.distorted, dis_hash);
      if (golden.frame == golden.frames - 1) {
        ASSERT_EQ(ref_hash, golden.ref_hash) << golden.name;
        ASSERT_EQ(dis_hash, golden.dis_hash) << golden.name;
      }
    }
    ExpectGolden(golden, pictures);
  }
}

TEST(Golden, SmallGeneratedFramesMatchLibvmaf) { ExpectTable(DataDirectory() + "/generated.csv", ""); }

class SharedGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!SharedDirectory()) GTEST_SKIP() << "PSNRHVS_SHARED has no golden set";
  }
};

TEST_F(SharedGolden, StoredFramesMatchLibvmaf) {
  const std::string directory = *SharedDirectory() + "/golden";
  ExpectTable(directory + "/golden.csv", directory);
}

TEST_F(SharedGolden, GeneratedFramesUpTo8KMatchLibvmaf) {
  ExpectTable(*SharedDirectory() + "/golden/generated.csv", "");
}

// A pair of clips/values.csv's, and how it is laid out. `y4m`: a one-line header, and "FRAME\n" before each frame.
struct Clip {
  const char* name;
  const char* reference;
  const char* distorted;
  int width, height;
  Chroma chroma;
  int depth;
  bool y4m;
};

constexpr Clip kClips[] = {
    {"av-metrics_yuv420p8", "av-metrics/yuv420p8_input.y4m", "av-metrics/yuv420p8_output.y4m", 640, 360, Chroma::k420,
     8, true},
    {"av-metrics_yuv422p8", "av-metrics/yuv422p8_input.y4m", "av-metrics/yuv422p8_output.y4m", 640, 360, Chroma::k422,
     8, true},
    {"av-metrics_yuv444p8", "av-metrics/yuv444p8_input.y4m", "av-metrics/yuv444p8_output.y4m", 640, 360, Chroma::k444,
     8, true},
    {"av-metrics_yuv420p10", "av-metrics/yuv420p10_input.y4m", "av-metrics/yuv420p10_output.y4m", 640, 360,
     Chroma::k420, 10, true},
    {"src01_160x90_8bit", "vmaf_resource/src01_ref_160x90.yuv420p.yuv", "vmaf_resource/src01_dis_160x90.yuv420p.yuv",
     160, 90, Chroma::k420, 8, false},
    {"src01_576x324_10bit", "vmaf_resource/src01_hrc00_576x324.yuv420p10le.yuv",
     "vmaf_resource/src01_hrc01_576x324.yuv420p10le.yuv", 576, 324, Chroma::k420, 10, false},
    {"src01_576x324_12bit", "vmaf_resource/src01_hrc00_576x324.yuv420p12le.yuv",
     "vmaf_resource/src01_hrc01_576x324.yuv420p12le.yuv", 576, 324, Chroma::k420, 12, false},
};

Picture ReadClipFrame(const Clip& clip, const std::string& path, int n) {
  size_t offset = 0;
  if (clip.y4m) {
    std::ifstream file(path, std::ios::binary);
    std::string header;
    std::getline(file, header);
    offset = header.size() + 1;
  }
  return ReadPicture(path, clip.width, clip.height, clip.chroma, clip.depth, n, offset, clip.y4m ? 6 : 0);
}

TEST_F(SharedGolden, NaturalClipsMatchLibvmaf) {
  const std::string directory = *SharedDirectory() + "/clips/";
  std::ifstream values(directory + "values.csv");
  std::string line;
  ASSERT_TRUE(std::getline(values, line));
  int rows = 0;
  while (std::getline(values, line)) {
    char name[64];
    int frame;
    double expected[kScoreKinds];
    ASSERT_EQ(std::sscanf(line.c_str(), "%63[^,],%d,%lf,%lf,%lf,%lf", name, &frame, &expected[0], &expected[1],
                          &expected[2], &expected[3]),
              6);
    const Clip* clip = nullptr;
    for (const Clip& candidate : kClips) {
      if (std::string(candidate.name) == name) clip = &candidate;
    }
    ASSERT_NE(clip, nullptr) << name;
    Golden golden;
    golden.name = name;
    golden.width = clip->width;
    golden.height = clip->height;
    golden.chroma = clip->chroma;
    golden.depth = clip->depth;
    golden.frame = frame;
    for (int k = 0; k < kScoreKinds; ++k) golden.score_bits[k] = Bits(expected[k]);
    ExpectGolden(golden, {ReadClipFrame(*clip, directory + clip->reference, frame),
                          ReadClipFrame(*clip, directory + clip->distorted, frame)});
    ++rows;
  }
  EXPECT_EQ(rows, 66);
}

}  // namespace
}  // namespace psnrhvs::testing
