// How fast the whole element is, next to its engine alone in the same run: a table, and JSON.
//
//   psnrhvs-element-bench [--quick] [--json FILE]
//
// Two appsrc give buffers that were filled before, so that nothing but the element is measured: in device memory and
// in the page-locked pool that the element proposes (3840x2160, with a CUDA device), and in ordinary memory on the CPU
// (1920x1080). The element's rate is taken between the first and the last buffer that leave it; frame messages are
// on, as by default. Rates are medians over rounds in which both take turns.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gst/app/gstappsrc.h>
#include <gst/video/video.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_engine.h"
#include "cuda/cuda_engine.h"
#include "gst/psnrhvs/backend.h"
#include "gst/psnrhvs/mapped_frame.h"
#include "tests/support/pipelines.h"

namespace psnrhvs::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBuffers = 8;  // of each side; together larger than a device's cache

struct Case {
  const char* name;
  const char* backend;
  const char* features;  // of the caps
  int width, height;
  int pairs;
};

struct Row {
  Case what;
  int pairs;
  double element_rate, engine_rate;  // pairs a second
};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "psnrhvs-element-bench: %s\n", what.c_str());
  std::exit(1);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// What passes the element's source pad.
struct Passage {
  std::atomic<int> count{0};
  Clock::time_point first, last;
};

GstPadProbeReturn NotePassage(GstPad*, GstPadProbeInfo*, gpointer data) {
  auto* passage = static_cast<Passage*>(data);
  passage->last = Clock::now();
  if (passage->count++ == 0) passage->first = passage->last;
  return GST_PAD_PROBE_OK;
}

// An element between two appsrc and a sink, paused, so that it can be asked for a pool.
class Bench {
 public:
  explicit Bench(const Case& c) {
    const std::string format = std::string(c.features) + ",format=I420,width=" + std::to_string(c.width) +
                               ",height=" + std::to_string(c.height) + ",framerate=25/1";
    const std::string source = "appsrc format=time max-bytes=0 caps=\"" + format + "\" name=";
    const std::string text = source + "ref ! m.ref_sink " + source +
                             "dist ! m.dist_sink psnrhvs name=m backend=" + c.backend + " ! fakesink sync=false";
    pipeline_.reset(GST_ELEMENT(gst_object_ref_sink(gst_parse_launch(text.c_str(), nullptr))));
    caps_.reset(gst_caps_from_string(format.c_str()));
    gst_video_info_from_caps(&info_, caps_.get());
    element_.reset(gst_bin_get_by_name(GST_BIN(pipeline_.get()), "m"));
    bus_.reset(gst_element_get_bus(pipeline_.get()));
    gst_bus_set_sync_handler(bus_.get(), KeepEnds, nullptr, nullptr);
    if (gst_element_set_state(pipeline_.get(), GST_STATE_PAUSED) == GST_STATE_CHANGE_FAILURE) Die("cannot start");
  }
  ~Bench() { gst_element_set_state(pipeline_.get(), GST_STATE_NULL); }

  // A buffer of the memory that the element proposes, holding the picture.
  GstPtr<GstBuffer> Fill(const GstPtr<GstBuffer>& picture) {
    if (!pool_ && !asked_) AskForPool();
    if (!pool_) return GstPtr<GstBuffer>(gst_buffer_copy_deep(picture.get()));
    GstBuffer* buffer = nullptr;
    if (gst_buffer_pool_acquire_buffer(pool_.get(), &buffer, nullptr) != GST_FLOW_OK) Die("cannot get a buffer");
    GstVideoFrame from, to;
    if (!gst_video_frame_map(&from, &info_, picture.get(), GST_MAP_READ) ||
        !gst_video_frame_map(&to, &info_, buffer, GST_MAP_WRITE)) {
      Die("cannot map a buffer");
    }
    gst_video_frame_copy(&to, &from);
    gst_video_frame_unmap(&to);
    gst_video_frame_unmap(&from);
    return GstPtr<GstBuffer>(buffer);
  }

  double PairsPerSecond(const std::vector<GstPtr<GstBuffer>>& references,
                        const std::vector<GstPtr<GstBuffer>>& distorted, int pairs) {
    const GstPtr<GstPad> src(gst_element_get_static_pad(element_.get(), "src"));
    Passage passage;
    const gulong probe = gst_pad_add_probe(src.get(), GST_PAD_PROBE_TYPE_BUFFER, NotePassage, &passage, nullptr);
    for (const auto& [name, buffers] : {std::pair("ref", &references), std::pair("dist", &distorted)}) {
      const GstPtr<GstElement> source(gst_bin_get_by_name(GST_BIN(pipeline_.get()), name));
      for (int i = 0; i < pairs; ++i) {
        GstBuffer* buffer = gst_buffer_copy((*buffers)[i % buffers->size()].get());
        GST_BUFFER_PTS(buffer) = static_cast<GstClockTime>(i) * 40 * GST_MSECOND;
        GST_BUFFER_DURATION(buffer) = 40 * GST_MSECOND;
        gst_app_src_push_buffer(GST_APP_SRC(source.get()), buffer);
      }
      gst_app_src_end_of_stream(GST_APP_SRC(source.get()));
    }
    gst_element_set_state(pipeline_.get(), GST_STATE_PLAYING);
    const GstPtr<GstMessage> end(gst_bus_timed_pop_filtered(
        bus_.get(), GST_CLOCK_TIME_NONE, static_cast<GstMessageType>(GST_MESSAGE_EOS | GST_MESSAGE_ERROR)));
    gst_pad_remove_probe(src.get(), probe);
    if (GST_MESSAGE_TYPE(end.get()) != GST_MESSAGE_EOS || passage.count != pairs) Die("the pipeline failed");
    return (pairs - 1) / Seconds(passage.last - passage.first);
  }

 private:
  struct Unref {
    void operator()(void* object) const { gst_object_unref(object); }
  };

  static GstBusSyncReply KeepEnds(GstBus*, GstMessage* message, gpointer) {
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_EOS || GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
      return GST_BUS_PASS;
    }
    return GST_BUS_DROP;
  }

  void AskForPool() {
    asked_ = true;
    const GstPtr<GstPad> pad(gst_element_get_static_pad(element_.get(), "dist_sink"));
    const GstPtr<GstQuery> query(gst_query_new_allocation(caps_.get(), TRUE));
    if (!gst_pad_query(pad.get(), query.get()) || gst_query_get_n_allocation_pools(query.get()) == 0) return;
    GstBufferPool* pool = nullptr;
    gst_query_parse_nth_allocation_pool(query.get(), 0, &pool, nullptr, nullptr, nullptr);
    pool_.reset(pool);
    gst_buffer_pool_set_active(pool, TRUE);
  }

  GstPtr<GstElement> pipeline_, element_;
  GstPtr<GstBus> bus_;
  GstPtr<GstCaps> caps_;
  GstVideoInfo info_;
  std::unique_ptr<GstBufferPool, Unref> pool_;
  bool asked_ = false;
};

// The engine alone, as full as it may be, reading the same buffers as the element.
double EnginePairsPerSecond(const Case& c, const GstVideoInfo& info, const std::vector<GstPtr<GstBuffer>>& references,
                            const std::vector<GstPtr<GstBuffer>>& distorted, int pairs) {
  const FrameGeometry geometry = *GeometryOf(info);
  const bool cpu = std::strcmp(c.backend, "cpu") == 0;
#ifdef PSNRHVS_HAVE_CUDA
  auto engine = cpu ? CreateCpuEngine(geometry, {}) : CreateCudaEngine(geometry, {});
#else
  auto engine = CreateCpuEngine(geometry, {});
#endif
  if (!engine.ok()) Die(engine.status().message());
  BufferAccess access;
  access.memory = cpu ? Memory::kHost : Memory::kPinnedHost;
  std::vector<MappedFrame> frames[2];
  for (int side = 0; side < 2; ++side) {
    for (const GstPtr<GstBuffer>& buffer : side == 0 ? references : distorted) {
      auto frame = MappedFrame::Map(buffer.get(), info, geometry, access);
      if (!frame.ok()) Die(frame.status().message());
      frames[side].push_back(std::move(*frame));
    }
  }
  const int depth = (*engine)->depth();
  Clock::time_point first;
  for (int i = 0; i < pairs + depth; ++i) {
    if (i >= depth) {
      if (!(*engine)->Collect().ok()) Die("the engine failed");
      if (i == depth) first = Clock::now();
    }
    if (i < pairs && !(*engine)->Submit({frames[0][i % kBuffers].view(), frames[1][i % kBuffers].view()}).ok()) {
      Die("the engine failed");
    }
  }
  return (pairs - 1) / Seconds(Clock::now() - first);
}

Row Measure(const Case& c, bool quick) {
  GstVideoInfo info;
  gst_video_info_set_format(&info, GST_VIDEO_FORMAT_I420, c.width, c.height);
  GstPtr<GstBuffer> pictures[2];
  for (int side = 0; side < 2; ++side) {
    const Picture picture =
        GeneratePicture(side == 0 ? "scene:0:0:1" : "quant:24:0:1", c.width, c.height, Chroma::k420, 8, 0);
    pictures[side] = BufferOf(picture, GST_VIDEO_FORMAT_I420);
  }
  const bool device = std::strstr(c.features, "CUDAMemory") != nullptr;
  const int pairs = quick ? c.pairs / 10 : c.pairs;
  std::vector<double> element, engine;
  for (int round = 0; round < 3; ++round) {
    Bench bench(c);
    std::vector<GstPtr<GstBuffer>> buffers[2];
    for (int side = 0; side < 2; ++side) {
      for (int i = 0; i < kBuffers; ++i) buffers[side].push_back(bench.Fill(pictures[side]));
    }
    // Device memory belongs to the context of the element that proposed it.
    if (!device) engine.push_back(EnginePairsPerSecond(c, info, buffers[0], buffers[1], pairs));
    element.push_back(bench.PairsPerSecond(buffers[0], buffers[1], pairs));
  }
  return {c, pairs, Median(element), device ? 0 : Median(engine)};
}

void Print(const Row& row) {
  std::printf("%-4s %-18s %5dx%-4d 8 bits 420 %6d pairs: element %9.1f pairs/s", row.what.backend, row.what.name,
              row.what.width, row.what.height, row.pairs, row.element_rate);
  if (row.engine_rate > 0) {
    std::printf(", engine %9.1f pairs/s: %5.1f %%", row.engine_rate, 100 * row.element_rate / row.engine_rate);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void WriteJson(const std::string& path, const std::vector<Row>& rows) {
  FILE* file = std::fopen(path.c_str(), "w");
  if (!file) Die("cannot write " + path);
  std::fprintf(file, "[\n");
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    std::fprintf(file,
                 "  {\"backend\": \"%s\", \"memory\": \"%s\", \"width\": %d, \"height\": %d, \"depth\": 8, "
                 "\"chroma\": \"420\", \"element_pairs_per_second\": %.1f",
                 row.what.backend, row.what.name, row.what.width, row.what.height, row.element_rate);
    if (row.engine_rate > 0) std::fprintf(file, ", \"engine_pairs_per_second\": %.1f", row.engine_rate);
    std::fprintf(file, "}%s\n", i + 1 < rows.size() ? "," : "");
  }
  std::fprintf(file, "]\n");
  if (std::fclose(file) != 0) Die("cannot write " + path);
}

// Whether there is a device, in a build that has the CUDA backend.
bool HaveCuda() {
#ifdef PSNRHVS_HAVE_CUDA
  const Status status = ProbeCudaDevices().status();
#else
  const Status status(StatusCode::kUnavailable, "this build has no CUDA backend");
#endif
  if (!status.ok()) std::printf("cuda not run: %s\n", status.message().c_str());
  return status.ok();
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
      Die(std::string("unknown argument ") + argv[i] + "; usage: psnrhvs-element-bench [--quick] [--json FILE]");
    }
  }
  // The smallest shows what the element adds to any engine.
  std::vector<Case> cases = {{"ordinary", "cpu", "video/x-raw", 64, 64, 20000},
                             {"ordinary", "cpu", "video/x-raw", 1920, 1080, 600}};
  if (HaveCuda()) {
    cases.push_back({"device", "cuda", "video/x-raw(memory:CUDAMemory)", 3840, 2160, 20000});
    cases.push_back({"device", "cuda", "video/x-raw(memory:CUDAMemory)", 1920, 1080, 20000});
    cases.push_back({"proposed pool", "cuda", "video/x-raw", 3840, 2160, 4000});
    cases.push_back({"proposed pool", "cuda", "video/x-raw", 1920, 1080, 8000});
  }
  std::vector<Row> rows;
  for (const Case& c : cases) {
    rows.push_back(Measure(c, quick));
    Print(rows.back());
  }
  if (!json.empty()) WriteJson(json, rows);
  return 0;
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  return psnrhvs::testing::Run(argc, argv);
}
