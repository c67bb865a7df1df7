// The 8-bit block transform in floats: the same integers as Transform8 of cpu/block.h, made by fused
// multiply-adds that round to integers. Compiles for the host and for CUDA devices.
//
// A float of magnitude 2^23 to 2^24 is an integer, and an operation that ends there rounds to one. So if
// T = t + bias with |T| in that zone, one fma(x, c / 2^k, T) is t + round(x * c / 2^k) + bias: exact
// inside, rounded once. It differs from the transform's "round half up" only where x * c / 2^k is exactly
// halfway, which needs |x| >= 2^(k-1) (every c is odd); 8-bit input never gets there, which
// tests/cuda/float_transform_test.cpp proves by bounding every x over all inputs. Halving towards zero is
// a product with the float below 0.5.
// Every bias is part of a value's type, so what is folded into what is checked by the compiler; a source
// x may keep a bias whose product with c / 2^k is an integer. 46 or 47 operations a
// transform, of which 10 or 11 move a bias; plain integers need 56, most of them at half rate.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cmath>

#include "cpu/host_device.h"

namespace psnrhvs {

// fl(a * b + c), rounded once.
PSNRHVS_HOST_DEVICE inline float FusedMultiplyAdd(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

// An integer, stored as the float `value` = integer + kBias, exactly.
template <int kBias>
struct Biased {
  static constexpr int kMaxInteger = 1 << 15;  // of the integer's magnitude; 8-bit input stays below 2^12
  static_assert(kBias + kMaxInteger <= (1 << 24) && -kBias + kMaxInteger <= (1 << 24), "not exact");
  float value;
};

// Whether additions to a value of this bias round to an integer.
constexpr bool InRoundingZone(int bias) {
  const int magnitude = bias < 0 ? -bias : bias;
  return magnitude - (1 << 15) >= (1 << 23) && magnitude + (1 << 15) <= (1 << 24);
}

template <int kA, int kB>
PSNRHVS_HOST_DEVICE inline Biased<kA + kB> operator+(Biased<kA> a, Biased<kB> b) {
  return {a.value + b.value};
}

template <int kA, int kB>
PSNRHVS_HOST_DEVICE inline Biased<kA - kB> operator-(Biased<kA> a, Biased<kB> b) {
  return {a.value - b.value};
}

// The same integer at another bias; free if it is the same.
template <int kTo, int kFrom>
PSNRHVS_HOST_DEVICE inline Biased<kTo> Rebias(Biased<kFrom> a) {
  if constexpr (kTo == kFrom) {
    return a;
  } else {
    return {a.value + static_cast<float>(kTo - kFrom)};
  }
}

// What a source's bias adds to the result of a lifting step.
constexpr int LiftedBias(int bias, int c, int k) { return static_cast<int>(static_cast<int64_t>(bias) * c >> k); }

// t + round(x * kC / 2^kShift); kC may be negative.
template <int kC, int kShift, int kT, int kX>
PSNRHVS_HOST_DEVICE inline Biased<kT + LiftedBias(kX, kC, kShift)> AddLifted(Biased<kT> t, Biased<kX> x) {
  static_assert(static_cast<int64_t>(kX) * kC % (1 << kShift) == 0, "the source's bias would not stay an integer");
  static_assert(InRoundingZone(kT + LiftedBias(kX, kC, kShift)), "the result would not be rounded to an integer");
  return {FusedMultiplyAdd(x.value, static_cast<float>(kC) / static_cast<float>(1 << kShift), t.value)};
}

constexpr float kBelowHalf = 0.49999997f;  // the float below 0.5

// v / 2 towards zero, at bias kTo.
template <int kTo>
PSNRHVS_HOST_DEVICE inline Biased<kTo> Halved(Biased<0> v) {
  static_assert(InRoundingZone(kTo), "the result would not be rounded to an integer");
  return {FusedMultiplyAdd(v.value, kBelowHalf, static_cast<float>(kTo))};
}

// The same for v >= 0 with an even bias >= 0.
template <int kTo, int kFrom>
PSNRHVS_HOST_DEVICE inline Biased<kTo> HalvedUnsigned(Biased<kFrom> v) {
  static_assert(kFrom >= 0 && kFrom % 2 == 0 && kFrom <= (1 << 22), "the product would not round down");
  static_assert(InRoundingZone(kTo), "the result would not be rounded to an integer");
  return {FusedMultiplyAdd(v.value, kBelowHalf, static_cast<float>(kTo - (kFrom >> 1)))};
}

// t + round(x * kC / 2^kShift) at bias kTo.
template <int kTo, int kC, int kShift, int kT, int kX>
PSNRHVS_HOST_DEVICE inline Biased<kTo> AddLiftedTo(Biased<kT> t, Biased<kX> x) {
  return AddLifted<kC, kShift>(Rebias<kTo - LiftedBias(kX, kC, kShift)>(t), x);
}

// Bias of a pixel's float that a byte permute makes: 2^15 + pixel has the pixel in its second byte.
constexpr int kPixelBias = 1 << 15;
// Bias of coefficient k of either transform below.
constexpr int kUnit = 1 << 15;  // a bias of whole units may stay in any lifting source
constexpr int kCoefficientBias[8] = {480 * kUnit - 264 * 13573,
                                     300 * kUnit,
                                     264 * kUnit,
                                     260 * kUnit,
                                     264 * kUnit,
                                     264 * kUnit + 4 * 260 * 2485,
                                     480 * kUnit - 264 * 21895,
                                     264 * kUnit + 300 * 3227};

// Writes a value that must have the bias stated above.
template <int k, int kBias>
PSNRHVS_HOST_DEVICE inline void StoreCoefficient(Biased<kBias> value, float* y, int y_step) {
  static_assert(kBias == kCoefficientBias[k], "the table above is wrong");
  y[k * y_step] = value.value;
}

// The lifting steps, which both transforms below end with; names as in Transform8 of cpu/block.h, h1 the
// half of t1. kHalf5: bias of the half of t5.
template <int kHalf5, int k0, int k1, int k2, int k3, int k4, int k5, int k6, int k7, int kH1>
PSNRHVS_HOST_DEVICE inline void LiftCoefficients(Biased<k0> t0, Biased<k1> t1, Biased<k2> t2, Biased<k3> t3,
                                                 Biased<k4> t4, Biased<k5> t5, Biased<k6> t6, Biased<k7> t7,
                                                 Biased<kH1> h1, float* y, int y_step) {
  constexpr int u = kUnit;
  // 2-point DCT-II.
  const auto a0 = AddLiftedTo<480 * u, -13573, 15>(t0, t4);
  const auto a4 = AddLiftedTo<264 * u, 11585, 14>(t4, a0);
  StoreCoefficient<0>(AddLifted<-13573, 15>(a0, a4), y, y_step);
  StoreCoefficient<4>(a4, y, y_step);
  // 2-point DST-IV.
  const auto a6 = AddLiftedTo<480 * u, -21895, 15>(t6, t2);
  const auto a2 = AddLiftedTo<264 * u, 15137, 14>(t2, a6);
  StoreCoefficient<6>(AddLifted<-21895, 15>(a6, a2), y, y_step);
  StoreCoefficient<2>(a2, y, y_step);
  // 4-point DST-IV.
  const auto a3 = AddLiftedTo<280 * u, 19195, 15>(t3, t5);
  const auto a5 = Rebias<0>(AddLifted<11585, 14>(t5, a3));
  const auto b3 = AddLifted<-7489, 13>(a3, a5);
  const auto b7 = Halved<kHalf5>(a5) - t7;
  const auto b5 = a5 - b7;
  const auto c3 = h1 - b3;
  const auto b1 = t1 - c3;
  const auto c7 = AddLiftedTo<264 * u, 3227, 15>(b7, b1);
  const auto c1 = AddLiftedTo<300 * u, -6393, 15>(b1, c7);
  StoreCoefficient<7>(AddLifted<3227, 15>(c7, c1), y, y_step);
  StoreCoefficient<1>(c1, y, y_step);
  const auto c5 = AddLiftedTo<264 * u, 2485, 13>(b5, c3);
  const auto d3 = AddLiftedTo<260 * u, -18205, 15>(c3, c5);
  StoreCoefficient<5>(AddLifted<2485, 13>(c5, d3), y, y_step);
  StoreCoefficient<3>(d3, y, y_step);
}

// The transform of 8 pixels x[0], x[x_step], ..., each at kPixelBias. `y` may be `x`.
PSNRHVS_HOST_DEVICE inline void TransformPixels(const float* x, int x_step, float* y, int y_step) {
  constexpr int u = kUnit;
  using Pixel = Biased<kPixelBias>;
  const Pixel x0{x[0]}, x1{x[x_step]}, x2{x[2 * x_step]}, x3{x[3 * x_step]};
  const Pixel x4{x[4 * x_step]}, x5{x[5 * x_step]}, x6{x[6 * x_step]}, x7{x[7 * x_step]};
  const auto t1 = x0 - x7;
  const auto h1 = Halved<280 * u>(t1);
  const auto t4 = x1 + x6;
  const auto h4 = HalvedUnsigned<-299 * u>(t4);
  const auto t3 = x2 - x5;
  const auto t6 = x3 + x4;
  const auto h6 = HalvedUnsigned<281 * u>(t6);
  const auto t0 = (x0 - h1) + h6;
  const auto t2 = h4 - (x2 - Halved<300 * u>(t3));
  LiftCoefficients<280 * u>(t0, t1, t2, t3, t2 - t4, x6 - h4, t0 - t6, h6 - x4, h1, y, y_step);
}

// The transform of 8 integers x[0], x[x_step], ... at bias kBias, an entry of kCoefficientBias. `y` may be `x`.
template <int kBias>
PSNRHVS_HOST_DEVICE inline void TransformCoefficients(const float* x, int x_step, float* y, int y_step) {
  constexpr int u = kUnit;
  using Input = Biased<kBias>;
  const Input x0{x[0]}, x1{x[x_step]}, x2{x[2 * x_step]}, x3{x[3 * x_step]};
  const Input x4{x[4 * x_step]}, x5{x[5 * x_step]}, x6{x[6 * x_step]}, x7{x[7 * x_step]};
  const auto t1 = x0 - x7;
  const auto h1 = Halved<280 * u>(t1);
  const auto t4 = x1 + Rebias<-kBias>(x6);
  const auto h4 = Halved<300 * u>(t4);
  const auto t3 = x2 - x5;
  const auto t6 = x3 + Rebias<-kBias>(x4);
  const auto h6 = Halved<760 * u - kBias>(t6);
  const auto t0 = (x0 - h1) + h6;
  const auto t2 = h4 - (Rebias<0>(x2) - Halved<-300 * u>(t3));
  LiftCoefficients<1024 * u - 2 * kBias>(t0, t1, t2, t3, t2 - t4, Rebias<300 * u>(x6 - h4), t0 - t6, h6 - x4, h1, y,
                                         y_step);
}

}  // namespace psnrhvs
