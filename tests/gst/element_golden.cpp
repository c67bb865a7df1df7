// The stored goldens and the natural clips through whole pipelines: libvmaf's doubles in messages, metadata and files.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <json-glib/json-glib.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/gst/element_checks.h"

namespace psnrhvs::testing {
namespace {

std::string shared_directory;
std::vector<std::vector<Golden>> stored_cases;             // each with all its frames
std::map<std::string, std::vector<Golden>> clips_by_name;  // likewise

// A source of headerless frames, rows packed, as a launch description.
std::string RawSource(const std::string& path, const Golden& golden) {
  const Picture picture = MakePicture(golden.width, golden.height, golden.chroma, golden.depth);
  std::string format = golden.chroma == Chroma::k420 ? "i420" : golden.chroma == Chroma::k422 ? "i422" : "y444";
  if (golden.depth > 8) {
    format += "-" + std::to_string(golden.depth) + "le";
  } else if (golden.chroma == Chroma::k422) {
    format = "y42b";
  }
  std::string strides, offsets;
  size_t offset = 0;
  for (int p = 0; p < kMaxPlanes; ++p) {
    strides += (p ? "," : "") + std::to_string(picture.StoredWidth(p) * picture.BytesPerSample());
    offsets += (p ? "," : "") + std::to_string(offset);
    offset += picture.planes[p].size();
  }
  return "filesrc location=" + path + " ! rawvideoparse format=" + format + " width=" + std::to_string(golden.width) +
         " height=" + std::to_string(golden.height) + " framerate=25/1 frame-size=" + std::to_string(offset) +
         " plane-strides=\"<" + strides + ">\" plane-offsets=\"<" + offsets + ">\"";
}

std::string Y4mSource(const std::string& path) { return "filesrc location=" + path + " ! y4mdec"; }

// The scores of a frame in a JSON results file.
FrameScore ScoreFromJson(JsonObject* metrics) {
  static const char* const kKeys[] = {"psnr_hvs_y", "psnr_hvs_cb", "psnr_hvs_cr", "psnr_hvs"};
  FrameScore score;
  score.scored_planes = json_object_has_member(metrics, "psnr_hvs") ? 3 : 1;
  fail_unless_equals_int(static_cast<int>(json_object_get_size(metrics)), score.scored_planes == 3 ? 4 : 1);
  for (ScoreKind kind : kAllScoreKinds) {
    if (!score.has(kind)) continue;
    const char* key = kKeys[static_cast<int>(kind)];
    fail_unless(json_object_has_member(metrics, key), "no %s", key);
    const double value =
        json_object_get_null_member(metrics, key) ? HUGE_VAL : json_object_get_double_member(metrics, key);
    if (kind == ScoreKind::kCombined) {
      score.combined_score_db = value;
    } else {
      score.plane_score_db[static_cast<int>(kind)] = value;
    }
  }
  return score;
}

void CheckJson(const std::string& path, const std::vector<Golden>& frames) {
  const std::string text = ReadFile(path);
  fail_unless(text.find("nan") == std::string::npos && text.find("inf.") == std::string::npos, "%s", text.c_str());
  JsonParser* parser = json_parser_new_immutable();
  GError* error = nullptr;
  fail_unless(json_parser_load_from_data(parser, text.data(), static_cast<gssize>(text.size()), &error), "%s: %s",
              error ? error->message : "", text.c_str());
  JsonObject* root = json_node_get_object(json_parser_get_root(parser));
  JsonArray* array = json_object_get_array_member(root, "frames");
  fail_unless_equals_int(static_cast<int>(json_array_get_length(array)), static_cast<int>(frames.size()));
  for (size_t i = 0; i < frames.size(); ++i) {
    JsonObject* frame = json_array_get_object_element(array, static_cast<guint>(i));
    fail_unless(json_object_get_int_member(frame, "frameNum") == static_cast<gint64>(i));
    fail_unless(json_object_get_int_member(frame, "timestamp") == static_cast<gint64>(i * 40 * GST_MSECOND));
    CheckScore(ScoreFromJson(json_object_get_object_member(frame, "metrics")), frames[i], "json");
  }
  JsonObject* counts = json_object_get_object_member(root, "psnrhvs");
  fail_unless(json_object_get_int_member(counts, "frames") == static_cast<gint64>(frames.size()));
  g_object_unref(parser);
}

void CheckCsv(const std::string& path, const std::vector<Golden>& frames) {
  std::istringstream text(ReadFile(path));
  std::string line;
  std::getline(text, line);
  CheckText(line,
            "Frame,psnr_hvs_y,psnr_hvs_cb,psnr_hvs_cr,psnr_hvs,timestamp,stream_time,running_time,"
            "duration,dist_running_time");
  for (const Golden& golden : frames) {
    fail_unless(static_cast<bool>(std::getline(text, line)), "a line is missing");
    std::istringstream cells(line);
    std::string cell;
    std::getline(cells, cell, ',');
    CheckText(cell, std::to_string(golden.frame));
    for (ScoreKind kind : kAllScoreKinds) {
      std::getline(cells, cell, ',');
      const uint64_t bits = golden.score_bits[static_cast<int>(kind)];
      if (std::isnan(Double(bits))) {
        CheckText(cell, "");
      } else {
        fail_unless(Bits(std::strtod(cell.c_str(), nullptr)) == bits, "%s: %s", golden.name.c_str(), line.c_str());
      }
    }
    std::getline(cells, cell);
    const std::string time = std::to_string(golden.frame * 40 * GST_MSECOND);
    CheckText(cell, time + "," + time + "," + time + ",40000000," + time);
  }
  fail_if(static_cast<bool>(std::getline(text, line)), "a line too many: %s", line.c_str());
}

// Runs the pair twice, once for each kind of file, and checks all channels.
// `label_warnings`: labels in which the inputs differ.
void CheckPair(const std::string& reference, const std::string& distorted, const std::vector<Golden>& frames,
               int label_warnings = 0) {
  const TemporaryDirectory directory;
  for (const char* format : {"json", "csv"}) {
    const std::string results = directory / (std::string("out.") + format);
    const Reports reports = RunPipeline(reference + " ! m.ref_sink " + distorted +
                                        " ! m.dist_sink psnrhvs name=m results-filename=" + results + " ! fakesink");
    const std::string& name = frames[0].name;
    CheckCounts(reports, frames.size(), 0, 0, name);
    fail_unless_equals_int(static_cast<int>(reports.outputs.size()), static_cast<int>(frames.size()));
    for (size_t i = 0; i < frames.size(); ++i) {
      fail_unless(reports.frames[i].reference.index == i && frames[i].frame == static_cast<int>(i));
      CheckScore(reports.frames[i].score, frames[i], "message");
      fail_unless(reports.outputs[i].meta.has_value(), "%s: no metadata", name.c_str());
      fail_unless(reports.outputs[i].meta->reference.index == i);
      CheckScore(reports.outputs[i].meta->score, frames[i], "metadata");
    }
    const bool luma_only = std::isnan(Double(frames[0].score_bits[1]));
    fail_unless_equals_int(static_cast<int>(reports.warnings.size()), label_warnings + (luma_only ? 1 : 0));
    if (std::string(format) == "json") {
      CheckJson(results, frames);
    } else {
      CheckCsv(results, frames);
    }
  }
}

START_TEST(stored_golden_scores_exactly_in_message_metadata_json_and_csv) {
  const std::vector<Golden>& frames = stored_cases[_i];
  const std::string folder = shared_directory + "/golden/";
  CheckPair(RawSource(folder + frames[0].ref, frames[0]), RawSource(folder + frames[0].dis, frames[0]), frames);
}
END_TEST

void CheckClip(const char* name, const std::string& reference, const std::string& distorted, int label_warnings = 0) {
  const std::vector<Golden>& frames = clips_by_name[name];
  fail_if(frames.empty(), "no values for %s", name);
  CheckPair(reference, distorted, frames, label_warnings);
}

// A clip's geometry, for sources that have to be told.
Golden Kind(int width, int height, Chroma chroma, int depth) {
  Golden kind;
  kind.width = width;
  kind.height = height;
  kind.chroma = chroma;
  kind.depth = depth;
  return kind;
}

START_TEST(y4m_clip_of_8_bits_scores_exactly) {
  static const char* const kSubsamplings[] = {"420", "422", "444"};
  const std::string stem = shared_directory + "/clips/av-metrics/yuv" + kSubsamplings[_i] + "p8_";
  CheckClip((std::string("av-metrics_yuv") + kSubsamplings[_i] + "p8").c_str(), Y4mSource(stem + "input.y4m"),
            Y4mSource(stem + "output.y4m"));
}
END_TEST

START_TEST(clip_with_another_pixel_aspect_scores_the_same) {
  const std::string stem = shared_directory + "/clips/av-metrics/yuv420p8_";
  CheckClip("av-metrics_yuv420p8", Y4mSource(stem + "input.y4m"),
            Y4mSource(stem + "output.y4m") + " ! capssetter caps=video/x-raw,pixel-aspect-ratio=64/45", 1);
}
END_TEST

START_TEST(y4m_clip_of_10_bits_scores_exactly_once_its_headers_are_removed) {
  const TemporaryDirectory directory;
  const Golden kind = Kind(640, 360, Chroma::k420, 10);
  for (const char* side : {"input", "output"}) {
    const std::string path = shared_directory + "/clips/av-metrics/yuv420p10_" + side + ".y4m";
    std::ifstream header(path, std::ios::binary);
    std::string line;
    std::getline(header, line);
    std::ofstream raw(directory / side, std::ios::binary);
    for (int n = 0; n < 3; ++n) {
      const Picture picture = ReadPicture(path, kind.width, kind.height, kind.chroma, kind.depth, n, line.size() + 1,
                                          std::strlen("FRAME\n"));
      for (const auto& plane : picture.planes) {
        raw.write(reinterpret_cast<const char*>(plane.data()), static_cast<std::streamsize>(plane.size()));
      }
    }
  }
  CheckClip("av-metrics_yuv420p10", RawSource(directory / "input", kind), RawSource(directory / "output", kind));
}
END_TEST

START_TEST(headerless_clip_scores_exactly) {
  struct Clip {
    const char* name;
    const char* reference;
    const char* distorted;
    Golden kind;
  };
  const Clip clips[] = {
      {"src01_160x90_8bit", "src01_ref_160x90.yuv420p.yuv", "src01_dis_160x90.yuv420p.yuv",
       Kind(160, 90, Chroma::k420, 8)},
      {"src01_576x324_10bit", "src01_hrc00_576x324.yuv420p10le.yuv", "src01_hrc01_576x324.yuv420p10le.yuv",
       Kind(576, 324, Chroma::k420, 10)},
      {"src01_576x324_12bit", "src01_hrc00_576x324.yuv420p12le.yuv", "src01_hrc01_576x324.yuv420p12le.yuv",
       Kind(576, 324, Chroma::k420, 12)},
  };
  const Clip& clip = clips[_i];
  const std::string folder = shared_directory + "/clips/vmaf_resource/";
  CheckClip(clip.name, RawSource(folder + clip.reference, clip.kind), RawSource(folder + clip.distorted, clip.kind));
}
END_TEST

START_TEST(swapped_inputs_score_the_same_and_both_means_are_told) {
  const std::string stem = shared_directory + "/clips/av-metrics/yuv420p8_";
  CheckClip("av-metrics_yuv420p8", Y4mSource(stem + "output.y4m"), Y4mSource(stem + "input.y4m"));
  const Reports reports = RunPipeline(Y4mSource(stem + "input.y4m") + " ! m.ref_sink " +
                                      Y4mSource(stem + "output.y4m") + " ! m.dist_sink psnrhvs name=m ! fakesink");
  CheckCounts(reports, 3, 0, 0);
  const auto pooled = [&](ScoreKind kind) { return *reports.pooled[0].pooled[static_cast<int>(kind)]; };
  const auto rounded = [](double value) { return std::round(value * 1e4) / 1e4; };
  fail_unless(rounded(pooled(ScoreKind::kY).mean) == 34.3926);
  fail_unless(rounded(pooled(ScoreKind::kY).from_mean_error) == 34.3227);
  fail_unless(rounded(pooled(ScoreKind::kCb).from_mean_error) == 37.7400);
  fail_unless(rounded(pooled(ScoreKind::kCr).from_mean_error) == 40.5570);
  for (ScoreKind kind : kAllScoreKinds) fail_unless(pooled(kind).min_index == 2u);
  fail_unless(pooled(ScoreKind::kCombined).mean == 34.991744114218932);
  fail_unless(pooled(ScoreKind::kCombined).harmonic_mean == 34.976878069092884);
  fail_unless(pooled(ScoreKind::kCombined).from_mean_error == 34.93084846376015);
  fail_unless(pooled(ScoreKind::kCombined).infinite == 0);
}
END_TEST

// Groups the rows of the golden tables that GStreamer has a format for.
void ReadTables(const std::string& shared) {
  shared_directory = shared;
  for (const Golden& golden : ReadGoldens(shared_directory + "/golden/golden.csv")) {
    if (golden.depth % 2 != 0 || std::isnan(Double(golden.score_bits[0]))) continue;
    if (stored_cases.empty() || stored_cases.back()[0].name != golden.name) stored_cases.emplace_back();
    stored_cases.back().push_back(golden);
  }
  std::ifstream values(shared_directory + "/clips/values.csv");
  std::string line;
  std::getline(values, line);
  while (std::getline(values, line)) {
    char name[64];
    Golden golden;
    double score[kScoreKinds];
    if (std::sscanf(line.c_str(), "%63[^,],%d,%lf,%lf,%lf,%lf", name, &golden.frame, &score[0], &score[1], &score[2],
                    &score[3]) != 6) {
      g_error("values.csv: %s", line.c_str());
    }
    golden.name = name;
    for (int k = 0; k < kScoreKinds; ++k) golden.score_bits[k] = Bits(score[k]);
    clips_by_name[name].push_back(golden);
  }
}

Suite* GoldenSuite() {
  Suite* suite = suite_create("psnrhvs: goldens in pipelines");
  TCase* tests = tcase_create("general");
  tcase_set_timeout(tests, 180);
  suite_add_tcase(suite, tests);
  tcase_add_loop_test(tests, stored_golden_scores_exactly_in_message_metadata_json_and_csv, 0,
                      static_cast<int>(stored_cases.size()));
  tcase_add_loop_test(tests, y4m_clip_of_8_bits_scores_exactly, 0, 3);
  tcase_add_test(tests, clip_with_another_pixel_aspect_scores_the_same);
  tcase_add_test(tests, y4m_clip_of_10_bits_scores_exactly_once_its_headers_are_removed);
  tcase_add_loop_test(tests, headerless_clip_scores_exactly, 0, 3);
  tcase_add_test(tests, swapped_inputs_score_the_same_and_both_means_are_told);
  return suite;
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) {
  const auto shared = psnrhvs::testing::SharedDirectory();
  if (!shared) {
    std::printf("skipped: PSNRHVS_SHARED has no golden set\n");
    return 77;
  }
  psnrhvs::testing::ReadTables(*shared);
  psnrhvs::testing::InitChecks(&argc, &argv);
  return gst_check_run_suite(psnrhvs::testing::GoldenSuite(), "element_golden", __FILE__);
}
