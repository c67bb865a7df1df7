#!/usr/bin/env bash
# Runs every command that the documentation shows, so that none goes stale.
# usage: commands_test.sh SOURCE_ROOT BUILD_ROOT
#
# The ```sh blocks of a page run as one script in an empty folder, in their order; so does each launch line of the
# element's documentation block (what stands between |[ and ]|, as one line). There, ./dev only checks that it has the command.
# SPDX-License-Identifier: LGPL-2.1-or-later
set -uo pipefail
source_root=$1 build_root=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export GST_PLUGIN_PATH=$build_root/gst/psnrhvs GST_REGISTRY=$scratch/registry.bin

status=0 commands=0
# Runs the script on standard input; its title is for the log.
run_script() {
  local script=$scratch/script folder
  folder=$(mktemp -d -p "$scratch")
  cat >"$script"
  [ -s "$script" ] || return 0
  cat >"$folder/dev" <<END
#!/bin/sh
"$source_root/dev" help | grep -q "^  \$1 " || { echo "./dev has no command \$1" >&2; exit 1; }
[ "\$1" != build ] || echo "$build_root"
END
  chmod +x "$folder/dev"
  commands=$((commands + 1))
  printf '== %s\n' "$1"
  if ! (cd "$folder" && timeout 120 bash -exuo pipefail "$script") 2>&1 </dev/null; then
    printf '== FAILED: %s\n' "$1"
    status=1
  fi
}

for page in "$source_root"/README.md "$source_root"/docs/*.md; do
  run_script "${page#"$source_root"/}" < <(awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$page")
done
element=$source_root/gst/psnrhvs/gstpsnrhvs.cpp
while read -r line; do
  run_script "the element's documentation block" <<<"$line"
done < <(awk '
  /\]\|/ { inside = 0; print "" }
  inside { sub(/^ \* /, ""); printf "%s ", $0 }
  /\|\[/ { inside = 1 }' "$element")

[ "$commands" -gt 0 ] || { echo "no command found" && status=1; }
exit "$status"
