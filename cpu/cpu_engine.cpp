// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/cpu_engine.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu/plane_sum.h"

namespace psnrhvs {
namespace {

int UsableProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// What a group adds to the plane's sum, computed before the sum that it is added to was known.
struct GroupMap {
  int exponents = 0;      // for which there is a map: 0 if all terms are zero, else 1 or 2
  uint32_t exponent = 0;  // of the first; the second's is the next
  SumMap maps[2];
};

// A plane of the frame at hand. Its groups are handed out in order, some at a time. Where all groups before have
// been summed, the sum is known, and the groups are added to it at once; the thread that does so has the plane's head.
// Other threads map groups ahead for the binade that they expect; whoever then finds the first of them next in
// line adds them up. A wrong guess costs the time to compute a group again and never changes the sum.
struct PlaneWork {
  PlanePair pair;
  int groups = 0;
  std::vector<GroupMap> maps;  // [group]
  std::vector<char> mapped;    // [group]: its map is there

  int taken = 0;            // groups handed out
  int summed = 0;           // groups in `bits`
  uint32_t bits = 0;        // pattern of the sum
  bool head_taken = false;  // a thread is summing
  uint32_t last_bits = 0;   // the sum of the frame before

  bool done() const { return summed == groups; }
};

// One thread's memory.
struct Worker {
  GroupScratch scratch;
  GroupScratch again;  // for groups that are computed again
};

struct Task {
  PlaneWork* work = nullptr;  // null: nothing is left to hand out
  int first = 0;
  int end = 0;
  bool at_head = false;
  // What was known of the sum when the task was taken.
  int summed = 0;
  uint32_t bits = 0;
};

class CpuEngine final : public Engine {
 public:
  // May throw, and Start too, if memory or threads cannot be had.
  CpuEngine(const FrameGeometry& geometry, const GroupKernel& kernel, int threads)
      : geometry_(geometry), kernel_(kernel) {
    int groups = 0;
    for (int plane = 0; plane < geometry.scored_planes(); ++plane) {
      PlaneWork& work = works_[plane];
      work.pair.depth = geometry.depth();
      work.pair.plane = plane;
      work.pair.reference.width = work.pair.distorted.width = geometry.plane_width(plane);
      work.pair.reference.height = work.pair.distorted.height = geometry.plane_height(plane);
      work.groups = kernel.groups(work.pair);
      groups += work.groups;
    }
    threads = std::clamp(threads, 1, groups);
    for (int i = 0; i < threads; ++i) workers_.push_back(std::make_unique<Worker>());
    if (threads == 1) return;
    for (PlaneWork& work : works_) {
      work.maps.resize(static_cast<size_t>(work.groups));
      work.mapped.resize(static_cast<size_t>(work.groups));
    }
  }

  void Start() {
    for (size_t i = 1; i < workers_.size(); ++i) {
      threads_.emplace_back([this, i] { RunThread(workers_[i].get()); });
    }
  }

  ~CpuEngine() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    work_added_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  const char* backend() const override { return "cpu"; }
  // One pair is spread over all threads, so a second one in flight would gain little and cost a frame's delay.
  int depth() const override { return 1; }

  Status Submit(const FramePair& pair) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (submitted_) return Status(StatusCode::kInternal, "the cpu engine holds one pair at a time");
      submitted_ = true;
      for (int plane = 0; plane < geometry_.scored_planes(); ++plane) {
        PlaneWork& work = works_[plane];
        work.pair.reference = pair.reference.planes[plane];
        work.pair.distorted = pair.distorted.planes[plane];
        work.taken = work.summed = 0;
        work.last_bits = work.bits;
        work.bits = 0;
        std::fill(work.mapped.begin(), work.mapped.end(), 0);
      }
      ++frames_;
    }
    work_added_.notify_all();
    return Status();
  }

  Result<FrameScore> Collect() override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!submitted_) return Status(StatusCode::kInternal, "no pair was submitted");
    collecting_ = true;
    RunTasks(workers_[0].get(), &lock);
    collecting_ = false;
    while (!AllDone()) frame_done_.wait(lock);
    submitted_ = false;
    std::array<float, kMaxPlanes> sums{};
    for (int plane = 0; plane < geometry_.scored_planes(); ++plane) sums[plane] = BitsFloat(works_[plane].bits);
    return ScoreFrame(geometry_, sums);
  }

 private:
  // Tasks a thread would still take if they all were as large as the next: they shrink as the frame nears its end, so
  // that the threads seldom meet at the lock and yet finish together.
  static constexpr int kTasksAhead = 8;
  static constexpr int kLeastTaskBlocks = 256;

  bool AllDone() const {
    for (int plane = 0; plane < geometry_.scored_planes(); ++plane) {
      if (!works_[plane].done()) return false;
    }
    return true;
  }

  void RunThread(Worker* worker) {
    std::unique_lock<std::mutex> lock(mutex_);
    uint64_t frame = 0;
    while (!stopping_) {
      if (frame == frames_) {
        work_added_.wait(lock);
        continue;
      }
      frame = frames_;
      RunTasks(worker, &lock);
    }
  }

  // Works until nothing of the frame is left to hand out. Called with the lock, which is released while computing.
  void RunTasks(Worker* worker, std::unique_lock<std::mutex>* lock) {
    while (!stopping_) {
      const Task task = TakeTask(worker == workers_[0].get());
      if (!task.work) return;
      PlaneWork& work = *task.work;
      lock->unlock();
      uint32_t bits = task.bits;
      if (task.at_head) {
        for (int group = task.first; group < task.end; ++group) {
          bits = AddGroup(kernel_, work.pair, group, &worker->scratch, bits);
        }
      } else {
        MapGroups(task, &worker->scratch);
      }
      lock->lock();
      if (task.at_head) {
        work.bits = bits;
        work.summed = task.end;
      } else {
        std::fill(work.mapped.begin() + task.first, work.mapped.begin() + task.end, 1);
        if (work.head_taken) continue;
        work.head_taken = true;
      }
      AddMappedGroups(&work, worker, lock);
      work.head_taken = false;
      if (AllDone()) frame_done_.notify_one();
    }
  }

  Task TakeTask(bool collecting) {
    PlaneWork* chosen = nullptr;
    int64_t most = 0;
    int64_t left_in_all = 0;
    for (int plane = 0; plane < geometry_.scored_planes(); ++plane) {
      PlaneWork& work = works_[plane];
      const int64_t left = work.groups - work.taken;
      left_in_all += left;
      // Work at a head is never in vain.
      const bool at_head = !work.head_taken && work.taken == work.summed;
      if (left > 0 && (left + (at_head ? kHeadFirst : 0)) > most) {
        most = left + (at_head ? kHeadFirst : 0);
        chosen = &work;
      }
    }
    Task task;
    if (!chosen) return task;
    const int64_t least = kLeastTaskBlocks / kernel_.blocks;
    // The collecting thread, if it is here, should be the last to finish: waking it takes longer than so few groups.
    if (collecting_ && !collecting && left_in_all <= least) return task;
    const int64_t wanted = std::max(least, left_in_all / (kTasksAhead * static_cast<int64_t>(workers_.size())));
    task.work = chosen;
    task.first = chosen->taken;
    task.end = task.first + static_cast<int>(std::min<int64_t>(wanted, chosen->groups - chosen->taken));
    task.at_head = most >= kHeadFirst;
    task.summed = chosen->summed;
    task.bits = chosen->bits;
    chosen->taken = task.end;
    if (task.at_head) chosen->head_taken = true;
    return task;
  }

  // Maps groups for the binades in which they are expected.
  void MapGroups(const Task& task, GroupScratch* scratch) const {
    PlaneWork& work = *task.work;
    // The sum grows evenly enough: by what it grew a group so far, or, before the first, in the last frame.
    const float known = BitsFloat(task.bits);
    const float growth = task.summed > 0 ? known / static_cast<float>(task.summed)
                                         : BitsFloat(work.last_bits) / static_cast<float>(work.groups);
    for (int group = task.first; group < task.end; ++group) {
      GroupMap& map = work.maps[static_cast<size_t>(group)];
      map.exponents = 0;
      if (!kernel_.prepare(work.pair, group, scratch)) continue;
      const float expected = growth * static_cast<float>(group - task.summed);
      map.exponent = std::min(kLastExponent, ExponentField(FloatBits(known + expected * (1 - kDoubt))));
      const uint32_t high = ExponentField(FloatBits(known + expected * (1 + kDoubt)));
      map.exponents = high > map.exponent ? 2 : 1;
      for (int i = 0; i < map.exponents; ++i) map.maps[i] = kernel_.map(scratch, map.exponent + i, 0);
    }
  }

  // Adds the mapped groups that are next in line. Called with the lock and the head.
  void AddMappedGroups(PlaneWork* work, Worker* worker, std::unique_lock<std::mutex>* lock) {
    while (work->summed < work->taken && work->mapped[static_cast<size_t>(work->summed)]) {
      const auto first = work->mapped.begin() + work->summed;
      const int end = work->summed + static_cast<int>(std::find(first, work->mapped.end(), 0) - first);
      uint32_t bits = work->bits;
      int group = work->summed;
      lock->unlock();
      for (; group < end; ++group) {
        const GroupMap& map = work->maps[static_cast<size_t>(group)];
        if (map.exponents == 0) continue;
        const uint32_t which = ExponentField(bits) - map.exponent;
        if (which < static_cast<uint32_t>(map.exponents) && Apply(map.maps[which], &bits)) continue;
        bits = AddGroup(kernel_, work->pair, group, &worker->again, bits);
      }
      lock->lock();
      work->bits = bits;
      work->summed = end;
    }
  }

  static constexpr int64_t kHeadFirst = int64_t{1} << 40;  // more than any plane has groups
  static constexpr uint32_t kLastExponent = 253;           // whose next is finite
  static constexpr float kDoubt = 0.25f;                   // of the growth that is expected

  const FrameGeometry geometry_;
  const GroupKernel& kernel_;
  std::array<PlaneWork, kMaxPlanes> works_;
  std::vector<std::unique_ptr<Worker>> workers_;  // the first is the collecting thread's

  std::mutex mutex_;  // of all below, and of the progress in works_
  std::condition_variable work_added_;
  std::condition_variable frame_done_;
  uint64_t frames_ = 0;  // submitted
  bool submitted_ = false;
  bool collecting_ = false;  // the collecting thread takes tasks
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<Engine>> CreateCpuEngine(const FrameGeometry& geometry, const CpuEngineOptions& options) {
  const GroupKernel* kernel = FindGroupKernel(options.target);
  if (!kernel) return Status(StatusCode::kUnavailable, "this processor has no instruction set " + options.target);
  return CatchAll("start the cpu engine's threads", [&]() -> Result<std::unique_ptr<Engine>> {
    auto engine =
        std::make_unique<CpuEngine>(geometry, *kernel, options.threads > 0 ? options.threads : UsableProcessors());
    engine->Start();
    return std::unique_ptr<Engine>(std::move(engine));
  });
}

}  // namespace psnrhvs
