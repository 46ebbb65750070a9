#!/usr/bin/env bash
# Builds librocksdb.a once a machine, from the very sources the `librocksdb-sys` crate vendors, and prints the
# environment that makes cargo link it. Plain cargo works without this script; it only takes five times as long.
#
#   env="$(scripts/build-rocksdb.sh)" && eval "$env"
#
# The crate compiles 343 C++ files one by one (27 to 39 CPU-minutes). The same files, included by 24 "unity" files, need
# seven. The result is kept in ${ANKUSA_CACHE:-~/.cache/ankusa}, in a folder named after everything it depends on.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'rocksdb: %s\n' "$*" >&2; }

chunks=24
# A unity file needs 1.1 GB at its peak (g++ 12); a machine short of memory compiles fewer at a time.
chunk_memory_kb=1500000
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

# Where cargo unpacks a locked package: cargo says so itself, hence no path and no registry is named here. Packages of
# other platforms are neither needed nor fetched.
metadata=$(cargo metadata --format-version 1 --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" | tr ',' '\n')
package_dir() { sed -n "s|.*\"manifest_path\":\"\(.*/$1-[0-9][^/]*\)/Cargo.toml\".*|\1|p" <<<"$metadata" | head -n 1; }

sys_dir=$(package_dir librocksdb-sys)
lz4_dir=$(package_dir lz4-sys)
zstd_dir=$(package_dir zstd-sys)
if [ -z "$sys_dir" ] || [ ! -f "$sys_dir/rocksdb_lib_sources.txt" ]; then
  say "the locked librocksdb-sys crate has no vendored sources; cargo will build RocksDB by itself"
  exit 0
fi

compile() {
  "$cxx" "${flags[@]}" -I"$sys_dir/rocksdb/include" -I"$sys_dir/rocksdb" -I"$sys_dir" \
    -I"$lz4_dir/liblz4/lib" -I"$lz4_dir/liblz4" -I"$zstd_dir/zstd/lib" -c "$1" -o "${1%.cc}.o"
}

# How many compilers at once: one a core, as far as the free memory goes, and never none.
parallel_compilers() {
  local by_memory
  by_memory=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / chunk_memory_kb))
  [ "$by_memory" -ge 1 ] || by_memory=1
  printf '%s\n' "$by_memory" "$(nproc)" | sort -n | head -n 1
}

build() {
  local n=0 file
  work=$(mktemp -d "${TMPDIR:-/tmp}/ankusa-rocksdb.XXXXXX") || return 1
  trap 'rm -rf "$work"' EXIT
  while read -r file; do
    [ "$file" = util/build_version.cc ] && continue   # the crate ships its own
    printf '#include "%s/rocksdb/%s"\n' "$sys_dir" "$file" >>"$work/unity$((n % chunks)).cc"
    n=$((n + 1))
  done <"$sys_dir/rocksdb_lib_sources.txt"
  cp "$sys_dir/build_version.cc" "$work/"
  export -f compile say
  # Bash cannot export arrays; the flags hold no spaces.
  export cxx sys_dir lz4_dir zstd_dir work joined_flags="${flags[*]}" files=$((chunks + 1))
  # shellcheck disable=SC2016 # the inner shell is to expand it
  printf '%s\0' "$work"/*.cc | xargs -0 -n 1 -P "$(parallel_compilers)" bash -c '
    read -r -a flags <<<"$joined_flags"
    compile "$1" || exit 255   # 255 tells xargs to start no more
    objects=("$work"/*.o)
    say "${#objects[@]} of $files compiled"' _ || return 1
  mkdir -p "$out"
  ar crs "$out/librocksdb.a.tmp" "$work"/*.o
  mv "$out/librocksdb.a.tmp" "$out/librocksdb.a"
}

key=$( { basename "$sys_dir"; printf '%s\n' "${flags[@]}" "$chunks"; "$cxx" --version | head -n 1; } | sha256sum | cut -c1-16)
cache=${ANKUSA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ankusa}
out=$cache/rocksdb-$key
if [ ! -f "$out/librocksdb.a" ]; then
  mkdir -p "$cache"
  exec 9>"$cache/rocksdb.lock"
  flock --nonblock 9 || { say "another build of it is running; waiting for that"; flock 9; }
fi
if [ ! -f "$out/librocksdb.a" ]; then
  say "compiling $(basename "$sys_dir") once for this machine and user (about 7 CPU-minutes, then cached)"
  if ! build; then
    say "the unity build failed; cargo will build RocksDB by itself"
    exit 0
  fi
  say "done: $(du -h "$out/librocksdb.a" | cut -f1)"
fi
printf 'export ROCKSDB_LIB_DIR=%q ROCKSDB_STATIC=1\n' "$out"
