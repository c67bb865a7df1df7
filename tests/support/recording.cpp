// SPDX-License-Identifier: LGPL-2.1-or-later
#include "tests/support/recording.h"

#include <algorithm>
#include <chrono>

namespace psnrhvs::testing {
namespace {

constexpr std::chrono::seconds kPatience{30};

Notice NoticeFrom(GstMessage* message) {
  GError* error = nullptr;
  gchar* debug = nullptr;
  switch (GST_MESSAGE_TYPE(message)) {
    case GST_MESSAGE_ERROR:
      gst_message_parse_error(message, &error, &debug);
      break;
    case GST_MESSAGE_WARNING:
      gst_message_parse_warning(message, &error, &debug);
      break;
    default:
      gst_message_parse_info(message, &error, &debug);
      break;
  }
  const GstPtr<GError> owned_error(error);
  const GstPtr<gchar> owned_debug(debug);
  return {GST_MESSAGE_SRC_NAME(message), error->message, debug ? debug : ""};
}

Output OutputFrom(GstBuffer* buffer) {
  Output output{GST_BUFFER_PTS(buffer),
                GST_BUFFER_DTS(buffer),
                GST_BUFFER_DURATION(buffer),
                GST_BUFFER_OFFSET(buffer),
                GST_BUFFER_OFFSET_END(buffer),
                GST_BUFFER_FLAGS(buffer),
                gst_buffer_n_memory(buffer) > 0 ? gst_buffer_peek_memory(buffer, 0) : nullptr,
                0,
                std::nullopt};
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) {
    if (gst_meta_info_is_custom(meta->info) &&
        gst_custom_meta_has_name(reinterpret_cast<GstCustomMeta*>(meta), kMetaName)) {
      ++output.metas;
    }
  }
  if (GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, kMetaName)) {
    output.meta = FrameReportFrom(gst_custom_meta_get_structure(meta));
    if (!output.meta) g_error("metadata is incomplete");
  }
  return output;
}

}  // namespace

int Reports::Position(const std::string& what) const {
  const auto found = std::find(order.begin(), order.end(), what);
  return found == order.end() ? -1 : static_cast<int>(found - order.begin());
}

int Reports::Count(const std::string& what) const {
  return static_cast<int>(std::count(order.begin(), order.end(), what));
}

Recorder::Recorder(GstBus* bus, GstPad* src)
    : bus_(bus),
      src_(src),
      probe_(gst_pad_add_probe(
          src, static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM),
          [](GstPad*, GstPadProbeInfo* info, gpointer recorder) {
            static_cast<Recorder*>(recorder)->Take(info);
            return GST_PAD_PROBE_OK;
          },
          this, nullptr)) {
  gst_bus_set_sync_handler(
      bus,
      [](GstBus*, GstMessage* message, gpointer recorder) {
        static_cast<Recorder*>(recorder)->Take(message);
        gst_message_unref(message);
        return GST_BUS_DROP;
      },
      this, nullptr);
}

Recorder::~Recorder() {
  gst_pad_remove_probe(src_, probe_);
  gst_bus_set_sync_handler(bus_, nullptr, nullptr, nullptr);
}

Reports Recorder::reports() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return reports_;
}

void Recorder::Clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  reports_ = {};
}

bool Recorder::WaitFor(const std::string& what) {
  std::unique_lock<std::mutex> lock(mutex_);
  WaitUntil(&lock, what, [&] { return reports_.Position(what) >= 0 || !reports_.errors.empty(); });
  return reports_.Position(what) >= 0;
}

void Recorder::WaitForEnd() {
  std::unique_lock<std::mutex> lock(mutex_);
  WaitUntil(&lock, "the end", [&] { return reports_.eos_posted || !reports_.errors.empty(); });
}

void Recorder::WaitUntil(std::unique_lock<std::mutex>* lock, const std::string& what,
                         const std::function<bool()>& there) {
  for (size_t seen = 0; !there(); seen = reports_.order.size()) {
    if (changed_.wait_for(*lock, kPatience) != std::cv_status::timeout || reports_.order.size() > seen) continue;
    std::string last;
    for (size_t n = seen < 8 ? 0 : seen - 8; n < seen; ++n) last += " " + reports_.order[n] + ",";
    g_error("nothing happened for half a minute; waiting for %s, after%s and no more", what.c_str(), last.c_str());
  }
}

void Recorder::Take(GstMessage* message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  switch (GST_MESSAGE_TYPE(message)) {
    case GST_MESSAGE_ERROR:
      reports_.errors.push_back(NoticeFrom(message));
      reports_.order.push_back("error");
      break;
    case GST_MESSAGE_WARNING:
      reports_.warnings.push_back(NoticeFrom(message));
      reports_.order.push_back("warning");
      break;
    case GST_MESSAGE_INFO:
      reports_.infos.push_back(NoticeFrom(message));
      reports_.order.push_back("info");
      break;
    case GST_MESSAGE_EOS:
      reports_.eos_posted = true;
      break;
    case GST_MESSAGE_ELEMENT: {
      const GstStructure* structure = gst_message_get_structure(message);
      if (GST_MESSAGE_SRC(message) != GST_OBJECT_PARENT(src_) || !gst_structure_has_name(structure, kMessageName))
        break;
      if (const auto frame = FrameReportFrom(structure)) {
        reports_.frames.push_back(*frame);
        reports_.order.push_back("frame " + std::to_string(frame->reference.index));
      } else if (const auto unpaired = UnpairedReportFrom(structure)) {
        reports_.unpaired.push_back(*unpaired);
        reports_.order.push_back("unpaired " + unpaired->pad + " " + std::to_string(unpaired->timing.index));
      } else if (const auto pooled = SummaryFrom(structure)) {
        reports_.pooled.push_back(*pooled);
        reports_.order.push_back("pooled");
      } else if (const auto alarm = AlarmReportFrom(structure)) {
        reports_.alarms.push_back(*alarm);
        reports_.order.push_back(alarm->raised ? "alarm" : "recovered");
      } else {
        g_error("a message is incomplete: %s", GstPtr<gchar>(gst_structure_to_string(structure)).get());
      }
      break;
    }
    default:
      break;
  }
  changed_.notify_all();
}

void Recorder::Take(GstPadProbeInfo* info) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (GstBuffer* buffer = GST_PAD_PROBE_INFO_BUFFER(info); buffer && (info->type & GST_PAD_PROBE_TYPE_BUFFER)) {
    reports_.outputs.push_back(OutputFrom(buffer));
    reports_.order.push_back("buffer " + std::to_string(GST_BUFFER_PTS(buffer)));
  } else {
    GstEvent* event = GST_PAD_PROBE_INFO_EVENT(info);
    reports_.order.push_back(GST_EVENT_TYPE_NAME(event));
  }
  changed_.notify_all();
}

}  // namespace psnrhvs::testing
