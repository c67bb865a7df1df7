// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/results.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>

namespace psnrhvs {
namespace {

// json states `fps` before the frames, so its line is written last, over a placeholder of this width
// that is valid by itself (a pipe cannot go back).
constexpr size_t kFpsLineLength = 32;

const char* KeyName(ScoreKind kind) {
  switch (kind) {
    case ScoreKind::kY:
      return "psnr_hvs_y";
    case ScoreKind::kCb:
      return "psnr_hvs_cb";
    case ScoreKind::kCr:
      return "psnr_hvs_cr";
    case ScoreKind::kCombined:
      break;
  }
  return "psnr_hvs";
}

// 17 significant digits bring back the same double; to_chars knows no locale. Whole numbers get a
// ".0", so that readers see a column of one type.
std::string Number(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::general, 17);
  const std::string text(buffer, end.ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string CsvScore(double score_db) { return std::isinf(score_db) ? "inf" : Number(score_db); }

std::string CsvTime(guint64 time_ns) { return GST_CLOCK_TIME_IS_VALID(time_ns) ? std::to_string(time_ns) : ""; }

// Text of one JSON object, key after key. Keys and strings need no escapes: all are this program's.
class JsonObject {
 public:
  JsonObject& Add(const char* key, double value) { return AddRaw(key, std::isinf(value) ? "null" : Number(value)); }
  JsonObject& Add(const char* key, guint64 value) { return AddRaw(key, std::to_string(value)); }
  JsonObject& Add(const char* key, const std::string& value) { return AddRaw(key, "\"" + value + "\""); }
  JsonObject& Add(const char* key, const JsonObject& value) { return AddRaw(key, value.Text()); }
  JsonObject& AddTime(const char* key, guint64 time_ns) {
    return AddRaw(key, GST_CLOCK_TIME_IS_VALID(time_ns) ? std::to_string(time_ns) : "null");
  }
  std::string Text() const { return members_.empty() ? "{}" : members_ + "}"; }

 private:
  JsonObject& AddRaw(const char* key, const std::string& value) {
    members_ += members_.empty() ? "{\"" : ",\"";
    members_ += key;
    members_ += "\":";
    members_ += value;
    return *this;
  }

  std::string members_;
};

void AddTiming(JsonObject* object, const FrameTiming& timing) {
  object->Add("frameNum", timing.index)
      .AddTime("timestamp", timing.timestamp)
      .AddTime("stream_time", timing.stream_time)
      .AddTime("running_time", timing.running_time)
      .AddTime("duration", timing.duration);
}

// Adds a frame's members behind those that `object` has.
std::string FrameText(JsonObject object, const FrameReport& report) {
  AddTiming(&object, report.reference);
  object.AddTime("dist_running_time", report.dist_running_time);
  JsonObject metrics;
  for (ScoreKind kind : kAllScoreKinds) {
    if (report.score.has(kind)) metrics.Add(KeyName(kind), report.score.score_db(kind));
  }
  return object.Add("metrics", metrics).Text();
}

JsonObject PooledObject(const PooledScore& pooled) {
  JsonObject object;
  object.Add("min", pooled.min).Add("max", pooled.max).Add("mean", pooled.mean);
  if (pooled.harmonic_mean) object.Add("harmonic_mean", *pooled.harmonic_mean);
  object.Add("from_mean_error", pooled.from_mean_error).Add("infinite", guint64{pooled.infinite});
  if (pooled.min_index) object.Add("min_frame", guint64{*pooled.min_index});
  return object;
}

JsonObject PooledMetrics(const Summary& summary) {
  JsonObject metrics;
  for (ScoreKind kind : kAllScoreKinds) {
    const std::optional<PooledScore>& pooled = summary.pooled[static_cast<int>(kind)];
    if (pooled) metrics.Add(KeyName(kind), PooledObject(*pooled));
  }
  return metrics;
}

void AddCounts(JsonObject* object, const Summary& summary) {
  object->Add("frames", summary.frames)
      .Add("unpaired_ref", summary.unpaired_ref)
      .Add("unpaired_dist", summary.unpaired_dist);
  if (summary.skipped > 0) object->Add("skipped", summary.skipped);
  object->Add("backend", summary.backend);
}

std::string CsvLine(const FrameReport& report) {
  std::string line = std::to_string(report.reference.index);
  for (ScoreKind kind : kAllScoreKinds) {
    line += ",";
    if (report.score.has(kind)) line += CsvScore(report.score.score_db(kind));
  }
  for (guint64 time_ns : {report.reference.timestamp, report.reference.stream_time, report.reference.running_time,
                          report.reference.duration, report.dist_running_time}) {
    line += "," + CsvTime(time_ns);
  }
  return line + "\n";
}

// json's `fps` line, padded behind the comma.
std::string FpsLine(const std::string& value) {
  std::string line = "  \"fps\": " + value + ",";
  line.resize(kFpsLineLength - 1, ' ');
  return line + "\n";
}

std::string JsonHead() {
  return "{\n  \"version\": \"" + std::string(kVersion) + "\",\n" + FpsLine("null") + "  \"frames\": [";
}

// Where FpsLine stands in JsonHead.
size_t FpsOffset() { return JsonHead().find("  \"fps\""); }

std::string JsonTail(const Summary& summary) {
  JsonObject counts;
  AddCounts(&counts, summary);
  return "\n  ],\n  \"pooled_metrics\": " + PooledMetrics(summary).Text() + ",\n  \"aggregate_metrics\": {},\n" +
         "  \"psnrhvs\": " + counts.Text() + "\n}\n";
}

std::string JsonlTail(const Summary& summary) {
  JsonObject object;
  object.Add("type", "pooled").Add("version", kVersion);
  AddCounts(&object, summary);
  return object.Add("pooled_metrics", PooledMetrics(summary)).Text() + "\n";
}

// While it exists, writing raises no signal in the calling thread: neither a reader that leaves (SIGPIPE) nor a limit
// of the file's size (SIGXFSZ) must end the process, as both are errors that write() tells.
class RefusedWriteIsAnError {
 public:
  RefusedWriteIsAnError() {
    sigset_t pending;
    sigemptyset(&refused_);
    sigpending(&pending);
    for (int signal : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&pending, signal) != 1) sigaddset(&refused_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &refused_, &previous_);
  }
  ~RefusedWriteIsAnError() {
    const timespec now{};
    while (sigtimedwait(&refused_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  RefusedWriteIsAnError(const RefusedWriteIsAnError&) = delete;
  RefusedWriteIsAnError& operator=(const RefusedWriteIsAnError&) = delete;

 private:
  sigset_t refused_, previous_;  // what is pending already is blocked already
};

bool EndsIn(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() && text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

Result<ResultsFormat> FormatOf(const std::string& filename) {
  if (EndsIn(filename, ".json")) return ResultsFormat::kJson;
  if (EndsIn(filename, ".csv")) return ResultsFormat::kCsv;
  if (EndsIn(filename, ".jsonl")) return ResultsFormat::kJsonl;
  return Status(StatusCode::kInvalidArgument, "The results file '" + filename +
                                                  "' ends in none of .json, .csv and .jsonl: rename it, or set "
                                                  "results-format to json, csv or jsonl.");
}

}  // namespace

Result<std::unique_ptr<ResultsWriter>> ResultsWriter::Open(const std::string& filename, ResultsFormat format) {
  if (format == ResultsFormat::kAuto) {
    const Result<ResultsFormat> chosen = FormatOf(filename);
    if (!chosen.ok()) return chosen.status();
    format = *chosen;
  }
  const int fd = open(filename.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    const int error = errno;
    return Status(StatusCode::kInvalidArgument,
                  "The results file '" + filename + "' cannot be opened for writing: " + g_strerror(error) + ".");
  }
  std::unique_ptr<ResultsWriter> writer(new ResultsWriter(filename, format, fd));
  Status status;
  if (format == ResultsFormat::kJson) status = writer->Write(JsonHead());
  if (format == ResultsFormat::kCsv) {
    status = writer->Write(
        "Frame,psnr_hvs_y,psnr_hvs_cb,psnr_hvs_cr,psnr_hvs,"
        "timestamp,stream_time,running_time,duration,dist_running_time\n");
  }
  if (!status.ok()) return status;
  return writer;
}

ResultsWriter::~ResultsWriter() { close(fd_); }

void ResultsWriter::NotePair() {
  if (!first_pair_us_) first_pair_us_ = g_get_monotonic_time();
}

Status ResultsWriter::AddFrame(const FrameReport& report) {
  Status reopened = Reopen();
  if (!reopened.ok()) return reopened;
  NotePair();
  last_result_us_ = g_get_monotonic_time();
  const bool first = frames_++ == 0;
  switch (format_) {
    case ResultsFormat::kJson:
      return Write((first ? "\n    " : ",\n    ") + FrameText(JsonObject(), report));
    case ResultsFormat::kJsonl:
      return Write(FrameText(JsonObject().Add("type", "frame"), report) + "\n");
    default:
      return Write(CsvLine(report));
  }
}

Status ResultsWriter::AddUnpaired(const UnpairedReport& report) {
  Status reopened = Reopen();
  if (!reopened.ok() || format_ != ResultsFormat::kJsonl) return reopened;
  JsonObject object;
  object.Add("type", "unpaired").Add("pad", report.pad);
  AddTiming(&object, report.timing);
  return Write(object.Text() + "\n");
}

Status ResultsWriter::Complete(const Summary& summary) {
  std::string ending;
  if (format_ == ResultsFormat::kJson) ending = JsonTail(summary);
  if (format_ == ResultsFormat::kJsonl) ending = JsonlTail(summary);
  if (completed_ && ending == ending_) return failure_;
  Status status = Reopen();
  if (!status.ok()) return status;
  const gint64 body = offset_;
  status = Write(ending);
  if (status.ok() && format_ == ResultsFormat::kJson) status = WriteFps();
  completed_ = body;
  ending_ = std::move(ending);
  // Some file systems report a failed write only here; pipes and the like have nothing to wait for.
  if (status.ok() && fsync(fd_) != 0 && errno != EINVAL && errno != EROFS && errno != EINTR) status = Fail(errno);
  return status;
}

// Takes the ending away, if there is one.
Status ResultsWriter::Reopen() {
  if (!failure_.ok() || !completed_) return failure_;
  const gint64 body = *completed_;
  completed_.reset();
  if (body == offset_) return Status();
  if (ftruncate(fd_, body) == 0 && lseek(fd_, body, SEEK_SET) == body) {
    offset_ = body;
    return Status();
  }
  return format_ == ResultsFormat::kJson ? Fail(errno) : Status();
}

Status ResultsWriter::Write(const std::string& record) {
  if (!failure_.ok()) return failure_;
  const RefusedWriteIsAnError scope;
  size_t written = 0;
  while (written < record.size()) {
    const ssize_t count = write(fd_, record.data() + written, record.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      // Of the failed record nothing stays. (What has no length, such as a pipe, refuses to shrink.)
      if (written > 0 && ftruncate(fd_, offset_) != 0) GST_DEBUG("%s keeps part of a record", filename_.c_str());
      return Fail(error);
    }
    written += static_cast<size_t>(count);
  }
  offset_ += static_cast<gint64>(record.size());
  return Status();
}

Status ResultsWriter::WriteFps() {
  const gint64 elapsed_us = last_result_us_ - first_pair_us_.value_or(last_result_us_);
  if (elapsed_us <= 0) return Status();
  char value[kFpsLineLength / 2];
  const double fps = static_cast<double>(frames_) * G_USEC_PER_SEC / static_cast<double>(elapsed_us);
  const auto end = std::to_chars(value, value + sizeof(value), fps, std::chars_format::fixed, 2);
  if (end.ec != std::errc()) return Status();
  const std::string line = FpsLine(std::string(value, end.ptr));
  const ssize_t count = pwrite(fd_, line.data(), line.size(), static_cast<off_t>(FpsOffset()));
  if (count < 0 && errno != ESPIPE) return Fail(errno);
  return Status();
}

Status ResultsWriter::Fail(int error) {
  failure_ = Status(StatusCode::kUnavailable,
                    "The results file '" + filename_ + "' cannot be written: " + g_strerror(error) + ".");
  return failure_;
}

}  // namespace psnrhvs
