// Marks functions that also compile for CUDA devices.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#ifdef __CUDACC__
#define PSNRHVS_HOST_DEVICE __host__ __device__
#else
#define PSNRHVS_HOST_DEVICE
#endif
