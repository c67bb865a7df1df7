// Results files: the documented text byte for byte, every number back, and what failures leave.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gst/psnrhvs/results.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <json-glib/json-glib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#include "tests/gst/example_reports.h"
#include "tests/support/frames.h"

namespace psnrhvs::testing {
namespace {

// clang-format off
constexpr char kDocumentedJson[] = R"({
  "version": "0.1.0",
  "fps": 16.92,
  "frames": [
    {"frameNum": 0, "timestamp": 0, "stream_time": 0, "running_time": 0, "duration": 40000000, "dist_running_time": 0,
     "metrics": {"psnr_hvs_y": 35.414155608095378, "psnr_hvs_cb": 37.867876514737993, "psnr_hvs_cr": 40.72205776103209, "psnr_hvs": 35.938372522251207}},
    {"frameNum": 1, "timestamp": 40000000, "stream_time": 40000000, "running_time": 40000000, "duration": 40000000, "dist_running_time": 40000000,
     "metrics": {"psnr_hvs_y": 34.263141131575338, "psnr_hvs_cb": 37.856442537237967, "psnr_hvs_cr": 40.645314388844866, "psnr_hvs": 34.884343588368814}},
    {"frameNum": 2, "timestamp": 80000000, "stream_time": 80000000, "running_time": 80000000, "duration": 40000000, "dist_running_time": 80000000,
     "metrics": {"psnr_hvs_y": 33.500481170834597, "psnr_hvs_cb": 37.505539807275959, "psnr_hvs_cr": 40.314418206455287, "psnr_hvs": 34.152516232036774}}
  ],
  "pooled_metrics": {
    "psnr_hvs_y": {"min": 33.500481170834597, "max": 35.414155608095378, "mean": 34.392592636835104, "harmonic_mean": 34.37520041433806, "from_mean_error": 34.322677855534934, "infinite": 0, "min_frame": 2},
    "psnr_hvs_cb": {"min": 37.505539807275959, "max": 37.867876514737993, "mean": 37.743286286417309, "harmonic_mean": 37.74255402371471, "from_mean_error": 37.740001038884344, "infinite": 0, "min_frame": 2},
    "psnr_hvs_cr": {"min": 40.314418206455287, "max": 40.72205776103209, "mean": 40.560596785444083, "harmonic_mean": 40.559842108010244, "from_mean_error": 40.55696614436161, "infinite": 0, "min_frame": 2},
    "psnr_hvs": {"min": 34.152516232036774, "max": 35.938372522251207, "mean": 34.991744114218932, "harmonic_mean": 34.976878069092884, "from_mean_error": 34.93084846376015, "infinite": 0, "min_frame": 2}
  },
  "aggregate_metrics": {},
  "psnrhvs": {"frames": 3, "unpaired_ref": 0, "unpaired_dist": 0, "backend": "cpu"}
}
)";

constexpr char kDocumentedCsv[] = R"(Frame,psnr_hvs_y,psnr_hvs_cb,psnr_hvs_cr,psnr_hvs,timestamp,stream_time,running_time,duration,dist_running_time
0,35.414155608095378,37.867876514737993,40.72205776103209,35.938372522251207,0,0,0,40000000,0
1,34.263141131575338,37.856442537237967,40.645314388844866,34.884343588368814,40000000,40000000,40000000,40000000,40000000
2,33.500481170834597,37.505539807275959,40.314418206455287,34.152516232036774,80000000,80000000,80000000,40000000,80000000
)";

constexpr char kDocumentedJsonl[] = R"({"type":"frame","frameNum":0,"timestamp":0,"stream_time":0,"running_time":0,"duration":40000000,"dist_running_time":0,"metrics":{"psnr_hvs_y":35.414155608095378,"psnr_hvs_cb":37.867876514737993,"psnr_hvs_cr":40.72205776103209,"psnr_hvs":35.938372522251207}}
{"type":"frame","frameNum":1,"timestamp":40000000,"stream_time":40000000,"running_time":40000000,"duration":40000000,"dist_running_time":40000000,"metrics":{"psnr_hvs_y":34.263141131575338,"psnr_hvs_cb":37.856442537237967,"psnr_hvs_cr":40.645314388844866,"psnr_hvs":34.884343588368814}}
{"type":"frame","frameNum":2,"timestamp":80000000,"stream_time":80000000,"running_time":80000000,"duration":40000000,"dist_running_time":80000000,"metrics":{"psnr_hvs_y":33.500481170834597,"psnr_hvs_cb":37.505539807275959,"psnr_hvs_cr":40.314418206455287,"psnr_hvs":34.152516232036774}}
{"type":"pooled","version":"0.1.0","frames":3,"unpaired_ref":0,"unpaired_dist":0,"backend":"cpu","pooled_metrics":{"psnr_hvs_y":{"min":33.500481170834597,"max":35.414155608095378,"mean":34.392592636835104,"harmonic_mean":34.37520041433806,"from_mean_error":34.322677855534934,"infinite":0,"min_frame":2},"psnr_hvs_cb":{"min":37.505539807275959,"max":37.867876514737993,"mean":37.743286286417309,"harmonic_mean":37.74255402371471,"from_mean_error":37.740001038884344,"infinite":0,"min_frame":2},"psnr_hvs_cr":{"min":40.314418206455287,"max":40.72205776103209,"mean":40.560596785444083,"harmonic_mean":40.559842108010244,"from_mean_error":40.55696614436161,"infinite":0,"min_frame":2},"psnr_hvs":{"min":34.152516232036774,"max":35.938372522251207,"mean":34.991744114218932,"harmonic_mean":34.976878069092884,"from_mean_error":34.93084846376015,"infinite":0,"min_frame":2}}}
)";

// clang-format on

struct JsonRelease {
  void operator()(JsonNode* node) const { json_node_unref(node); }
};
using JsonPtr = std::unique_ptr<JsonNode, JsonRelease>;

JsonPtr Parse(const std::string& text) {
  GError* error = nullptr;
  JsonPtr root(json_from_string(text.c_str(), &error));
  EXPECT_EQ(error, nullptr) << error->message << " in:\n" << text;
  return root;
}

// `path` names members and elements, such as "frames/0/metrics/psnr_hvs".
JsonNode* At(const JsonPtr& root, const std::string& path) {
  JsonNode* node = root.get();
  std::istringstream parts(path);
  for (std::string part; node && std::getline(parts, part, '/');) {
    if (JSON_NODE_HOLDS_ARRAY(node)) {
      node = json_array_get_element(json_node_get_array(node), static_cast<guint>(std::stoul(part)));
    } else {
      node = json_object_get_member(json_node_get_object(node), part.c_str());
    }
  }
  return node;
}

bool IsNull(const JsonPtr& root, const std::string& path) {
  JsonNode* node = At(root, path);
  return node && JSON_NODE_HOLDS_NULL(node);
}

double DoubleAt(const JsonPtr& root, const std::string& path) {
  JsonNode* node = At(root, path);
  EXPECT_TRUE(node && json_node_get_value_type(node) == G_TYPE_DOUBLE) << path;
  return node ? json_node_get_double(node) : 0;
}

gint64 IntAt(const JsonPtr& root, const std::string& path) {
  JsonNode* node = At(root, path);
  EXPECT_TRUE(node && json_node_get_value_type(node) == G_TYPE_INT64) << path;
  return node ? json_node_get_int(node) : 0;
}

std::vector<std::string> Keys(JsonNode* node) {
  std::vector<std::string> keys;
  GList* members = json_object_get_members(json_node_get_object(node));
  for (GList* member = members; member; member = member->next) keys.push_back(static_cast<char*>(member->data));
  g_list_free(members);
  return keys;
}

// Same keys in the same order, same types, same values to the bit; but the value of `fps`.
void ExpectSameJson(JsonNode* actual, JsonNode* expected, const std::string& path) {
  SCOPED_TRACE(path);
  ASSERT_EQ(json_node_get_node_type(actual), json_node_get_node_type(expected));
  if (JSON_NODE_HOLDS_OBJECT(expected)) {
    const std::vector<std::string> keys = Keys(expected);
    ASSERT_EQ(Keys(actual), keys);
    for (const std::string& key : keys) {
      if (key == "fps") continue;
      ExpectSameJson(json_object_get_member(json_node_get_object(actual), key.c_str()),
                     json_object_get_member(json_node_get_object(expected), key.c_str()), path + "/" + key);
    }
  } else if (JSON_NODE_HOLDS_ARRAY(expected)) {
    JsonArray* a = json_node_get_array(actual);
    JsonArray* b = json_node_get_array(expected);
    ASSERT_EQ(json_array_get_length(a), json_array_get_length(b));
    for (guint i = 0; i < json_array_get_length(b); ++i) {
      ExpectSameJson(json_array_get_element(a, i), json_array_get_element(b, i), path + "/" + std::to_string(i));
    }
  } else if (JSON_NODE_HOLDS_VALUE(expected)) {
    ASSERT_EQ(json_node_get_value_type(actual), json_node_get_value_type(expected));
    if (json_node_get_value_type(expected) == G_TYPE_DOUBLE) {
      EXPECT_EQ(Bits(json_node_get_double(actual)), Bits(json_node_get_double(expected)));
    } else {
      EXPECT_TRUE(json_node_equal(actual, expected));
    }
  }
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

class Results : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/psnrhvs-results-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    directory_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  std::unique_ptr<ResultsWriter> Open(const std::string& path, ResultsFormat format = ResultsFormat::kAuto) {
    Result<std::unique_ptr<ResultsWriter>> writer = ResultsWriter::Open(path, format);
    EXPECT_TRUE(writer.ok()) << writer.status().message();
    return writer.ok() ? std::move(*writer) : nullptr;
  }

  // The text of a file of `reports` and their summary.
  std::string Written(const std::string& name, const std::vector<FrameReport>& reports) {
    const std::unique_ptr<ResultsWriter> writer = Open(Path(name));
    writer->NotePair();
    g_usleep(100);  // time for fps to measure
    for (const FrameReport& report : reports) EXPECT_TRUE(writer->AddFrame(report).ok());
    EXPECT_TRUE(writer->Complete(SummaryOf(reports)).ok());
    return ReadAll(Path(name));
  }

  std::string directory_;
};

// The text with the version that it was written by.
std::string WithVersion(std::string documented) {
  const std::string version = "0.1.0";
  const size_t at = documented.find(version);
  return at == std::string::npos ? documented : documented.replace(at, version.size(), kVersion);
}

TEST_F(Results, CsvIsAsDocumentedByteForByte) { EXPECT_EQ(Written("out.csv", ExampleReports()), kDocumentedCsv); }

TEST_F(Results, JsonlIsAsDocumentedByteForByte) {
  EXPECT_EQ(Written("out.jsonl", ExampleReports()), WithVersion(kDocumentedJsonl));
}

TEST_F(Results, JsonHasTheDocumentedKeysInOrderAndEveryValue) {
  const JsonPtr actual = Parse(Written("out.json", ExampleReports()));
  ExpectSameJson(actual.get(), Parse(WithVersion(kDocumentedJson)).get(), "");
}

TEST_F(Results, FpsIsFramesOverSecondsFromTheFirstPairToTheLastResult) {
  const std::unique_ptr<ResultsWriter> writer = Open(Path("out.json"));
  const gint64 before_us = g_get_monotonic_time();
  writer->NotePair();
  g_usleep(50000);
  writer->NotePair();
  for (const FrameReport& report : ExampleReports()) EXPECT_TRUE(writer->AddFrame(report).ok());
  const double longest_s = static_cast<double>(g_get_monotonic_time() - before_us) / 1e6;
  g_usleep(50000);
  ASSERT_TRUE(writer->Complete(SummaryOf(ExampleReports())).ok());
  const std::string text = ReadAll(Path("out.json"));
  const double fps = DoubleAt(Parse(text), "fps");
  EXPECT_LE(fps, 3 / 0.05 + 0.005);
  EXPECT_GE(fps, 3 / longest_s - 0.005);
  const size_t value = text.find("\"fps\": ") + 7;
  const size_t comma = text.find(',', value);
  EXPECT_EQ(text.find('.', value), comma - 3) << "two decimals";
}

TEST_F(Results, IdenticalFramesAreNullInJsonAndInfInCsv) {
  std::vector<FrameReport> reports = ExampleReports();
  reports[0].score = ScoreOfSums({});
  const JsonPtr json = Parse(Written("out.json", reports));
  for (const char* key : {"psnr_hvs_y", "psnr_hvs_cb", "psnr_hvs_cr", "psnr_hvs"}) {
    EXPECT_TRUE(IsNull(json, std::string("frames/0/metrics/") + key)) << key;
  }
  ExpectSameJson(At(json, "pooled_metrics/psnr_hvs_y"),
                 Parse(R"({"min": 33.500481170834597, "max": 34.263141131575338, "mean": 33.881811151204971,
                           "harmonic_mean": 33.877642429767342, "from_mean_error": 35.626003970136033,
                           "infinite": 1, "min_frame": 2})")
                     .get(),
                 "");
  EXPECT_EQ(Split(Written("out.csv", reports), '\n')[1], "0,inf,inf,inf,inf,0,0,0,40000000,0");
  EXPECT_EQ(Split(Written("out.jsonl", reports), '\n')[0],
            R"({"type":"frame","frameNum":0,"timestamp":0,"stream_time":0,"running_time":0,"duration":40000000,)"
            R"("dist_running_time":0,"metrics":{"psnr_hvs_y":null,"psnr_hvs_cb":null,"psnr_hvs_cr":null,)"
            R"("psnr_hvs":null}})");
}

TEST_F(Results, OnlyIdenticalFramesPoolToNullWithoutMinFrame) {
  const JsonPtr json = Parse(Written("out.json", {ReportOf(0, ScoreOfSums({})), ReportOf(1, ScoreOfSums({}))}));
  for (const char* key : {"psnr_hvs_y", "psnr_hvs_cb", "psnr_hvs_cr", "psnr_hvs"}) {
    ExpectSameJson(At(json, std::string("pooled_metrics/") + key),
                   Parse(R"({"min": null, "max": null, "mean": null, "harmonic_mean": null, "from_mean_error": null,
                             "infinite": 2})")
                       .get(),
                   key);
  }
}

TEST_F(Results, LumaOnlyFramesHaveNoKeyAndAnEmptyCellForTheRest) {
  const std::vector<FrameReport> grey = {ReportOf(0, LumaScoreOfSum(kExampleSums[0][0]))};
  const JsonPtr json = Parse(Written("out.json", grey));
  EXPECT_EQ(Keys(At(json, "frames/0/metrics")), std::vector<std::string>{"psnr_hvs_y"});
  EXPECT_EQ(Keys(At(json, "pooled_metrics")), std::vector<std::string>{"psnr_hvs_y"});
  EXPECT_EQ(Split(Written("out.csv", grey), '\n')[1], "0,35.414155608095378,,,,0,0,0,40000000,0");
}

TEST_F(Results, HarmonicMeanThatIsNotFiniteHasNoKey) {
  Summary summary = SummaryOf(ExampleReports());
  summary.pooled[0]->harmonic_mean.reset();
  const std::unique_ptr<ResultsWriter> writer = Open(Path("out.json"));
  ASSERT_TRUE(writer->Complete(summary).ok());
  const std::vector<std::string> expected = {"min", "max", "mean", "from_mean_error", "infinite", "min_frame"};
  EXPECT_EQ(Keys(At(Parse(ReadAll(Path("out.json"))), "pooled_metrics/psnr_hvs_y")), expected);
}

TEST_F(Results, FilesOfNoFrameAreComplete) {
  const JsonPtr json = Parse(Written("out.json", {}));
  ExpectSameJson(json.get(),
                 Parse(WithVersion(R"({"version": "0.1.0", "fps": null, "frames": [], "pooled_metrics": {},
                                       "aggregate_metrics": {},
                                       "psnrhvs": {"frames": 0, "unpaired_ref": 0, "unpaired_dist": 0,
                                                   "backend": "cpu"}})"))
                     .get(),
                 "");
  EXPECT_TRUE(IsNull(json, "fps"));
  EXPECT_EQ(Split(Written("out.csv", {}), '\n').size(), 1u);
  EXPECT_EQ(Written("out.jsonl", {}),
            WithVersion(R"({"type":"pooled","version":"0.1.0","frames":0,"unpaired_ref":0,"unpaired_dist":0,)"
                        R"("backend":"cpu","pooled_metrics":{}})"
                        "\n"));
}

TEST_F(Results, UnknownTimesAreNullOrAnEmptyCell) {
  FrameReport report = ReportOf(5, LumaScoreOfSum(0));
  report.reference = FrameTiming{};
  report.reference.index = 5;
  report.dist_running_time = GST_CLOCK_TIME_NONE;
  const JsonPtr json = Parse(Written("out.json", {report}));
  EXPECT_EQ(IntAt(json, "frames/0/frameNum"), 5);
  for (const char* key : {"timestamp", "stream_time", "running_time", "duration", "dist_running_time"}) {
    EXPECT_TRUE(IsNull(json, std::string("frames/0/") + key)) << key;
  }
  EXPECT_EQ(Split(Written("out.csv", {report}), '\n')[1], "5,inf,,,,,,,,");
}

TEST_F(Results, UnpairedFramesAreLinesOfJsonlAndCountsElsewhere) {
  for (const char* name : {"out.jsonl", "out.csv", "out.json"}) {
    const std::unique_ptr<ResultsWriter> writer = Open(Path(name));
    ASSERT_TRUE(writer->AddFrame(ExampleReports()[0]).ok());
    ASSERT_TRUE(writer->AddUnpaired(UnpairedReport{"ref_sink", TimingOf(7)}).ok());
    Summary summary = SummaryOf({ExampleReports()[0]});
    summary.unpaired_ref = 1;
    summary.unpaired_dist = 2;
    summary.skipped = 3;
    summary.backend = "cuda";
    ASSERT_TRUE(writer->Complete(summary).ok());
  }
  const std::vector<std::string> lines = Split(ReadAll(Path("out.jsonl")), '\n');
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1],
            R"({"type":"unpaired","pad":"ref_sink","frameNum":7,"timestamp":280000000,"stream_time":280000000,)"
            R"("running_time":280000000,"duration":40000000})");
  const std::string head =
      WithVersion(R"({"type":"pooled","version":"0.1.0","frames":1,"unpaired_ref":1,"unpaired_dist":2,"skipped":3,)"
                  R"("backend":"cuda","pooled_metrics":{)");
  EXPECT_EQ(lines[2].substr(0, head.size()), head);
  EXPECT_EQ(Split(ReadAll(Path("out.csv")), '\n').size(), 2u);
  const JsonPtr json = Parse(ReadAll(Path("out.json")));
  ExpectSameJson(
      At(json, "psnrhvs"),
      Parse(R"({"frames": 1, "unpaired_ref": 1, "unpaired_dist": 2, "skipped": 3, "backend": "cuda"})").get(), "");
}

TEST_F(Results, AnyDoubleComesBackFromEveryFormat) {
  std::vector<double> values = {0.0,  -0.0, 1.0,  -1.0,  50.0,   0.1,   1e-10, 3e-5,
                                1e16, 1e17, 1e21, 1e100, 5e-324, 1e-45, 12e-7, std::numeric_limits<double>::max()};
  std::mt19937_64 random(2);
  while (values.size() < 4000) {
    const uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    if (std::isfinite(value)) values.push_back(value);
    values.push_back(std::uniform_real_distribution<double>(-30, 120)(random));
  }
  std::vector<FrameReport> reports;
  for (const double value : values) {
    FrameReport report = ReportOf(reports.size(), LumaScoreOfSum(1));
    report.score.plane_score_db[0] = value;
    reports.push_back(report);
  }
  const JsonPtr json = Parse(Written("out.json", reports));
  const std::vector<std::string> csv = Split(Written("out.csv", reports), '\n');
  const std::vector<std::string> jsonl = Split(Written("out.jsonl", reports), '\n');
  for (size_t i = 0; i < values.size(); ++i) {
    SCOPED_TRACE(csv[i + 1]);
    EXPECT_EQ(Bits(DoubleAt(json, "frames/" + std::to_string(i) + "/metrics/psnr_hvs_y")), Bits(values[i]));
    EXPECT_EQ(Bits(DoubleAt(Parse(jsonl[i]), "metrics/psnr_hvs_y")), Bits(values[i]));
    EXPECT_EQ(Bits(g_ascii_strtod(Split(csv[i + 1], ',')[1].c_str(), nullptr)), Bits(values[i]));
  }
}

TEST_F(Results, ADecimalCommaInTheLocaleChangesNothing) {
  std::ofstream(Path("comma.src")) << "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\n"
                                      "thousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n";
  // localedef warns of the categories that are missing and fails, but writes what it has.
  const std::string command = "localedef -c -i '" + Path("comma.src") + "' -f ANSI_X3.4-1968 '" + Path("comma_XX") +
                              "' > '" + Path("log") + "' 2>&1";
  if (std::system(command.c_str()) < 0 || !std::filesystem::exists(Path("comma_XX"))) {
    GTEST_SKIP() << "localedef makes no locale here";
  }
  setenv("LOCPATH", directory_.c_str(), 1);
  ASSERT_NE(setlocale(LC_NUMERIC, "comma_XX"), nullptr);
  ASSERT_EQ(*localeconv()->decimal_point, ',');
  const std::string csv = Written("out.csv", ExampleReports());
  const std::string jsonl = Written("out.jsonl", ExampleReports());
  const std::string json = Written("out.json", ExampleReports());
  const std::string text = SummaryText(SummaryOf(ExampleReports()));
  setlocale(LC_NUMERIC, "C");
  unsetenv("LOCPATH");
  EXPECT_EQ(csv, kDocumentedCsv);
  EXPECT_EQ(jsonl, WithVersion(kDocumentedJsonl));
  const JsonPtr actual = Parse(json);
  ExpectSameJson(actual.get(), Parse(WithVersion(kDocumentedJson)).get(), "");
  EXPECT_GT(DoubleAt(actual, "fps"), 0);
  EXPECT_EQ(text, "psnr-hvs mean 34.9917 dB over 3 frames (cpu)");
}

TEST_F(Results, TheFormatFollowsTheEndingUnlessItIsGiven) {
  for (const char* name : {"out", "out.txt", "out.JSON", "json", "out.csv.gz"}) {
    const Result<std::unique_ptr<ResultsWriter>> writer = ResultsWriter::Open(Path(name), ResultsFormat::kAuto);
    ASSERT_FALSE(writer.ok()) << name;
    EXPECT_EQ(writer.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(writer.status().message(),
              "The results file '" + Path(name) +
                  "' ends in none of .json, .csv and .jsonl: rename it, or set results-format to json, csv or jsonl.");
    EXPECT_FALSE(std::filesystem::exists(Path(name)));
  }
  const std::unique_ptr<ResultsWriter> writer = Open(Path("out.json"), ResultsFormat::kCsv);
  for (const FrameReport& report : ExampleReports()) ASSERT_TRUE(writer->AddFrame(report).ok());
  ASSERT_TRUE(writer->Complete(SummaryOf(ExampleReports())).ok());
  EXPECT_EQ(ReadAll(Path("out.json")), kDocumentedCsv);
}

TEST_F(Results, AFileThatCannotBeOpenedIsAnErrorWithItsNameAndTheReason) {
  const std::string path = Path("missing/out.csv");
  const Result<std::unique_ptr<ResultsWriter>> writer = ResultsWriter::Open(path, ResultsFormat::kAuto);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer.status().message(),
            "The results file '" + path + "' cannot be opened for writing: No such file or directory.");
}

TEST_F(Results, OpeningEmptiesTheFile) {
  std::ofstream(Path("out.csv")) << std::string(100000, 'x');
  EXPECT_EQ(Written("out.csv", ExampleReports()), kDocumentedCsv);
}

TEST_F(Results, RecordsAreInTheFileAsSoonAsTheyAreAdded) {
  for (const char* name : {"out.csv", "out.jsonl", "out.json"}) {
    const std::unique_ptr<ResultsWriter> writer = Open(Path(name));
    const std::string head = ReadAll(Path(name));
    std::string before = head;
    for (const FrameReport& report : ExampleReports()) {
      ASSERT_TRUE(writer->AddFrame(report).ok());
      const std::string after = ReadAll(Path(name));
      EXPECT_GT(after.size(), before.size() + 50) << name;
      EXPECT_EQ(after.substr(0, before.size()), before) << name;
      before = after;
    }
    if (std::string(name) == "out.csv") {
      EXPECT_EQ(before, kDocumentedCsv);
    }
  }
}

TEST_F(Results, AKilledProcessLeavesWholeLines) {
  for (const char* name : {"out.csv", "out.jsonl"}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Result<std::unique_ptr<ResultsWriter>> writer = ResultsWriter::Open(Path(name), ResultsFormat::kAuto);
      for (const FrameReport& report : ExampleReports()) {
        if (!(*writer)->AddFrame(report).ok()) _exit(1);
      }
      raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  EXPECT_EQ(ReadAll(Path("out.csv")), kDocumentedCsv);
  const std::string documented = kDocumentedJsonl;
  EXPECT_EQ(ReadAll(Path("out.jsonl")), documented.substr(0, documented.find(R"({"type":"pooled")")));
}

TEST_F(Results, APipeGetsACompleteDocument) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::unique_ptr<ResultsWriter> writer = Open("/dev/fd/" + std::to_string(ends[1]), ResultsFormat::kJson);
  close(ends[1]);
  for (const FrameReport& report : ExampleReports()) ASSERT_TRUE(writer->AddFrame(report).ok());
  ASSERT_TRUE(writer->Complete(SummaryOf(ExampleReports())).ok());
  std::string text(1 << 16, '\0');  // a pipe's capacity
  const ssize_t count = read(ends[0], text.data(), text.size());
  close(ends[0]);
  ASSERT_GT(count, 0);
  text.resize(static_cast<size_t>(count));
  const JsonPtr json = Parse(text);
  ExpectSameJson(json.get(), Parse(WithVersion(kDocumentedJson)).get(), "");
  EXPECT_TRUE(IsNull(json, "fps"));
}

TEST_F(Results, APipeGetsItsEndingOnce) {
  for (ResultsFormat format : {ResultsFormat::kJson, ResultsFormat::kCsv, ResultsFormat::kJsonl}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const std::unique_ptr<ResultsWriter> writer = Open("/dev/fd/" + std::to_string(ends[1]), format);
    close(ends[1]);
    ASSERT_TRUE(writer->AddFrame(ExampleReports()[0]).ok());
    const Summary summary = SummaryOf({ExampleReports()[0]});
    std::string text(1 << 16, '\0');
    ASSERT_TRUE(writer->Complete(summary).ok());
    ASSERT_GT(read(ends[0], text.data(), text.size()), 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    EXPECT_TRUE(writer->Complete(summary).ok());  // as at EOS and at the stop after it
    EXPECT_EQ(read(ends[0], text.data(), text.size()), -1);
    EXPECT_EQ(errno, EAGAIN);
    close(ends[0]);
  }
}

TEST_F(Results, AReaderThatLeavesThePipeIsAnErrorAndNotTheEndOfTheProcess) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string name = "/dev/fd/" + std::to_string(ends[1]);
  const std::unique_ptr<ResultsWriter> writer = Open(name, ResultsFormat::kCsv);
  close(ends[1]);
  close(ends[0]);
  EXPECT_EQ(writer->AddFrame(ExampleReports()[0]).message(),
            "The results file '" + name + "' cannot be written: Broken pipe.");
  // Nothing is left of the signal.
  sigset_t set;
  sigpending(&set);
  EXPECT_EQ(sigismember(&set, SIGPIPE), 0);
  pthread_sigmask(SIG_BLOCK, nullptr, &set);
  EXPECT_EQ(sigismember(&set, SIGPIPE), 0);
}

TEST_F(Results, AFullDeviceIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const std::string message = "The results file '/dev/full' cannot be written: No space left on device.";
  for (ResultsFormat format : {ResultsFormat::kJson, ResultsFormat::kCsv}) {
    const Result<std::unique_ptr<ResultsWriter>> writer = ResultsWriter::Open("/dev/full", format);
    ASSERT_FALSE(writer.ok());
    EXPECT_EQ(writer.status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(writer.status().message(), message);
  }
  const std::unique_ptr<ResultsWriter> writer = Open("/dev/full", ResultsFormat::kJsonl);
  EXPECT_EQ(writer->AddFrame(ExampleReports()[0]).message(), message);
  EXPECT_EQ(writer->AddUnpaired(UnpairedReport{"ref_sink", TimingOf(7)}).message(), message);
  EXPECT_EQ(writer->Complete(SummaryOf({})).message(), message);
}

// Limits how long files may grow, while it exists.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &previous_);
    rlimit limit = previous_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &previous_); }

 private:
  rlimit previous_;
};

TEST_F(Results, AFileThatMayNotGrowKeepsItsWholeRecordsAndGetsNoMore) {  // nor does SIGXFSZ end the process
  const std::string documented = kDocumentedCsv;
  const size_t third_line = documented.find("\n1,") + 1;
  const std::unique_ptr<ResultsWriter> writer = Open(Path("out.csv"));
  const std::string message = "The results file '" + Path("out.csv") + "' cannot be written: File too large.";
  {
    const FileSizeLimit limit(third_line + 20);
    EXPECT_TRUE(writer->AddFrame(ExampleReports()[0]).ok());
    const Status status = writer->AddFrame(ExampleReports()[1]);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(status.message(), message);
    EXPECT_EQ(ReadAll(Path("out.csv")), documented.substr(0, third_line));
    sigset_t set;
    sigpending(&set);
    EXPECT_EQ(sigismember(&set, SIGXFSZ), 0);
    pthread_sigmask(SIG_BLOCK, nullptr, &set);
    EXPECT_EQ(sigismember(&set, SIGXFSZ), 0);
  }
  EXPECT_EQ(writer->AddFrame(ExampleReports()[2]).message(), message);
  EXPECT_EQ(writer->Complete(SummaryOf(ExampleReports())).message(), message);
  EXPECT_EQ(ReadAll(Path("out.csv")), documented.substr(0, third_line));
}

TEST_F(Results, ATailThatDoesNotFitIsAnError) {
  for (const char* name : {"out.json", "out.jsonl"}) {
    const std::unique_ptr<ResultsWriter> writer = Open(Path(name));
    ASSERT_TRUE(writer->AddFrame(ExampleReports()[0]).ok());
    const std::string before = ReadAll(Path(name));
    const FileSizeLimit limit(before.size() + 30);
    EXPECT_EQ(writer->Complete(SummaryOf({ExampleReports()[0]})).message(),
              "The results file '" + Path(name) + "' cannot be written: File too large.");
    EXPECT_EQ(ReadAll(Path(name)), before);
  }
}

}  // namespace
}  // namespace psnrhvs::testing
