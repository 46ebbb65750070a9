#!/usr/bin/env bash
# Builds librocksdb.a once a machine, from the very sources the `librocksdb-sys` crate vendors, and prints the
# environment that makes cargo link it. Plain cargo works without this script; it only takes five times as long.
#
#   eval "$(scripts/build-rocksdb.sh)"
#
# The crate compiles 343 C++ files one by one (27 to 39 CPU-minutes). The same files, included by 24 "unity" files, need
# seven. The result is kept in ${ANKUSA_CACHE:-~/.cache/ankusa}, in a folder named after everything it depends on.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'rocksdb: %s\n' "$*" >&2; }

chunks=24
cxx=${CXX:-g++}
flags=(-std=c++20 -O3 -fPIC -ffunction-sections -fdata-sections -w -include cstdint
  -DNDEBUG=1 -DLZ4=1 -DZSTD=1 -DHAVE_ALIGNED_NEW -DHAVE_UINT128_EXTENSION -DOS_LINUX -DROCKSDB_PLATFORM_POSIX
  -DROCKSDB_LIB_IO_POSIX -DROCKSDB_SCHED_GETCPU_PRESENT -DROCKSDB_AUXV_GETAUXVAL_PRESENT -DROCKSDB_FALLOCATE_PRESENT
  -DROCKSDB_RANGESYNC_PRESENT)
case $(uname -m) in
  # CRC32C in hardware: every WAL record and block is checksummed. Any x86-64 machine since 2010 has these.
  x86_64) flags+=(-msse2 -msse4.1 -msse4.2 -mpclmul) ;;
  aarch64) flags+=(-march=armv8-a+crc+aes+crypto) ;;
esac

# Where cargo unpacked a locked package, without naming any path or registry here.
package_dir() {
  cargo metadata --locked --format-version 1 | tr ',' '\n' |
    sed -n "s|.*\"manifest_path\":\"\(.*/$1-[0-9][^/]*\)/Cargo.toml\".*|\1|p" | head -n 1
}

sys_dir=$(package_dir librocksdb-sys)
lz4_dir=$(package_dir lz4-sys)
zstd_dir=$(package_dir zstd-sys)
if [ -z "$sys_dir" ] || [ ! -f "$sys_dir/rocksdb_lib_sources.txt" ]; then
  say "the locked librocksdb-sys crate has no vendored sources; cargo will build RocksDB by itself"
  exit 0
fi

key=$( { basename "$sys_dir"; printf '%s\n' "${flags[@]}" "$chunks"; "$cxx" --version | head -n 1; } | sha256sum | cut -c1-16)
out=${ANKUSA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ankusa}/rocksdb-$key
if [ ! -f "$out/librocksdb.a" ]; then
  say "building $(basename "$sys_dir") once into $out (about 7 CPU-minutes, then cached)"
  work=$(mktemp -d "${TMPDIR:-/tmp}/ankusa-rocksdb.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  n=0
  while read -r file; do
    [ "$file" = util/build_version.cc ] && continue   # the crate ships its own
    printf '#include "%s/rocksdb/%s"\n' "$sys_dir" "$file" >>"$work/unity$((n % chunks)).cc"
    n=$((n + 1))
  done <"$sys_dir/rocksdb_lib_sources.txt"
  cp "$sys_dir/build_version.cc" "$work/"
  compile() { "$cxx" "${flags[@]}" -I"$sys_dir/rocksdb/include" -I"$sys_dir/rocksdb" -I"$sys_dir" \
    -I"$lz4_dir/liblz4/lib" -I"$lz4_dir/liblz4" -I"$zstd_dir/zstd/lib" -c "$1" -o "${1%.cc}.o"; }
  export -f compile
  export cxx sys_dir lz4_dir zstd_dir
  # Bash cannot export arrays; the flags hold no spaces.
  export joined_flags="${flags[*]}"
  failed=0
  printf '%s\0' "$work"/*.cc | xargs -0 -n 1 -P "$(nproc)" bash -c '
    set -- "$1"; read -r -a flags <<<"$joined_flags"; compile "$1"' _ || failed=1
  if [ "$failed" = 1 ]; then
    say "the unity build failed; cargo will build RocksDB by itself"
    exit 0
  fi
  mkdir -p "$out"
  ar crs "$out/librocksdb.a.tmp" "$work"/*.o
  mv "$out/librocksdb.a.tmp" "$out/librocksdb.a"
  say "done: $(du -h "$out/librocksdb.a" | cut -f1)"
fi
printf 'export ROCKSDB_LIB_DIR=%q ROCKSDB_STATIC=1\n' "$out"
