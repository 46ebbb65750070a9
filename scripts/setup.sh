#!/usr/bin/env bash
# Installs what a bare Debian or Ubuntu machine with only rustup lacks to build the node. Silent and quick when nothing
# is missing; says what it installs; where it may not install, fails with one sentence that names the packages.
#
#   scripts/setup.sh [--demo] [--test] [--check]
#
#   --demo    also what the demo's example requests use: curl and openssl (never a reason to fail)
#   --test    also what the tests need: Erlang, an independent reader and writer of the stored terms, Python and Node.js,
#             which run the clients of others, and the object stores of others (scripts/{s3-servers,gcs-servers,azurite}.sh)
#   --check   also what the checks need: rustfmt and clippy
#
# What is wanted is asked of the machine (does the compiler run, is libclang there with its headers), not of the package
# manager, so that tools which came another way are taken as they are.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

for_demo=0 for_tests=0 for_checks=0
for option in "$@"; do
  case $option in
    --demo) for_demo=1 ;;
    --test) for_tests=1 ;;
    --check) for_checks=1 ;;
    *) die "unknown option $option; known are --demo, --test and --check" ;;
  esac
done

rust_is_new_enough() {
  local wanted found
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  found=$(cargo --version | cut -d' ' -f2)
  [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" = "$wanted" ] ||
    die "Rust $found is too old, this needs $wanted or newer: run 'rustup update', then try again"
}

# The newest libclang installed, by its number: bindgen loads that one, so that one must have its headers.
installed_libclang() {
  printf '%s\n' /usr/lib/*/libclang-[0-9]*.so* /usr/lib/llvm-*/lib/libclang*.so* |
    sed -n 's/.*libclang-\([0-9][0-9]*\)\(\.[0-9]*\)*\.so.*/\1/p; s|.*/llvm-\([0-9][0-9]*\)/lib/libclang\.so.*|\1|p' |
    sort -n | tail -n 1
}

libclang_is_whole() {
  # Somebody who points at a libclang of his own knows where its headers are.
  [ -z "${LIBCLANG_PATH:-}" ] || return 0
  local version header
  version=$(installed_libclang)
  [ -n "$version" ] || return 1
  for header in "/usr/lib/llvm-$version/lib/clang"/*/include/stddef.h; do
    [ -f "$header" ] && return 0
  done
  return 1
}

is_packaged() { apt-cache show "$1" >/dev/null 2>&1; }

# Two packages of 50 MB instead of libclang-dev's 240: the one there is, else the distribution's own choice, else the
# newest that comes with its headers.
libclang_packages() {
  local version
  for version in $(installed_libclang) \
    $(apt-cache depends libclang1 2>/dev/null | sed -n 's/.*Depends: libclang1-\([0-9]*\)$/\1/p') \
    $(apt-cache pkgnames libclang1- 2>/dev/null | sed -n 's/^libclang1-\([0-9]*\)$/\1/p' | sort -rn); do
    if is_packaged "libclang1-$version" && is_packaged "libclang-common-$version-dev"; then
      echo "libclang1-$version libclang-common-$version-dev"
      return
    fi
  done
  echo libclang-dev
}

# Sets `required`, `wanted` and `missing`, which is both, to the Debian packages of what this machine lacks.
look() {
  required=() wanted=()
  have "${CXX:-g++}" && have cc || required+=(g++)
  have make || required+=(make)
  # Unquoted on purpose: one word a package.
  # shellcheck disable=SC2207
  libclang_is_whole || required+=($(libclang_packages))
  [ "$for_tests" = 0 ] || have escript || required+=(erlang-base)
  [ "$for_tests" = 0 ] || python3 -c 'import ensurepip, venv' 2>/dev/null || required+=(python3 python3-venv)
  [ "$for_tests" = 0 ] || { have node && have npm; } || required+=(nodejs npm)
  [ "$for_demo" = 0 ] || have curl || wanted+=(curl)
  [ "$for_demo" = 0 ] || have openssl || wanted+=(openssl)
  missing=("${required[@]}" "${wanted[@]}")
}

# How to become root: "env" for nothing needed, "sudo", or nothing at all. Only what is required may ask for a password.
find_rights() {
  if ! have apt-get; then
    root=''
  elif [ "$(id -u)" = 0 ]; then
    root='env'
  elif have sudo && { sudo -n true 2>/dev/null || { [ ${#required[@]} -gt 0 ] && [ -t 0 ]; }; }; then
    root='sudo'
  else
    root=''
  fi
}

apt() {
  local log status=0
  log=$(mktemp)
  "$root" env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" \
    </dev/null >"$log" 2>&1 || status=$?
  [ "$status" = 0 ] || cat "$log" >&2
  rm -f "$log"
  return "$status"
}

install_packages() {
  [ "$root" != sudo ] || sudo -v   # the one question, before the output goes to a log
  say "asking apt what there is"
  apt update || say "the package lists could not all be renewed; trying with those at hand"
  look   # with fresh lists the choice of libclang may be a better one
  say "installing with apt: ${missing[*]}"
  apt install --no-install-recommends "${missing[@]}" || die "apt could not install them (see above)"
}

have cargo || die "Rust is missing: install it with rustup (https://rustup.rs), open a new shell, then try again"
rust_is_new_enough

look
if [ ${#missing[@]} -gt 0 ]; then
  find_rights
  if [ -n "$root" ]; then
    install_packages
    look
    [ ${#required[@]} = 0 ] || die "still missing after the installation: ${required[*]}"
  elif [ ${#required[@]} -gt 0 ] && have apt-get; then
    die "cannot install without root or sudo; ask an administrator for: apt-get install ${missing[*]}"
  elif [ ${#required[@]} -gt 0 ]; then
    die "no apt-get here; install what Debian packages as: ${missing[*]}"
  else
    say "the demo's example requests will want: ${wanted[*]}"
  fi
fi

"${CXX:-g++}" -std=c++20 -fsyntax-only -x c++ - </dev/null 2>/dev/null ||
  die "the C++ compiler '${CXX:-g++}' cannot do C++20, which RocksDB needs: install g++ 11 or newer, or name another in CXX"

if [ "$for_checks" = 1 ] && ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
  have rustup || die "rustfmt or clippy is missing, and there is no rustup to add them"
  say "adding rustfmt and clippy with rustup"
  rustup --quiet component add rustfmt clippy || die "rustup could not add rustfmt and clippy"
fi

if [ "$for_tests" = 1 ]; then
  scripts/s3-servers.sh || die "the S3 servers of the tests could not be installed (see above)"
  scripts/gcs-servers.sh || die "the emulators of Google Cloud Storage could not be installed (see above)"
  scripts/azurite.sh >/dev/null || die "Azurite, which the tests start, could not be installed (see above)"
fi
