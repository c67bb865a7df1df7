// Drives the mapping of caps and buffers by a string of bytes, and holds what comes out to a model that does not use
// GStreamer's tables of formats.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/video/video.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gst/psnrhvs/gstptr.h"
#include "gst/psnrhvs/mapped_frame.h"

namespace psnrhvs::testing {

// Where a format keeps the samples of a component: in which plane, how many bytes from one to the next, how many before
// the first.
struct ComponentModel {
  int plane;
  int step_bytes;
  int first_byte;
};

struct FormatModel {
  const char* name;
  Chroma chroma;
  int depth;
  int shift;
  ComponentModel components[kMaxPlanes];
};

inline constexpr FormatModel kFormatModels[] = {
    {"I420", Chroma::k420, 8, 0, {{0, 1, 0}, {1, 1, 0}, {2, 1, 0}}},
    {"YV12", Chroma::k420, 8, 0, {{0, 1, 0}, {2, 1, 0}, {1, 1, 0}}},
    {"NV12", Chroma::k420, 8, 0, {{0, 1, 0}, {1, 2, 0}, {1, 2, 1}}},
    {"NV21", Chroma::k420, 8, 0, {{0, 1, 0}, {1, 2, 1}, {1, 2, 0}}},
    {"Y42B", Chroma::k422, 8, 0, {{0, 1, 0}, {1, 1, 0}, {2, 1, 0}}},
    {"NV16", Chroma::k422, 8, 0, {{0, 1, 0}, {1, 2, 0}, {1, 2, 1}}},
    {"Y444", Chroma::k444, 8, 0, {{0, 1, 0}, {1, 1, 0}, {2, 1, 0}}},
    {"I420_10LE", Chroma::k420, 10, 0, {{0, 2, 0}, {1, 2, 0}, {2, 2, 0}}},
    {"I422_10LE", Chroma::k422, 10, 0, {{0, 2, 0}, {1, 2, 0}, {2, 2, 0}}},
    {"Y444_10LE", Chroma::k444, 10, 0, {{0, 2, 0}, {1, 2, 0}, {2, 2, 0}}},
    {"I420_12LE", Chroma::k420, 12, 0, {{0, 2, 0}, {1, 2, 0}, {2, 2, 0}}},
    {"I422_12LE", Chroma::k422, 12, 0, {{0, 2, 0}, {1, 2, 0}, {2, 2, 0}}},
    {"Y444_12LE", Chroma::k444, 12, 0, {{0, 2, 0}, {1, 2, 0}, {2, 2, 0}}},
    {"P010_10LE", Chroma::k420, 10, 6, {{0, 2, 0}, {1, 4, 0}, {1, 4, 2}}},
    {"P012_LE", Chroma::k420, 12, 4, {{0, 2, 0}, {1, 4, 0}, {1, 4, 2}}},
    {"GRAY8", Chroma::k400, 8, 0, {{0, 1, 0}, {}, {}}},
};

inline const FormatModel* FindFormatModel(const char* name) {
  for (const FormatModel& model : kFormatModels) {
    if (std::strcmp(model.name, name) == 0) return &model;
  }
  return nullptr;
}

class MappingOperations {
 public:
  MappingOperations(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  // Empty, or the promise that was broken.
  std::string Check() { return Byte() & 1 ? CheckCaps() : CheckBuffer(); }

 private:
  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }

  uint64_t Word() {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word = word << 8 | Byte();
    return word;
  }

  // Mostly near `usual`, now and then anything.
  template <typename T>
  T Near(T usual) {
    const uint8_t how = Byte();
    if (how < 8) return static_cast<T>(Word());
    return how < 128 ? usual : static_cast<T>(usual + static_cast<T>(static_cast<int8_t>(Byte())));
  }

  // The rest of the bytes as the text of caps.
  std::string CheckCaps() {
    const FormatModel& other = kFormatModels[Byte() % std::size(kFormatModels)];
    const std::string text(reinterpret_cast<const char*>(data_), size_);
    const GstPtr<GstCaps> caps(gst_caps_from_string(text.c_str()));
    if (!caps || gst_caps_is_any(caps.get())) return "";
    GstVideoInfo info;
    if (gst_caps_is_fixed(caps.get()) && gst_video_info_from_caps(&info, caps.get())) {
      DescribeVideo(info);
      const Result<FrameGeometry> geometry = GeometryOf(info);
      if (!geometry.ok() && geometry.status().message().empty()) return "a refusal says why";
      const FormatModel* model = FindFormatModel(GST_VIDEO_INFO_NAME(&info));
      if (model) {
        const int width = GST_VIDEO_INFO_WIDTH(&info), height = GST_VIDEO_INFO_HEIGHT(&info);
        const bool fits = std::min(width, height) >= 8 && std::max(width, height) <= kMaxDimension;
        if (geometry.ok() != fits) return "every format of the pads is scored from 8x8 up";
        if (fits && (geometry->width() != width || geometry->height() != height ||
                     geometry->chroma() != model->chroma || geometry->depth() != model->depth)) {
          return "a geometry is that of the caps";
        }
      }
    }
    const GstPtr<GstCaps> restricted(RestrictToLayoutsOf(caps.get(), gst_video_format_from_string(other.name)));
    if (!gst_caps_is_subset(restricted.get(), caps.get())) return "restricted caps are part of the caps";
    for (guint i = 0; i < gst_caps_get_size(restricted.get()); ++i) {
      const GValue* names = gst_structure_get_value(gst_caps_get_structure(restricted.get(), i), "format");
      const guint count = GST_VALUE_HOLDS_LIST(names) ? gst_value_list_get_size(names) : 1;
      for (guint n = 0; n < count; ++n) {
        const GValue* name = GST_VALUE_HOLDS_LIST(names) ? gst_value_list_get_value(names, n) : names;
        const FormatModel* kept = FindFormatModel(g_value_get_string(name));
        if (kept && (kept->chroma != other.chroma || kept->depth != other.depth)) {
          return "restricted caps hold layouts of the same samples";
        }
      }
    }
    return "";
  }

  // A buffer in pieces, each in memory of its very size, so that a sanitizer sees what is read beyond it.
  GstPtr<GstBuffer> MakeBuffer(const std::vector<uint8_t>& bytes, int pieces) {
    GstPtr<GstBuffer> buffer(gst_buffer_new());
    size_t at = 0;
    for (int i = 0; i < pieces; ++i) {
      const size_t left = bytes.size() - at;
      const size_t length = i + 1 == pieces ? left : left * (Byte() % 100) / 100;
      auto* copy = static_cast<uint8_t*>(g_malloc(length + 1 - (length > 0)));
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), length, copy);
      gst_buffer_append_memory(buffer.get(),
                               gst_memory_new_wrapped(GST_MEMORY_FLAG_READONLY, copy, length, 0, length, copy, g_free));
      at += length;
    }
    return buffer;
  }

  std::string CheckBuffer() {
    const FormatModel& model = kFormatModels[Byte() % std::size(kFormatModels)];
    const int width = Byte() % 80 + 1, height = Byte() % 80 + 1;
    const uint8_t how = Byte();
    const bool with_meta = how & 1, with_crop = how & 2, odd_layout = how & 4, odd_size = how & 8, odd_meta = how & 16;
    const int pieces = 1 + (how >> 6);

    GstVideoInfo info;
    gst_video_info_set_format(&info, gst_video_format_from_string(model.name), width, height);
    const Result<FrameGeometry> geometry = GeometryOf(info);
    if (geometry.ok() != (std::min(width, height) >= 8)) return "every format of the pads is scored from 8x8 up";
    if (!geometry.ok()) return "";

    // What the buffer's metadata says, or the caps where it has none.
    GstVideoInfo layout = info;
    if (with_meta && with_crop) {
      gst_video_info_set_format(&layout, GST_VIDEO_INFO_FORMAT(&info), width + Byte() % 20, height + Byte() % 20);
    }
    if (with_meta && odd_layout) {
      for (guint p = 0; p < GST_VIDEO_INFO_N_PLANES(&layout); ++p) {
        layout.offset[p] = Near(layout.offset[p]);
        layout.stride[p] = Near(layout.stride[p]);
      }
    }
    size_t size = layout.size;
    if (odd_size) size = Near(size) % (layout.size + 4096);
    std::vector<uint8_t> bytes(size);
    uint32_t noise = 1;
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((noise = noise * 1664525 + 1013904223) >> 24);
    const GstPtr<GstBuffer> buffer = MakeBuffer(bytes, pieces);
    bool honest = !odd_size && !odd_layout && !odd_meta;
    if (with_meta) {
      const bool other_format = odd_meta && Byte() < 32;
      const char* format = other_format ? kFormatModels[Byte() % std::size(kFormatModels)].name : model.name;
      guint meta_width = static_cast<guint>(layout.width), meta_height = static_cast<guint>(layout.height);
      if (odd_meta) {
        meta_width = Near(meta_width);
        meta_height = Near(meta_height);
      }
      gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, gst_video_format_from_string(format),
                                     meta_width, meta_height, GST_VIDEO_INFO_N_PLANES(&layout), layout.offset,
                                     layout.stride);
    }
    guint x = 0, y = 0;
    if (with_crop) {
      GstVideoCropMeta* crop = gst_buffer_add_video_crop_meta(buffer.get());
      const guint spare_width = static_cast<guint>(layout.width - width);
      const guint spare_height = static_cast<guint>(layout.height - height);
      crop->x = x = odd_layout ? Near(spare_width) : Byte() % (spare_width + 1);
      crop->y = y = odd_layout ? Near(spare_height) : Byte() % (spare_height + 1);
      crop->width = odd_layout ? Near(static_cast<guint>(width)) : static_cast<guint>(width);
      crop->height = odd_layout ? Near(static_cast<guint>(height)) : static_cast<guint>(height);
    }

    const Result<MappedFrame> mapped = MappedFrame::Map(buffer.get(), info, *geometry, BufferAccess{});
    if (!mapped.ok()) {
      if (mapped.status().message().empty()) return "a refusal says why";
      return honest ? "a buffer that holds what it says is read" : "";
    }
    for (int p = 0; p < geometry->plane_count(); ++p) {
      const ComponentModel& component = model.components[p];
      const PlaneView& plane = mapped->view().planes[p];
      if (plane.width != geometry->plane_width(p) || plane.height != geometry->plane_height(p)) {
        return "a plane is as large as the geometry says";
      }
      const bool subsampled_x = p > 0 && model.chroma != Chroma::k444;
      const bool subsampled_y = p > 0 && model.chroma == Chroma::k420;
      const int64_t left = x >> subsampled_x, top = y >> subsampled_y;
      for (int row = 0; row < plane.height; ++row) {
        for (int column = 0; column < plane.width; ++column) {
          // Both may be anything, so the sum is made in the order in which it stays small.
          const __int128 at = static_cast<__int128>(layout.offset[component.plane]) +
                              static_cast<__int128>(top + row) * layout.stride[component.plane] +
                              (left + column) * component.step_bytes + component.first_byte;
          const int sample_bytes = geometry->bytes_per_sample();
          if (at < 0 || at + sample_bytes > static_cast<__int128>(size)) return "samples lie inside the buffer";
          const uint8_t* stored = bytes.data() + static_cast<size_t>(at);
          const int expected = sample_bytes == 1 ? *stored : (stored[0] | stored[1] << 8) >> model.shift;
          const ptrdiff_t index = static_cast<ptrdiff_t>(column) * plane.step;
          const int found = sample_bytes == 1 ? LoadSample<uint8_t>(plane.Row(row), index) >> plane.shift
                                              : LoadSample<uint16_t>(plane.Row(row), index) >> plane.shift;
          if (found != expected) return "a sample is read where the buffer holds it";
        }
      }
    }
    return "";
  }

  const uint8_t* data_;
  size_t size_;
};

// Empty, or the promise that this string of operations breaks. GStreamer has been initialised.
inline std::string CheckMappingOperations(const uint8_t* data, size_t size) {
  return MappingOperations(data, size).Check();
}

}  // namespace psnrhvs::testing
