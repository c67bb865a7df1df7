// The CUDA engine against libvmaf's values and the CPU engine, bit for bit. Exits 77 without a device.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <thread>

#include "cpu/cpu_engine.h"
#include "cuda/cuda_engine.h"
#include "cuda/handles.h"
#include "tests/support/frames.h"

namespace psnrhvs::testing {
namespace {

const CudaDriver& Driver() { return **LoadCudaDriver(); }

// The primary context of device 0, current in this thread.
class PrimaryContext {
 public:
  PrimaryContext()
      : holder_(std::move(*ContextHolder::Create(Driver(), nullptr, 0))), current_(Driver(), holder_.get()) {}
  CUcontext get() const { return holder_.get(); }

 private:
  ContextHolder holder_;
  ScopedContext current_;
};

// How a frame is laid out for a test.
struct Layout {
  const char* name = "packed";
  Memory memory = Memory::kHost;
  int padding = 0;  // bytes a row
  int offset = 0;   // bytes before the first row
  bool semi_planar = false;
  bool bottom_up = false;
  int shift = 0;
  bool dirty = false;  // unused bits of a sample are set at random
};

// A frame in memory of the layout's kind that ends exactly with its last sample.
class Frame {
 public:
  Frame(const Picture& picture, const Layout& layout) {
    const auto geometry = FrameGeometry::Create(picture.width, picture.height, picture.chroma, picture.depth);
    const int sample_bytes = picture.BytesPerSample();
    std::mt19937 random(5);
    view_.memory = layout.memory;
    for (int p = 0; p < geometry->scored_planes(); ++p) {
      PlaneView& view = view_.planes[p];
      view.width = geometry->plane_width(p);
      view.height = geometry->plane_height(p);
      view.step = layout.semi_planar && p > 0 ? 2 : 1;
      view.shift = layout.shift;
      const size_t row_bytes = static_cast<size_t>(view.width) * view.step * sample_bytes;
      const size_t stride = row_bytes + static_cast<size_t>(layout.padding);
      const size_t bytes =
          static_cast<size_t>(layout.offset) + stride * static_cast<size_t>(view.height - 1) + row_bytes;
      const bool shares = view.step == 2 && p == 2;
      if (!shares) {
        bytes_.emplace_back(bytes);
        for (uint8_t& byte : bytes_.back()) byte = static_cast<uint8_t>(random());
      }
      const size_t first = static_cast<size_t>(layout.offset) + static_cast<size_t>(shares ? sample_bytes : 0);
      const uint32_t mask = (1u << picture.depth) - 1;
      for (int y = 0; y < view.height; ++y) {
        for (int x = 0; x < view.width; ++x) {
          const uint8_t* source =
              &picture.planes[p][(static_cast<size_t>(y) * picture.StoredWidth(p) + x) * sample_bytes];
          uint32_t value = sample_bytes == 1 ? source[0] : source[0] | source[1] << 8;
          value <<= layout.shift;
          if (layout.dirty) value |= random() & ~(mask << layout.shift);
          const int row = layout.bottom_up ? view.height - 1 - y : y;
          uint8_t* target = &bytes_.back()[first + static_cast<size_t>(row) * stride +
                                           static_cast<size_t>(x) * view.step * sample_bytes];
          target[0] = static_cast<uint8_t>(value);
          if (sample_bytes == 2) target[1] = static_cast<uint8_t>(value >> 8);
        }
      }
      view.stride_bytes = layout.bottom_up ? -static_cast<ptrdiff_t>(stride) : static_cast<ptrdiff_t>(stride);
      offsets_[p] = first + (layout.bottom_up ? stride * static_cast<size_t>(view.height - 1) : 0);
      vectors_[p] = bytes_.size() - 1;
    }
    for (size_t v = 0; v < bytes_.size(); ++v) Place(bytes_[v]);
    for (int p = 0; p < geometry->scored_planes(); ++p) {
      view_.planes[p].data = addresses_[vectors_[p]] + offsets_[p];
    }
  }
  Frame(const Frame&) = delete;
  ~Frame() {
    for (void* memory : pinned_) FreePinned(CudaTarget{}, memory);
  }

  const FrameView& view() const { return view_; }

 private:
  void Place(std::vector<uint8_t>& bytes) {
    if (view_.memory == Memory::kHost) {
      addresses_.push_back(bytes.data());
    } else if (view_.memory == Memory::kPinnedHost) {
      auto memory = AllocatePinned(CudaTarget{}, bytes.size());
      EXPECT_TRUE(memory.ok()) << memory.status().message();
      std::memcpy(*memory, bytes.data(), bytes.size());
      pinned_.push_back(*memory);
      addresses_.push_back(static_cast<uint8_t*>(*memory));
    } else {
      CUdeviceptr address = 0;
      EXPECT_EQ(Driver().MemAlloc(&address, bytes.size()), CUDA_SUCCESS);
      device_.emplace_back(Driver(), address);
      EXPECT_EQ(Driver().MemcpyHtoDAsync(address, bytes.data(), bytes.size(), nullptr), CUDA_SUCCESS);
      EXPECT_EQ(Driver().StreamSynchronize(nullptr), CUDA_SUCCESS);
      addresses_.push_back(reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(address)));
    }
  }

  PrimaryContext context_;
  FrameView view_;
  std::deque<std::vector<uint8_t>> bytes_;
  std::vector<const uint8_t*> addresses_;
  std::vector<void*> pinned_;
  std::vector<DeviceMemory> device_;
  size_t offsets_[kMaxPlanes] = {};
  size_t vectors_[kMaxPlanes] = {};
};

FrameGeometry GeometryOf(const Picture& picture) {
  return *FrameGeometry::Create(picture.width, picture.height, picture.chroma, picture.depth);
}

std::unique_ptr<Engine> MakeEngine(const FrameGeometry& geometry, const CudaEngineOptions& options = {}) {
  auto engine = CreateCudaEngine(geometry, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

FrameScore ScoreOne(Engine& engine, const FramePair& pair) {
  const Status status = engine.Submit(pair);
  EXPECT_TRUE(status.ok()) << status.message();
  const Result<FrameScore> score = engine.Collect();
  EXPECT_TRUE(score.ok()) << score.status().message();
  return score.ok() ? *score : FrameScore{};
}

FrameScore CpuScore(const Picture& reference, const Picture& distorted) {
  auto engine = CreateCpuEngine(GeometryOf(reference), CpuEngineOptions{});
  return ScoreOne(**engine, MakePair(reference, distorted));
}

void ExpectSameScore(const FrameScore& score, const FrameScore& expected) {
  ASSERT_EQ(score.scored_planes, expected.scored_planes);
  for (int p = 0; p < expected.scored_planes; ++p) {
    EXPECT_EQ(Bits(score.plane_error[p]), Bits(expected.plane_error[p])) << "plane " << p;
  }
  for (ScoreKind kind : kAllScoreKinds) {
    if (expected.has(kind)) {
      EXPECT_EQ(Bits(score.score_db(kind)), Bits(expected.score_db(kind)));
    }
  }
}

std::vector<CudaEngineOptions> Reductions() {
  std::vector<CudaEngineOptions> all(3);
  all[1].reduction = CudaReduction::kHost;
  all[2].verify = true;
  return all;
}

// Rows of a golden table, made by as many threads as there are processors, scored in order.
void ExpectTable(const std::string& csv, const std::string& directory, const CudaEngineOptions& options) {
  const std::vector<Golden> goldens = ReadGoldens(csv);
  const size_t ahead = std::max(2u, std::thread::hardware_concurrency());
  std::deque<std::future<PicturePair>> pictures;
  size_t next = 0;
  std::unique_ptr<Engine> engine;
  std::optional<FrameGeometry> engine_geometry;
  int scored = 0;
  for (const Golden& golden : goldens) {
    while (next < goldens.size() && pictures.size() < ahead) {
      pictures.push_back(std::async(std::launch::async, LoadGolden, goldens[next++], directory));
    }
    const PicturePair pair = pictures.front().get();
    pictures.pop_front();
    SCOPED_TRACE(golden.name + " frame " + std::to_string(golden.frame));
    const auto geometry = FrameGeometry::Create(golden.width, golden.height, golden.chroma, golden.depth);
    if (!geometry.ok()) continue;  // libvmaf has no score either
    if (!engine || *engine_geometry != *geometry) {
      engine = MakeEngine(*geometry, options);
      engine_geometry = *geometry;
    }
    ASSERT_NE(engine, nullptr);
    const FrameScore score = ScoreOne(*engine, MakePair(pair.reference, pair.distorted));
    for (ScoreKind kind : kAllScoreKinds) {
      if (score.has(kind)) {
        EXPECT_EQ(Bits(score.score_db(kind)), golden.score_bits[static_cast<int>(kind)]);
      }
    }
    ++scored;
  }
  EXPECT_GT(scored, 0);
}

TEST(CudaGolden, SmallGeneratedFramesMatchLibvmafInEveryReduction) {
  for (const CudaEngineOptions& options : Reductions()) ExpectTable(DataDirectory() + "/generated.csv", "", options);
}

TEST(CudaGolden, StoredFramesMatchLibvmaf) {
  if (!SharedDirectory()) GTEST_SKIP() << "PSNRHVS_SHARED has no golden set";
  const std::string directory = *SharedDirectory() + "/golden";
  for (const CudaEngineOptions& options : Reductions()) ExpectTable(directory + "/golden.csv", directory, options);
}

TEST(CudaGolden, GeneratedFramesUpTo8KMatchLibvmaf) {
  if (!SharedDirectory()) GTEST_SKIP() << "PSNRHVS_SHARED has no golden set";
  ExpectTable(*SharedDirectory() + "/golden/generated.csv", "", CudaEngineOptions{});
}

struct Clip {
  const char* name;
  const char* reference;
  const char* distorted;
  int width, height;
  Chroma chroma;
  int depth;
  bool y4m;  // a one-line header, and "FRAME\n" before each frame
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

TEST(CudaGolden, NaturalClipsMatchLibvmaf) {
  if (!SharedDirectory()) GTEST_SKIP() << "PSNRHVS_SHARED has no clips";
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
    for (const Clip& clip : kClips) {
      if (std::string(clip.name) != name) continue;
      const auto read = [&](const char* file) {
        size_t offset = 0;
        if (clip.y4m) {
          std::ifstream stream(directory + file, std::ios::binary);
          std::string header;
          std::getline(stream, header);
          offset = header.size() + 1;
        }
        return ReadPicture(directory + file, clip.width, clip.height, clip.chroma, clip.depth, frame, offset,
                           clip.y4m ? 6 : 0);
      };
      const Picture reference = read(clip.reference), distorted = read(clip.distorted);
      const auto engine = MakeEngine(GeometryOf(reference));
      ASSERT_NE(engine, nullptr);
      const FrameScore score = ScoreOne(*engine, MakePair(reference, distorted));
      for (ScoreKind kind : kAllScoreKinds) {
        EXPECT_EQ(Bits(score.score_db(kind)), Bits(expected[static_cast<int>(kind)])) << line;
      }
      ++rows;
    }
  }
  EXPECT_EQ(rows, 66);
}

// Contents that stress the sum: ties, saturation, nothing at all.
struct Content {
  const char* reference;
  const char* distorted;
};
constexpr Content kContents[] = {
    {"scene:0:0:1", "quant:24:0:1"},    {"noise:0:0:1", "noise:0:0:2"},   {"noise:0:0:1", "invnoise:0:0:1"},
    {"checker:1:0:0", "checker:1:1:0"}, {"const:16:0:0", "const:17:0:0"}, {"const:64:0:0", "checker:4:1:0"},
    {"scene:0:0:1", "scene:0:0:1"},     {"scene:0:0:1", "onepix:0:0:1"},  {"checker:8:0:0", "checker:8:1:0"},
    {"scene:0:0:1", "grain:3:0:1"},     {"ramp:0:0:0", "ramp:1:0:0"},     {"const:0:0:0", "noise:0:0:3"},
};

TEST(CudaEngine, EqualsTheCpuForEveryChromaDepthAndContent) {
  for (int depth : {8, 9, 10, 11, 12}) {
    for (Chroma chroma : {Chroma::k400, Chroma::k420, Chroma::k422, Chroma::k444}) {
      const auto geometry = *FrameGeometry::Create(331, 157, chroma, depth);
      CudaEngineOptions options;
      options.verify = true;
      const auto engine = MakeEngine(geometry, options);
      ASSERT_NE(engine, nullptr);
      for (const Content& content : kContents) {
        SCOPED_TRACE(std::string(content.distorted) + " " + ChromaName(chroma) + " " + std::to_string(depth));
        const Picture reference = GeneratePicture(content.reference, 331, 157, chroma, depth, 0);
        const Picture distorted = GeneratePicture(content.distorted, 331, 157, chroma, depth, 0);
        ExpectSameScore(ScoreOne(*engine, MakePair(reference, distorted)), CpuScore(reference, distorted));
      }
    }
  }
}

TEST(CudaEngine, EqualsTheCpuForEverySizeFromOneBlockOn) {
  for (int depth : {8, 10}) {
    for (int size = 8; size <= 36; ++size) {
      for (const auto& [width, height] : {std::pair(size, 17), std::pair(19, size), std::pair(7 * size, 30)}) {
        SCOPED_TRACE(std::to_string(width) + "x" + std::to_string(height) + " " + std::to_string(depth));
        const Picture reference = GeneratePicture("scene:0:0:1", width, height, Chroma::k420, depth, 0);
        const Picture distorted = GeneratePicture("grain:4:0:1", width, height, Chroma::k420, depth, 0);
        const auto engine = MakeEngine(GeometryOf(reference));
        ASSERT_NE(engine, nullptr);
        ExpectSameScore(ScoreOne(*engine, MakePair(reference, distorted)), CpuScore(reference, distorted));
      }
    }
  }
}

std::vector<Layout> Layouts(Memory memory, int depth) {
  std::vector<Layout> layouts;
  for (int padding : {0, 1, 2, 3, 4, 61, 300}) {
    for (int offset : {0, 1, 2, 3}) {
      layouts.push_back({"planar", memory, padding, offset});
      layouts.push_back({"semi-planar", memory, padding, offset, true});
    }
  }
  layouts.push_back({"bottom-up", memory, 4, 0, false, true});
  layouts.push_back({"bottom-up semi-planar", memory, 3, 1, true, true});
  if (depth > 8) {
    layouts.push_back({"dirty", memory, 0, 0, false, false, 0, true});
    layouts.push_back({"high bits, dirty", memory, 2, 0, false, false, 16 - depth, true});
    layouts.push_back({"semi-planar, high bits, dirty", memory, 6, 2, true, false, 16 - depth, true});
    layouts.push_back({"middle bits, dirty", memory, 0, 0, false, false, 2, true});
  }
  return layouts;
}

TEST(CudaEngine, ReadsEveryLayoutInEveryMemory) {
  PrimaryContext context;
  for (int depth : {8, 10, 12}) {
    for (const auto& [width, height] : {std::pair(101, 67), std::pair(128, 64)}) {
      const Picture reference = GeneratePicture("scene:0:0:1", width, height, Chroma::k420, depth, 0);
      const Picture distorted = GeneratePicture("quant:16:0:1", width, height, Chroma::k420, depth, 0);
      const FrameScore expected = CpuScore(reference, distorted);
      const auto engine = MakeEngine(GeometryOf(reference));
      ASSERT_NE(engine, nullptr);
      for (Memory memory : {Memory::kHost, Memory::kPinnedHost, Memory::kDevice}) {
        for (const Layout& layout : Layouts(memory, depth)) {
          SCOPED_TRACE(std::string(layout.name) + ", depth " + std::to_string(depth) + ", memory " +
                       std::to_string(static_cast<int>(memory)) + ", padding " + std::to_string(layout.padding) +
                       ", offset " + std::to_string(layout.offset) + ", width " + std::to_string(width));
          Layout packed;
          packed.memory = memory;
          const Frame a(reference, layout), b(distorted, packed);
          ExpectSameScore(ScoreOne(*engine, {a.view(), b.view()}), expected);
          ExpectSameScore(ScoreOne(*engine, {b.view(), a.view()}), expected);  // symmetric
        }
      }
    }
  }
}

TEST(CudaEngine, ReadsPairsOfTwoMemoriesAndPlanesOfOneAllocation) {
  PrimaryContext context;
  const Picture reference = GeneratePicture("scene:0:0:1", 322, 182, Chroma::k420, 8, 0);
  const Picture distorted = GeneratePicture("quant:16:0:1", 322, 182, Chroma::k420, 8, 0);
  const FrameScore expected = CpuScore(reference, distorted);
  const auto engine = MakeEngine(GeometryOf(reference));
  ASSERT_NE(engine, nullptr);
  for (Memory first : {Memory::kHost, Memory::kPinnedHost, Memory::kDevice}) {
    for (Memory second : {Memory::kHost, Memory::kPinnedHost, Memory::kDevice}) {
      Layout a, b;
      a.memory = first;
      b.memory = second;
      b.semi_planar = true;
      const Frame one(reference, a), other(distorted, b);
      ExpectSameScore(ScoreOne(*engine, {one.view(), other.view()}), expected);
    }
  }
  // As a video buffer lies: all planes behind each other in one page-locked allocation.
  const size_t luma_stride = 324, chroma_stride = 164;
  auto memory = AllocatePinned(CudaTarget{}, 2 * (luma_stride * 182 + 2 * chroma_stride * 92));
  ASSERT_TRUE(memory.ok());
  FramePair pair;
  uint8_t* at = static_cast<uint8_t*>(*memory);
  for (const auto& [picture, view] : {std::pair(&reference, &pair.reference), std::pair(&distorted, &pair.distorted)}) {
    view->memory = Memory::kPinnedHost;
    for (int p = 0; p < kMaxPlanes; ++p) {
      const size_t stride = p == 0 ? luma_stride : chroma_stride;
      view->planes[p] = picture->View().planes[p];
      for (int y = 0; y < view->planes[p].height; ++y) {
        std::memcpy(at + y * stride, view->planes[p].Row(y), static_cast<size_t>(view->planes[p].width));
      }
      view->planes[p].data = at;
      view->planes[p].stride_bytes = static_cast<ptrdiff_t>(stride);
      at += stride * (p == 0 ? 182 : 92);
    }
  }
  ExpectSameScore(ScoreOne(*engine, pair), expected);
  FreePinned(CudaTarget{}, *memory);
}

TEST(CudaEngine, WrongPredictionsCostNoBits) {
  for (int depth : {8, 12}) {
    const Picture reference = GeneratePicture("scene:0:0:1", 1280, 720, Chroma::k420, depth, 0);
    for (const char* formula : {"quant:24:0:1", "noise:0:0:2", "onepix:0:0:1"}) {
      const Picture distorted = GeneratePicture(formula, 1280, 720, Chroma::k420, depth, 0);
      const FrameScore expected = CpuScore(reference, distorted);
      for (int error : {-300, -2, -1, 0, 1, 2, 300}) {
        for (int stored : {-1, 0, 3}) {
          SCOPED_TRACE(std::string(formula) + ", error " + std::to_string(error) + ", stored " +
                       std::to_string(stored));
          CudaEngineOptions options;
          options.exponent_error = error;
          options.max_stored_tiles = stored;
          const auto engine = MakeEngine(GeometryOf(reference), options);
          ASSERT_NE(engine, nullptr);
          for (int n = 0; n < 3; ++n) {
            ExpectSameScore(ScoreOne(*engine, MakePair(reference, distorted)), expected);
          }
        }
      }
    }
  }
}

// Submits pairs ahead of collecting them and compares each; returns the number of wrong ones.
int RunAhead(Engine& engine, const std::vector<FramePair>& pairs, const std::vector<FrameScore>& expected, int count) {
  int wrong = 0;
  for (int n = 0; n < count + engine.depth() - 1; ++n) {
    if (n < count && !engine.Submit(pairs[n % pairs.size()]).ok()) return count;
    const int collected = n - (engine.depth() - 1);
    if (collected < 0) continue;
    const Result<FrameScore> score = engine.Collect();
    if (!score.ok()) return count;
    for (int p = 0; p < score->scored_planes; ++p) {
      wrong += Bits(score->plane_error[p]) != Bits(expected[collected % expected.size()].plane_error[p]);
    }
  }
  return wrong;
}

TEST(CudaEngine, KeepsTheOrderOfManyPairsInFlight) {
  PrimaryContext context;
  for (Memory memory : {Memory::kHost, Memory::kPinnedHost, Memory::kDevice}) {
    for (int depth : {1, 2, 5, 16}) {
      std::deque<Frame> frames;
      std::vector<FramePair> pairs;
      std::vector<FrameScore> expected;
      Layout layout;
      layout.memory = memory;
      for (int n = 0; n < 7; ++n) {
        const Picture reference = GeneratePicture("scene:0:0:1", 640, 360, Chroma::k420, 8, n);
        const Picture distorted =
            GeneratePicture("quant:" + std::to_string(8 + 4 * n) + ":0:1", 640, 360, Chroma::k420, 8, n);
        expected.push_back(CpuScore(reference, distorted));
        const Frame& a = frames.emplace_back(reference, layout);
        const Frame& b = frames.emplace_back(distorted, layout);
        pairs.push_back({a.view(), b.view()});
      }
      CudaEngineOptions options;
      options.depth = depth;
      const auto engine = MakeEngine(*FrameGeometry::Create(640, 360, Chroma::k420, 8), options);
      ASSERT_NE(engine, nullptr);
      EXPECT_EQ(engine->depth(), depth);
      EXPECT_EQ(RunAhead(*engine, pairs, expected, 500), 0) << "depth " << depth;
    }
  }
}

TEST(CudaEngine, EnginesInTwoThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  int wrong[2] = {-1, -1};
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([t, &wrong] {
      const int depth = t == 0 ? 8 : 10;
      const Picture reference = GeneratePicture("scene:0:0:1", 960, 540, Chroma::k420, depth, t);
      const Picture distorted = GeneratePicture("quant:16:0:1", 960, 540, Chroma::k420, depth, t);
      const auto engine = MakeEngine(GeometryOf(reference));
      if (engine) wrong[t] = RunAhead(*engine, {MakePair(reference, distorted)}, {CpuScore(reference, distorted)}, 400);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong[0], 0);
  EXPECT_EQ(wrong[1], 0);
}

TEST(CudaEngine, WorksInAContextOfTheCaller) {
  PrimaryContext context;
  const Picture reference = GeneratePicture("scene:0:0:1", 320, 180, Chroma::k420, 8, 0);
  const Picture distorted = GeneratePicture("quant:16:0:1", 320, 180, Chroma::k420, 8, 0);
  CudaEngineOptions options;
  options.target.context = context.get();
  options.target.device_id = -5;  // not looked at
  const auto engine = MakeEngine(GeometryOf(reference), options);
  ASSERT_NE(engine, nullptr);
  ExpectSameScore(ScoreOne(*engine, MakePair(reference, distorted)), CpuScore(reference, distorted));
}

// Memory that one engine gives back is the next one's: what is left in it must not look like a result.
TEST(CudaEngine, ManyEnginesAfterEachOtherShareNoResultAndLeaveNoDeviceMemoryBehind) {
  PrimaryContext context;
  const Picture reference = GeneratePicture("scene:0:0:1", 640, 360, Chroma::k420, 8, 0);
  std::vector<Picture> distorted;
  std::vector<FrameScore> expected;
  for (const char* formula : {"quant:16:0:1", "quant:24:0:1", "grain:3:0:1"}) {
    distorted.push_back(GeneratePicture(formula, 640, 360, Chroma::k420, 8, 0));
    expected.push_back(CpuScore(reference, distorted.back()));
  }
  size_t free_early = 0, free_late = 0, total = 0;
  for (int n = 0; n < 1000; ++n) {
    const auto engine = MakeEngine(GeometryOf(reference));
    ASSERT_NE(engine, nullptr);
    ASSERT_TRUE(engine->Submit(MakePair(reference, distorted[n % 3])).ok());
    if (n % 5 != 0) ExpectSameScore(*engine->Collect(), expected[n % 3]);  // else destroyed with the pair in flight
    if (n == 10) {
      ASSERT_EQ(Driver().MemGetInfo(&free_early, &total), CUDA_SUCCESS);
    }
  }
  ASSERT_EQ(Driver().MemGetInfo(&free_late, &total), CUDA_SUCCESS);
  EXPECT_GE(free_late + (1 << 20), free_early);
}

TEST(CudaEngine, RefusesWhatItCannotReadAndGoesOn) {
  const Picture reference = GeneratePicture("scene:0:0:1", 320, 180, Chroma::k420, 8, 0);
  const Picture distorted = GeneratePicture("quant:16:0:1", 320, 180, Chroma::k420, 8, 0);
  const auto engine = MakeEngine(GeometryOf(reference));
  ASSERT_NE(engine, nullptr);
  const FramePair good = MakePair(reference, distorted);
  const std::function<void(PlaneView&)> faults[] = {
      [](PlaneView& plane) { plane.data = nullptr; }, [](PlaneView& plane) { --plane.width; },
      [](PlaneView& plane) { ++plane.height; },       [](PlaneView& plane) { plane.step = 3; },
      [](PlaneView& plane) { plane.shift = 1; },      [](PlaneView& plane) { plane.stride_bytes = 1 << 30; }};
  for (const auto& fault : faults) {
    FramePair bad = good;
    fault(bad.distorted.planes[1]);
    EXPECT_EQ(engine->Submit(bad).code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(engine->Collect().status().code(), StatusCode::kInternal);
  for (int n = 0; n < engine->depth(); ++n) ASSERT_TRUE(engine->Submit(good).ok());
  EXPECT_EQ(engine->Submit(good).code(), StatusCode::kInternal);
  for (int n = 0; n < engine->depth(); ++n) {
    ExpectSameScore(*engine->Collect(), CpuScore(reference, distorted));
  }
}

TEST(CudaEngine, ADeviceThatIsNotThereIsUnavailable) {
  CudaEngineOptions options;
  options.target.device_id = 1000;
  const auto engine = CreateCudaEngine(*FrameGeometry::Create(64, 64, Chroma::k420, 8), options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(engine.status().message().find("1000"), std::string::npos);
}

TEST(CudaEngine, MoreMemoryThanThereIsEndsInOutOfMemory) {
  PrimaryContext context;
  size_t free = 0, total = 0;
  ASSERT_EQ(Driver().MemGetInfo(&free, &total), CUDA_SUCCESS);
  const size_t keep = size_t{256} << 20;
  ASSERT_GT(free, keep);
  CUdeviceptr address = 0;
  ASSERT_EQ(Driver().MemAlloc(&address, free - keep), CUDA_SUCCESS);
  {
    const DeviceMemory rest(Driver(), address);
    CudaEngineOptions options;
    options.reduction = CudaReduction::kHost;
    const auto engine = CreateCudaEngine(*FrameGeometry::Create(7680, 4320, Chroma::k444, 8), options);
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.status().code(), StatusCode::kOutOfMemory);
    EXPECT_NE(engine.status().message().find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos)
        << engine.status().message();
  }
  const Picture picture = GeneratePicture("scene:0:0:1", 320, 180, Chroma::k420, 8, 0);
  const auto engine = MakeEngine(GeometryOf(picture));
  ASSERT_NE(engine, nullptr);
  ExpectSameScore(ScoreOne(*engine, MakePair(picture, picture)), CpuScore(picture, picture));
}

// Last, and by itself: the kernel's bad access destroys the context, and every later call has to say so.
TEST(ZCudaFault, ALostContextIsAStatusOnEveryCall) {
  const Picture picture = GeneratePicture("scene:0:0:1", 320, 180, Chroma::k420, 8, 0);
  const auto engine = MakeEngine(GeometryOf(picture));
  ASSERT_NE(engine, nullptr);
  FramePair pair = MakePair(picture, picture);
  pair.reference.memory = Memory::kDevice;  // addresses that the device does not know
  for (PlaneView& plane : pair.reference.planes) plane.data = reinterpret_cast<const uint8_t*>(uintptr_t{4096});
  ASSERT_TRUE(engine->Submit(pair).ok());
  const Result<FrameScore> score = engine->Collect();
  ASSERT_FALSE(score.ok());
  EXPECT_EQ(score.status().code(), StatusCode::kInternal);
  EXPECT_NE(score.status().message().find("CUDA_ERROR_"), std::string::npos) << score.status().message();
  const Status again = engine->Submit(MakePair(picture, picture));
  EXPECT_EQ(again.code(), StatusCode::kInternal);
  EXPECT_EQ(again.message(), score.status().message());
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const auto devices = psnrhvs::ProbeCudaDevices();
  if (!devices.ok()) {
    std::printf("not run: %s\n", devices.status().message().c_str());
    return 77;
  }
  std::printf("on %s\n", devices->front().name.c_str());
  const psnrhvs::testing::PrimaryContext kept;  // else every engine makes it anew
  return RUN_ALL_TESTS();
}
