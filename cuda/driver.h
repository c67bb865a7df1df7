// The CUDA driver's entry points that this library uses, found in libcuda.so.1 at run time.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cuda.h>

#include "cpu/status.h"

namespace psnrhvs {

// X(member, exported name, parameters). The names are literal: cuda.h renames functions to their newest
// ABI (cuCtxCreate_v4, ...), which older drivers lack and whose parameters may differ; each name here is
// the ABI that its parameters were written for.
#define PSNRHVS_CUDA_FUNCTIONS(X)                                                                                 \
  X(Init, "cuInit", (unsigned))                                                                                   \
  X(DriverGetVersion, "cuDriverGetVersion", (int*))                                                               \
  X(GetErrorName, "cuGetErrorName", (CUresult, const char**))                                                     \
  X(GetErrorString, "cuGetErrorString", (CUresult, const char**))                                                 \
  X(DeviceGetCount, "cuDeviceGetCount", (int*))                                                                   \
  X(DeviceGet, "cuDeviceGet", (CUdevice*, int))                                                                   \
  X(DeviceGetName, "cuDeviceGetName", (char*, int, CUdevice))                                                     \
  X(DeviceGetAttribute, "cuDeviceGetAttribute", (int*, CUdevice_attribute, CUdevice))                             \
  X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                                   \
  X(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                                          \
  X(CtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext))                                                           \
  X(CtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext*))                                                            \
  X(ModuleLoadData, "cuModuleLoadData", (CUmodule*, const void*))                                                 \
  X(ModuleUnload, "cuModuleUnload", (CUmodule))                                                                   \
  X(ModuleGetFunction, "cuModuleGetFunction", (CUfunction*, CUmodule, const char*))                               \
  X(LaunchKernel, "cuLaunchKernel",                                                                               \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**)) \
  X(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr*, size_t))                                                            \
  X(MemFree, "cuMemFree_v2", (CUdeviceptr))                                                                       \
  X(MemGetInfo, "cuMemGetInfo_v2", (size_t*, size_t*))                                                            \
  X(MemHostAlloc, "cuMemHostAlloc", (void**, size_t, unsigned))                                                   \
  X(MemFreeHost, "cuMemFreeHost", (void*))                                                                        \
  X(MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", (CUdeviceptr*, void*, unsigned))                     \
  X(MemsetD8Async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                             \
  X(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void*, size_t, CUstream))                        \
  X(Memcpy2DAsync, "cuMemcpy2DAsync_v2", (const CUDA_MEMCPY2D*, CUstream))                                        \
  X(PointerGetAttribute, "cuPointerGetAttribute", (void*, CUpointer_attribute, CUdeviceptr))                      \
  X(StreamCreateWithPriority, "cuStreamCreateWithPriority", (CUstream*, unsigned, int))                           \
  X(StreamDestroy, "cuStreamDestroy_v2", (CUstream))                                                              \
  X(StreamSynchronize, "cuStreamSynchronize", (CUstream))                                                         \
  X(StreamWaitEvent, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))                                          \
  X(EventCreate, "cuEventCreate", (CUevent*, unsigned))                                                           \
  X(EventDestroy, "cuEventDestroy_v2", (CUevent))                                                                 \
  X(EventRecord, "cuEventRecord", (CUevent, CUstream))                                                            \
  X(EventQuery, "cuEventQuery", (CUevent))                                                                        \
  X(EventSynchronize, "cuEventSynchronize", (CUevent))

struct CudaDriver {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declarator and its parameters
#define PSNRHVS_CUDA_MEMBER(member, name, parameters) CUresult(*member) parameters = nullptr;
  PSNRHVS_CUDA_FUNCTIONS(PSNRHVS_CUDA_MEMBER)
#undef PSNRHVS_CUDA_MEMBER
};

// The process's driver, loaded and initialised by the first call, in any thread. kUnavailable says why
// there is none. The pointer is valid for ever.
Result<const CudaDriver*> LoadCudaDriver();

// OK for CUDA_SUCCESS; else `what` with the error's name and text, kOutOfMemory where it is that.
Status CudaStatus(const CudaDriver& driver, CUresult result, const char* what);

}  // namespace psnrhvs
