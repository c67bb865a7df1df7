// Move-only owners of CUDA objects. Whatever is made with a context current is given back with that
// context current: each owner's user pushes it (ScopedContext) around creation and destruction.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <memory>
#include <utility>

#include "cuda/driver.h"

namespace psnrhvs {

// A context, current in this thread while it lives.
class ScopedContext {
 public:
  ScopedContext(const CudaDriver& driver, CUcontext context)
      : driver_(driver), result_(driver.CtxPushCurrent(context)) {}
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  ~ScopedContext() {
    CUcontext popped;
    if (result_ == CUDA_SUCCESS) driver_.CtxPopCurrent(&popped);
  }

  CUresult result() const { return result_; }

 private:
  const CudaDriver& driver_;
  const CUresult result_;
};

// A context that is borrowed, or a device's primary context, retained.
class ContextHolder {
 public:
  ContextHolder() = default;
  ContextHolder(ContextHolder&& other) noexcept { *this = std::move(other); }
  ContextHolder& operator=(ContextHolder&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(context_, other.context_);
    std::swap(retained_, other.retained_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~ContextHolder() {
    if (retained_) driver_->DevicePrimaryCtxRelease(device_);
  }

  // `borrowed` if it is not null, else the primary context of `device_id`.
  static Result<ContextHolder> Create(const CudaDriver& driver, CUcontext borrowed, int device_id) {
    ContextHolder holder;
    holder.driver_ = &driver;
    holder.context_ = borrowed;
    if (borrowed) return holder;
    int count = 0;
    Status status = CudaStatus(driver, driver.DeviceGetCount(&count), "cannot count CUDA devices");
    if (!status.ok()) return status;
    if (device_id < 0 || device_id >= count) {
      return Status(StatusCode::kUnavailable, "there is no CUDA device " + std::to_string(device_id) +
                                                  ": the driver shows " + std::to_string(count));
    }
    status = CudaStatus(driver, driver.DeviceGet(&holder.device_, device_id), "cannot get the CUDA device");
    if (!status.ok()) return status;
    status = CudaStatus(driver, driver.DevicePrimaryCtxRetain(&holder.context_, holder.device_),
                        "cannot retain the CUDA device's context");
    if (!status.ok()) return status;
    holder.retained_ = true;
    return holder;
  }

  CUcontext get() const { return context_; }
  CUdevice device() const { return device_; }  // of a primary context

 private:
  const CudaDriver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  bool retained_ = false;
  CUdevice device_ = 0;
};

// Owns a handle of type T that `Release` gives back; T{} is none.
template <typename T, typename Release>
class CudaHandle {
 public:
  CudaHandle() = default;
  CudaHandle(const CudaDriver& driver, T handle) : driver_(&driver), handle_(handle) {}
  CudaHandle(CudaHandle&& other) noexcept { *this = std::move(other); }
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CudaHandle() {
    if (handle_ != T{}) Release()(*driver_, handle_);
  }

  T get() const { return handle_; }
  explicit operator bool() const { return handle_ != T{}; }

 private:
  const CudaDriver* driver_ = nullptr;
  T handle_{};
};

// clang-format off
struct UnloadModule { void operator()(const CudaDriver& d, CUmodule h) const { d.ModuleUnload(h); } };
struct DestroyStream { void operator()(const CudaDriver& d, CUstream h) const { d.StreamDestroy(h); } };
struct DestroyEvent { void operator()(const CudaDriver& d, CUevent h) const { d.EventDestroy(h); } };
struct FreeDeviceMemory { void operator()(const CudaDriver& d, CUdeviceptr h) const { d.MemFree(h); } };
struct FreePinnedMemory { void operator()(const CudaDriver& d, void* h) const { d.MemFreeHost(h); } };
// clang-format on

using CudaModule = CudaHandle<CUmodule, UnloadModule>;
using CudaStream = CudaHandle<CUstream, DestroyStream>;
using CudaEvent = CudaHandle<CUevent, DestroyEvent>;
using DeviceMemory = CudaHandle<CUdeviceptr, FreeDeviceMemory>;
using PinnedMemory = CudaHandle<void*, FreePinnedMemory>;

}  // namespace psnrhvs
