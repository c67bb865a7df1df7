// The results file: json in the shape of libvmaf's report, csv or jsonl, written while frames arrive.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <glib.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cpu/status.h"
#include "gst/psnrhvs/publish.h"

namespace psnrhvs {

enum class ResultsFormat {
  kAuto,  // by the file's ending
  kJson,
  kCsv,
  kJsonl,
};

// Every record reaches the file in one write(), so memory is bounded and a process that is killed
// leaves whole lines. Failures name the file and the reason. After one, every call returns the same
// Status and the file is left as it is: whole records up to the one that failed.
// One thread at a time.
class ResultsWriter {
 public:
  // Creates or empties the file. kInvalidArgument if it cannot be opened or, for kAuto, ends in
  // neither .json, .csv nor .jsonl.
  static Result<std::unique_ptr<ResultsWriter>> Open(const std::string& filename, ResultsFormat format);

  // Closes the file as it is; only Complete() completes it.
  ~ResultsWriter();
  ResultsWriter(const ResultsWriter&) = delete;
  ResultsWriter& operator=(const ResultsWriter&) = delete;

  // Starts the clock of json's `fps`: call it when a pair goes to the engine. Only the first counts;
  // without one, the clock starts with the first AddFrame().
  void NotePair();

  // kUnavailable if the file cannot take it (disk full, quota, size limit).
  Status AddFrame(const FrameReport& report);
  Status AddUnpaired(const UnpairedReport& report);

  // Writes what stands after the frames, at EOS or at an earlier stop, so that the document is whole. Once it is, does
  // nothing until there is more to say.
  // If more records follow, after a seek, they take the place of that ending (in a pipe, where nothing
  // can be taken back, they follow it in csv and jsonl and fail in json).
  Status Complete(const Summary& summary);

 private:
  ResultsWriter(std::string filename, ResultsFormat format, int fd)
      : filename_(std::move(filename)), format_(format), fd_(fd) {}

  Status Reopen();
  Status Write(const std::string& record);
  Status WriteFps();
  Status Fail(int error);

  const std::string filename_;
  const ResultsFormat format_;  // never kAuto
  const int fd_;
  gint64 offset_ = 0;                // bytes in whole records
  std::optional<gint64> completed_;  // bytes before the ending, while there is one
  std::string ending_;               // that one
  guint64 frames_ = 0;
  std::optional<gint64> first_pair_us_;  // monotonic
  gint64 last_result_us_ = 0;
  Status failure_;
};

}  // namespace psnrhvs
