// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cuda/cuda_engine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "cpu/metric.h"
#include "cuda/handles.h"
#include "cuda/kernels.h"

// The fat binary of kernels.cu, embedded by the build.
extern "C" const unsigned long long psnrhvs_cuda_kernels[];  // NOLINT(google-runtime-int): as bin2c writes it

namespace psnrhvs {
namespace {

constexpr size_t kTileTerms = static_cast<size_t>(kTileBlocks) * kBlockTerms;

// The largest stride that a kernel may multiply by a block's rows in 32 bits.
constexpr ptrdiff_t kMaxStride = 1 << 27;

size_t AlignUp(size_t value, size_t alignment) { return (value + alignment - 1) / alignment * alignment; }

template <typename T>
T* DevicePointer(CUdeviceptr address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

// Bytes of a plane in memory: from its lowest row on, `rows` rows.
struct PlaneBytes {
  const uint8_t* lowest = nullptr;
  size_t stride = 0;     // towards higher addresses
  size_t row_bytes = 0;  // that hold samples of the plane
  size_t rows = 0;

  size_t span() const { return (rows - 1) * stride + row_bytes; }
};

PlaneBytes BytesOf(const PlaneView& view, int bytes_per_sample) {
  PlaneBytes bytes;
  bytes.rows = static_cast<size_t>(view.height);
  bytes.row_bytes = static_cast<size_t>((view.width - 1) * view.step + 1) * bytes_per_sample;
  bytes.lowest = view.stride_bytes < 0 ? view.Row(view.height - 1) : view.data;
  bytes.stride = static_cast<size_t>(view.stride_bytes < 0 ? -view.stride_bytes : view.stride_bytes);
  return bytes;
}

// A copy of `rows` rows to offset `target` of a buffer.
struct RowCopy {
  const uint8_t* source = nullptr;
  size_t source_stride = 0;
  size_t row_bytes = 0;
  size_t rows = 0;
  size_t target = 0;
  size_t target_stride = 0;
};

// How a frame gets from host memory into one buffer, and where its planes are then.
struct UploadPlan {
  std::array<RowCopy, kMaxPlanes> copies;
  int copy_count = 0;
  size_t bytes = 0;  // of the buffer
  std::array<size_t, kMaxPlanes> plane_offset{};
  std::array<ptrdiff_t, kMaxPlanes> plane_stride{};
};

// `joins(from, to)`: whether the bytes between may be read too, so that neighbouring planes go in one
// copy: a copy's start costs as much as 50 KB of its bytes.
template <typename Joins>
UploadPlan PlanUpload(const FrameView& frame, int planes, int bytes_per_sample, Joins joins) {
  UploadPlan plan;
  for (int p = 0; p < planes; ++p) {
    const PlaneView& view = frame.planes[p];
    PlaneBytes bytes = BytesOf(view, bytes_per_sample);
    int members = 1;  // of this copy: both chroma planes if their samples alternate
    if (p == 1 && planes == 3 && view.step == 2) {
      const PlaneView& other = frame.planes[2];
      const ptrdiff_t apart = other.data - view.data;
      if (other.step == 2 && other.stride_bytes == view.stride_bytes &&
          (apart == bytes_per_sample || apart == -bytes_per_sample)) {
        bytes.lowest = std::min(bytes.lowest, BytesOf(other, bytes_per_sample).lowest);
        bytes.row_bytes += static_cast<size_t>(bytes_per_sample);
        members = 2;
      }
    }
    const bool as_it_lies = bytes.stride % 4 == 0 && bytes.stride >= bytes.row_bytes &&
                            bytes.stride <= bytes.row_bytes + bytes.row_bytes / 8 + 64;
    RowCopy* last = plan.copy_count > 0 ? &plan.copies[plan.copy_count - 1] : nullptr;
    size_t target;
    size_t stride;
    if (as_it_lies && last && last->rows == 1 && joins(last->source + last->row_bytes, bytes.lowest)) {
      target = last->target + static_cast<size_t>(bytes.lowest - last->source);
      stride = bytes.stride;
      last->row_bytes = static_cast<size_t>(bytes.lowest - last->source) + bytes.span();
      plan.bytes = last->target + last->row_bytes;
    } else {
      target = AlignUp(plan.bytes, 256);
      stride = as_it_lies ? bytes.stride : AlignUp(bytes.row_bytes, 64);
      RowCopy& copy = plan.copies[plan.copy_count++];
      copy.source = bytes.lowest;
      copy.source_stride = as_it_lies ? 0 : bytes.stride;
      copy.row_bytes = as_it_lies ? bytes.span() : bytes.row_bytes;
      copy.rows = as_it_lies ? 1 : bytes.rows;
      copy.target = target;
      copy.target_stride = as_it_lies ? 0 : stride;
      plan.bytes = target + (bytes.rows - 1) * stride + bytes.row_bytes;
    }
    for (int m = p; m < p + members; ++m) {
      const bool upwards = frame.planes[m].stride_bytes < 0;
      const PlaneBytes own = BytesOf(frame.planes[m], bytes_per_sample);
      plan.plane_offset[m] =
          target + static_cast<size_t>(own.lowest - bytes.lowest) + (upwards ? (bytes.rows - 1) * stride : 0);
      plan.plane_stride[m] = upwards ? -static_cast<ptrdiff_t>(stride) : static_cast<ptrdiff_t>(stride);
    }
    p += members - 1;
  }
  return plan;
}

// Copies memory with a few threads: one alone reaches a fraction of the bus's speed.
class StagingThreads {
 public:
  struct Piece {
    uint8_t* target;
    const uint8_t* source;
    size_t bytes;
  };

  // With as many threads, up to kThreads, as can be had and are of use.
  StagingThreads() {
    const int wanted = std::min<int>(kThreads, static_cast<int>(std::thread::hardware_concurrency()));
    try {
      for (int i = 1; i < wanted; ++i) threads_.emplace_back([this] { Run(); });
    } catch (const std::exception&) {
      // The calling thread copies too, if need be alone.
    }
  }
  StagingThreads(const StagingThreads&) = delete;
  ~StagingThreads() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    pieces_added_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Returns when all pieces are copied.
  void Copy(const std::vector<Piece>& pieces) {
    std::unique_lock<std::mutex> lock(mutex_);
    pieces_ = &pieces;
    next_ = 0;
    unfinished_ = pieces.size();
    if (pieces.size() > 1) pieces_added_.notify_all();
    while (CopyNext(&lock)) continue;
    finished_.wait(lock, [this] { return unfinished_ == 0; });
    pieces_ = nullptr;
  }

 private:
  static constexpr int kThreads = 4;

  // Copies a piece, if there is one left, with the lock released.
  bool CopyNext(std::unique_lock<std::mutex>* lock) {
    if (pieces_ == nullptr || next_ == pieces_->size()) return false;
    const Piece piece = (*pieces_)[next_++];
    lock->unlock();
    std::memcpy(piece.target, piece.source, piece.bytes);
    lock->lock();
    if (--unfinished_ == 0) finished_.notify_all();
    return true;
  }

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopping_) {
      if (!CopyNext(&lock)) pieces_added_.wait(lock);
    }
  }

  std::mutex mutex_;
  std::condition_variable pieces_added_;
  std::condition_variable finished_;
  const std::vector<Piece>* pieces_ = nullptr;
  size_t next_ = 0;
  size_t unfinished_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// Everything that one pair in flight needs.
struct Slot {
  CudaStream stream;
  CudaEvent done;
  DeviceMemory work;     // counters, records, sums of tiles, groups and teams
  DeviceMemory kept;     // terms of tiles for the resolving teams
  PinnedMemory results;  // Results
  CUdeviceptr results_device = 0;
  uint32_t epoch = 0;
  uint32_t ticket_base = 0;
  bool uploads_nothing = false;  // both frames of its pair lie on the device

  // For frames in host memory, by image; made when first needed.
  struct Upload {
    DeviceMemory buffer;
    size_t buffer_bytes = 0;
    PinnedMemory staging;
    size_t staging_bytes = 0;
  };
  std::array<Upload, 2> uploads;

  // For the host's reduction.
  DeviceMemory tile_terms;
  DeviceMemory tile_counts;
  PinnedMemory terms;
  CUdeviceptr terms_device = 0;
};

// What comes back, in page-locked memory that the device writes.
struct Results {
  uint64_t sums[kMaxPlanes];         // epoch, pattern of the sum
  uint32_t term_counts[kMaxPlanes];  // of the host's reduction
};

class CudaEngine final : public Engine {
 public:
  CudaEngine(const CudaDriver& driver, ContextHolder context, const FrameGeometry& geometry,
             const CudaEngineOptions& options)
      : driver_(driver), context_(std::move(context)), geometry_(geometry), options_(options) {}

  ~CudaEngine() override {
    ScopedContext current(driver_, context_.get());
    for (Slot& slot : slots_) {
      if (slot.stream) driver_.StreamSynchronize(slot.stream.get());
    }
    slots_.clear();
    module_ = CudaModule();
  }

  Status Initialize();

  const char* backend() const override { return "cuda"; }
  int depth() const override { return static_cast<int>(slots_.size()); }
  Status Submit(const FramePair& pair) override;
  Result<FrameScore> Collect() override;

 private:
  bool on_device() const { return options_.reduction == CudaReduction::kDevice || options_.verify; }
  bool on_host() const { return options_.reduction == CudaReduction::kHost || options_.verify; }
  Status Check(CUresult result, const char* what) const { return CudaStatus(driver_, result, what); }

  void LayOut();
  Status MakeSlot(Slot* slot);
  Status Allocate(size_t bytes, DeviceMemory* memory) const;
  Status AllocateHost(size_t bytes, PinnedMemory* memory) const;

  Status CheckFrame(const FrameView& frame) const;
  Status Upload(const FrameView& frame, Slot* slot, int image, KernelParams* params);
  Status Launch(Slot* slot, KernelParams* params);
  Status Enqueue(const FramePair& pair, Slot* slot);
  Status Wait(const Slot& slot) const;

  const CudaDriver& driver_;
  ContextHolder context_;
  const FrameGeometry geometry_;
  const CudaEngineOptions options_;
  CudaModule module_;
  CUfunction score_ = nullptr;
  CUfunction gather_ = nullptr;

  KernelParams layout_{};  // what is the same for all pairs
  TileLayout tiles_;

  std::vector<Slot> slots_;
  std::unique_ptr<StagingThreads> staging_threads_;  // made when first needed
  std::vector<StagingThreads::Piece> pieces_;
  uint64_t submitted_ = 0;
  uint64_t collected_ = 0;
  Status failure_;  // the first device error
};

void CudaEngine::LayOut() {
  tiles_ = LayOutTiles(geometry_, &layout_);
  layout_.exponent_error = options_.exponent_error;
  layout_.terms_only = options_.terms_only;
  // Tiles within a 64th of a binade's end keep their terms: of the last binade's tiles 1 in 32, of that
  // before as many in half as many tiles, and so on; and those of a plane's start.
  layout_.max_kept = std::min(tiles_.total, 96 + tiles_.total / 16);
  if (options_.max_stored_tiles >= 0) layout_.max_kept = std::min(layout_.max_kept, options_.max_stored_tiles);
}

Status CudaEngine::Allocate(size_t bytes, DeviceMemory* memory) const {
  CUdeviceptr address = 0;
  Status status = Check(driver_.MemAlloc(&address, bytes), "cannot allocate CUDA device memory");
  if (status.ok()) *memory = DeviceMemory(driver_, address);
  return status;
}

Status CudaEngine::AllocateHost(size_t bytes, PinnedMemory* memory) const {
  void* address = nullptr;
  Status status = Check(driver_.MemHostAlloc(&address, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                        "cannot allocate page-locked host memory");
  if (status.ok()) *memory = PinnedMemory(driver_, address);
  return status;
}

Status CudaEngine::Initialize() {
  ScopedContext current(driver_, context_.get());
  Status status = Check(current.result(), "cannot use the CUDA context");
  if (!status.ok()) return status;
  CUmodule module = nullptr;
  const CUresult loaded = driver_.ModuleLoadData(&module, psnrhvs_cuda_kernels);
  if (loaded == CUDA_ERROR_NO_BINARY_FOR_GPU || loaded == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
      loaded == CUDA_ERROR_INVALID_PTX || loaded == CUDA_ERROR_JIT_COMPILER_NOT_FOUND) {
    return Status(StatusCode::kUnavailable,
                  Check(loaded, "this build has no code for the CUDA device and its driver").message());
  }
  status = Check(loaded, "cannot load the CUDA kernels");
  if (!status.ok()) return status;
  module_ = CudaModule(driver_, module);
  const char* name = geometry_.bytes_per_sample() == 1 ? kScore8Kernel : kScore16Kernel;
  status = Check(driver_.ModuleGetFunction(&score_, module, name), "cannot find the CUDA kernels");
  if (status.ok()) {
    status = Check(driver_.ModuleGetFunction(&gather_, module, kGatherKernel), "cannot find the CUDA kernels");
  }
  if (!status.ok()) return status;
  LayOut();
  slots_.resize(static_cast<size_t>(options_.depth > 0 ? options_.depth : kDefaultCudaDepth));
  for (Slot& slot : slots_) {
    status = MakeSlot(&slot);
    if (!status.ok()) return status;
  }
  return Status();
}

Status CudaEngine::MakeSlot(Slot* slot) {
  CUstream stream = nullptr;
  Status status =
      Check(driver_.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), "cannot make a CUDA stream");
  if (!status.ok()) return status;
  slot->stream = CudaStream(driver_, stream);
  CUevent event = nullptr;
  status =
      Check(driver_.EventCreate(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING), "cannot make a CUDA event");
  if (!status.ok()) return status;
  slot->done = CudaEvent(driver_, event);

  const size_t tiles = static_cast<size_t>(tiles_.total);
  const size_t words = tiles + 2 * static_cast<size_t>(tiles_.groups) + kMaxSegments;
  const size_t bytes = 256 + tiles * sizeof(PackedRecord) + words * sizeof(uint64_t);
  status = Allocate(bytes, &slot->work);
  if (status.ok()) status = Allocate(std::max<size_t>(layout_.max_kept, 1) * kKeptTileBytes, &slot->kept);
  if (status.ok()) status = AllocateHost(sizeof(Results), &slot->results);
  if (status.ok()) {
    // What an engine before left there would look like results.
    std::memset(slot->results.get(), 0, sizeof(Results));
    status = Check(driver_.MemHostGetDevicePointer(&slot->results_device, slot->results.get(), 0),
                   "cannot map page-locked host memory");
  }
  if (status.ok() && on_host()) {
    status = Allocate(tiles * kTileTerms * sizeof(float), &slot->tile_terms);
    if (status.ok()) status = Allocate(tiles * sizeof(uint32_t), &slot->tile_counts);
    if (status.ok()) status = AllocateHost(tiles * kTileTerms * sizeof(float), &slot->terms);
    if (status.ok()) {
      status = Check(driver_.MemHostGetDevicePointer(&slot->terms_device, slot->terms.get(), 0),
                     "cannot map page-locked host memory");
    }
  }
  if (!status.ok()) return status;
  status = Check(driver_.MemsetD8Async(slot->work.get(), 0, bytes, stream), "cannot clear CUDA device memory");
  if (status.ok()) status = Check(driver_.StreamSynchronize(stream), "cannot clear CUDA device memory");
  return status;
}

Status CudaEngine::CheckFrame(const FrameView& frame) const {
  for (int p = 0; p < geometry_.scored_planes(); ++p) {
    const PlaneView& plane = frame.planes[p];
    const bool fits = plane.data != nullptr && plane.width == geometry_.plane_width(p) &&
                      plane.height == geometry_.plane_height(p) && (plane.step == 1 || plane.step == 2) &&
                      plane.shift >= 0 && plane.shift + geometry_.depth() <= 8 * geometry_.bytes_per_sample() &&
                      plane.stride_bytes <= kMaxStride && plane.stride_bytes >= -kMaxStride;
    if (!fits) {
      return Status(StatusCode::kInvalidArgument,
                    "plane " + std::to_string(p) + " does not have the layout that the engine was made for");
    }
  }
  return Status();
}

Status CudaEngine::Upload(const FrameView& frame, Slot* slot, int image, KernelParams* params) {
  const int bytes_per_sample = geometry_.bytes_per_sample();
  const int planes = geometry_.scored_planes();
  for (int p = 0; p < planes; ++p) {
    DevicePlane& plane = params->planes[p].images[image];
    plane.step = static_cast<int16_t>(frame.planes[p].step);
    plane.shift = static_cast<int16_t>(frame.planes[p].shift);
  }
  if (frame.memory == Memory::kDevice) {
    for (int p = 0; p < planes; ++p) {
      const PlaneBytes bytes = BytesOf(frame.planes[p], bytes_per_sample);
      DevicePlane& plane = params->planes[p].images[image];
      plane.data = frame.planes[p].data;
      plane.end = bytes.lowest + bytes.span();
      plane.stride = static_cast<int32_t>(frame.planes[p].stride_bytes);
    }
    return Status();
  }

  const bool pinned = frame.memory == Memory::kPinnedHost;
  const auto joins = [&](const uint8_t* from, const uint8_t* to) {
    if (!pinned || to < from || to - from > 4096) return false;
    // Only inside one allocation are the bytes between known to exist.
    CUdeviceptr start = 0;
    size_t size = 0;
    const auto address = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(from - 1));
    return driver_.PointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) == CUDA_SUCCESS &&
           driver_.PointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) == CUDA_SUCCESS &&
           reinterpret_cast<uintptr_t>(to) < start + size;
  };
  const UploadPlan plan = PlanUpload(frame, planes, bytes_per_sample, joins);
  Slot::Upload& upload = slot->uploads[image];
  const size_t capacity = AlignUp(plan.bytes, 4096);
  if (upload.buffer_bytes < capacity) {
    Status status = Allocate(capacity, &upload.buffer);
    if (!status.ok()) return status;
    upload.buffer_bytes = capacity;
  }
  const uint8_t* base = DevicePointer<const uint8_t>(upload.buffer.get());
  for (int p = 0; p < planes; ++p) {
    DevicePlane& plane = params->planes[p].images[image];
    plane.data = base + plan.plane_offset[p];
    plane.end = base + upload.buffer_bytes;
    plane.stride = static_cast<int32_t>(plan.plane_stride[p]);
  }

  CUstream stream = slot->stream.get();
  if (!pinned) {
    if (upload.staging_bytes < capacity) {
      Status status = AllocateHost(capacity, &upload.staging);
      if (!status.ok()) return status;
      upload.staging_bytes = capacity;
    }
    uint8_t* staging = static_cast<uint8_t*>(upload.staging.get());
    constexpr size_t kPieceBytes = size_t{1} << 18;
    pieces_.clear();
    for (int c = 0; c < plan.copy_count; ++c) {
      const RowCopy& copy = plan.copies[c];
      for (size_t row = 0; row < copy.rows; ++row) {
        uint8_t* target = staging + copy.target + row * copy.target_stride;
        const uint8_t* source = copy.source + row * copy.source_stride;
        for (size_t at = 0; at < copy.row_bytes; at += kPieceBytes) {
          pieces_.push_back({target + at, source + at, std::min(kPieceBytes, copy.row_bytes - at)});
        }
      }
    }
    if (!staging_threads_) staging_threads_ = std::make_unique<StagingThreads>();
    staging_threads_->Copy(pieces_);
    return Check(driver_.MemcpyHtoDAsync(upload.buffer.get(), staging, plan.bytes, stream),
                 "cannot copy a frame to the CUDA device");
  }
  for (int c = 0; c < plan.copy_count; ++c) {
    const RowCopy& copy = plan.copies[c];
    CUresult result;
    if (copy.rows == 1) {
      result = driver_.MemcpyHtoDAsync(upload.buffer.get() + copy.target, copy.source, copy.row_bytes, stream);
    } else {
      CUDA_MEMCPY2D rows{};
      rows.srcMemoryType = CU_MEMORYTYPE_HOST;
      rows.srcHost = copy.source;
      rows.srcPitch = copy.source_stride;
      rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      rows.dstDevice = upload.buffer.get() + copy.target;
      rows.dstPitch = copy.target_stride;
      rows.WidthInBytes = copy.row_bytes;
      rows.Height = copy.rows;
      result = driver_.Memcpy2DAsync(&rows, stream);
    }
    Status status = Check(result, "cannot copy a frame to the CUDA device");
    if (!status.ok()) return status;
  }
  return Status();
}

Status CudaEngine::Launch(Slot* slot, KernelParams* params) {
  params->epoch = ++slot->epoch;
  params->ticket_base = slot->ticket_base;
  slot->ticket_base += tiles_.grid;
  void* arguments[] = {params};
  return Check(
      driver_.LaunchKernel(score_, tiles_.grid, 1, 1, kTileBlocks, 1, 1, 0, slot->stream.get(), arguments, nullptr),
      "cannot start a CUDA kernel");
}

Status CudaEngine::Enqueue(const FramePair& pair, Slot* slot) {
  slot->uploads_nothing = pair.reference.memory == Memory::kDevice && pair.distorted.memory == Memory::kDevice;
  KernelParams params = layout_;
  Status status = Upload(pair.reference, slot, 0, &params);
  if (status.ok()) status = Upload(pair.distorted, slot, 1, &params);
  if (!status.ok()) return status;

  const CUdeviceptr work = slot->work.get();
  params.tickets = DevicePointer<uint32_t>(work);
  params.stored = params.tickets + 1;
  params.records = DevicePointer<PackedRecord>(work + 256);
  params.tile_sums = reinterpret_cast<uint64_t*>(params.records + tiles_.total);
  params.group_sums = params.tile_sums + tiles_.total;
  params.team_sums = params.group_sums + 2 * tiles_.groups;
  params.kept_terms = DevicePointer<float>(slot->kept.get());
  params.results = DevicePointer<Results>(slot->results_device)->sums;
  if (on_device()) {
    status = Launch(slot, &params);
    if (!status.ok()) return status;
  }
  if (on_host()) {
    params.tile_terms = DevicePointer<float>(slot->tile_terms.get());
    params.tile_counts = DevicePointer<uint32_t>(slot->tile_counts.get());
    status = Launch(slot, &params);
    if (!status.ok()) return status;
    GatherParams gather{};
    gather.tile_terms = params.tile_terms;
    gather.tile_counts = params.tile_counts;
    std::copy(tiles_.first.begin(), tiles_.first.end(), gather.first_tiles);
    gather.terms = DevicePointer<float>(slot->terms_device);
    gather.counts = DevicePointer<Results>(slot->results_device)->term_counts;
    void* arguments[] = {&gather};
    status = Check(driver_.LaunchKernel(gather_, static_cast<unsigned>(tiles_.total), 1, 1, kTileBlocks, 1, 1, 0,
                                        slot->stream.get(), arguments, nullptr),
                   "cannot start a CUDA kernel");
    if (!status.ok()) return status;
  }
  return Check(driver_.EventRecord(slot->done.get(), slot->stream.get()), "cannot record a CUDA event");
}

Status CudaEngine::Submit(const FramePair& pair) {
  if (!failure_.ok()) return failure_;
  if (submitted_ - collected_ >= slots_.size()) {
    return Status(StatusCode::kInternal, "more pairs were submitted than the cuda engine holds");
  }
  Status status = CheckFrame(pair.reference);
  if (status.ok()) status = CheckFrame(pair.distorted);
  if (!status.ok()) return status;
  ScopedContext current(driver_, context_.get());
  Slot& slot = slots_[submitted_ % slots_.size()];
  status = Check(current.result(), "cannot use the CUDA context");
  if (status.ok()) status = Enqueue(pair, &slot);
  if (!status.ok()) {
    driver_.StreamSynchronize(slot.stream.get());  // nothing stays lent
    failure_ = status;
    return status;
  }
  ++submitted_;
  return Status();
}

// Waits in user space while a result is near, and in the kernel when it is not. The sums may be looked at
// as soon as they have the launch's epoch: by then every sample has been read.
Status CudaEngine::Wait(const Slot& slot) const {
  // An interrupt wakes its thread some 30 us late. Frames on the device are scored in tens to hundreds of
  // microseconds; those that are copied first are worth a short look only.
  const auto near = std::chrono::microseconds(slot.uploads_nothing ? 400 : 50);
  constexpr const char* kFailure = "the CUDA device failed to score a pair";
  const bool by_sums = !on_host() && !options_.terms_only;
  const volatile uint64_t* sums = static_cast<const Results*>(slot.results.get())->sums;
  const auto start = std::chrono::steady_clock::now();
  do {
    if (by_sums) {
      bool there = true;
      for (int p = 0; p < geometry_.scored_planes(); ++p) there = there && sums[p] >> 32 == slot.epoch;
      if (there) return Status();
    } else {
      const CUresult result = driver_.EventQuery(slot.done.get());
      if (result != CUDA_ERROR_NOT_READY) return Check(result, kFailure);
    }
  } while (std::chrono::steady_clock::now() - start < near);
  return Check(driver_.EventSynchronize(slot.done.get()), kFailure);
}

Result<FrameScore> CudaEngine::Collect() {
  if (submitted_ == collected_) return Status(StatusCode::kInternal, "no pair was submitted");
  const Slot& slot = slots_[collected_++ % slots_.size()];
  if (!failure_.ok()) return failure_;
  {
    ScopedContext current(driver_, context_.get());
    Status status = Check(current.result(), "cannot use the CUDA context");
    if (status.ok()) status = Wait(slot);
    if (!status.ok()) {
      failure_ = status;
      return status;
    }
  }
  const Results& results = *static_cast<const Results*>(slot.results.get());
  std::array<float, kMaxPlanes> sums{};
  for (int p = 0; on_device() && p < geometry_.scored_planes(); ++p) {
    sums[p] = BitsFloat(static_cast<uint32_t>(results.sums[p]));
  }
  if (on_host()) {
    const float* terms = static_cast<const float*>(slot.terms.get());
    for (int p = 0; p < geometry_.scored_planes(); ++p) {
      const float sum = AddSerially(0.0f, terms, static_cast<int>(results.term_counts[p]));
      terms += results.term_counts[p];
      if (on_device() && FloatBits(sum) != FloatBits(sums[p])) {
        failure_ = Status(StatusCode::kInternal, "the device's sum of plane " + std::to_string(p) + " is " +
                                                     std::to_string(sums[p]) + ", the host's " + std::to_string(sum));
        return failure_;
      }
      sums[p] = sum;
    }
  }
  return ScoreFrame(geometry_, sums);
}

}  // namespace

int DeviceFramesDepth(const FrameGeometry& geometry) {
  constexpr int64_t kSamplesInFlight = int64_t{8} * 3840 * 2160;  // measured on an H200
  const int64_t samples = int64_t{geometry.plane_width(0)} * geometry.plane_height(0);
  return static_cast<int>(std::clamp<int64_t>(kSamplesInFlight / samples, kDefaultCudaDepth, kMaxCudaDepth));
}

Result<std::vector<CudaDevice>> ProbeCudaDevices() {
  const Result<const CudaDriver*> driver = LoadCudaDriver();
  if (!driver.ok()) return driver.status();
  const CudaDriver& cuda = **driver;
  int count = 0;
  Status status = CudaStatus(cuda, cuda.DeviceGetCount(&count), "cannot count CUDA devices");
  if (!status.ok()) return status;
  if (count == 0) return Status(StatusCode::kUnavailable, "the CUDA driver shows no device");
  std::vector<CudaDevice> devices;
  for (int id = 0; id < count; ++id) {
    CudaDevice device;
    device.id = id;
    CUdevice handle = 0;
    char name[256] = "";
    CUresult result = cuda.DeviceGet(&handle, id);
    if (result == CUDA_SUCCESS) result = cuda.DeviceGetName(name, sizeof(name), handle);
    if (result == CUDA_SUCCESS) {
      result = cuda.DeviceGetAttribute(&device.compute_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle);
    }
    if (result == CUDA_SUCCESS) {
      result = cuda.DeviceGetAttribute(&device.compute_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle);
    }
    status = CudaStatus(cuda, result, "cannot ask a CUDA device for its name");
    if (!status.ok()) return status;
    device.name = name;
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<std::unique_ptr<Engine>> CreateCudaEngine(const FrameGeometry& geometry, const CudaEngineOptions& options) {
  if (options.depth < 0 || options.depth > kMaxCudaDepth) {
    return Status(StatusCode::kInvalidArgument, "the cuda engine holds 1 to " + std::to_string(kMaxCudaDepth) +
                                                    " pairs, not " + std::to_string(options.depth));
  }
  const Result<const CudaDriver*> driver = LoadCudaDriver();
  if (!driver.ok()) return driver.status();
  Result<ContextHolder> context =
      ContextHolder::Create(**driver, static_cast<CUcontext>(options.target.context), options.target.device_id);
  if (!context.ok()) return context.status();
  auto engine = std::make_unique<CudaEngine>(**driver, std::move(*context), geometry, options);
  const Status status = engine->Initialize();
  if (!status.ok()) return status;
  return std::unique_ptr<Engine>(std::move(engine));
}

Result<void*> AllocatePinned(const CudaTarget& target, size_t bytes) {
  const Result<const CudaDriver*> driver = LoadCudaDriver();
  if (!driver.ok()) return driver.status();
  Result<ContextHolder> context =
      ContextHolder::Create(**driver, static_cast<CUcontext>(target.context), target.device_id);
  if (!context.ok()) return context.status();
  ScopedContext current(**driver, context->get());
  Status status = CudaStatus(**driver, current.result(), "cannot use the CUDA context");
  if (!status.ok()) return status;
  void* memory = nullptr;
  status = CudaStatus(**driver, (*driver)->MemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE),
                      "cannot allocate page-locked host memory");
  // A primary context lives as long as somebody retains it, and the memory as long as the context.
  if (status.ok() && target.context == nullptr) {
    CUcontext retained = nullptr;
    status = CudaStatus(**driver, (*driver)->DevicePrimaryCtxRetain(&retained, context->device()),
                        "cannot retain the CUDA device's context");
    if (!status.ok()) (*driver)->MemFreeHost(memory);
  }
  if (!status.ok()) return status;
  return memory;
}

void FreePinned(const CudaTarget& target, void* memory) {
  if (memory == nullptr) return;
  const Result<const CudaDriver*> driver = LoadCudaDriver();
  if (!driver.ok()) return;
  Result<ContextHolder> context =
      ContextHolder::Create(**driver, static_cast<CUcontext>(target.context), target.device_id);
  if (!context.ok()) return;
  ScopedContext current(**driver, context->get());
  (*driver)->MemFreeHost(memory);
  if (target.context == nullptr) (*driver)->DevicePrimaryCtxRelease(context->device());
}

}  // namespace psnrhvs
