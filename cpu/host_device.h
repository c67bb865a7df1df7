// Marks functions that also compile for CUDA devices.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#ifdef __CUDACC__
#define PSNRHVS_HOST_DEVICE __host__ __device__
#define PSNRHVS_UNROLL _Pragma("unroll")  // of the loop that follows: its index is a constant in device code
#else
#define PSNRHVS_HOST_DEVICE
#define PSNRHVS_UNROLL
#endif
