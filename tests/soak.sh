#!/usr/bin/env bash
# Scores a decoded stream of FRAMES frames (default 20000) against itself and prints the process's resident memory
# after each tenth. Fails unless the last is within 2 MiB of that after the first three tenths, and every frame is
# scored and infinite. Needs GST_PLUGIN_PATH_1_0.
#
#   soak.sh [FRAMES [DECODER]]
#
# DECODER is an H.264 decoder, by default avdec_h264. With nvh264dec, whose frames lie in CUDA memory, the device's used
# memory is printed too and may not grow after three tenths; nothing else may use the device then.
# SPDX-License-Identifier: LGPL-2.1-or-later
set -euo pipefail
frames=${1:-20000}
decoder=${2:-avdec_h264 max-threads=1}
folder=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$folder"' EXIT

if ! gst-inspect-1.0 --exists "${decoder%% *}"; then
  echo "skipped: no ${decoder%% *} here"
  exit 77
fi

device_memory() {
  case $decoder in
    nv*) nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1 ;;
    *) echo - ;;
  esac
}

gst-launch-1.0 -q videotestsrc num-buffers="$frames" pattern=ball ! video/x-raw,format=I420,width=64,height=64,framerate=25/1 ! \
  x264enc speed-preset=ultrafast ! matroskamux ! filesink location="$folder/clip.mkv"
# shellcheck disable=SC2206  # a decoder and its properties
source=(filesrc location="$folder/clip.mkv" ! matroskademux ! h264parse ! $decoder)
gst-launch-1.0 -q "${source[@]}" ! m.ref_sink "${source[@]}" ! m.dist_sink \
  psnrhvs name=m results-filename="$folder/out.csv" ! fakesink &
pid=$!

printf '| frames | resident memory, KiB | device memory, MiB |\n|---:|---:|---:|\n'
tenth=1
early=
while kill -0 "$pid" 2>/dev/null; do
  done_frames=0
  [ ! -s "$folder/out.csv" ] || done_frames=$(($(wc -l <"$folder/out.csv") - 1))
  if [ "$done_frames" -ge $((frames * tenth / 10)) ] && [ "$tenth" -lt 10 ]; then
    resident=$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status") || break
    [ -n "$resident" ] || break
    device=$(device_memory)
    printf '| %d | %d | %s |\n' "$done_frames" "$resident" "$device"
    if [ "$tenth" -ge 3 ]; then
      early=${early:-$resident}
      early_device=${early_device:-$device}
    fi
    last=$resident
    last_device=$device
    tenth=$((done_frames * 10 / frames + 1))
  fi
  sleep 0.05
done
wait "$pid"
pid=
infinite=$(grep -c '^[0-9]*,inf,' "$folder/out.csv")
[ "$infinite" = "$frames" ] || { echo "only $infinite of $frames frames are infinite" >&2; exit 1; }
[ -n "$early" ] || { echo "too few samples" >&2; exit 1; }
[ $((last - early)) -lt 2048 ] || { echo "memory grew by $((last - early)) KiB" >&2; exit 1; }
[ "$last_device" = - ] || [ "$last_device" -le "$early_device" ] || { echo "device memory grew by $((last_device - early_device)) MiB" >&2; exit 1; }
