#!/usr/bin/env bash
# Installs Azurite, an Azure Blob Storage server for tests, once a machine, and prints the path of its program. Needs node
# and npm.
#
#   scripts/azurite.sh
#
# It lies in a folder of ${ANKUSA_CACHE:-~/.cache/ankusa}, named after its version.
set -euo pipefail

version=3.35.0

cache=${ANKUSA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ankusa}
folder=$cache/azurite-$version
if [ ! -d "$folder" ]; then
  command -v npm >/dev/null || { echo 'azurite: npm is missing: run scripts/setup.sh --test' >&2; exit 1; }
  echo "azurite: installing $version into $folder" >&2
  mkdir -p "$cache"
  # Another run may be at it too: the first whole one stays.
  unfinished=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf "$unfinished"' EXIT
  npm install --silent --no-audit --no-fund --no-update-notifier --ignore-scripts --omit=dev --omit=optional \
    --prefix "$unfinished" "azurite@$version" >&2 ||
    { echo 'azurite: npm could not install it (see above)' >&2; exit 1; }
  mv -T "$unfinished" "$folder" 2>/dev/null || [ -d "$folder" ]
fi
echo "$folder/node_modules/azurite/dist/src/blob/main.js"
