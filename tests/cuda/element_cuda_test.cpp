// The element with the CUDA backend, in whole pipelines with frames of every memory: the bits are those of the CPU
// backend. Exits 77 without a device. Streams come from PSNRHVS_STREAMS, a folder that prepare_streams has made, or
// are made here where there is ffmpeg.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gst/cuda/gstcudabufferpool.h>
#include <gst/cuda/gstcudacontext.h>
#include <gst/cuda/gstcudaloader.h>
#include <gst/cuda/gstcudamemory.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include "cuda/cuda_engine.h"
#include "cuda/handles.h"
#include "tests/support/pipelines.h"

namespace psnrhvs::testing {
namespace {

const char kPinnedMemoryType[] = "PsnrHvsPinnedMemory";
const char kCuda[] = "video/x-raw(memory:CUDAMemory)";

std::string Two(const std::string& reference, const std::string& distorted, const std::string& properties) {
  return reference + " ! m.ref_sink " + distorted + " ! m.dist_sink psnrhvs name=m " + properties + " ! fakesink";
}

// Pictures that change with every frame; `speed` makes two sources differ.
std::string Source(const std::string& format, int speed, int width = 320, int height = 240, int buffers = 8) {
  return "videotestsrc pattern=zone-plate kx2=20 ky2=20 kt=" + std::to_string(speed) +
         " num-buffers=" + std::to_string(buffers) + " ! video/x-raw,framerate=25/1,format=" + format +
         ",width=" + std::to_string(width) + ",height=" + std::to_string(height);
}

std::string Raw(const std::string& path, const std::string& format) {
  return "filesrc location=" + path + " ! rawvideoparse framerate=25/1 width=320 height=240 format=" + format;
}

void ExpectRun(const Reports& reports, size_t frames, const std::string& backend) {
  ASSERT_TRUE(reports.errors.empty()) << reports.errors[0].text << " (" << reports.errors[0].debug << ")";
  ASSERT_EQ(reports.frames.size(), frames);
  ASSERT_EQ(reports.pooled.size(), 1u);
  EXPECT_EQ(reports.pooled[0].frames, frames);
  EXPECT_EQ(reports.pooled[0].backend, backend);
}

void ExpectSameBits(const Reports& actual, const Reports& expected) {
  ASSERT_EQ(actual.frames.size(), expected.frames.size());
  ASSERT_FALSE(expected.frames.empty());
  for (size_t i = 0; i < expected.frames.size(); ++i) {
    EXPECT_EQ(actual.frames[i].reference.index, expected.frames[i].reference.index);
    for (ScoreKind kind : kAllScoreKinds) {
      ASSERT_EQ(actual.frames[i].score.has(kind), expected.frames[i].score.has(kind));
      if (!expected.frames[i].score.has(kind)) continue;
      EXPECT_EQ(Bits(actual.frames[i].score.score_db(kind)), Bits(expected.frames[i].score.score_db(kind)))
          << "frame " << i << ", score " << static_cast<int>(kind);
    }
  }
}

void ExpectAllInfinite(const Reports& reports) {
  for (const FrameReport& frame : reports.frames) EXPECT_EQ(frame.score.combined_score_db, HUGE_VAL);
}

void ExpectError(const Reports& reports, const std::vector<std::string>& texts) {
  ASSERT_FALSE(reports.errors.empty());
  EXPECT_EQ(reports.errors[0].source, "m");
  for (const std::string& text : texts) {
    EXPECT_NE(reports.errors[0].text.find(text), std::string::npos) << text << " in: " << reports.errors[0].text;
  }
}

// Counts the kinds of memory in which buffers come to a pad.
class MemoryCounter {
 public:
  MemoryCounter(const PipelineRun& run, const char* pad)
      : pad_(gst_element_get_static_pad(run.element("m").get(), pad)) {
    gst_pad_add_probe(
        pad_.get(), GST_PAD_PROBE_TYPE_BUFFER,
        [](GstPad*, GstPadProbeInfo* info, gpointer data) {
          auto* self = static_cast<MemoryCounter*>(data);
          GstMemory* memory = gst_buffer_peek_memory(GST_PAD_PROBE_INFO_BUFFER(info), 0);
          ++(gst_is_cuda_memory(memory)                      ? self->device
             : gst_memory_is_type(memory, kPinnedMemoryType) ? self->pinned
                                                             : self->other);
          return GST_PAD_PROBE_OK;
        },
        this, nullptr);
  }

  std::atomic<int> device{0}, pinned{0}, other{0};

 private:
  GstPtr<GstPad> pad_;
};

// The folder of streams; empty if it is neither given nor can be made.
const std::string& Streams() {
  static const TemporaryDirectory made;
  static const std::string directory = []() -> std::string {
    if (const char* given = std::getenv("PSNRHVS_STREAMS")) return given;
    const char* script = std::getenv("PSNRHVS_PREPARE_STREAMS");
    const std::string target = made / "streams";
    return script && RunCommand(std::string(script) + " " + target) ? target : "";
  }();
  return directory;
}

struct Codec {
  const char* name;
  const char* parser_and_decoder;
  const char* source;
  const char* raw_format;
};

class Decoded : public ::testing::TestWithParam<Codec> {
 protected:
  void SetUp() override {
    if (Streams().empty()) GTEST_SKIP() << "no streams: set PSNRHVS_STREAMS, or install ffmpeg";
  }
  std::string Path(const std::string& name) const { return Streams() + "/" + name; }
  std::string OnDevice() const {
    return "filesrc location=" + Path(GetParam().name + std::string(".mkv")) + " ! matroskademux ! " +
           GetParam().parser_and_decoder + " ! " + kCuda;
  }
  std::string InSoftware() const { return Raw(Path(GetParam().name + std::string(".yuv")), GetParam().raw_format); }
  std::string Original() const { return Raw(Path(GetParam().source), GetParam().raw_format); }
};

TEST_P(Decoded, FramesInDeviceMemoryEqualThoseOfTheSoftwareDecoder) {
  PipelineRun run(Two(InSoftware(), OnDevice(), "backend=cuda"));
  MemoryCounter distorted(run, "dist_sink");
  const Reports reports = run.PlayToEnd();
  ExpectRun(reports, 20, "cuda");
  ExpectAllInfinite(reports);
  EXPECT_EQ(distorted.device, 20);
}

TEST_P(Decoded, ScoresAgainstTheSourceHaveTheBitsOfTheCpu) {
  const Reports expected = RunPipeline(Two(Original(), InSoftware(), "backend=cpu"));
  ExpectRun(expected, 20, "cpu");
  const Reports mixed = RunPipeline(Two(Original(), OnDevice(), "backend=cuda"));
  ExpectRun(mixed, 20, "cuda");
  ExpectSameBits(mixed, expected);
  const Reports uploaded = RunPipeline(Two(Original() + " ! cudaupload", OnDevice(), "backend=cuda verify=true"));
  ExpectRun(uploaded, 20, "cuda");
  ExpectSameBits(uploaded, expected);
}

TEST_P(Decoded, DecoderCanFeedTheReference) {
  PipelineRun run(Two(OnDevice(), InSoftware(), "backend=auto"));
  MemoryCounter reference(run, "ref_sink");
  const Reports reports = run.PlayToEnd();
  ExpectRun(reports, 20, "cuda");
  ExpectAllInfinite(reports);
  EXPECT_EQ(reference.device, 20);
}

INSTANTIATE_TEST_SUITE_P(Codecs, Decoded,
                         ::testing::Values(Codec{"h264", "h264parse ! nvh264dec", "source8.yuv", "i420"},
                                           Codec{"h265", "h265parse ! nvh265dec", "source10.yuv", "i420-10le"},
                                           Codec{"vp9", "vp9parse ! nvvp9dec", "source8.yuv", "i420"}),
                         [](const auto& info) { return std::string(info.param.name); });

struct Case {
  const char* format;
  int width, height;
  bool upload;  // the format exists in device memory
};

class Formats : public ::testing::TestWithParam<Case> {};

TEST_P(Formats, EveryMemoryGivesTheBitsOfTheCpu) {
  const Case& c = GetParam();
  const std::string reference = Source(c.format, 1, c.width, c.height);
  const std::string distorted = Source(c.format, 2, c.width, c.height);
  const Reports expected = RunPipeline(Two(reference, distorted, "backend=cpu"));
  ExpectRun(expected, 8, "cpu");
  for (const char* properties : {"", "cuda-reduction=host", "verify=true", "cuda-device-id=0"}) {
    SCOPED_TRACE(properties);
    const Reports reports = RunPipeline(Two(reference, distorted, std::string("backend=cuda ") + properties));
    ExpectRun(reports, 8, "cuda");
    ExpectSameBits(reports, expected);
  }
  if (!c.upload) return;
  const std::string upload = std::string(" ! cudaupload ! ") + kCuda;
  const std::pair<const char*, const char*> uploads[] = {
      {upload.c_str(), ""}, {"", upload.c_str()}, {upload.c_str(), upload.c_str()}};
  for (const auto& [ref_upload, dist_upload] : uploads) {
    SCOPED_TRACE(std::string("ref") + ref_upload + ", dist" + dist_upload);
    PipelineRun run(Two(reference + ref_upload, distorted + dist_upload, "backend=cuda"));
    MemoryCounter ref_memory(run, "ref_sink"), dist_memory(run, "dist_sink");
    const Reports reports = run.PlayToEnd();
    ExpectRun(reports, 8, "cuda");
    ExpectSameBits(reports, expected);
    EXPECT_EQ(ref_memory.device, *ref_upload ? 8 : 0);
    EXPECT_EQ(dist_memory.device, *dist_upload ? 8 : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Formats,
                         ::testing::Values(Case{"I420", 320, 240, true}, Case{"I420", 127, 65, true},
                                           Case{"YV12", 322, 242, true}, Case{"NV12", 320, 240, true},
                                           Case{"NV12", 127, 65, true}, Case{"NV21", 130, 66, true},
                                           Case{"Y42B", 321, 240, true}, Case{"Y444", 127, 65, true},
                                           Case{"I420_10LE", 127, 65, true}, Case{"P010_10LE", 322, 240, true},
                                           Case{"I422_10LE", 320, 240, true}, Case{"I422_12LE", 126, 66, true},
                                           Case{"NV16", 320, 240, false}, Case{"GRAY8", 127, 65, false},
                                           Case{"Y444_10LE", 320, 240, false}, Case{"I420_12LE", 126, 66, false},
                                           Case{"Y444_12LE", 127, 65, false}, Case{"P012_LE", 320, 240, false}),
                         [](const auto& info) {
                           return std::string(info.param.format) + "_" + std::to_string(info.param.width) + "x" +
                                  std::to_string(info.param.height);
                         });

TEST(ElementCuda, ComparesLayoutsOfTheSameSamplesAcrossMemories) {
  const Reports reports =
      RunPipeline(Two(Source("I420", 1), Source("NV12", 1) + " ! cudaupload ! " + kCuda, "backend=cuda"));
  ExpectRun(reports, 8, "cuda");
  const Reports expected = RunPipeline(Two(Source("I420", 1), Source("NV12", 1), "backend=cpu"));
  ExpectSameBits(reports, expected);
}

TEST(ElementCuda, SystemMemoryUpstreamWritesIntoPageLockedBuffers) {
  PipelineRun run(Two(Source("I420", 1), Source("I420", 2), "backend=cuda"));
  MemoryCounter reference(run, "ref_sink"), distorted(run, "dist_sink");
  ExpectRun(run.PlayToEnd(), 8, "cuda");
  EXPECT_EQ(reference.pinned, 8);
  EXPECT_EQ(distorted.pinned, 8);
}

TEST(ElementCuda, CpuBackendProposesNoPageLockedBuffers) {
  PipelineRun run(Two(Source("I420", 1), Source("I420", 2), "backend=cpu"));
  MemoryCounter distorted(run, "dist_sink");
  ExpectRun(run.PlayToEnd(), 8, "cpu");
  EXPECT_EQ(distorted.other, 8);
}

TEST(ElementCuda, ProposesPoolsOfTheMemoryOfTheCapsAndRespectsDownstreamsRefusalOfVideoMeta) {
  // The sink answers no ALLOCATION query.
  TwoPads pads(TwoPads::Properties{{"backend", "cuda"}});
  for (const bool device : {true, false}) {
    const std::string text = std::string(device ? kCuda : "video/x-raw") + ",format=NV12,width=320,height=240";
    const GstPtr<GstCaps> caps(gst_caps_from_string(text.c_str()));
    for (Side side : {Side::kReference, Side::kDistorted}) {
      const GstPtr<GstQuery> query(gst_query_new_allocation(caps.get(), TRUE));
      ASSERT_TRUE(gst_pad_query(pads.pad(side), query.get()));
      ASSERT_EQ(gst_query_get_n_allocation_pools(query.get()), 1u);
      GstBufferPool* pool = nullptr;
      guint size = 0, min = 0, max = 1;
      gst_query_parse_nth_allocation_pool(query.get(), 0, &pool, &size, &min, &max);
      EXPECT_EQ(GST_IS_CUDA_BUFFER_POOL(pool), device);
      EXPECT_GE(size, 320u * 240 * 3 / 2);
      EXPECT_EQ(max, 0u);
      EXPECT_TRUE(gst_buffer_pool_set_active(pool, TRUE));
      GstBuffer* buffer = nullptr;
      EXPECT_EQ(gst_buffer_pool_acquire_buffer(pool, &buffer, nullptr), GST_FLOW_OK);
      GstMemory* memory = gst_buffer_peek_memory(buffer, 0);
      EXPECT_EQ(gst_is_cuda_memory(memory), device);
      EXPECT_EQ(gst_memory_is_type(memory, kPinnedMemoryType), !device);
      EXPECT_NE(gst_buffer_get_video_meta(buffer), nullptr);
      gst_buffer_unref(buffer);
      gst_buffer_pool_set_active(pool, FALSE);
      gst_object_unref(pool);
      EXPECT_EQ(gst_query_find_allocation_meta(query.get(), GST_VIDEO_META_API_TYPE, nullptr),
                side == Side::kDistorted);
    }
  }
}

TEST(ElementCuda, PinnedMemoryCanBeCopiedSharedAndOutliveTheElement) {
  GstPtr<GstBuffer> buffer;
  {
    TwoPads pads(TwoPads::Properties{{"backend", "cuda"}});
    const GstPtr<GstCaps> caps(gst_caps_from_string("video/x-raw,format=GRAY8,width=64,height=64"));
    const GstPtr<GstQuery> query(gst_query_new_allocation(caps.get(), TRUE));
    ASSERT_TRUE(gst_pad_query(pads.pad(Side::kDistorted), query.get()));
    GstAllocator* allocator = nullptr;
    GstAllocationParams params;
    gst_query_parse_nth_allocation_param(query.get(), 0, &allocator, &params);
    buffer.reset(gst_buffer_new_allocate(allocator, 4096, &params));
    gst_object_unref(allocator);
  }
  for (guint i = 0; i < 4096; ++i) {
    const guint8 byte = static_cast<guint8>(i * 7);
    gst_buffer_fill(buffer.get(), i, &byte, 1);
  }
  const GstPtr<GstBuffer> part(gst_buffer_copy_region(buffer.get(), GST_BUFFER_COPY_MEMORY, 100, 50));
  const GstPtr<GstBuffer> copy(gst_buffer_copy_deep(buffer.get()));
  buffer.reset();
  guint8 byte = 0;
  gst_buffer_extract(part.get(), 3, &byte, 1);
  EXPECT_EQ(byte, static_cast<guint8>(103 * 7));
  gst_buffer_extract(copy.get(), 4095, &byte, 1);
  EXPECT_EQ(byte, static_cast<guint8>(4095 * 7));
}

TEST(ElementCuda, RefusesMemoryOfAnotherContextByName) {
  TwoPads pads(TwoPads::Properties{{"backend", "cuda"}});
  const char caps_text[] = "video/x-raw(memory:CUDAMemory),format=NV12,width=64,height=64,framerate=25/1";
  pads.SetCaps(caps_text);
  GstCudaContext* other = gst_cuda_context_new(0);
  GstBufferPool* pool = gst_cuda_buffer_pool_new(other);
  const GstPtr<GstCaps> caps(gst_caps_from_string(caps_text));
  GstStructure* config = gst_buffer_pool_get_config(pool);
  gst_buffer_pool_config_set_params(config, caps.get(), 64 * 64 * 3 / 2, 2, 0);
  ASSERT_TRUE(gst_buffer_pool_set_config(pool, config));
  ASSERT_TRUE(gst_buffer_pool_set_active(pool, TRUE));
  for (Side side : {Side::kReference, Side::kDistorted}) {
    GstBuffer* buffer = nullptr;
    ASSERT_EQ(gst_buffer_pool_acquire_buffer(pool, &buffer, nullptr), GST_FLOW_OK);
    GST_BUFFER_PTS(buffer) = 0;
    GST_BUFFER_DURATION(buffer) = 40 * GST_MSECOND;
    pads.Push(side, GstPtr<GstBuffer>(buffer));
  }
  ExpectError(pads.End(), {"another CUDA context", "cudadownload", "cuda-device-id"});
  gst_buffer_pool_set_active(pool, FALSE);
  gst_object_unref(pool);
  gst_object_unref(other);
}

TEST(ElementCuda, FrameLostInTheMiddleIsLeftOutAsWithTheCpu) {
  Reports reports[2];
  for (const bool cuda : {false, true}) {
    PipelineRun run(
        Two(Source("I420", 1, 320, 240, 30), Source("I420", 1, 320, 240, 30), cuda ? "backend=cuda" : "backend=cpu"));
    const GstPtr<GstPad> pad(gst_element_get_static_pad(run.element("m").get(), "dist_sink"));
    gst_pad_add_probe(
        pad.get(), GST_PAD_PROBE_TYPE_BUFFER,
        [](GstPad*, GstPadProbeInfo* info, gpointer) {
          const bool lost = GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info)) == 7 * 40 * GST_MSECOND;
          return lost ? GST_PAD_PROBE_DROP : GST_PAD_PROBE_OK;
        },
        nullptr, nullptr);
    reports[cuda] = run.PlayToEnd();
    ExpectRun(reports[cuda], 29, cuda ? "cuda" : "cpu");
    ExpectAllInfinite(reports[cuda]);
    ASSERT_EQ(reports[cuda].unpaired.size(), 1u);
    EXPECT_EQ(reports[cuda].unpaired[0].pad, "ref_sink");
    EXPECT_EQ(reports[cuda].unpaired[0].timing.index, 7u);
  }
  ExpectSameBits(reports[1], reports[0]);
}

TEST(ElementCuda, TwoElementsInARowAndTwoPipelinesAtOnceAgreeWithTheCpu) {
  const Reports expected = RunPipeline(Two(Source("NV12", 1), Source("NV12", 2), "backend=cpu"));
  Reports reports[2];
  std::thread threads[2];
  for (int i = 0; i < 2; ++i) {
    threads[i] = std::thread([&, i] {
      const std::string upload = std::string(" ! cudaupload ! ") + kCuda;
      reports[i] = RunPipeline("tee name=t ! queue ! m.dist_sink t. ! queue ! second.dist_sink " + Source("NV12", 2) +
                               upload + " ! t. " + Source("NV12", 1) + upload +
                               " ! m.ref_sink psnrhvs name=m backend=cuda ! second.ref_sink "
                               "psnrhvs name=second backend=cuda ! fakesink");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Reports& report : reports) {
    ExpectRun(report, 8, "cuda");
    ExpectSameBits(report, expected);
  }
}

TEST(ElementCuda, CommandsInTheDocumentationRun) {
  if (Streams().empty()) GTEST_SKIP() << "no streams: set PSNRHVS_STREAMS, or install ffmpeg";
  const TemporaryDirectory directory;
  const std::map<std::string, std::string> files = {{"reference.mkv", Streams() + "/vp9.mkv"},
                                                    {"distorted.mkv", Streams() + "/h264.mkv"},
                                                    {"scores.csv", directory / "scores.csv"}};
  const char* usage = std::getenv("PSNRHVS_USAGE");
  ASSERT_NE(usage, nullptr);
  std::string page = ReadFile(usage);
  const std::string continued = "\\\n";
  for (size_t i; (i = page.find(continued)) != std::string::npos;) page.replace(i, continued.size(), "");
  std::istringstream text(page);
  const std::string command = "gst-launch-1.0 ";
  int commands = 0;
  for (std::string line; std::getline(text, line);) {
    if (line.compare(0, command.size(), command) != 0 || line.find("nvh264dec") == std::string::npos) continue;
    SCOPED_TRACE(line);
    std::string pipeline = line.substr(command.size());
    for (const auto& [name, path] : files) {
      const size_t position = pipeline.find(name);
      if (position != std::string::npos) pipeline.replace(position, name.size(), path);
    }
    ExpectRun(RunPipeline(pipeline), 20, "cuda");
    ++commands;
  }
  EXPECT_EQ(commands, 2);
  const std::string scores = ReadFile(directory / "scores.csv");
  EXPECT_EQ(std::count(scores.begin(), scores.end(), '\n'), 21);
}

TEST(ElementCuda, ThousandRunsLeaveDeviceMemoryAsItWas) {
  const CudaDriver& driver = **LoadCudaDriver();
  const ContextHolder holder = std::move(*ContextHolder::Create(driver, nullptr, 0));
  const ScopedContext current(driver, holder.get());
  const auto free_bytes = [&] {
    size_t free = 0, total = 0;
    EXPECT_EQ(driver.MemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  };
  PipelineRun run(
      Two(Source("NV12", 1, 64, 64, 2), Source("NV12", 2, 64, 64, 2) + " ! cudaupload ! " + kCuda, "backend=cuda"));
  size_t free_after_hundred = 0;
  for (int i = 0; i < 1000; ++i) {
    run.recorder().Clear();
    const Reports reports = run.PlayToEnd();
    ASSERT_TRUE(reports.errors.empty()) << "run " << i << ": " << reports.errors[0].text;
    ASSERT_EQ(reports.frames.size(), 2u) << "run " << i;
    ASSERT_EQ(reports.frames[0].reference.index, 0u) << "run " << i;
    if (i == 99) free_after_hundred = free_bytes();
  }
  EXPECT_EQ(free_bytes(), free_after_hundred);
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const auto devices = psnrhvs::ProbeCudaDevices();
  if (!devices.ok()) {
    std::printf("skipped: %s\n", devices.status().message().c_str());
    return 77;
  }
  gst_init(&argc, &argv);
  if (!gst_cuda_load_library()) {
    std::printf("GStreamer's CUDA library cannot use the driver\n");
    return 1;
  }
  return RUN_ALL_TESTS();
}
