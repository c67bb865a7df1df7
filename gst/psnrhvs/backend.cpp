// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/backend.h"

#include <gst/video/video.h>

#include "cpu/cpu_engine.h"
#include "gst/psnrhvs/gstptr.h"
#include "gst/psnrhvs/mapped_frame.h"

#ifdef PSNRHVS_HAVE_CUDA

#include "gst/psnrhvs/cuda_memory.h"
#define PSNRHVS_CUDA_CAPS GST_VIDEO_CAPS_MAKE_WITH_FEATURES(PSNRHVS_CUDA_FEATURE, PSNRHVS_CUDA_FORMATS) ";"

#else

#define PSNRHVS_CUDA_CAPS ""

namespace psnrhvs {

// A build without CUDA has no device.
class CudaMemory {
 public:
  explicit CudaMemory(GstElement*) {}
  static bool DevicePresent() { return false; }
  Status Start(const BackendSettings&) { return Missing(); }
  void Stop() {}
  Result<std::unique_ptr<Engine>> CreateEngine(const FrameGeometry&, const BackendSettings&, bool) { return Missing(); }
  Result<BufferAccess> Access(GstBuffer*) { return BufferAccess{}; }
  bool ProposePool(GstQuery*) { return false; }
  void SetContext(GstContext*, int) {}
  bool AnswerContextQuery(GstQuery*) { return false; }

 private:
  static Status Missing() { return Status(StatusCode::kUnavailable, "this build of psnrhvs has no CUDA backend"); }
};

}  // namespace psnrhvs

#endif

// Of the whole plugin; the element registers it.
GST_DEBUG_CATEGORY(gst_psnr_hvs_debug);
#define GST_CAT_DEFAULT gst_psnr_hvs_debug

namespace psnrhvs {
namespace {

bool IsCudaMemory(const GstCaps* caps, guint structure) {
  return gst_caps_features_contains(gst_caps_get_features(caps, structure), PSNRHVS_CUDA_FEATURE);
}

}  // namespace

Backend::Backend(GstElement* element) : element_(element), cuda_(std::make_unique<CudaMemory>(element)) {}
Backend::~Backend() = default;

GstCaps* Backend::TemplateCaps() {
  return gst_caps_from_string(PSNRHVS_CUDA_CAPS GST_VIDEO_CAPS_MAKE(PSNRHVS_FORMATS));
}

Status Backend::Start(const BackendSettings& settings) {
  settings_ = settings;
  state_ = State::kCpu;
  if (settings.choice == BackendChoice::kCpu) return Status();
  const Status status = cuda_->Start(settings);
  if (status.ok()) {
    state_ = State::kCuda;
    return Status();
  }
  if (settings.choice == BackendChoice::kAuto) {
    GST_INFO_OBJECT(element_, "computing on the CPU: %s", status.message().c_str());
    return Status();
  }
  state_ = State::kStopped;
  return Status(status.code(), "backend=cuda cannot be used: " + status.message());
}

void Backend::Stop() {
  cuda_->Stop();
  state_ = State::kStopped;
}

Result<std::unique_ptr<Engine>> Backend::CreateEngine(const FrameGeometry& geometry, const GstCaps* reference_caps,
                                                      const GstCaps* distorted_caps) const {
  if (state_ == State::kCuda) {
    const bool on_device = IsCudaMemory(reference_caps, 0) && IsCudaMemory(distorted_caps, 0);
    return cuda_->CreateEngine(geometry, settings_, on_device);
  }
  CpuEngineOptions options;
  options.threads = settings_.threads;
  return CreateCpuEngine(geometry, options);
}

GstCaps* Backend::OfferedCaps(BackendChoice choice) const {
  GstPtr<GstCaps> caps(TemplateCaps());
  const State state = state_;
  const bool offers_cuda = state == State::kCuda ||
                           (state == State::kStopped && choice != BackendChoice::kCpu && CudaMemory::DevicePresent());
  for (guint i = gst_caps_get_size(caps.get()); i-- > 0;) {
    if (!offers_cuda && IsCudaMemory(caps.get(), i)) gst_caps_remove_structure(caps.get(), i);
  }
  return caps.release();
}

Status Backend::CheckCaps(const GstCaps* caps) const {
  if (state_ == State::kCuda || !IsCudaMemory(caps, 0)) return Status();
  return Status(StatusCode::kInvalidArgument,
                "frames come in CUDA memory and the CPU backend computes: put cudadownload before the pad, or set "
                "backend=cuda");
}

Result<BufferAccess> Backend::Access(GstBuffer* buffer) const {
  if (state_ == State::kCuda) return cuda_->Access(buffer);
  return BufferAccess{};
}

bool Backend::ProposePool(GstQuery* query) const { return state_ == State::kCuda && cuda_->ProposePool(query); }

void Backend::SetContext(GstContext* context, int cuda_device_id) { cuda_->SetContext(context, cuda_device_id); }

bool Backend::AnswerContextQuery(GstQuery* query) const { return cuda_->AnswerContextQuery(query); }

}  // namespace psnrhvs
