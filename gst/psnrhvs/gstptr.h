// Owners of GStreamer and GLib objects: unique_ptr that lets go the way the type asks for.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/gst.h>

#include <memory>

namespace psnrhvs {

// Drops one reference, or frees what is not counted. Stateless, so a GstPtr is as large as a pointer.
struct GstRelease {
  void operator()(GstBuffer* buffer) const { gst_buffer_unref(buffer); }
  void operator()(GstCaps* caps) const { gst_caps_unref(caps); }
  void operator()(GstEvent* event) const { gst_event_unref(event); }
  void operator()(GstMessage* message) const { gst_message_unref(message); }
  void operator()(GstQuery* query) const { gst_query_unref(query); }
  void operator()(GstStructure* structure) const { gst_structure_free(structure); }
  void operator()(GError* error) const { g_error_free(error); }
  void operator()(gchar* memory) const { g_free(memory); }
  void operator()(GstObject* object) const { gst_object_unref(object); }
  void operator()(GstPad* pad) const { gst_object_unref(pad); }
  void operator()(GstElement* element) const { gst_object_unref(element); }
  void operator()(GstClock* clock) const { gst_object_unref(clock); }
  void operator()(GstBus* bus) const { gst_object_unref(bus); }
};

// Takes over the reference that it is made from.
template <typename T>
using GstPtr = std::unique_ptr<T, GstRelease>;

}  // namespace psnrhvs
