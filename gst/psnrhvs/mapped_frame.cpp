// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/mapped_frame.h"

#include <algorithm>
#include <utility>

#include "gst/psnrhvs/gstptr.h"

namespace psnrhvs {
namespace {

// Chroma layout of a YUV or grey format whose components share one depth; nullopt for others.
std::optional<Chroma> ChromaOf(const GstVideoFormatInfo* format) {
  if (GST_VIDEO_FORMAT_INFO_IS_GRAY(format)) return Chroma::k400;
  if (!GST_VIDEO_FORMAT_INFO_IS_YUV(format) || GST_VIDEO_FORMAT_INFO_N_COMPONENTS(format) != 3) return std::nullopt;
  const guint w_sub = GST_VIDEO_FORMAT_INFO_W_SUB(format, GST_VIDEO_COMP_U);
  const guint h_sub = GST_VIDEO_FORMAT_INFO_H_SUB(format, GST_VIDEO_COMP_U);
  if (w_sub == 1 && h_sub == 1) return Chroma::k420;
  if (w_sub == 1 && h_sub == 0) return Chroma::k422;
  if (w_sub == 0 && h_sub == 0) return Chroma::k444;
  return std::nullopt;
}

// Whether two formats store the same samples, if in different places.
bool SameSamples(GstVideoFormat a, GstVideoFormat b) {
  const GstVideoFormatInfo* a_info = gst_video_format_get_info(a);
  const GstVideoFormatInfo* b_info = gst_video_format_get_info(b);
  const std::optional<Chroma> chroma = ChromaOf(a_info);
  return chroma && chroma == ChromaOf(b_info) &&
         GST_VIDEO_FORMAT_INFO_DEPTH(a_info, 0) == GST_VIDEO_FORMAT_INFO_DEPTH(b_info, 0);
}

// Keeps those strings of a format value (one or a list) that store the samples of `format`.
bool FilterFormats(const GValue* value, GstVideoFormat format, GValue* kept) {
  g_value_init(kept, GST_TYPE_LIST);
  const auto keep = [&](const GValue* name) {
    if (G_VALUE_HOLDS_STRING(name) && SameSamples(gst_video_format_from_string(g_value_get_string(name)), format)) {
      gst_value_list_append_value(kept, name);
    }
  };
  if (GST_VALUE_HOLDS_LIST(value)) {
    for (guint i = 0; i < gst_value_list_get_size(value); ++i) keep(gst_value_list_get_value(value, i));
  } else {
    keep(value);
  }
  return gst_value_list_get_size(kept) > 0;
}

}  // namespace

Result<FrameGeometry> GeometryOf(const GstVideoInfo& info) {
  const std::optional<Chroma> chroma = ChromaOf(info.finfo);
  if (!chroma) {
    return Status(StatusCode::kInvalidArgument, std::string(GST_VIDEO_INFO_NAME(&info)) + " cannot be scored");
  }
  return FrameGeometry::Create(GST_VIDEO_INFO_WIDTH(&info), GST_VIDEO_INFO_HEIGHT(&info), *chroma,
                               static_cast<int>(GST_VIDEO_INFO_COMP_DEPTH(&info, 0)));
}

GstCaps* RestrictToLayoutsOf(const GstCaps* caps, GstVideoFormat format) {
  GstCaps* restricted = gst_caps_new_empty();
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    const GstStructure* structure = gst_caps_get_structure(caps, i);
    const GValue* formats = gst_structure_get_value(structure, "format");
    GValue kept = G_VALUE_INIT;
    if (formats && FilterFormats(formats, format, &kept)) {
      GstStructure* copy = gst_structure_copy(structure);
      gst_structure_set_value(copy, "format", &kept);
      gst_caps_append_structure_full(restricted, copy, gst_caps_features_copy(gst_caps_get_features(caps, i)));
    }
    if (G_IS_VALUE(&kept)) g_value_unset(&kept);
  }
  return restricted;
}

std::string DescribeVideo(const GstVideoInfo& info) {
  return std::string(GST_VIDEO_INFO_NAME(&info)) + " " + std::to_string(GST_VIDEO_INFO_WIDTH(&info)) + "x" +
         std::to_string(GST_VIDEO_INFO_HEIGHT(&info));
}

namespace {

// Whether the part of the frame's picture that is shown can be of the caps' size.
bool HoldsCrop(const GstVideoFrame& frame, const GstVideoCropMeta& crop, const FrameGeometry& geometry) {
  const guint width = static_cast<guint>(geometry.width());
  const guint height = static_cast<guint>(geometry.height());
  return crop.width >= width && crop.height >= height &&
         crop.x <= static_cast<guint>(GST_VIDEO_FRAME_WIDTH(&frame)) - width &&
         crop.y <= static_cast<guint>(GST_VIDEO_FRAME_HEIGHT(&frame)) - height;
}

// Bytes from the beginning of a component's plane to its first sample that is shown.
ptrdiff_t FirstSample(const GstVideoFrame& frame, const GstVideoCropMeta* crop, int component, int bytes_per_sample) {
  const GstVideoFormatInfo* format = frame.info.finfo;
  // The offset of the second of two interleaved components is 1 in GStreamer 1.22's table also where
  // samples have two bytes, so it only tells which is the second.
  const ptrdiff_t second = GST_VIDEO_FORMAT_INFO_POFFSET(format, component) > 0 ? bytes_per_sample : 0;
  if (!crop) return second;
  const ptrdiff_t x = crop->x >> GST_VIDEO_FORMAT_INFO_W_SUB(format, component);
  const ptrdiff_t y = crop->y >> GST_VIDEO_FORMAT_INFO_H_SUB(format, component);
  return second + y * GST_VIDEO_FRAME_COMP_STRIDE(&frame, component) +
         x * GST_VIDEO_FRAME_COMP_PSTRIDE(&frame, component);
}

// Whether every sample that will be read lies inside the mapped memory, the first `first` bytes from the beginning of
// its plane: metadata may promise strides and offsets that its buffer does not have.
bool InsideMapping(const GstVideoFrame& frame, const PlaneView& plane, int component, ptrdiff_t first,
                   int bytes_per_sample) {
  const guint index = GST_VIDEO_FRAME_COMP_PLANE(&frame, component);
  const GstMapInfo& map = frame.meta ? frame.map[index] : frame.map[0];
  const ptrdiff_t row_bytes = (static_cast<ptrdiff_t>(plane.width - 1) * plane.step + 1) * bytes_per_sample;
  const ptrdiff_t last_row = (plane.height - 1) * plane.stride_bytes;
  const ptrdiff_t start = plane.data - map.data + first;
  const ptrdiff_t first_byte = start + std::min<ptrdiff_t>(0, last_row);
  const ptrdiff_t end = start + std::max<ptrdiff_t>(0, last_row) + row_bytes;
  return first_byte >= 0 && end <= static_cast<ptrdiff_t>(map.size);
}

}  // namespace

Result<MappedFrame> MappedFrame::Map(GstBuffer* buffer, const GstVideoInfo& info, const FrameGeometry& geometry,
                                     const BufferAccess& access) {
  const Status misfit(StatusCode::kInvalidArgument, "a buffer of " + std::to_string(gst_buffer_get_size(buffer)) +
                                                        " bytes cannot be read as " + DescribeVideo(info) +
                                                        ": upstream sends buffers that do not fit its caps");
  // GStreamer takes metadata of another picture for a programming error.
  const GstVideoMeta* meta = gst_buffer_get_video_meta(buffer);
  if (meta &&
      (meta->format != GST_VIDEO_INFO_FORMAT(&info) || meta->width < static_cast<guint>(GST_VIDEO_INFO_WIDTH(&info)) ||
       meta->height < static_cast<guint>(GST_VIDEO_INFO_HEIGHT(&info)))) {
    return misfit;
  }
  // The buffer stays referenced by its owner longer than the mapping lives.
  const auto flags = static_cast<GstMapFlags>(static_cast<int>(access.map_flags) | GST_VIDEO_FRAME_MAP_FLAG_NO_REF);
  const GstVideoCropMeta* crop = gst_buffer_get_video_crop_meta(buffer);
  std::optional<MappedFrame> mapped = Open(buffer, info, crop, geometry, flags);
  const gsize size = gst_buffer_get_size(buffer);
  if (!mapped && meta && gst_buffer_n_memory(buffer) > 1 &&
      std::all_of(meta->offset, meta->offset + meta->n_planes, [size](gsize offset) { return offset < size; })) {
    // A plane may lie across pieces of memory: then all of them are read as one.
    GstVideoInfo layout = info;
    layout.width = static_cast<gint>(meta->width);
    layout.height = static_cast<gint>(meta->height);
    layout.size = size;
    std::copy_n(meta->offset, GST_VIDEO_MAX_PLANES, layout.offset);
    std::copy_n(meta->stride, GST_VIDEO_MAX_PLANES, layout.stride);
    const GstPtr<GstBuffer> joined(gst_buffer_copy_region(buffer, GST_BUFFER_COPY_MEMORY, 0, size));
    mapped = Open(joined.get(), layout, crop, geometry, access.map_flags);
  }
  if (!mapped) return misfit;
  mapped->view_.memory = access.memory;
  return std::move(*mapped);
}

std::optional<MappedFrame> MappedFrame::Open(GstBuffer* buffer, const GstVideoInfo& info, const GstVideoCropMeta* crop,
                                             const FrameGeometry& geometry, GstMapFlags flags) {
  auto frame = std::make_unique<GstVideoFrame>();
  if (!gst_video_frame_map(frame.get(), const_cast<GstVideoInfo*>(&info), buffer, flags)) return std::nullopt;
  MappedFrame mapped(std::unique_ptr<GstVideoFrame, Unmap>(frame.release()), geometry);
  if (crop && !HoldsCrop(*mapped.frame_, *crop, geometry)) return std::nullopt;
  const int bytes_per_sample = geometry.bytes_per_sample();
  for (int p = 0; p < geometry.plane_count(); ++p) {
    PlaneView& plane = mapped.view_.planes[p];
    const ptrdiff_t first = FirstSample(*mapped.frame_, crop, p, bytes_per_sample);
    if (!InsideMapping(*mapped.frame_, plane, p, first, bytes_per_sample)) return std::nullopt;
    plane.data += first;
  }
  return mapped;
}

MappedFrame::MappedFrame(std::unique_ptr<GstVideoFrame, Unmap> frame, const FrameGeometry& geometry)
    : frame_(std::move(frame)) {
  for (int p = 0; p < geometry.plane_count(); ++p) {
    PlaneView& plane = view_.planes[p];
    plane.data = static_cast<const uint8_t*>(
        GST_VIDEO_FRAME_PLANE_DATA(frame_.get(), GST_VIDEO_FRAME_COMP_PLANE(frame_.get(), p)));
    plane.stride_bytes = GST_VIDEO_FRAME_COMP_STRIDE(frame_.get(), p);
    plane.width = geometry.plane_width(p);
    plane.height = geometry.plane_height(p);
    plane.step = GST_VIDEO_FRAME_COMP_PSTRIDE(frame_.get(), p) / geometry.bytes_per_sample();
    plane.shift = static_cast<int>(GST_VIDEO_FORMAT_INFO_SHIFT(frame_->info.finfo, p));
  }
}

}  // namespace psnrhvs
