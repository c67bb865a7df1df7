// Enough of CUDA to compile cuda/kernels.cu for the host and run it there, so that the device code itself
// is tested on machines without a device. Included before kernels.cu, after all other headers.
//
// A CUDA thread is a fiber; barriers and warp operations switch between fibers. A few thread blocks are
// resident at a time and take turns, in which one block's fibers run until all of them wait: so tiles and
// teams overlap, find words of others missing and wait for them, as on a device. Memory is sequentially
// consistent: what fences are for is not tested.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

namespace emulated_device {

constexpr int kWarpSize = 32;

struct Index {
  unsigned x;
};

// Values that a warp's lanes exchange. Two sets in turn: nobody overwrites what others still read.
struct Exchange {
  uint64_t values[2][kWarpSize] = {};
  int arrived[2] = {};
  int64_t complete = 0;  // exchanges that all lanes have arrived at
};

struct Block;

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Block* block = nullptr;
  unsigned thread = 0;
  int64_t exchanges = 0;  // of its warp that it took part in
  bool done = false;
};

struct Block {
  unsigned index = 0;
  std::vector<Fiber> fibers;
  std::vector<Exchange> warps;
  int barrier_arrived = 0;
  int64_t barriers = 0;
  std::vector<char> shared;  // its shared memory while another block has its turn
};

inline Fiber* current = nullptr;
inline ucontext_t scheduler;
inline std::function<void()> kernel;
inline uint64_t progress = 0;  // anything that can end another's wait

[[noreturn]] inline void Die(const char* what) {
  std::fprintf(stderr, "emulated device: %s\n", what);
  std::abort();
}

inline void Yield() { swapcontext(&current->context, &scheduler); }

inline void Barrier() {
  Block& block = *current->block;
  const int64_t mine = block.barriers;
  if (++block.barrier_arrived == static_cast<int>(block.fibers.size())) {
    block.barrier_arrived = 0;
    ++block.barriers;
    ++progress;
  }
  while (block.barriers == mine) Yield();
}

// Every lane's value, in every lane.
inline const uint64_t* ExchangeInWarp(uint64_t value) {
  Exchange& warp = current->block->warps[current->thread / kWarpSize];
  const int set = static_cast<int>(current->exchanges % 2);
  const int64_t mine = ++current->exchanges;
  warp.values[set][current->thread % kWarpSize] = value;
  if (++warp.arrived[set] == kWarpSize) {
    warp.arrived[set] = 0;
    warp.complete = mine;
    ++progress;
  }
  while (warp.complete < mine) Yield();
  return warp.values[set];
}

template <typename T>
uint64_t ToBits(T value) {
  static_assert(sizeof(T) <= 8, "too large");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

template <typename T>
T FromBits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline void RunFiber() {
  kernel();
  current->done = true;
  ++progress;
  Yield();
  Die("a finished thread ran on");
}

// Runs `blocks` thread blocks of `threads` threads, `resident` of them at a time, started in order.
// `shared` is the kernel's shared memory.
inline void Launch(unsigned blocks, unsigned threads, int resident, void* shared, size_t shared_bytes,
                   const std::function<void()>& function) {
  constexpr size_t kStackBytes = 1 << 18;  // sanitizers take more than the 64 KiB that do otherwise
  kernel = function;
  std::vector<std::unique_ptr<Block>> running;
  unsigned started = 0;
  uint64_t idle_rounds = 0;
  while (started < blocks || !running.empty()) {
    while (started < blocks && static_cast<int>(running.size()) < resident) {
      auto block = std::make_unique<Block>();
      block->index = started++;
      block->fibers = std::vector<Fiber>(threads);
      block->warps.resize((threads + kWarpSize - 1) / kWarpSize);
      block->shared.assign(shared_bytes, static_cast<char>(0xee));
      for (unsigned t = 0; t < threads; ++t) {
        Fiber& fiber = block->fibers[t];
        fiber.block = block.get();
        fiber.thread = t;
        fiber.stack = std::make_unique<char[]>(kStackBytes);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = kStackBytes;
        makecontext(&fiber.context, RunFiber, 0);
      }
      running.push_back(std::move(block));
    }
    const uint64_t before = progress;
    for (auto& block : running) {
      if (shared_bytes > 0) std::memcpy(shared, block->shared.data(), shared_bytes);
      uint64_t seen;
      do {
        seen = progress;
        for (Fiber& fiber : block->fibers) {
          if (fiber.done) continue;
          current = &fiber;
          swapcontext(&scheduler, &fiber.context);
        }
      } while (progress != seen);
      if (shared_bytes > 0) std::memcpy(block->shared.data(), shared, shared_bytes);
    }
    running.erase(std::remove_if(running.begin(), running.end(),
                                 [](const auto& block) {
                                   return std::all_of(block->fibers.begin(), block->fibers.end(),
                                                      [](const Fiber& fiber) { return fiber.done; });
                                 }),
                  running.end());
    idle_rounds = progress == before ? idle_rounds + 1 : 0;
    if (idle_rounds > 1000) Die("all threads wait for ever");
  }
  current = nullptr;
}

}  // namespace emulated_device

// The language. Its names are given.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
#define __global__
#define __device__
#define __shared__ static
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define threadIdx (emulated_device::Index{emulated_device::current->thread})
#define blockIdx (emulated_device::Index{emulated_device::current->block->index})

// clang-format off
struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(16) int4 { int32_t x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <typename T> T min(T a, T b) { return b < a ? b : a; }
template <typename T> T __ldg(const T* address) { return *address; }
template <typename T> T __ldcg(const T* address) { return *address; }
template <typename T> void __stcg(T* address, T value) { *address = value; }
template <typename T, typename V> T atomicAdd(T* address, V value) { const T old = *address; *address += value; return old; }
inline void __threadfence() {}
inline void __nanosleep(unsigned) { emulated_device::Yield(); }

inline float __uint_as_float(uint32_t bits) { return emulated_device::FromBits<float>(bits); }
inline float __int_as_float(int32_t bits) { return emulated_device::FromBits<float>(static_cast<uint32_t>(bits)); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __saturatef(float a) { return a > 0 ? std::min(a, 1.0f) : 0.0f; }
inline int __popc(uint32_t a) { return __builtin_popcount(a); }
inline int __ffs(int a) { return __builtin_ffs(a); }
// clang-format on

inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> (4 * i) & 7;
    result |= static_cast<uint32_t>(bytes >> (8 * from) & 0xff) << (8 * i);
  }
  return result;
}

inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}

inline uint32_t __dp4a(uint32_t a, uint32_t b, uint32_t sum) {
  for (int i = 0; i < 32; i += 8) sum += (a >> i & 0xff) * (b >> i & 0xff);
  return sum;
}

inline void __syncthreads() { emulated_device::Barrier(); }

inline unsigned __ballot_sync(unsigned, bool flag) {
  const uint64_t* values = emulated_device::ExchangeInWarp(flag ? 1 : 0);
  unsigned ballot = 0;
  for (int lane = 0; lane < emulated_device::kWarpSize; ++lane) ballot |= static_cast<unsigned>(values[lane]) << lane;
  return ballot;
}

inline bool __all_sync(unsigned mask, bool flag) { return __ballot_sync(mask, flag) == 0xffffffffu; }

template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulated_device::FromBits<T>(emulated_device::ExchangeInWarp(emulated_device::ToBits(value))[lane & 31]);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % 32) ^ distance);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, int distance) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return __shfl_sync(mask, value, lane < distance ? lane : lane - distance);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
