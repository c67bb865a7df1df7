// SPDX-License-Identifier: LGPL-2.1-or-later
#include "tests/support/pipelines.h"

#ifdef __SANITIZE_ADDRESS__
#include <dlfcn.h>
extern "C" void __asan_init();
#endif

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

// Last: it defines macros with names of the standard library.
#include <gst/check/gstcheck.h>

namespace psnrhvs::testing {
namespace {

GstElement* Parse(const std::string& description) {
  GError* error = nullptr;
  GstElement* pipeline = gst_parse_launch_full(description.c_str(), nullptr, GST_PARSE_FLAG_FATAL_ERRORS, &error);
  if (error) g_error("%s: %s", description.c_str(), error->message);
  return pipeline;
}

GstElement* MakeElement(const TwoPads::Properties& properties) {
  GstElement* element = gst_element_factory_make("psnrhvs", "m");
  if (!element) g_error("no element psnrhvs in GST_PLUGIN_PATH_1_0");
  for (const auto& [name, value] : properties) gst_util_set_object_arg(G_OBJECT(element), name.c_str(), value.c_str());
  return GST_ELEMENT(gst_object_ref_sink(element));
}

}  // namespace

PipelineRun::PipelineRun(const std::string& description, const std::string& name)
    : pipeline_(Parse(description)), bus_(gst_element_get_bus(pipeline_.get())) {
  src_.reset(gst_element_get_static_pad(element(name).get(), "src"));
  recorder_ = std::make_unique<Recorder>(bus_.get(), src_.get());
}

PipelineRun::~PipelineRun() {
  gst_element_set_state(pipeline_.get(), GST_STATE_NULL);
  recorder_.reset();
}

GstPtr<GstElement> PipelineRun::element(const std::string& name) const {
  GstPtr<GstElement> found(gst_bin_get_by_name(GST_BIN(pipeline_.get()), name.c_str()));
  if (!found) g_error("no element %s in the pipeline", name.c_str());
  return found;
}

bool PipelineRun::SetState(GstState state) {
  if (gst_element_set_state(pipeline_.get(), state) == GST_STATE_CHANGE_FAILURE) return false;
  return gst_element_get_state(pipeline_.get(), nullptr, nullptr, 120 * GST_SECOND) != GST_STATE_CHANGE_FAILURE;
}

Reports PipelineRun::PlayToEnd() {
  gst_element_set_state(pipeline_.get(), GST_STATE_PLAYING);
  recorder_->WaitForEnd();
  Reports reports = recorder_->reports();
  gst_element_set_state(pipeline_.get(), GST_STATE_NULL);
  return reports;
}

Reports RunPipeline(const std::string& description) { return PipelineRun(description).PlayToEnd(); }

TwoPads::TwoPads(const Properties& properties)
    : element_(MakeElement(properties)),
      bus_(gst_bus_new()),
      src_(gst_element_get_static_pad(element_.get(), "src")),
      pads_{GstPtr<GstPad>(gst_element_get_static_pad(element_.get(), "ref_sink")),
            GstPtr<GstPad>(gst_element_get_static_pad(element_.get(), "dist_sink"))} {
  gst_element_set_bus(element_.get(), bus_.get());
  recorder_ = std::make_unique<Recorder>(bus_.get(), src_.get());
  harnesses_[0] = gst_harness_new_with_element(element_.get(), "ref_sink", "src");
  harnesses_[1] = gst_harness_new_with_element(element_.get(), "dist_sink", nullptr);
  for (GstHarness* harness : harnesses_) gst_harness_set_live(harness, FALSE);
}

TwoPads::~TwoPads() {
  gst_element_set_state(element_.get(), GST_STATE_NULL);
  gst_harness_teardown(harnesses_[1]);
  gst_harness_teardown(harnesses_[0]);
  recorder_.reset();
  gst_element_set_bus(element_.get(), nullptr);
}

void TwoPads::SetCaps(Side side, const std::string& caps) const {
  gst_harness_set_src_caps_str(harness(side), caps.c_str());
}

void TwoPads::SetCaps(const std::string& caps) const {
  SetCaps(Side::kReference, caps);
  SetCaps(Side::kDistorted, caps);
}

GstFlowReturn TwoPads::Push(Side side, GstPtr<GstBuffer> buffer) const {
  return gst_harness_push(harness(side), buffer.release());
}

bool TwoPads::Push(Side side, GstEvent* event) const { return gst_harness_push_event(harness(side), event); }

Reports TwoPads::End(Side first) {
  Push(first, gst_event_new_eos());
  Push(Other(first), gst_event_new_eos());
  recorder_->WaitFor("eos");
  return recorder_->reports();
}

GstVideoFormat PlanarFormat(Chroma chroma, int depth) {
  if (chroma == Chroma::k400) return GST_VIDEO_FORMAT_GRAY8;
  std::string name = chroma == Chroma::k420 ? "I420" : chroma == Chroma::k422 ? "I422" : "Y444";
  if (depth == 8) {
    if (chroma == Chroma::k422) name = "Y42B";
  } else {
    name += "_" + std::to_string(depth) + "LE";
  }
  return gst_video_format_from_string(name.c_str());
}

GstPtr<GstBuffer> BufferOf(const Picture& picture, GstVideoFormat format, const Layout& layout) {
  GstVideoInfo info;
  gst_video_info_set_format(&info, format, picture.width, picture.height);
  const GstVideoFormatInfo* finfo = info.finfo;
  const int components = GST_VIDEO_FORMAT_INFO_N_COMPONENTS(finfo);
  if (layout.custom) {
    size_t end = 0;
    for (guint plane = 0; plane < GST_VIDEO_INFO_N_PLANES(&info); ++plane) {
      int component = 0;
      while (GST_VIDEO_FORMAT_INFO_PLANE(finfo, component) != plane) ++component;
      const int row_bytes = GST_VIDEO_INFO_COMP_WIDTH(&info, component) * GST_VIDEO_INFO_COMP_PSTRIDE(&info, component);
      info.stride[plane] = row_bytes + layout.row_padding;
      info.offset[plane] = end + layout.plane_offset;
      end = info.offset[plane] + static_cast<size_t>(info.stride[plane]) * GST_VIDEO_INFO_COMP_HEIGHT(&info, component);
    }
    info.size = end;
  }
  GstPtr<GstBuffer> buffer(gst_buffer_new_allocate(nullptr, info.size, nullptr));
  GstMapInfo map;
  gst_buffer_map(buffer.get(), &map, GST_MAP_WRITE);
  for (size_t i = 0; i < map.size; ++i) map.data[i] = static_cast<guint8>(i * 167 + 41);
  gst_buffer_unmap(buffer.get(), &map);
  if (layout.custom) {
    gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, format, picture.width, picture.height,
                                   GST_VIDEO_INFO_N_PLANES(&info), info.offset, info.stride);
  }
  GstVideoFrame frame;
  if (!gst_video_frame_map(&frame, &info, buffer.get(), GST_MAP_WRITE)) g_error("cannot map a buffer for writing");
  for (int c = 0; c < components; ++c) {
    const int bytes = picture.BytesPerSample();
    const guint8* from = picture.planes[c].data();
    // The table's offset of P010's second chroma component is 1, where pack functions put it 2 bytes on.
    guint8* plane = static_cast<guint8*>(GST_VIDEO_FRAME_PLANE_DATA(&frame, GST_VIDEO_FRAME_COMP_PLANE(&frame, c))) +
                    (GST_VIDEO_FRAME_COMP_POFFSET(&frame, c) > 0 ? bytes : 0);
    for (int y = 0; y < GST_VIDEO_FRAME_COMP_HEIGHT(&frame, c); ++y) {
      guint8* row = plane + y * GST_VIDEO_FRAME_COMP_STRIDE(&frame, c);
      for (int x = 0; x < GST_VIDEO_FRAME_COMP_WIDTH(&frame, c); ++x, from += bytes) {
        guint8* to = row + x * GST_VIDEO_FRAME_COMP_PSTRIDE(&frame, c);
        if (bytes == 1) {
          *to = *from;
        } else {
          // Byte by byte, as the layout may put samples at odd addresses.
          const unsigned sample = (from[0] | from[1] << 8) << finfo->shift[c];
          to[0] = static_cast<guint8>(sample);
          to[1] = static_cast<guint8>(sample >> 8);
        }
      }
    }
  }
  gst_video_frame_unmap(&frame);
  return buffer;
}

GstPtr<GstBuffer> SmallFrame(int n, GstClockTime pts, GstClockTime duration) {
  Picture picture = MakePicture(16, 16, Chroma::k420, 8);
  for (auto& plane : picture.planes) {
    for (size_t i = 0; i < plane.size(); ++i) plane[i] = static_cast<uint8_t>(i * (n % 251 + 1) * 13 + n);
  }
  GstPtr<GstBuffer> buffer = BufferOf(picture, GST_VIDEO_FORMAT_I420);
  GST_BUFFER_PTS(buffer.get()) = pts;
  GST_BUFFER_DURATION(buffer.get()) = duration;
  return buffer;
}

std::string CapsOf(GstVideoFormat format, int width, int height) {
  return std::string("video/x-raw,format=") + gst_video_format_to_string(format) + ",width=" + std::to_string(width) +
         ",height=" + std::to_string(height) + ",framerate=25/1";
}

TemporaryDirectory::TemporaryDirectory() {
  const GstPtr<gchar> path(g_dir_make_tmp("psnrhvs-test-XXXXXX", nullptr));
  if (!path) g_error("cannot make a temporary folder");
  path_ = path.get();
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) g_error("cannot read %s", path.c_str());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void InitChecks(int* argc, char*** argv) {
#ifdef __SANITIZE_THREAD__
  const pid_t child = fork();
  if (child == 0) {
    gst_init(nullptr, nullptr);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
#endif
  gst_check_init(argc, argv);
}

bool GstLaunchRunsElement() {
#ifdef __SANITIZE_THREAD__
  return false;
#else
  return true;
#endif
}

bool RunCommand(const std::string& command) {
  std::string environment;
#ifdef __SANITIZE_ADDRESS__
  // gst-launch is not instrumented, so the runtime that the plugin needs has to be there before it.
  Dl_info runtime;
  if (dladdr(reinterpret_cast<void*>(__asan_init), &runtime)) {
    environment =
        std::string("export LD_PRELOAD=") + runtime.dli_fname + " ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0; ";
  }
#endif
#ifdef __SANITIZE_THREAD__
  // Other programs are not instrumented: without the runtime, and without a plugin that needs it.
  environment = "unset LD_PRELOAD GST_PLUGIN_PATH_1_0; export GST_REGISTRY=$GST_REGISTRY.commands; ";
#endif
  return std::system((environment + command).c_str()) == 0;
}

}  // namespace psnrhvs::testing
