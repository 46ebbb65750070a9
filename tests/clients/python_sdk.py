"""The published Python client (the package `ankusa`) against a running node: every call of it that the node serves.

run.sh starts the node and says where it is. Everything here is asserted; the first surprise ends it with a traceback.
"""

import contextlib
import hashlib
import http.server
import os
import queue
import threading
import time
import urllib.error
import urllib.request

from ankusa import (
    AdminClient,
    AdminRejectedError,
    InvalidRouteIdError,
    InvalidSignatureError,
    RouteNotFoundError,
    RoutesClient,
    RoutesRejectedError,
    SourceConflictError,
    SourceInvalidError,
    SourceNotFoundError,
    SourceSpec,
    SourcesClient,
    VersionMismatchError,
    parse_headers,
    verify_signature,
)

INGEST = os.environ["ANKUSA_INGEST"]
ADMIN = os.environ["ANKUSA_ADMIN"]
ROUTES = os.environ["ANKUSA_ROUTES"]
SECRET = "whsec_c2VjcmV0IGZvciB0aGUgY2xpZW50cw=="
PATIENCE_S = 60


def until(what, look):
    """Looks until there is something to see."""
    since = time.monotonic()
    while not (seen := look()):
        assert time.monotonic() - since < PATIENCE_S, f"waited in vain until {what}"
        time.sleep(0.02)
    return seen


def raises(error, call, **expected):
    """The error that a call must raise, with these attributes."""
    try:
        call()
    except error as raised:
        found = {name: getattr(raised, name) for name in expected}
        assert found == expected, found
        return raised
    raise AssertionError(f"{error.__name__} was not raised")


@contextlib.contextmanager
def worker():
    """A worker: its URL, and a queue of what it was sent. Answers 410 to a body that says `gone`."""
    got = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            got.put((dict(self.headers), body))
            self.send_response(410 if body == b"gone" else 204)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hooks", got
    finally:
        server.shutdown()


def post(path, body):
    request = urllib.request.Request(INGEST + path, data=body, method="POST")
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


def admin_views():
    with AdminClient(ADMIN) as admin:
        health = admin.health()
        assert (health["status"], health["instance"]) == ("ok", "default"), health
        assert health["roles"] == ["dispatch", "edge"], health
        assert "ankusa_ingest_requests_total" in admin.metrics()
        config = admin.config()
        assert config["sources"]["signed"]["verify"] == {"type": "github", "secret": "[REDACTED]"}, config
        assert admin.list_dead_letters({"limit": 5}) == {"total": 0, "entries": [], "next_cursor": None}
        raises(AdminRejectedError, lambda: admin.list_dead_letters({"since": "x"}), status=400, code="invalid_filter")


def quarantine():
    with AdminClient(ADMIN) as admin:
        assert admin.list_quarantined() == {"entries": []}
        assert post("/webhooks/held", b"unsigned") == 202
        (entry,) = admin.list_quarantined({"limit": 5})["entries"]
        assert (entry["source_id"], entry["reason"]) == ("held", ":missing_signature"), entry
        assert admin.list_quarantined({"limit": 0}) == {"entries": []}


def sources(url, got):
    spec = SourceSpec(
        sinks=[{"type": "http", "url": url, "secret": SECRET}],
        verify={"type": "none"},
        on_verify_failure="reject",
    )
    with SourcesClient(ADMIN) as client:
        version = client.server_version()
        assert client.list_sources("acme") == []
        assert [source.source_id for source in client.list_sources("default")] == ["demo", "held", "signed"]
        raises(SourceNotFoundError, lambda: client.get_source("acme", "orders"), status=404)
        assert post("/webhooks/acme.orders", b"early") == 404

        made = client.create_source("acme", "orders", spec)
        assert (made.tenant, made.name, made.source_id) == ("acme", "orders", "acme.orders"), made
        assert made.ingest_path == "/webhooks/acme.orders", made
        assert made.sinks[0]["secret"] == "[REDACTED]" and made.sinks[0]["url"] == url, made
        assert client.get_source("acme", "orders") == made
        assert client.list_sources("acme") == [made]
        raises(
            SourceConflictError,
            lambda: client.create_source("acme", "orders", spec),
            status=409,
            body={"error": "source_exists"},
        )
        raises(
            SourceInvalidError,
            lambda: client.create_source("acme", "other", SourceSpec(sinks=[])),
            status=400,
            message="sinks: must hold at least one sink",
        )
        # What is shown instead of a secret is refused, not stored.
        raises(SourceInvalidError, lambda: client.update_source("acme", "orders", SourceSpec(sinks=made.sinks)))

        delivered(made, got)
        dead_letter(made)

        changed = client.update_source("acme", "orders", SourceSpec(sinks=[{"type": "log"}]))
        assert (changed.sinks, changed.verify) == ([{"type": "log"}], {"type": "none"}), changed
        client.delete_source("acme", "orders")
        raises(SourceNotFoundError, lambda: client.delete_source("acme", "orders"), status=404)
        assert post("/webhooks/acme.orders", b"late") == 404
    with SourcesClient(ADMIN, expected_version=version) as client:
        assert client.list_sources("acme") == []
    with SourcesClient(ADMIN, expected_version="0.0.0") as client:
        raises(VersionMismatchError, lambda: client.list_sources("acme"))


def delivered(source, got):
    """A hook arrives, and its worker can tell that the node sent it."""
    body = b'{"order": 7}'
    assert post(source.ingest_path, body) == 201
    headers, came = got.get(timeout=PATIENCE_S)
    assert came == body
    hook = parse_headers(headers)
    assert (hook.source, hook.tenant) == ("acme.orders", "acme"), hook
    assert headers["x-ankusa-body-sha256"] == hashlib.sha256(body).hexdigest(), headers
    verified = verify_signature(headers, came, [SECRET])
    assert verified.id == hook.id, (verified, hook)
    raises(InvalidSignatureError, lambda: verify_signature(headers, came + b" ", [SECRET]), code="no_matching_signature")


def dead_letter(source):
    assert post(source.ingest_path, b"gone") == 201
    with AdminClient(ADMIN) as admin:
        page = until(
            "the dead letter is listed",
            lambda: (page := admin.list_dead_letters({"source_id": source.source_id, "limit": 5}))["entries"] and page,
        )
        entry = page["entries"][0]
        assert (page["total"], entry["source_id"], entry["tenant_id"]) == (1, "acme.orders", "acme"), page
        assert "410" in entry["reason"], entry
        assert admin.list_dead_letters({"since": entry["dead_lettered_at"] + 1})["entries"] == []


def routes():
    """The node lets everything in by one route; without it, what no other takes is denied."""
    with RoutesClient(ROUTES) as client:
        assert client.health() == {"status": "ok", "routes": 1}
        everything = client.get_route("everything")
        assert (everything["path"], everything["enabled"], everything["revision"]) == ("/*", True, 1), everything
        assert client.update_route("everything", {"enabled": False})["revision"] == 2
        assert post("/webhooks/demo", b"denied") == 404
        made = client.create_route({"path": "/webhooks/:source", "metadata": {"team": "billing"}})
        assert post("/webhooks/demo", b"let in") == 201
        assert client.get_route(made["id"]) == made
        raises(
            RoutesRejectedError,
            lambda: client.create_route({"path": "/webhooks/:other"}),
            status=409,
            code="duplicate_route",
            conflicting_id=made["id"],
        )
        raises(RoutesRejectedError, lambda: client.create_route({"path": "a"}), status=400, code="invalid_route", field="path")
        raises(RoutesRejectedError, lambda: client.list_routes({"limit": 0}), status=400, code="invalid_query", field="limit")
        page = client.list_routes({"limit": 1, "enabled": True})
        assert page == {"routes": [made], "next_cursor": None}, page
        denied = client.replace_route(made["id"], {"path": "/webhooks/demo", "ip_rules": [{"action": "deny", "cidr": "0.0.0.0/0"}]})
        assert (denied["revision"], denied["inserted_at"]) == (2, made["inserted_at"]), denied
        assert post("/webhooks/demo", b"denied") == 403
        tried = client.test_route({"method": "POST", "path": "/webhooks/demo", "ip": "192.0.2.1"})
        rule = {"action": "deny", "cidr": "0.0.0.0/0", "scope": "route"}
        assert tried == {"decision": "deny", "reason": "ip_denied", "route_id": made["id"], "ip_rule": rule}, tried
        rules = {"default": "allow", "rules": [{"action": "deny", "cidr": "2001:db8::/32"}]}
        assert client.put_ip_rules(rules) == rules == client.get_ip_rules()
        raises(RoutesRejectedError, lambda: client.put_ip_rules({"rules": []}), status=400, code="invalid_ip_rules", field="default")
        client.delete_route(made["id"])
        raises(RouteNotFoundError, lambda: client.delete_route("a/b c%"))
        raises(InvalidRouteIdError, lambda: client.get_route(".."))
        client.update_route("everything", {"enabled": True})
        assert post("/webhooks/demo", b"as before") == 201


admin_views()
routes()
quarantine()
with worker() as (url, got):
    sources(url, got)
print("every call was answered as it must be")
