// libFuzzer's entry to the mapping of caps and buffers. `./dev fuzz` builds and runs it.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/mapping_ops.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  gst_init(argc, argv);
  // GStreamer complains of caps that it cannot parse.
  g_log_set_default_handler([](const gchar*, GLogLevelFlags, const gchar*, gpointer) {}, nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string broken = psnrhvs::testing::CheckMappingOperations(data, size);
  if (!broken.empty()) {
    std::fprintf(stderr, "broken promise: %s\n", broken.c_str());
    std::abort();
  }
  return 0;
}
