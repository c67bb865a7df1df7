// libFuzzer's entry to the pairing. `./dev fuzz` builds and runs it.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/pairing_ops.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string broken = psnrhvs::testing::CheckPairingOperations(data, size);
  if (!broken.empty()) {
    std::fprintf(stderr, "broken promise: %s\n", broken.c_str());
    std::abort();
  }
  return 0;
}
