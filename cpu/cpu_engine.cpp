// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/cpu_engine.h"

#include <optional>

#include "cpu/plane_sum.h"

namespace psnrhvs {
namespace {

class CpuEngine final : public Engine {
 public:
  CpuEngine(const FrameGeometry& geometry, const GroupKernel& kernel) : geometry_(geometry), kernel_(kernel) {}

  const char* backend() const override { return "cpu"; }
  int depth() const override { return 1; }

  Status Submit(const FramePair& pair) override {
    if (pair_) return Status(StatusCode::kInternal, "the cpu engine holds one pair at a time");
    pair_ = pair;
    return Status();
  }

  Result<FrameScore> Collect() override {
    if (!pair_) return Status(StatusCode::kInternal, "no pair was submitted");
    std::array<float, kMaxPlanes> sums{};
    for (int plane = 0; plane < geometry_.scored_planes(); ++plane) {
      sums[plane] = PlaneSumSimd(pair_->reference.planes[plane], pair_->distorted.planes[plane], geometry_.depth(),
                                 plane, kernel_);
    }
    pair_.reset();
    return ScoreFrame(geometry_, sums);
  }

 private:
  const FrameGeometry geometry_;
  const GroupKernel& kernel_;
  std::optional<FramePair> pair_;
};

}  // namespace

Result<std::unique_ptr<Engine>> CreateCpuEngine(const FrameGeometry& geometry, const CpuEngineOptions& options) {
  const GroupKernel* kernel = FindGroupKernel(options.target);
  if (!kernel) return Status(StatusCode::kUnavailable, "this processor has no instruction set " + options.target);
  return std::unique_ptr<Engine>(std::make_unique<CpuEngine>(geometry, *kernel));
}

}  // namespace psnrhvs
