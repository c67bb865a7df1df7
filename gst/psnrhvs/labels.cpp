// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/labels.h"

#include <gst/video/video.h>

#include <optional>

namespace psnrhvs {
namespace {

using Label = std::optional<std::string>;

Label StringField(const GstStructure* caps, const char* field) {
  const gchar* text = gst_structure_get_string(caps, field);
  return text ? Label(text) : std::nullopt;
}

Label PixelAspect(const GstStructure* caps) {
  int n, d;
  if (!gst_structure_get_fraction(caps, "pixel-aspect-ratio", &n, &d) || n <= 0) return std::nullopt;
  return std::to_string(n) + "/" + std::to_string(d);
}

// The short name of an enumeration's value, of which 0 means unknown.
Label EnumName(GType type, gint value) {
  if (value == 0) return std::nullopt;
  GEnumClass* names = G_ENUM_CLASS(g_type_class_ref(type));
  const GEnumValue* entry = g_enum_get_value(names, value);
  const std::string name = entry ? entry->value_nick : std::to_string(value);
  g_type_class_unref(names);
  return name;
}

}  // namespace

std::vector<LabelDifference> DifferingLabels(const GstCaps* reference, const GstCaps* distorted) {
  const GstStructure* ref = gst_caps_get_structure(reference, 0);
  const GstStructure* dist = gst_caps_get_structure(distorted, 0);
  std::vector<LabelDifference> differences;
  const auto compare = [&](const char* label, const Label& a, const Label& b) {
    if (a && b && *a != *b) differences.push_back({label, *a, *b});
  };

  // Caps without the field get defaults from GStreamer, which nobody stated: look at the field itself.
  GstVideoColorimetry a, b;
  const Label ref_colorimetry = StringField(ref, "colorimetry"), dist_colorimetry = StringField(dist, "colorimetry");
  if (ref_colorimetry && dist_colorimetry && gst_video_colorimetry_from_string(&a, ref_colorimetry->c_str()) &&
      gst_video_colorimetry_from_string(&b, dist_colorimetry->c_str())) {
    compare("colour range", EnumName(GST_TYPE_VIDEO_COLOR_RANGE, a.range),
            EnumName(GST_TYPE_VIDEO_COLOR_RANGE, b.range));
    compare("colour matrix", EnumName(GST_TYPE_VIDEO_COLOR_MATRIX, a.matrix),
            EnumName(GST_TYPE_VIDEO_COLOR_MATRIX, b.matrix));
    compare("transfer function", EnumName(GST_TYPE_VIDEO_TRANSFER_FUNCTION, a.transfer),
            EnumName(GST_TYPE_VIDEO_TRANSFER_FUNCTION, b.transfer));
    compare("colour primaries", EnumName(GST_TYPE_VIDEO_COLOR_PRIMARIES, a.primaries),
            EnumName(GST_TYPE_VIDEO_COLOR_PRIMARIES, b.primaries));
  }
  compare("chroma site", StringField(ref, "chroma-site"), StringField(dist, "chroma-site"));
  compare("interlace mode", StringField(ref, "interlace-mode"), StringField(dist, "interlace-mode"));
  compare("pixel aspect ratio", PixelAspect(ref), PixelAspect(dist));
  return differences;
}

}  // namespace psnrhvs
