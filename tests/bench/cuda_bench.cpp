// How fast the CUDA engine is, next to what bounds it and what else could be done, all in one run.
//
//   psnrhvs-cuda-bench [--quick | --cases N] [--depth N] [--json FILE]
//
// For each size and depth: the plain copy of a pair's bytes from page-locked memory (the floor of all
// that starts in host memory); the engine with frames on the device, in page-locked and in pageable memory,
// pairs overlapped; one isolated pair; the terms alone; all non-zero terms copied back and added by the host; and
// the CPU engine with all processors. Several pairs of frames take turns. Times are medians over groups of
// frames; every score is compared with the CPU engine's. --quick: only
// the first case, 3840x2160 at 8 bits; --cases: the first N of six. Exits 77 without a device.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cpu/cpu_engine.h"
#include "cuda/cuda_engine.h"
#include "cuda/handles.h"
#include "tests/support/frames.h"

namespace psnrhvs::testing {
namespace {

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "psnrhvs-cuda-bench: %s\n", what.c_str());
  std::exit(1);
}

double Now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Case {
  int width, height, depth;
  int sets;    // pairs that take turns
  int frames;  // a group, frames on the device; fewer where it is slower
};

struct Row {
  Case what;
  std::string backend, target, stage, memory;
  int threads, in_flight;
  double ms, floor_ms;  // floor 0: none
};

class Bench {
 public:
  Bench(const CudaDriver& driver, CUcontext context, std::string device, int depth)
      : driver_(driver), context_(context), device_(std::move(device)), depth_(depth) {}

  void Run(const Case& c);
  std::vector<Row> rows;

 private:
  void Check(CUresult result) const {
    const Status status = CudaStatus(driver_, result, "benchmark");
    if (!status.ok()) Die(status.message());
  }

  void Add(const Case& c, const std::string& stage, const std::string& memory, int in_flight, double ms,
           double floor_ms = 0, const std::string& backend = "cuda", const std::string& target = "", int threads = 1) {
    rows.push_back({c, backend, target.empty() ? device_ : target, stage, memory, threads, in_flight, ms, floor_ms});
    std::printf("%-4s %5dx%-4d %2d bits %-22s %-8s %2d in flight %10.1f us %10.1f pairs/s", backend.c_str(), c.width,
                c.height, c.depth, stage.c_str(), memory.c_str(), in_flight, 1000 * ms, 1000 / ms);
    if (floor_ms > 0) std::printf("  %5.1f %% of the copy's rate", 100 * floor_ms / ms);
    std::printf("\n");
    std::fflush(stdout);
  }

  std::unique_ptr<Engine> MakeEngine(const FrameGeometry& geometry, CudaEngineOptions options) const {
    options.target.context = context_;
    if (options.depth == 0) options.depth = depth_;
    auto engine = CreateCudaEngine(geometry, options);
    if (!engine.ok()) Die(engine.status().message());
    return std::move(*engine);
  }

  // Median over groups of the milliseconds a pair, `in_flight` pairs submitted ahead.
  double Throughput(Engine& engine, const std::vector<FramePair>& pairs, int frames, bool check = true) const {
    const int ahead = engine.depth() - 1;
    std::vector<double> ms;
    for (int group = -1; group < 5; ++group) {
      double start = Now();
      for (int n = 0; n < frames + ahead; ++n) {
        if (n < frames) {
          const Status status = engine.Submit(pairs[n % pairs.size()]);
          if (!status.ok()) Die(status.message());
        }
        if (n < ahead) continue;
        const Result<FrameScore> score = engine.Collect();
        if (!score.ok()) Die(score.status().message());
        if (check && score->plane_error != expected_[(n - ahead) % pairs.size()].plane_error) Die("a wrong score");
      }
      if (group >= 0) ms.push_back((Now() - start) / frames);
    }
    return Median(ms);
  }

  double Latency(Engine& engine, const std::vector<FramePair>& pairs) const {
    std::vector<double> ms;
    for (int n = -5; n < 40; ++n) {
      const double start = Now();
      if (!engine.Submit(pairs[(n + 5) % pairs.size()]).ok() || !engine.Collect().ok()) Die("the engine failed");
      if (n >= 0) ms.push_back(Now() - start);
    }
    return Median(ms);
  }

  const CudaDriver& driver_;
  CUcontext context_;
  const std::string device_;
  const int depth_;
  std::vector<FrameScore> expected_;
};

// The planes of a frame one behind the other, rows of a multiple of 4 bytes, as a video buffer lies.
size_t FrameBytes(const FrameGeometry& geometry) {
  size_t bytes = 0;
  for (int p = 0; p < geometry.scored_planes(); ++p) {
    bytes += static_cast<size_t>((geometry.plane_width(p) * geometry.bytes_per_sample() + 3) / 4 * 4) *
             static_cast<size_t>(geometry.plane_height(p));
  }
  return bytes;
}

// `picture` copied to `target`; the view's addresses are of `address`, where the same bytes will lie.
FrameView LayOut(const Picture& picture, Memory memory, uint8_t* target, const uint8_t* address) {
  FrameView view = picture.View();
  view.memory = memory;
  const int planes = picture.chroma == Chroma::k400 ? 1 : kMaxPlanes;
  for (int p = 0; p < planes; ++p) {
    PlaneView& plane = view.planes[p];
    const size_t row_bytes = static_cast<size_t>(plane.width) * picture.BytesPerSample();
    const size_t stride = (row_bytes + 3) / 4 * 4;
    if (target) {
      for (int y = 0; y < plane.height; ++y) std::memcpy(target + y * stride, plane.Row(y), row_bytes);
      target += stride * static_cast<size_t>(plane.height);
    }
    plane.data = address;
    plane.stride_bytes = static_cast<ptrdiff_t>(stride);
    address += stride * static_cast<size_t>(plane.height);
  }
  return view;
}

void Bench::Run(const Case& c) {
  const FrameGeometry geometry = *FrameGeometry::Create(c.width, c.height, Chroma::k420, c.depth);
  std::vector<std::future<Picture>> making;
  for (int n = 0; n < c.sets; ++n) {
    for (const char* formula : {"scene:0:0:1", "quant:24:0:1"}) {
      making.push_back(
          std::async(std::launch::async, GeneratePicture, formula, c.width, c.height, Chroma::k420, c.depth, n));
    }
  }
  std::vector<Picture> pictures;
  for (auto& picture : making) pictures.push_back(picture.get());

  const size_t bytes = FrameBytes(geometry);
  const auto make_pinned = [&](size_t size) {
    auto memory = AllocatePinned(CudaTarget{context_, 0}, size);
    if (!memory.ok()) Die(memory.status().message());
    return PinnedMemory(driver_, *memory);
  };
  std::vector<PinnedMemory> pinned;
  std::vector<DeviceMemory> device;
  std::vector<FramePair> pageable_pairs, pinned_pairs, device_pairs;
  for (int n = 0; n < c.sets; ++n) {
    pageable_pairs.push_back(MakePair(pictures[2 * n], pictures[2 * n + 1]));
    FramePair pinned_pair, device_pair;
    for (int image = 0; image < 2; ++image) {
      uint8_t* host = static_cast<uint8_t*>(pinned.emplace_back(make_pinned(bytes)).get());
      CUdeviceptr address = 0;
      Check(driver_.MemAlloc(&address, bytes));
      device.emplace_back(driver_, address);
      const Picture& picture = pictures[2 * n + image];
      (image == 0 ? pinned_pair.reference : pinned_pair.distorted) = LayOut(picture, Memory::kPinnedHost, host, host);
      (image == 0 ? device_pair.reference : device_pair.distorted) =
          LayOut(picture, Memory::kDevice, nullptr, reinterpret_cast<const uint8_t*>(static_cast<uintptr_t>(address)));
      Check(driver_.MemcpyHtoDAsync(address, host, bytes, nullptr));
    }
    pinned_pairs.push_back(pinned_pair);
    device_pairs.push_back(device_pair);
  }
  Check(driver_.StreamSynchronize(nullptr));

  // The CPU first: its scores are what all others are compared with.
  {
    auto engine = CreateCpuEngine(geometry, CpuEngineOptions{});
    if (!engine.ok()) Die(engine.status().message());
    std::vector<double> ms;
    expected_.clear();
    for (int n = 0; n < std::max(c.sets, 7); ++n) {
      const double start = Now();
      if (!(*engine)->Submit(pageable_pairs[n % c.sets]).ok()) Die("the cpu engine failed");
      const Result<FrameScore> score = (*engine)->Collect();
      if (!score.ok()) Die(score.status().message());
      ms.push_back(Now() - start);
      if (n < c.sets) expected_.push_back(*score);
    }
    Add(c, "whole", "pageable", 1, Median(ms), 0, "cpu", "fastest",
        static_cast<int>(std::thread::hardware_concurrency()));
  }

  // The floor: both frames of a pair, each in one copy.
  double floor_ms;
  {
    CUstream stream = nullptr;
    Check(driver_.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    const CudaStream owner(driver_, stream);
    const int copies = std::max(8, c.frames / 20);
    std::vector<double> ms;
    for (int group = -1; group < 5; ++group) {
      const double start = Now();
      for (int n = 0; n < 2 * copies; ++n) {
        Check(driver_.MemcpyHtoDAsync(device[n % device.size()].get(), pinned[n % pinned.size()].get(), bytes, stream));
      }
      Check(driver_.StreamSynchronize(stream));
      if (group >= 0) ms.push_back((Now() - start) / copies);
    }
    floor_ms = Median(ms);
    Add(c, "copy", "pinned", 1, floor_ms);
    std::printf("     %.1f GB/s\n", 2.0 * static_cast<double>(bytes) / floor_ms / 1e6);
  }

  CudaEngineOptions options;
  {
    CudaEngineOptions on_device = options;
    if (depth_ == 0) on_device.depth = DeviceFramesDepth(geometry);
    auto engine = MakeEngine(geometry, on_device);
    Add(c, "whole", "device", engine->depth(), Throughput(*engine, device_pairs, c.frames));
    engine = MakeEngine(geometry, options);
    Add(c, "whole", "pinned", engine->depth(), Throughput(*engine, pinned_pairs, std::max(16, c.frames / 10)),
        floor_ms);
    Add(c, "whole", "pageable", engine->depth(), Throughput(*engine, pageable_pairs, std::max(16, c.frames / 40)));
    Add(c, "isolated pair", "device", 1, Latency(*engine, device_pairs));
    Add(c, "isolated pair", "pinned", 1, Latency(*engine, pinned_pairs));
  }
  options.terms_only = true;
  {
    auto engine = MakeEngine(geometry, options);
    Add(c, "terms alone", "device", engine->depth(), Throughput(*engine, device_pairs, c.frames, false));
    Add(c, "isolated, terms alone", "device", 1, Latency(*engine, device_pairs));
  }
  options.terms_only = false;
  options.reduction = CudaReduction::kHost;
  {
    auto engine = MakeEngine(geometry, options);
    Add(c, "whole, host adds", "device", engine->depth(),
        Throughput(*engine, device_pairs, std::max(8, c.frames / 80)));
  }
}

void WriteJson(const std::string& path, const std::vector<Row>& rows) {
  FILE* file = std::fopen(path.c_str(), "w");
  if (!file) Die("cannot write " + path);
  std::fprintf(file, "[\n");
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    std::fprintf(file,
                 "  {\"backend\": \"%s\", \"target\": \"%s\", \"width\": %d, \"height\": %d, \"depth\": %d, "
                 "\"chroma\": \"420\", \"content\": \"natural\", \"threads\": %d, \"stage\": \"%s\", "
                 "\"memory\": \"%s\", \"in_flight\": %d, \"ms_per_frame\": %.5f, \"frames_per_second\": %.2f, "
                 "\"copy_ms_per_frame\": %.5f}%s\n",
                 row.backend.c_str(), row.target.c_str(), row.what.width, row.what.height, row.what.depth, row.threads,
                 row.stage.c_str(), row.memory.c_str(), row.in_flight, row.ms, 1000 / row.ms, row.floor_ms,
                 i + 1 < rows.size() ? "," : "");
  }
  std::fprintf(file, "]\n");
  if (std::fclose(file) != 0) Die("cannot write " + path);
}

int Main(int argc, char** argv) {
  int cases = 6;
  int depth = 0;
  std::string json;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      cases = 1;
    } else if (argument == "--cases" && i + 1 < argc) {
      cases = std::atoi(argv[++i]);
    } else if (argument == "--depth" && i + 1 < argc) {
      depth = std::atoi(argv[++i]);
    } else if (argument == "--json" && i + 1 < argc) {
      json = argv[++i];
    } else {
      Die("usage: psnrhvs-cuda-bench [--quick | --cases N] [--depth N] [--json FILE]");
    }
  }
  const auto devices = ProbeCudaDevices();
  if (!devices.ok()) {
    std::printf("not run: %s\n", devices.status().message().c_str());
    return 77;
  }
  const CudaDriver& driver = **LoadCudaDriver();
  auto context = ContextHolder::Create(driver, nullptr, 0);
  if (!context.ok()) Die(context.status().message());
  const ScopedContext current(driver, context->get());
  std::printf("on %s\n", devices->front().name.c_str());
  Bench bench(driver, context->get(), devices->front().name, depth);
  for (const Case& c : {Case{3840, 2160, 8, 4, 2000}, Case{1920, 1080, 8, 10, 4000}, Case{7680, 4320, 8, 2, 500},
                        Case{1920, 1080, 10, 10, 4000}, Case{3840, 2160, 10, 4, 2000}, Case{7680, 4320, 10, 2, 500}}) {
    if (cases-- > 0) bench.Run(c);
  }
  if (!json.empty()) WriteJson(json, bench.rows);
  return 0;
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) { return psnrhvs::testing::Main(argc, argv); }
