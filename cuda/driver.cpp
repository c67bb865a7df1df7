// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cuda/driver.h"

#include <dlfcn.h>

#include <string>

namespace psnrhvs {
namespace {

Status Load(CudaDriver* driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(StatusCode::kUnavailable, std::string("no CUDA driver: ") + dlerror());
  }
  const struct {
    const char* name;
    void** target;
  } symbols[] = {
#define PSNRHVS_CUDA_SYMBOL(member, name, parameters) {name, reinterpret_cast<void**>(&driver->member)},
      PSNRHVS_CUDA_FUNCTIONS(PSNRHVS_CUDA_SYMBOL)
#undef PSNRHVS_CUDA_SYMBOL
  };
  for (const auto& symbol : symbols) {
    *symbol.target = dlsym(library, symbol.name);
    if (*symbol.target == nullptr) {
      return Status(StatusCode::kUnavailable, std::string("the CUDA driver is too old: it has no ") + symbol.name);
    }
  }
  const CUresult result = driver->Init(0);
  if (result != CUDA_SUCCESS) {
    return Status(StatusCode::kUnavailable, CudaStatus(*driver, result, "the CUDA driver does not start").message());
  }
  return Status();
}

}  // namespace

Result<const CudaDriver*> LoadCudaDriver() {
  // The library stays loaded: drivers do not survive being unloaded while threads of theirs run.
  static CudaDriver driver;
  static const Status status = Load(&driver);
  if (!status.ok()) return status;
  return static_cast<const CudaDriver*>(&driver);
}

Status CudaStatus(const CudaDriver& driver, CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return Status();
  const char* name = nullptr;
  const char* text = nullptr;
  driver.GetErrorName(result, &name);
  driver.GetErrorString(result, &text);
  std::string message = std::string(what) + ": " + (name ? name : "CUDA error " + std::to_string(result));
  if (text) message += std::string(" (") + text + ")";
  return Status(result == CUDA_ERROR_OUT_OF_MEMORY ? StatusCode::kOutOfMemory : StatusCode::kInternal, message);
}

}  // namespace psnrhvs
