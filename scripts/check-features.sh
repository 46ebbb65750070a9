#!/usr/bin/env bash
# A build that is shipped carries neither a canary (a rule broken on purpose, for a drill to catch) nor the simulated
# ports nor their scheduler. Asks cargo which features it would build `ankusa` and the drills with; needs no build.
set -euo pipefail
cd "$(dirname "$0")/.."

for package in ankusa-node ankusa-drills; do
  # One line a package: its name, a bar, its enabled features.
  ours=$(cargo tree --edges normal,build --prefix none --format '{p}|{f}' --package "$package" |
    sed -n 's/^\(ankusa[a-z-]*\) .*|\(.*\)$/\1 \2/p' | sort -u)
  # Not vacuous: the package itself must be among what is searched.
  grep -q "^$package " <<<"$ours" || { echo "features: cargo does not list $package" >&2; exit 1; }
  if found=$(grep -E '[ ,](canary[^,]*|sim|shuttle)(,|$)' <<<"$ours"); then
    printf 'features: a plain build of %s carries %s\n' "$package" "$found" >&2
    exit 1
  fi
done
