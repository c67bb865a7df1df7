// What is read from mapped buffers, against the samples that GStreamer's own unpacking finds in them.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/mapped_frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "gst/psnrhvs/gstptr.h"
#include "tests/fuzz/mapping_ops.h"

namespace psnrhvs::testing {
namespace {

constexpr int kWidth = 34;
constexpr int kHeight = 22;

// Every format of the element's pads.
std::vector<GstVideoFormat> Formats() {
  gst_init(nullptr, nullptr);
  const GstPtr<GstCaps> caps(gst_caps_from_string(GST_VIDEO_CAPS_MAKE(PSNRHVS_FORMATS)));
  const GValue* names = gst_structure_get_value(gst_caps_get_structure(caps.get(), 0), "format");
  std::vector<GstVideoFormat> formats;
  for (guint i = 0; i < gst_value_list_get_size(names); ++i) {
    formats.push_back(gst_video_format_from_string(g_value_get_string(gst_value_list_get_value(names, i))));
  }
  return formats;
}

// A buffer of random bytes, with its rows and planes further apart than needed if `padded`.
GstPtr<GstBuffer> RandomBuffer(GstVideoInfo* info, bool padded) {
  if (padded) {
    for (guint p = 0; p < GST_VIDEO_INFO_N_PLANES(info); ++p) {
      info->stride[p] += 22;
      info->offset[p] = 6 + p * static_cast<gsize>(kHeight) * 200;
    }
    info->size = 6 + GST_VIDEO_INFO_N_PLANES(info) * static_cast<gsize>(kHeight) * 200;
  }
  std::vector<guint8> bytes(info->size);
  std::mt19937 random(GST_VIDEO_INFO_FORMAT(info));
  for (guint8& byte : bytes) byte = static_cast<guint8>(random());
  GstPtr<GstBuffer> buffer(gst_buffer_new_allocate(nullptr, bytes.size(), nullptr));
  gst_buffer_fill(buffer.get(), 0, bytes.data(), bytes.size());
  gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_INFO_FORMAT(info), kWidth, kHeight,
                                 GST_VIDEO_INFO_N_PLANES(info), info->offset, info->stride);
  return buffer;
}

// Luma, Cb and Cr at a luma position, as the format's unpack function sees them; chroma is repeated for every luma
// sample that it covers.
class Unpacked {
 public:
  Unpacked(GstVideoInfo* info, GstBuffer* buffer, int depth) : wide_(depth > 8), shift_(16 - depth) {
    GstVideoFrame frame;
    EXPECT_TRUE(gst_video_frame_map(&frame, info, buffer, GST_MAP_READ));
    const int bytes = wide_ ? 8 : 4;
    pixels_.resize(static_cast<size_t>(kWidth) * kHeight * bytes);
    for (int y = 0; y < kHeight; ++y) {
      info->finfo->unpack_func(info->finfo, GST_VIDEO_PACK_FLAG_TRUNCATE_RANGE,
                               pixels_.data() + static_cast<size_t>(y) * kWidth * bytes, frame.data, frame.info.stride,
                               0, y, kWidth);
    }
    gst_video_frame_unmap(&frame);
  }

  int Sample(int plane, int x, int y) const {
    const size_t at = (static_cast<size_t>(y) * kWidth + x) * 4 + 1 + plane;
    if (!wide_) return pixels_[at];
    uint16_t value;
    std::memcpy(&value, pixels_.data() + 2 * at, sizeof(value));
    return value >> shift_;
  }

 private:
  const bool wide_;
  const int shift_;
  std::vector<guint8> pixels_;
};

int ReadSample(const PlaneView& plane, int depth, int x, int y) {
  const int stored = depth > 8 ? LoadSample<uint16_t>(plane.Row(y), static_cast<ptrdiff_t>(x) * plane.step)
                               : LoadSample<uint8_t>(plane.Row(y), static_cast<ptrdiff_t>(x) * plane.step);
  return (stored >> plane.shift) & ((1 << depth) - 1);
}

class MappedFrames : public ::testing::TestWithParam<GstVideoFormat> {};

TEST_P(MappedFrames, HoldEverySampleThatGStreamerUnpacks) {
  for (bool padded : {false, true}) {
    SCOPED_TRACE(padded ? "padded" : "default layout");
    GstVideoInfo info;
    ASSERT_TRUE(gst_video_info_set_format(&info, GetParam(), kWidth, kHeight));
    const GstVideoInfo from_caps = info;
    const GstPtr<GstBuffer> buffer = RandomBuffer(&info, padded);
    const auto geometry = GeometryOf(from_caps);
    ASSERT_TRUE(geometry.ok());
    const auto mapped = MappedFrame::Map(buffer.get(), from_caps, *geometry, BufferAccess{});
    ASSERT_TRUE(mapped.ok()) << mapped.status().message();
    const Unpacked unpacked(&info, buffer.get(), geometry->depth());
    for (int p = 0; p < geometry->plane_count(); ++p) {
      const PlaneView& plane = mapped->view().planes[p];
      const int x_scale = kWidth / plane.width, y_scale = kHeight / plane.height;
      for (int y = 0; y < plane.height; ++y) {
        for (int x = 0; x < plane.width; ++x) {
          ASSERT_EQ(ReadSample(plane, geometry->depth(), x, y), unpacked.Sample(p, x * x_scale, y * y_scale))
              << "plane " << p << " at " << x << ", " << y;
        }
      }
    }
  }
}

// What the view of another buffer shows, sample by sample.
void ExpectSameSamples(const MappedFrame& mapped, const MappedFrame& whole, const FrameGeometry& geometry, int x_shift,
                       int y_shift, int whole_width, int whole_height) {
  for (int p = 0; p < geometry.plane_count(); ++p) {
    const PlaneView& plane = mapped.view().planes[p];
    const PlaneView& other = whole.view().planes[p];
    const int x_scale = whole_width / other.width, y_scale = whole_height / other.height;
    for (int y = 0; y < plane.height; ++y) {
      for (int x = 0; x < plane.width; ++x) {
        ASSERT_EQ(ReadSample(plane, geometry.depth(), x, y),
                  ReadSample(other, geometry.depth(), x + x_shift / x_scale, y + y_shift / y_scale))
            << "plane " << p << " at " << x << ", " << y;
      }
    }
  }
}

TEST_P(MappedFrames, OfACroppedBufferAreThePartThatIsShown) {
  constexpr int kX = 7, kY = 4, kShown = 8;
  GstVideoInfo info, from_caps;
  ASSERT_TRUE(gst_video_info_set_format(&info, GetParam(), kWidth, kHeight));
  const GstVideoInfo whole_caps = info;
  ASSERT_TRUE(gst_video_info_set_format(&from_caps, GetParam(), kShown, kShown));
  const GstPtr<GstBuffer> buffer = RandomBuffer(&info, true);
  const auto whole = MappedFrame::Map(buffer.get(), whole_caps, *GeometryOf(whole_caps), BufferAccess{});
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  GstVideoCropMeta* crop = gst_buffer_add_video_crop_meta(buffer.get());
  *crop = {crop->meta, kX, kY, kShown, kShown};
  const auto geometry = GeometryOf(from_caps);
  const auto mapped = MappedFrame::Map(buffer.get(), from_caps, *geometry, BufferAccess{});
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  ExpectSameSamples(*mapped, *whole, *geometry, kX, kY, kWidth, kHeight);
  // Parts that reach beyond the picture, or are smaller than the caps say.
  for (const auto& [x, y, size] : {std::tuple(kWidth - kShown + 1, 0, kShown),
                                   {0, kHeight - kShown + 1, kShown},
                                   {-1, 0, kShown},
                                   {0, 0, kShown - 1}}) {
    *crop = {crop->meta, static_cast<guint>(x), static_cast<guint>(y), static_cast<guint>(size), kShown};
    EXPECT_FALSE(MappedFrame::Map(buffer.get(), from_caps, *geometry, BufferAccess{}).ok()) << x << " " << y;
  }
}

TEST_P(MappedFrames, ReadPlanesThatLieAcrossPiecesOfMemory) {
  GstVideoInfo info;
  ASSERT_TRUE(gst_video_info_set_format(&info, GetParam(), kWidth, kHeight));
  const GstVideoInfo from_caps = info;
  const GstPtr<GstBuffer> buffer = RandomBuffer(&info, true);
  const GstPtr<GstBuffer> pieces(gst_buffer_copy(buffer.get()));  // with the metadata
  gst_buffer_remove_all_memory(pieces.get());
  const gsize size = gst_buffer_get_size(buffer.get()), piece = size / 5 + 1;
  for (gsize at = 0; at < size; at += piece) {
    const gsize length = std::min(piece, size - at);
    GstMemory* memory = gst_allocator_alloc(nullptr, length, nullptr);
    GstMapInfo map;
    ASSERT_TRUE(gst_memory_map(memory, &map, GST_MAP_WRITE));
    gst_buffer_extract(buffer.get(), at, map.data, length);
    gst_memory_unmap(memory, &map);
    gst_buffer_append_memory(pieces.get(), memory);
  }
  ASSERT_EQ(gst_buffer_n_memory(pieces.get()), 5u);
  const auto geometry = GeometryOf(from_caps);
  const auto whole = MappedFrame::Map(buffer.get(), from_caps, *geometry, BufferAccess{});
  const auto mapped = MappedFrame::Map(pieces.get(), from_caps, *geometry, BufferAccess{});
  ASSERT_TRUE(whole.ok() && mapped.ok());
  ExpectSameSamples(*mapped, *whole, *geometry, 0, 0, kWidth, kHeight);
}

INSTANTIATE_TEST_SUITE_P(Format, MappedFrames, ::testing::ValuesIn(Formats()),
                         [](const auto& info) { return std::string(gst_video_format_to_string(info.param)); });

TEST(MappedFrameGeometry, FormatsOfThePadsAreSixteenAndAllCanBeScored) {
  EXPECT_EQ(Formats().size(), 16u);
  for (GstVideoFormat format : Formats()) {
    GstVideoInfo info;
    gst_video_info_set_format(&info, format, kWidth, kHeight);
    EXPECT_TRUE(GeometryOf(info).ok()) << gst_video_format_to_string(format);
  }
}

TEST(MappedFrameOperations, KeepTheirPromisesWhateverComesIn) {
  gst_init(nullptr, nullptr);
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> bytes(random() % 200);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (!bytes.empty()) bytes[0] = 0;  // a buffer; random text is hardly ever caps
    ASSERT_EQ(CheckMappingOperations(bytes.data(), bytes.size()), "") << "case " << i;
  }
}

TEST(MappedFrameGeometry, IsThatOfAnyCaps) {
  gst_init(nullptr, nullptr);
  for (const FormatModel& model : kFormatModels) {
    for (const char* rest : {"", ",width=7,height=8", ",width=8,height=8", ",width=32768,height=9",
                             ",width=32769,height=9", ",width=[1,80],height=8", ",width=0,height=0", ",width=-64"}) {
      for (char other = 0; other < static_cast<char>(std::size(kFormatModels)); ++other) {
        const std::string text = std::string("\1") + other + "video/x-raw,format=" + model.name + rest;
        ASSERT_EQ(CheckMappingOperations(reinterpret_cast<const uint8_t*>(text.data()), text.size()), "") << text;
        const std::string list = std::string("\1") + other + "video/x-raw,format={RGB," + model.name + "}" + rest;
        ASSERT_EQ(CheckMappingOperations(reinterpret_cast<const uint8_t*>(list.data()), list.size()), "") << list;
      }
    }
  }
}

TEST(MappedFrameGeometry, OtherFormatsCannotBeScoredAndAreNamed) {
  for (GstVideoFormat format : {GST_VIDEO_FORMAT_RGB, GST_VIDEO_FORMAT_AYUV, GST_VIDEO_FORMAT_Y444_16LE,
                                GST_VIDEO_FORMAT_P016_LE, GST_VIDEO_FORMAT_GRAY16_LE, GST_VIDEO_FORMAT_Y41B}) {
    GstVideoInfo info;
    gst_video_info_set_format(&info, format, kWidth, kHeight);
    EXPECT_FALSE(GeometryOf(info).ok()) << gst_video_format_to_string(format);
  }
}

TEST(MappedFrameGeometry, RestrictionKeepsLayoutsOfTheSameSamples) {
  const GstPtr<GstCaps> all(gst_caps_from_string(GST_VIDEO_CAPS_MAKE(PSNRHVS_FORMATS)));
  const auto expect = [&](GstVideoFormat format, const char* expected) {
    const GstPtr<GstCaps> restricted(RestrictToLayoutsOf(all.get(), format));
    const GstPtr<GstCaps> wanted(gst_caps_from_string(expected));
    EXPECT_TRUE(gst_caps_is_equal(restricted.get(), wanted.get()))
        << GstPtr<gchar>(gst_caps_to_string(restricted.get())).get();
  };
  expect(GST_VIDEO_FORMAT_NV21, GST_VIDEO_CAPS_MAKE("{ I420, YV12, NV12, NV21 }"));
  expect(GST_VIDEO_FORMAT_P012_LE, GST_VIDEO_CAPS_MAKE("{ I420_12LE, P012_LE }"));
  expect(GST_VIDEO_FORMAT_GRAY8, GST_VIDEO_CAPS_MAKE("{ GRAY8 }"));
  expect(GST_VIDEO_FORMAT_RGB, "EMPTY");
}

}  // namespace
}  // namespace psnrhvs::testing
