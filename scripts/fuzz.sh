#!/usr/bin/env bash
# Fuzzes the targets of fuzz/ one after the other, from their committed corpora, on the stable toolchain.
#
#   scripts/fuzz.sh SECONDS [TARGET...]
#
# What is found is left in fuzz/artifacts, and what is new and covers more in a folder of the build, never in the
# committed corpora; `scripts/fuzz.sh --keep TARGET` takes over the part of it that covers something new. That folder begins
# with what longer runs have found to cover (fuzz/found.tar.gz: thousands of small inputs, a folder a target), and
# `scripts/fuzz.sh --pack TARGET` puts the least of it that covers as much into that file again. Words that a target knows
# are in fuzz/dictionaries.
set -euo pipefail
cd "$(dirname "$0")/.."

# An input that takes a tenth of this is too slow for a connection that everybody shares.
timeout_s=10
# What the targets need at rest, and four times the largest input many times over.
memory_mb=512
max_input_bytes=4096

keep=0 pack=0 seconds=0
case ${1:-} in
  --keep) keep=1 ;;
  --pack) pack=1 ;;
  '' | 0 | *[!0-9]*) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  *) seconds=$1 ;;
esac
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(sed -n 's/^path = "targets\/\(.*\)\.rs"/\1/p' fuzz/Cargo.toml)

# Counts what is covered, with the options that the compiler's own fuzzing mode stands for. A build folder of its own:
# under other flags nothing of the others can be used.
host=$(rustc -vV | sed -n 's/^host: //p')
build="${CARGO_TARGET_DIR:-target}/fuzz"
export CARGO_TARGET_DIR="$build" CARGO_INCREMENTAL=0
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
# What the readers of object stores lie beside brings RocksDB along.
if [ -z "${ROCKSDB_LIB_DIR:-}" ]; then
  rocksdb=$(scripts/build-rocksdb.sh)
  eval "$rocksdb"
fi
# With a target named the flags are not put on build scripts, which have nothing to count into.
cargo build --quiet --locked --release --manifest-path fuzz/Cargo.toml --target "$host"

for target in "${targets[@]}"; do
  found="$build/corpus/$target"
  binary="$build/$host/release/$target"
  if [ ! -d "$found" ]; then
    mkdir -p "$found"
    # A target that is new has nothing there.
    tar -xzf fuzz/found.tar.gz -C "$build/corpus" "./$target" 2>/dev/null || true
  fi
  mkdir -p "fuzz/corpus/$target" fuzz/artifacts
  if [ "$keep" = 1 ]; then
    "$binary" -merge=1 -max_len="$max_input_bytes" "fuzz/corpus/$target" "$found" 2>&1 | tail -n 1
    continue
  fi
  if [ "$pack" = 1 ]; then
    packed="$build/packed"
    rm -rf "$packed"
    mkdir -p "$packed/$target"
    tar -xzf fuzz/found.tar.gz -C "$packed" --exclude="./$target"
    "$binary" -merge=1 -max_len="$max_input_bytes" "$packed/$target" "$found" 2>&1 | tail -n 1
    tar -C "$packed" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - . | gzip -9n >fuzz/found.tar.gz
    continue
  fi
  printf 'fuzz: %s, %s s\n' "$target" "$seconds"
  log="$build/$target.log"
  words=()
  [ ! -f "fuzz/dictionaries/$target" ] || words=(-dict="fuzz/dictionaries/$target")
  if ! "$binary" -max_total_time="$seconds" -timeout="$timeout_s" -rss_limit_mb="$memory_mb" \
    -max_len="$max_input_bytes" -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$target-" "${words[@]}" \
    "$found" "fuzz/corpus/$target" >"$log" 2>&1 </dev/null; then
    tail -n 60 "$log" >&2
    printf 'fuzz: %s found something; it is in fuzz/artifacts\n' "$target" >&2
    exit 1
  fi
  sed -n 's/^stat::number_of_executed_units: */  inputs: /p; s/^.*\(cov: [0-9]*\).*DONE.*/  \1/p; s/^#[0-9]*.*DONE *\(cov: [0-9]*\).*/  \1/p' "$log" | sort -u
done
