#!/usr/bin/env bash
# Programs of others against a running node: the published Python client, and schemathesis, which reads each OpenAPI
# document and looks for answers that it does not name. Needs python3 with venv and pip, and a built `ankusa`.
#
#   tests/clients/run.sh [PATH OF THE BINARY]
#
# The packages (requirements.txt) are installed once, into a folder of ${ANKUSA_CACHE:-~/.cache/ankusa}. What is tried is
# the same every time.
set -euo pipefail
cd "$(dirname "$0")"

ankusa=$(realpath "${1:-${CARGO_TARGET_DIR:-../../target}/debug/ankusa}")
cache=${ANKUSA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ankusa}
[ -x "$ankusa" ] || { echo "no node at $ankusa: build it first (cargo build)" >&2; exit 1; }

venv=$cache/clients-$(sha256sum requirements.txt | cut -c1-16)
if [ ! -f "$venv/whole" ]; then
  echo "installing the clients into $venv"
  mkdir -p "$cache"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 -r requirements.txt
  touch "$venv/whole"
fi

work=$(mktemp -d)
node=''
finish() {
  status=$?
  trap - EXIT
  if [ -n "$node" ]; then
    kill "$node" 2>/dev/null || true
    wait "$node" 2>/dev/null || true
  fi
  [ "$status" = 0 ] || { echo "== the node's log ended:"; tail -n 40 "$work/log"; } >&2
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT

# Three ports that nobody listens on.
read -r ingest admin routes < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*[s.getsockname()[1] for s in sockets])')
sed "s|@INGEST@|$ingest|; s|@ADMIN@|$admin|; s|@ROUTES@|$routes|; s|@DATA@|$work/data|" node.yml >"$work/ankusa.yml"

"$ankusa" start --config "$work/ankusa.yml" 2>"$work/log" &
node=$!
"$venv/bin/python" -c '
import sys, time, urllib.request
for _ in range(600):
    try:
        urllib.request.urlopen(sys.argv[1]).read(); break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("the node did not become ready")' "http://127.0.0.1:$admin/ready"

export ANKUSA_INGEST="http://127.0.0.1:$ingest" ANKUSA_ADMIN="http://127.0.0.1:$admin" ANKUSA_ROUTES="http://127.0.0.1:$routes"
export PYTHONDONTWRITEBYTECODE=1

echo '== the Python client'
"$venv/bin/python" python_sdk.py

# schemathesis keeps its findings in the folder it runs in.
cd "$work"
check() {
  local name=$1 url=$2
  shift 2
  echo "== schemathesis: $name"
  "$venv/bin/st" --config-file "$OLDPWD/schemathesis.toml" run "$url/openapi.json" \
    --generation-deterministic --no-color "$@"
}
check ingest "$ANKUSA_INGEST"
check admin "$ANKUSA_ADMIN"
check routes "$ANKUSA_ROUTES"

kill -0 "$node" || { echo 'the node ended' >&2; exit 1; }
