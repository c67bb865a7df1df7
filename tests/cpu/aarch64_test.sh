#!/usr/bin/env bash
# The NEON kernel: compiles cpu/ and its tests for aarch64 and runs them under qemu-user.
# usage: aarch64_test.sh SOURCE_ROOT SCRATCH_FOLDER. Exits 77 where the cross compiler or the emulator is missing
# (Debian: g++-aarch64-linux-gnu, qemu-user, googletest, libhwy-dev).
# SPDX-License-Identifier: LGPL-2.1-or-later
set -euo pipefail

source_root=$1
out=$2
compiler=aarch64-linux-gnu-g++
emulator=qemu-aarch64
system_root=/usr/aarch64-linux-gnu
googletest=/usr/src/googletest/googletest
highway=/usr/include/hwy

for tool in $compiler $emulator; do
  command -v $tool >/dev/null || { echo "not run: there is no $tool"; exit 77; }
done
for folder in $system_root $googletest $highway; do
  [ -d $folder ] || { echo "not run: there is no $folder"; exit 77; }
done

mkdir -p "$out/include"
ln -sfn $highway "$out/include/hwy"
# One target, known when compiling, needs nothing of Highway but its headers. Its NEON includes AES.
flags=(-std=c++17 -O2 -ffp-contract=off -march=armv8-a+crypto -DHWY_COMPILE_ONLY_STATIC -pthread
  -I"$source_root" -isystem "$out/include" -isystem $googletest/include -I$googletest)
sources=(cpu/{cpu_engine,frame,plane_sum_reference,plane_sum_simd,score}.cpp tests/support/frames.cpp
  tests/cpu/{arithmetic,cpu_engine,plane_sum}_test.cpp)

compile() { # SOURCE
  local object=$out/${1//\//_}.o
  $compiler "${flags[@]}" -c "$1" -o "$object"
}
cd "$source_root"
{
  printf '%s\n' "${sources[@]}"
  printf '%s\n' $googletest/src/gtest-all.cc $googletest/src/gtest_main.cc
} | {
  running=0
  while read -r source; do
    compile "$source" &
    running=$((running + 1))
    if [ $running -ge "$(nproc)" ]; then
      wait -n
      running=$((running - 1))
    fi
  done
  while [ $running -gt 0 ]; do
    wait -n
    running=$((running - 1))
  done
}

run() { # TEST FILTER
  $compiler -pthread "$out"/cpu_*.o "$out"/tests_support_frames.cpp.o "$out"/tests_cpu_"$1"_test.cpp.o \
    "$out"/*gtest-all.cc.o "$out"/*gtest_main.cc.o -o "$out/$1"
  $emulator -L $system_root "$out/$1" --gtest_brief=1 --gtest_filter="$2"
}
run plane_sum '*NEON'
run cpu_engine '*AnyNumber*:*EveryTarget*'
run arithmetic '-*EverySignificand*'
