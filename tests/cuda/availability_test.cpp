// What callers see of a machine's CUDA, with and without a device.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include "cuda/cuda_engine.h"

namespace psnrhvs {
namespace {

const FrameGeometry kGeometry = *FrameGeometry::Create(64, 64, Chroma::k420, 8);

TEST(CudaAvailability, EveryEntryGivesTheSameReasonWhereThereIsNoDevice) {
  const auto devices = ProbeCudaDevices();
  if (devices.ok()) GTEST_SKIP() << "there is a device: " << devices->front().name;
  EXPECT_EQ(devices.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(devices.status().message().find("CUDA"), std::string::npos) << devices.status().message();
  const auto engine = CreateCudaEngine(kGeometry, CudaEngineOptions{});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(engine.status().message().empty());
  const auto memory = AllocatePinned(CudaTarget{}, 4096);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), StatusCode::kUnavailable);
  FreePinned(CudaTarget{}, nullptr);
}

TEST(CudaAvailability, ProbingTwiceGivesTheSameAnswer) {
  const auto first = ProbeCudaDevices();
  const auto second = ProbeCudaDevices();
  ASSERT_EQ(first.ok(), second.ok());
  if (first.ok()) {
    EXPECT_EQ(first->size(), second->size());
  } else {
    EXPECT_EQ(first.status().message(), second.status().message());
  }
}

TEST(CudaAvailability, ADepthOutOfRangeIsAnInvalidArgument) {
  for (int depth : {-1, 17}) {
    CudaEngineOptions options;
    options.depth = depth;
    const auto engine = CreateCudaEngine(kGeometry, options);
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace psnrhvs
