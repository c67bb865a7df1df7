// How fast the engines are against the plain reference code, measured in the same run: a table, and JSON.
//
//   psnrhvs-bench [--quick] [--json FILE]
//
// Without --quick, all sizes, depths, layouts, contents, targets and thread counts, one of them varied at a time.
// With it, one thread, 1080p and 4K, 8 and 10 bits, 4:2:0: under 40 seconds on two processors. Times are medians over
// rounds in which the reference and all engines take turns, so that a busy machine slows them alike.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cpu/cpu_engine.h"
#include "cpu/plane_sum.h"
#include "tests/support/frames.h"

namespace psnrhvs::testing {
namespace {

struct Case {
  int width, height, depth;
  Chroma chroma;
  const char* content;  // "natural", "noise" or "identical"
  bool all_targets;     // else only the fastest
  bool all_threads;     // else one
};

struct Row {
  Case what;
  std::string backend, target;
  int threads;
  double ms, reference_ms;
};

struct Contender {
  std::string target;
  int threads;
  std::unique_ptr<Engine> engine;
  std::vector<double> ms;
};

const char* ChromaCode(Chroma chroma) {
  return chroma == Chroma::k420 ? "420" : chroma == Chroma::k422 ? "422" : chroma == Chroma::k444 ? "444" : "400";
}

int UsableProcessors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <typename Function>
double Milliseconds(const Function& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "psnrhvs-bench: %s\n", what.c_str());
  std::exit(1);
}

std::vector<Row> Measure(const Case& c, bool quick) {
  const std::string content = c.content;
  const char* const reference_formula = content == "noise" ? "noise:0:0:1" : "scene:0:0:1";
  const char* const distorted_formula = content == "natural" ? "quant:24:0:1"
                                        : content == "noise" ? "noise:0:0:2"
                                                             : reference_formula;
  Picture reference;
  std::thread other([&] { reference = GeneratePicture(reference_formula, c.width, c.height, c.chroma, c.depth, 0); });
  const Picture distorted = GeneratePicture(distorted_formula, c.width, c.height, c.chroma, c.depth, 0);
  other.join();
  const FramePair pair = MakePair(reference, distorted);
  const FrameGeometry geometry = *FrameGeometry::Create(c.width, c.height, c.chroma, c.depth);

  std::vector<Contender> contenders;
  const auto add = [&](const std::string& target, int threads) {
    CpuEngineOptions options;
    options.threads = threads;
    options.target = target;
    auto engine = CreateCpuEngine(geometry, options);
    if (!engine.ok()) Die(engine.status().message());
    contenders.push_back({target, threads, std::move(*engine), {}});
  };
  const std::string fastest = FindGroupKernel("")->target;
  for (const GroupKernel& kernel : GroupKernels()) {
    const bool wanted = c.all_targets && (!quick || std::strcmp(kernel.target, "SCALAR") != 0);
    if (wanted || kernel.target == fastest) add(kernel.target, 1);
  }
  for (int threads = 2; c.all_threads && threads <= UsableProcessors(); ++threads) add(fastest, threads);

  // The larger the frame, the fewer rounds; always enough for a median.
  const double pixels = static_cast<double>(c.width) * c.height;
  const int rounds = pixels > (quick ? 5e6 : 10e6) ? 3 : 7;
  const int frames = std::clamp(static_cast<int>(16e6 / pixels), 2, 50);
  std::vector<double> reference_ms;
  std::array<float, kMaxPlanes> sums{};
  for (int round = 0; round < rounds; ++round) {
    reference_ms.push_back(Milliseconds([&] {
      for (int plane = 0; plane < geometry.scored_planes(); ++plane) {
        sums[plane] =
            PlaneSumReference(pair.reference.planes[plane], pair.distorted.planes[plane], geometry.depth(), plane);
      }
    }));
    const FrameScore expected = ScoreFrame(geometry, sums);
    for (Contender& contender : contenders) {
      // The first frame of a turn finds cold caches and sleeping threads, and is not counted.
      for (int frame = -1; frame < (contender.target == "SCALAR" ? 1 : frames); ++frame) {
        Result<FrameScore> score = Status(StatusCode::kInternal, "not collected");
        const double ms = Milliseconds([&] {
          if (contender.engine->Submit(pair).ok()) score = contender.engine->Collect();
        });
        if (!score.ok() || score->plane_error != expected.plane_error) Die(contender.target + " scores differently");
        if (frame >= 0) contender.ms.push_back(ms);
      }
    }
  }
  std::vector<Row> rows;
  for (const Contender& contender : contenders) {
    rows.push_back({c, contender.engine->backend(), contender.target, contender.threads, Median(contender.ms),
                    Median(reference_ms)});
  }
  return rows;
}

std::vector<Case> Cases(bool quick) {
  std::vector<Case> cases;
  struct Size {
    int width, height;
  };
  if (quick) {
    for (const Size& size : {Size{1920, 1080}, Size{3840, 2160}}) {
      for (int depth : {8, 10}) {
        for (const char* content : {"natural", "noise", "identical"}) {
          cases.push_back({size.width, size.height, depth, Chroma::k420, content, true, false});
        }
      }
    }
    return cases;
  }
  for (const Size& size : {Size{576, 324}, Size{1920, 1080}, Size{3840, 2160}, Size{7680, 4320}}) {
    for (int depth : {8, 10, 12}) {
      cases.push_back({size.width, size.height, depth, Chroma::k420, "natural", true, true});
    }
  }
  for (int depth : {8, 10, 12}) {
    for (Chroma chroma : {Chroma::k422, Chroma::k444}) {
      cases.push_back({1920, 1080, depth, chroma, "natural", false, false});
    }
    for (const char* content : {"noise", "identical"}) {
      cases.push_back({1920, 1080, depth, Chroma::k420, content, true, true});
      cases.push_back({3840, 2160, depth, Chroma::k420, content, true, true});
    }
  }
  return cases;
}

void Print(const Row& row) {
  std::printf("%-4s %-6s %5dx%-4d %2d bits %s %-9s %2d thread%s %9.3f ms %8.1f frames/s, reference %9.3f ms: %6.2fx\n",
              row.backend.c_str(), row.target.c_str(), row.what.width, row.what.height, row.what.depth,
              ChromaCode(row.what.chroma), row.what.content, row.threads, row.threads == 1 ? " " : "s", row.ms,
              1000 / row.ms, row.reference_ms, row.reference_ms / row.ms);
  std::fflush(stdout);
}

void WriteJson(const std::string& path, const std::vector<Row>& rows) {
  FILE* file = std::fopen(path.c_str(), "w");
  if (!file) Die("cannot write " + path);
  std::fprintf(file, "[\n");
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    std::fprintf(file,
                 "  {\"backend\": \"%s\", \"target\": \"%s\", \"width\": %d, \"height\": %d, \"depth\": %d, "
                 "\"chroma\": \"%s\", \"content\": \"%s\", \"threads\": %d, \"ms_per_frame\": %.4f, "
                 "\"frames_per_second\": %.3f, \"reference_ms_per_frame\": %.4f, \"ratio\": %.3f}%s\n",
                 row.backend.c_str(), row.target.c_str(), row.what.width, row.what.height, row.what.depth,
                 ChromaCode(row.what.chroma), row.what.content, row.threads, row.ms, 1000 / row.ms, row.reference_ms,
                 row.reference_ms / row.ms, i + 1 < rows.size() ? "," : "");
  }
  std::fprintf(file, "]\n");
  if (std::fclose(file) != 0) Die("cannot write " + path);
}

int Run(int argc, char** argv) {
  bool quick = false;
  std::string json;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      Die(std::string("unknown argument ") + argv[i] + "; usage: psnrhvs-bench [--quick] [--json FILE]");
    }
  }
  std::vector<Row> all;
  for (const Case& c : Cases(quick)) {
    for (const Row& row : Measure(c, quick)) {
      Print(row);
      all.push_back(row);
    }
  }
  if (!json.empty()) WriteJson(json, all);
  return 0;
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) { return psnrhvs::testing::Run(argc, argv); }
