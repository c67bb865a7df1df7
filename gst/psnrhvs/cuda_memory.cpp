// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/cuda_memory.h"

#include <gmodule.h>
#include <gst/cuda/gstcudabufferpool.h>
#include <gst/cuda/gstcudacontext.h>
#include <gst/cuda/gstcudaloader.h>
#include <gst/cuda/gstcudamemory.h>
#include <gst/cuda/gstcudautils.h>
#include <gst/video/video.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "gst/psnrhvs/gstptr.h"
#include "gst/psnrhvs/mapped_frame.h"

GST_DEBUG_CATEGORY_EXTERN(gst_psnr_hvs_debug);
#define GST_CAT_DEFAULT gst_psnr_hvs_debug

namespace {

// Page-locked host memory as a GstAllocator, so that upstream writes where the device can read.
struct PsnrHvsPinnedAllocator {
  GstAllocator parent;
  GstCudaContext* context;
};
struct PsnrHvsPinnedAllocatorClass {
  GstAllocatorClass parent_class;
};
struct PinnedMemory {
  GstMemory memory;
  void* data;
};

constexpr const char* kPinnedMemoryType = "PsnrHvsPinnedMemory";
constexpr gsize kPinnedAlignMask = 255;  // what the driver's page-locked memory is sure to have

GType psnr_hvs_pinned_allocator_get_type();
G_DEFINE_TYPE(PsnrHvsPinnedAllocator, psnr_hvs_pinned_allocator, GST_TYPE_ALLOCATOR)

psnrhvs::CudaTarget TargetOf(GstCudaContext* context) {
  psnrhvs::CudaTarget target;
  target.context = gst_cuda_context_get_handle(context);
  guint device_id = 0;
  g_object_get(context, "cuda-device-id", &device_id, nullptr);
  target.device_id = static_cast<int>(device_id);
  return target;
}

// Ordinary memory where there is no page-locked: slower, and not a reason to end.
GstMemory* psnr_hvs_pinned_allocator_alloc(GstAllocator* allocator, gsize size, GstAllocationParams* params) {
  const gsize bytes = params->prefix + size + params->padding;
  if ((params->align & ~kPinnedAlignMask) != 0) return gst_allocator_alloc(nullptr, size, params);
  auto* self = reinterpret_cast<PsnrHvsPinnedAllocator*>(allocator);
  const psnrhvs::Result<void*> data = psnrhvs::AllocatePinned(TargetOf(self->context), bytes);
  if (!data.ok()) {
    GST_WARNING_OBJECT(allocator, "using pageable memory: %s", data.status().message().c_str());
    return gst_allocator_alloc(nullptr, size, params);
  }
  auto* memory = g_new0(PinnedMemory, 1);
  memory->data = *data;
  gst_memory_init(GST_MEMORY_CAST(memory), params->flags, allocator, nullptr, bytes, params->align, params->prefix,
                  size);
  auto* start = static_cast<char*>(memory->data);
  if (params->flags & GST_MEMORY_FLAG_ZERO_PREFIXED) std::memset(start, 0, params->prefix);
  if (params->flags & GST_MEMORY_FLAG_ZERO_PADDED) std::memset(start + params->prefix + size, 0, params->padding);
  return GST_MEMORY_CAST(memory);
}

void psnr_hvs_pinned_allocator_free(GstAllocator* allocator, GstMemory* memory) {
  // A shared part leaves the data to the whole.
  if (!memory->parent) {
    psnrhvs::FreePinned(TargetOf(reinterpret_cast<PsnrHvsPinnedAllocator*>(allocator)->context),
                        reinterpret_cast<PinnedMemory*>(memory)->data);
  }
  g_free(memory);
}

gpointer psnr_hvs_pinned_allocator_map(GstMemory* memory, gsize, GstMapFlags) {
  return reinterpret_cast<PinnedMemory*>(memory)->data;
}

void psnr_hvs_pinned_allocator_unmap(GstMemory*) {}

GstMemory* psnr_hvs_pinned_allocator_share(GstMemory* whole, gssize offset, gssize size) {
  GstMemory* parent = whole->parent ? whole->parent : whole;
  auto* part = g_new0(PinnedMemory, 1);
  part->data = reinterpret_cast<PinnedMemory*>(whole)->data;
  gst_memory_init(GST_MEMORY_CAST(part),
                  static_cast<GstMemoryFlags>(GST_MINI_OBJECT_FLAGS(parent) | GST_MEMORY_FLAG_READONLY),
                  whole->allocator, parent, whole->maxsize, whole->align, whole->offset + offset,
                  size == -1 ? whole->size - offset : size);
  return GST_MEMORY_CAST(part);
}

void psnr_hvs_pinned_allocator_finalize(GObject* object) {
  gst_object_unref(reinterpret_cast<PsnrHvsPinnedAllocator*>(object)->context);
  G_OBJECT_CLASS(psnr_hvs_pinned_allocator_parent_class)->finalize(object);
}

void psnr_hvs_pinned_allocator_class_init(PsnrHvsPinnedAllocatorClass* klass) {
  G_OBJECT_CLASS(klass)->finalize = psnr_hvs_pinned_allocator_finalize;
  klass->parent_class.alloc = psnr_hvs_pinned_allocator_alloc;
  klass->parent_class.free = psnr_hvs_pinned_allocator_free;
}

void psnr_hvs_pinned_allocator_init(PsnrHvsPinnedAllocator* self) {
  self->parent.mem_type = kPinnedMemoryType;
  self->parent.mem_map = psnr_hvs_pinned_allocator_map;
  self->parent.mem_unmap = psnr_hvs_pinned_allocator_unmap;
  self->parent.mem_share = psnr_hvs_pinned_allocator_share;
}

}  // namespace

namespace psnrhvs {
namespace {

GstAllocator* NewPinnedAllocator(GstCudaContext* context) {
  auto* allocator = static_cast<PsnrHvsPinnedAllocator*>(g_object_new(psnr_hvs_pinned_allocator_get_type(), nullptr));
  allocator->context = GST_CUDA_CONTEXT(gst_object_ref(context));
  gst_object_ref_sink(allocator);
  return &allocator->parent;
}

// From GStreamer 1.24 on, decoders hand out buffers that they may still be writing, and this function
// waits for them. Looked up at run time, because the library may be newer than the one built against.
void WaitForWriter(GstCudaMemory* memory) {
  using Sync = void (*)(GstCudaMemory*);
  static const Sync sync = [] {
    gpointer symbol = nullptr;
    // The library that this one is linked to, already loaded. Never closed: it stays in use.
    GModule* library = g_module_open("libgstcuda-1.0.so.0", G_MODULE_BIND_LAZY);
    if (library) g_module_symbol(library, "gst_cuda_memory_sync", &symbol);
    return reinterpret_cast<Sync>(symbol);
  }();
  if (sync) sync(memory);
}

std::string DescribeContext(GstCudaContext* context) {
  return std::string(GST_OBJECT_NAME(context)) + " of device " + std::to_string(TargetOf(context).device_id);
}

// Both libraries load the driver; libgstcuda aborts if it is used without one.
Status LoadDriver() {
  static const Status status = []() -> Status {
    const auto devices = ProbeCudaDevices();
    if (!devices.ok()) return devices.status();
    if (!gst_cuda_load_library()) {
      return Status(StatusCode::kUnavailable, "GStreamer's CUDA library cannot use this driver");
    }
    gst_cuda_memory_init_once();
    return Status();
  }();
  return status;
}

}  // namespace

CudaMemory::~CudaMemory() { ForgetElementContext(); }

void CudaMemory::ForgetElementContext() {
  if (element_context_) gst_object_unref(std::exchange(element_context_, nullptr));
}

bool CudaMemory::DevicePresent() { return LoadDriver().ok(); }

Status CudaMemory::Start(const BackendSettings& settings) {
  if (Status status = LoadDriver(); !status.ok()) return status;
  const int wanted = settings.cuda_device_id;
  const size_t devices = ProbeCudaDevices()->size();
  if (wanted >= static_cast<int>(devices)) {
    return Status(StatusCode::kUnavailable, "there is no CUDA device " + std::to_string(wanted) +
                                                ": the driver shows " + std::to_string(devices) + ", from 0");
  }
  if (element_context_ && wanted >= 0 && TargetOf(element_context_).device_id != wanted) {
    ForgetElementContext();
  }
  // What the element was given, or made, in an earlier run.
  if (GstContext* known = gst_element_get_context(element_, GST_CUDA_CONTEXT_TYPE)) {
    SetContext(known, wanted);
    gst_context_unref(known);
  }
  if (!gst_cuda_ensure_element_context(element_, wanted, &element_context_)) {
    return Status(StatusCode::kUnavailable,
                  "no context could be made on CUDA device " + std::to_string(std::max(0, wanted)));
  }
  auto session = std::make_shared<Session>();
  session->context.reset(std::exchange(element_context_, nullptr));
  session->pinned.reset(NewPinnedAllocator(session->context.get()));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    session_ = session;
  }
  const auto geometry = FrameGeometry::Create(64, 64, Chroma::k420, 8);
  const auto engine = CreateEngine(*geometry, settings, false);
  if (!engine.ok()) {
    Stop();
    return engine.status();
  }
  return Status();
}

void CudaMemory::Stop() {
  std::shared_ptr<const Session> stopped;
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped.swap(session_);
}

std::shared_ptr<const CudaMemory::Session> CudaMemory::session() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return session_;
}

Result<std::unique_ptr<Engine>> CudaMemory::CreateEngine(const FrameGeometry& geometry, const BackendSettings& settings,
                                                         bool on_device) const {
  CudaEngineOptions options;
  options.target = TargetOf(session()->context.get());
  options.reduction = settings.cuda_reduction;
  options.verify = settings.verify;
  // The host's reduction takes much memory for each pair in flight.
  if (on_device && settings.cuda_reduction == CudaReduction::kDevice && !settings.verify) {
    options.depth = DeviceFramesDepth(geometry);
  }
  return CreateCudaEngine(geometry, options);
}

Result<BufferAccess> CudaMemory::Access(GstBuffer* buffer) const {
  BufferAccess access;
  const std::shared_ptr<const Session> session = this->session();
  const guint count = gst_buffer_n_memory(buffer);
  for (guint i = 0; i < count; ++i) {
    GstMemory* memory = gst_buffer_peek_memory(buffer, i);
    if (!gst_is_cuda_memory(memory)) {
      // Several pieces may get merged, and end in ordinary memory.
      if (count == 1 && gst_memory_is_type(memory, kPinnedMemoryType)) access.memory = Memory::kPinnedHost;
      return access;
    }
    GstCudaMemory* cuda = GST_CUDA_MEMORY_CAST(memory);
    if (gst_cuda_context_get_handle(cuda->context) != gst_cuda_context_get_handle(session->context.get())) {
      return Status(StatusCode::kInvalidArgument,
                    "frames come in memory of another CUDA context (" + DescribeContext(cuda->context) +
                        ") than the element works in (" + DescribeContext(session->context.get()) +
                        "): let all elements share one context (one pipeline and the same cuda-device-id), or put "
                        "cudadownload before the pad");
    }
    WaitForWriter(cuda);
  }
  if (count > 0) {
    access.memory = Memory::kDevice;
    access.map_flags = static_cast<GstMapFlags>(static_cast<int>(GST_MAP_READ) | static_cast<int>(GST_MAP_CUDA));
  }
  return access;
}

bool CudaMemory::ProposePool(GstQuery* query) const {
  const std::shared_ptr<const Session> session = this->session();
  GstCaps* caps;
  gboolean need_pool;
  gst_query_parse_allocation(query, &caps, &need_pool);
  GstVideoInfo info;
  if (!session || !caps || !gst_video_info_from_caps(&info, caps)) return false;
  if (gst_query_get_n_allocation_pools(query) > 0) return false;
  GstAllocationParams params;
  gst_allocation_params_init(&params);
  const bool has_params = gst_query_get_n_allocation_params(query) > 0;
  if (has_params) {
    GstAllocator* allocator = nullptr;
    gst_query_parse_nth_allocation_param(query, 0, &allocator, &params);
    const std::unique_ptr<GstAllocator, Unref> theirs(allocator);
    if (theirs) return false;
  }

  const bool device = gst_caps_features_contains(gst_caps_get_features(caps, 0), PSNRHVS_CUDA_FEATURE);
  const std::unique_ptr<GstBufferPool, Unref> pool(device ? gst_cuda_buffer_pool_new(session->context.get())
                                                          : gst_video_buffer_pool_new());
  constexpr guint kHeld = kDefaultCudaDepth + 1;  // at least: what the engine works on, and the next
  guint size = static_cast<guint>(GST_VIDEO_INFO_SIZE(&info));
  GstStructure* config = gst_buffer_pool_get_config(pool.get());
  gst_buffer_pool_config_set_params(config, caps, size, kHeld, 0);
  gst_buffer_pool_config_add_option(config, GST_BUFFER_POOL_OPTION_VIDEO_META);
  if (!device) gst_buffer_pool_config_set_allocator(config, session->pinned.get(), &params);
  if (!gst_buffer_pool_set_config(pool.get(), config)) return false;
  // The pool knows the device's pitch.
  config = gst_buffer_pool_get_config(pool.get());
  gst_buffer_pool_config_get_params(config, nullptr, &size, nullptr, nullptr);
  gst_structure_free(config);
  gst_query_add_allocation_pool(query, need_pool ? pool.get() : nullptr, size, kHeld, 0);
  if (device) return true;
  // Upstream configures the pool with the first.
  if (has_params) {
    gst_query_set_nth_allocation_param(query, 0, session->pinned.get(), &params);
  } else {
    gst_query_add_allocation_param(query, session->pinned.get(), &params);
  }
  return true;
}

void CudaMemory::SetContext(GstContext* context, int cuda_device_id) {
  gst_cuda_handle_set_context(element_, context, cuda_device_id, &element_context_);
}

bool CudaMemory::AnswerContextQuery(GstQuery* query) const {
  const std::shared_ptr<const Session> session = this->session();
  return session && gst_cuda_handle_context_query(element_, query, session->context.get());
}

}  // namespace psnrhvs
