// SPDX-License-Identifier: LGPL-2.1-or-later
#include "tests/support/frames.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

namespace psnrhvs::testing {
namespace {

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "test support: %s\n", what.c_str());
  std::abort();
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> fields;
  std::istringstream stream(text);
  for (std::string field; std::getline(stream, field, separator);) fields.push_back(field);
  return fields;
}

uint32_t Hash(uint32_t s, uint32_t p, uint32_t x, uint32_t y, uint32_t n) {
  uint32_t h = s ^ (x * 0x9E3779B1u) ^ (y * 0x85EBCA77u) ^ (p * 0xC2B2AE3Du) ^ (n * 0x27D4EB2Fu);
  h ^= h >> 16;
  h *= 0x7FEB352Du;
  h ^= h >> 15;
  h *= 0x846CA68Bu;
  h ^= h >> 16;
  return h;
}

uint32_t Lattice(uint32_t s, uint32_t p, uint32_t x, uint32_t y, int level) {
  const uint32_t size = 1u << level;
  const uint32_t cx = x >> level, cy = y >> level, fx = x & (size - 1), fy = y & (size - 1);
  const uint32_t a = Hash(s + level, p, cx, cy, 0) >> 24, b = Hash(s + level, p, cx + 1, cy, 0) >> 24;
  const uint32_t c = Hash(s + level, p, cx, cy + 1, 0) >> 24, d = Hash(s + level, p, cx + 1, cy + 1, 0) >> 24;
  const uint32_t t = a * (size - fx) + b * fx, u = c * (size - fx) + d * fx;
  return (t * (size - fy) + u * fy) >> (2 * level);
}

class Formula {
 public:
  Formula(const std::string& text, int depth) : depth_(depth), max_((1 << depth) - 1) {
    const std::vector<std::string> fields = Split(text, ':');
    if (fields.size() != 4) Die("bad formula " + text);
    name_ = fields[0];
    a_ = std::stoi(fields[1]);
    b_ = std::stoi(fields[2]);
    s_ = static_cast<uint32_t>(std::stoul(fields[3]));
    static const char* const kNames[] = {"noise", "invnoise", "scene", "quant", "grain",
                                         "shift", "checker",  "const", "ramp",  "onepix"};
    for (kind_ = 0; kind_ < 10 && name_ != kNames[kind_];) ++kind_;
    if (kind_ == 10) Die("unknown formula " + text);
  }

  // `cx`, `cy`: the sample that onepix changes.
  int Value(int p, int x, int y, int n, int cx, int cy) const {
    switch (kind_) {
      case 0:
        return static_cast<int>(Hash(s_, p, x, y, n) >> (32 - depth_));
      case 1:
        return max_ - static_cast<int>(Hash(s_, p, x, y, n) >> (32 - depth_));
      case 2:
        return Scene(p, x, y, n);
      case 3: {
        const int q = a_ << (depth_ - 8);
        const int r = static_cast<int>(Hash(s_ + 1000, p, x >> 3, y >> 3, n) >> 29);
        return Clamp((Scene(p, x, y, n) + q / 2) / q * q + (r - 4) * (1 << (depth_ - 8)));
      }
      case 4: {
        const int r = static_cast<int>(Hash(s_ + 2000, p, x, y, n) >> (32 - a_));
        return Clamp(Scene(p, x, y, n) + r - (1 << (a_ - 1)));
      }
      case 5:
        return Scene(p, x + a_, y + b_, n);
      case 6:
        return ((x / a_ + y / a_ + n) & 1) == b_ ? max_ : 0;
      case 7:
        return a_;
      case 8:
        return Clamp((x + y + n) % (max_ + 1) + a_);
      default:
        return Scene(p, x, y, n) ^ (p == 0 && x == cx && y == cy ? 1 : 0);
    }
  }

 private:
  int Clamp(int v) const { return std::min(std::max(v, 0), max_); }

  int Scene(int p, int x, int y, int n) const {
    const uint32_t px = x + 3 * n, py = y + n;
    const uint32_t v16 = 160 * Lattice(s_, p, px, py, 6) + 64 * Lattice(s_, p, px, py, 4) +
                         24 * Lattice(s_, p, px, py, 2) + 8 * Lattice(s_, p, px, py, 0);
    return static_cast<int>(v16 >> (16 - depth_));
  }

  std::string name_;
  int kind_ = 0;
  int depth_;
  int max_;
  int a_ = 0;
  int b_ = 0;
  uint32_t s_ = 0;
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

int Picture::StoredWidth(int plane) const { return plane > 0 && chroma != Chroma::k444 ? (width + 1) >> 1 : width; }

int Picture::StoredHeight(int plane) const { return plane > 0 && chroma == Chroma::k420 ? (height + 1) >> 1 : height; }

size_t Picture::FrameBytes() const {
  size_t bytes = 0;
  for (const auto& plane : planes) bytes += plane.size();
  return bytes;
}

FrameView Picture::View() const {
  const Result<FrameGeometry> geometry = FrameGeometry::Create(width, height, chroma, depth);
  if (!geometry.ok()) Die(geometry.status().message());
  FrameView view;
  for (int p = 0; p < geometry->plane_count(); ++p) {
    view.planes[p].data = planes[p].data();
    view.planes[p].stride_bytes = static_cast<ptrdiff_t>(StoredWidth(p)) * BytesPerSample();
    view.planes[p].width = geometry->plane_width(p);
    view.planes[p].height = geometry->plane_height(p);
  }
  return view;
}

Picture MakePicture(int width, int height, Chroma chroma, int depth) {
  Picture picture;
  picture.width = width;
  picture.height = height;
  picture.chroma = chroma;
  picture.depth = depth;
  for (int p = 0; p < (chroma == Chroma::k400 ? 1 : 3); ++p) {
    picture.planes[p].resize(static_cast<size_t>(picture.StoredWidth(p)) * picture.StoredHeight(p) *
                             picture.BytesPerSample());
  }
  return picture;
}

Picture GeneratePicture(const std::string& text, int width, int height, Chroma chroma, int depth, int n) {
  const Formula formula(text, depth);
  Picture picture = MakePicture(width, height, chroma, depth);
  for (int p = 0; p < kMaxPlanes; ++p) {
    if (picture.planes[p].empty()) continue;
    size_t at = 0;
    const int rows = picture.StoredHeight(p), columns = picture.StoredWidth(p);
    for (int y = 0; y < rows; ++y) {
      for (int x = 0; x < columns; ++x) {
        const int value = formula.Value(p, x, y, n, width / 2, height / 2);
        picture.planes[p][at++] = static_cast<uint8_t>(value);
        if (depth > 8) picture.planes[p][at++] = static_cast<uint8_t>(value >> 8);
      }
    }
  }
  return picture;
}

Picture ReadPicture(const std::string& path, int width, int height, Chroma chroma, int depth, int n, size_t offset,
                    size_t header) {
  Picture picture = MakePicture(width, height, chroma, depth);
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset + (picture.FrameBytes() + header) * n + header));
  for (auto& plane : picture.planes) {
    file.read(reinterpret_cast<char*>(plane.data()), static_cast<std::streamsize>(plane.size()));
  }
  if (!file) Die("cannot read frame " + std::to_string(n) + " of " + path);
  return picture;
}

uint64_t Fnv1a64(const Picture& picture, uint64_t hash) {
  for (const auto& plane : picture.planes) {
    for (uint8_t byte : plane) hash = (hash ^ byte) * 0x100000001b3u;
  }
  return hash;
}

std::vector<Golden> ReadGoldens(const std::string& csv) {
  std::ifstream file(csv);
  std::string line;
  if (!std::getline(file, line)) Die("cannot read " + csv);
  std::map<std::string, size_t> column;
  const std::vector<std::string> names = Split(line, ',');
  for (size_t i = 0; i < names.size(); ++i) column[names[i]] = i;
  std::vector<Golden> goldens;
  while (std::getline(file, line)) {
    const std::vector<std::string> fields = Split(line, ',');
    const auto text = [&](const std::string& name) { return fields.at(column.at(name)); };
    const auto hex = [&](const std::string& name) { return std::stoull(text(name), nullptr, 16); };
    Golden golden;
    golden.generated = column.count("ref_formula") > 0;
    golden.name = text("case");
    golden.ref = text(golden.generated ? "ref_formula" : "ref");
    golden.dis = text(golden.generated ? "dis_formula" : "dis");
    golden.width = std::stoi(text("width"));
    golden.height = std::stoi(text("height"));
    golden.depth = std::stoi(text("depth"));
    golden.frame = std::stoi(text("frame"));
    golden.frames = std::stoi(text("frames"));
    const std::string subsampling = text("subsampling");
    golden.chroma = subsampling == "420" ? Chroma::k420 : subsampling == "422" ? Chroma::k422 : Chroma::k444;
    golden.score_bits = {hex("y_hex"), hex("cb_hex"), hex("cr_hex"), hex("psnr_hvs_hex")};
    golden.sum_bits = {static_cast<uint32_t>(hex("sum_y_hex")), static_cast<uint32_t>(hex("sum_cb_hex")),
                       static_cast<uint32_t>(hex("sum_cr_hex"))};
    if (golden.generated) {
      golden.ref_hash = hex("ref_fnv1a64");
      golden.dis_hash = hex("dis_fnv1a64");
    }
    goldens.push_back(golden);
  }
  if (goldens.empty()) Die("no rows in " + csv);
  return goldens;
}

PicturePair LoadGolden(const Golden& golden, const std::string& directory) {
  const auto load = [&](const std::string& source) {
    return golden.generated
               ? GeneratePicture(source, golden.width, golden.height, golden.chroma, golden.depth, golden.frame)
               : ReadPicture(directory + "/" + source, golden.width, golden.height, golden.chroma, golden.depth,
                             golden.frame);
  };
  return {load(golden.ref), load(golden.dis)};
}

std::optional<std::string> SharedDirectory() {
  const std::string directory = Environment("PSNRHVS_SHARED");
  struct stat info;
  if (directory.empty() || stat((directory + "/golden/golden.csv").c_str(), &info) != 0) return std::nullopt;
  return directory;
}

std::string DataDirectory() {
  std::string directory = Environment("PSNRHVS_TEST_DATA");
  if (directory.empty()) Die("PSNRHVS_TEST_DATA is not set: run the tests through meson test");
  return directory;
}

uint64_t Bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

}  // namespace psnrhvs::testing
