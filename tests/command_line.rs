//! The commands that ask a node, against a socket that answers what a node would.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::{self, JoinHandle};

use tempfile::TempDir;

/// Answers one request with `answer` and hands back the request's first line.
fn answering<S: Read + Write>(mut connection: S, answer: &str) -> String {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && connection.read(&mut byte).unwrap() == 1 {
        request.push(byte[0]);
    }
    connection.write_all(answer.as_bytes()).unwrap();
    let request = String::from_utf8(request).unwrap();
    request.lines().next().unwrap().to_owned()
}

fn json(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

struct Socket {
    folder: TempDir,
    serving: JoinHandle<String>,
}

impl Socket {
    /// A control socket that answers one request.
    fn that_answers(answer: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("control.sock")).unwrap();
        let serving = thread::spawn(move || answering(listener.accept().unwrap().0, &answer));
        Self { folder, serving }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }
}

fn ankusa(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ankusa"));
    command.args(args).env_clear();
    command
}

fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs `ctl` with `args` against a socket that answers `answer`: the request, and what was told.
fn ctl(args: &[&str], answer: String) -> (String, (Option<i32>, String, String)) {
    let socket = Socket::that_answers(answer);
    let output = ankusa(&["ctl", "--socket"]).arg(socket.path()).args(args).output().unwrap();
    (socket.serving.join().unwrap(), told(&output))
}

#[test]
fn every_verb_is_its_documented_request() {
    for (args, request) in [
        (vec!["status"], "GET /v1/status HTTP/1.1"),
        (vec!["tree"], "GET /v1/tree HTTP/1.1"),
        (vec!["ready"], "GET /ready HTTP/1.1"),
        (vec!["metrics"], "GET /metrics HTTP/1.1"),
        (vec!["hooks"], "GET /v1/hooks?after=0&limit=100 HTTP/1.1"),
        (vec!["hooks", "--after", "7", "--limit", "3"], "GET /v1/hooks?after=7&limit=3 HTTP/1.1"),
        (vec!["dlq", "list"], "GET /v1/dlq?limit=100 HTTP/1.1"),
        (
            vec!["dlq", "list", "--source", "a b&c", "--since", "5", "--limit", "1"],
            "GET /v1/dlq?source_id=a+b%26c&since=5&limit=1 HTTP/1.1",
        ),
        (
            vec![
                "dlq", "list", "--tenant", "acme", "--until", "9", "--reason", "sink", "--cursor",
                "1.2.3",
            ],
            "GET /v1/dlq?tenant_id=acme&until=9&reason=sink&limit=100&cursor=1.2.3 HTTP/1.1",
        ),
        (vec!["stats"], "GET /v1/queue HTTP/1.1"),
        (vec!["stats", "acme"], "GET /v1/tenants/acme/queue HTTP/1.1"),
        (vec!["stats", "a/../b c"], "GET /v1/tenants/a%2F..%2Fb%20c/queue HTTP/1.1"),
        (vec!["tenants"], "GET /v1/queue/tenants?limit=100 HTTP/1.1"),
        (
            vec!["tenants", "--limit", "5", "--cursor", "7"],
            "GET /v1/queue/tenants?limit=5&cursor=7 HTTP/1.1",
        ),
        (
            vec!["purge", "acme", "--state", "pending,dead"],
            "POST /v1/tenants/acme/purge?state=pending%2Cdead HTTP/1.1",
        ),
        (vec!["recount"], "POST /v1/recount?repair=false HTTP/1.1"),
        (vec!["recount", "--repair"], "POST /v1/recount?repair=true HTTP/1.1"),
        (vec!["dump"], "GET /v1/dump HTTP/1.1"),
        (vec!["store", "reopen"], "POST /v1/store/reopen HTTP/1.1"),
        (vec!["crash", "syncer"], "POST /v1/crash?child=syncer HTTP/1.1"),
        (vec!["stop"], "POST /v1/stop HTTP/1.1"),
    ] {
        let (asked, (code, _, err)) = ctl(&args, json("200 OK", "{}"));
        assert_eq!((asked.as_str(), code, err.as_str()), (request, Some(0), ""), "{args:?}");
    }
}

#[test]
fn what_is_asked_of_a_store_is_its_documented_request() {
    for (args, request) in [
        (vec!["stat", "a/b &c"], "GET /v1/blob/stat?store=claims&key=a%2Fb+%26c HTTP/1.1"),
        (vec!["rm", "a/b"], "DELETE /v1/blob/object?store=claims&key=a%2Fb HTTP/1.1"),
    ] {
        let args = [&["blob", "--store", "claims"][..], &args].concat();
        let args = [&args[..1], &args[3..], &args[1..3]].concat();
        let (asked, (code, _, err)) = ctl(&args, json("200 OK", "{}"));
        assert_eq!((asked.as_str(), code, err.as_str()), (request, Some(0), ""), "{args:?}");
    }
    // The node says who it is by the words of the store, and this by its exit code.
    let advice = r#"{"error":"throttled","message":"not before 7 s","advice":"wait"}"#;
    let stat = ["blob", "stat", "a", "--store", "backup"];
    let (_, told) = ctl(&stat, json("503 Service Unavailable", advice));
    assert_eq!(told, (Some(13), String::new(), "throttled: not before 7 s\nwait\n".to_owned()));
    // The same words without it are those of something else.
    let (_, told) = ctl(&stat, json("404 Not Found", r#"{"error":"not_found"}"#));
    assert_eq!(told, (Some(1), String::new(), "not_found\n".to_owned()));
}

#[test]
fn a_listing_without_its_last_line_is_a_failure() {
    let entry = "{\"key\":\"a\u{1b}\",\"bytes\":7}\n".replace('\u{1b}', "\\u001b");
    let end = "{\"end\":true,\"objects\":1,\"bytes\":7}\n";
    let ls = ["blob", "ls", "a", "--store", "segments"];
    let (asked, told) = ctl(&ls, json("200 OK", &format!("{entry}{end}")));
    assert_eq!(asked, "GET /v1/blob/list?store=segments&prefix=a HTTP/1.1");
    let table = "       BYTES  KEY\n           7  a\\u{1b}\n";
    assert_eq!(told, (Some(0), format!("{table}objects: 1, bytes: 7\n"), String::new()));
    let broke = "the listing broke off\n".to_owned();
    let (_, told) = ctl(&ls, json("200 OK", &entry));
    assert_eq!(told, (Some(1), table.to_owned(), broke.clone()));
    // Nor is half of the last line one.
    let (_, told) = ctl(&ls, json("200 OK", &format!("{entry}{}", &end[..9])));
    assert_eq!(told, (Some(1), table.to_owned(), broke));
    let whole = json("200 OK", &format!("{entry}{end}"));
    let (_, (code, _, err)) = ctl(&ls, whole[..whole.len() - 5].to_owned());
    assert_eq!(code, Some(1));
    assert!(err.starts_with("the listing broke off: "), "{err}");
}

#[test]
fn people_get_tables_and_scripts_the_nodes_own_json() {
    let body = r#"{"hooks":[{"seq":1,"id":"a"},{"seq":12,"id":"b"}],"more":false}"#;
    let (_, (code, out, _)) = ctl(&["hooks"], json("200 OK", body));
    assert_eq!((code, out.as_str()), (Some(0), "SEQ  ID\n1    a\n12   b\nmore: false\n"));
    let (_, (code, out, _)) = ctl(&["--json", "hooks"], json("200 OK", body));
    assert_eq!((code, out), (Some(0), format!("{body}\n")));
}

#[test]
fn a_purge_goes_on_until_nothing_is_left_and_says_how_far_it_has_come() {
    let page = |pending: u32, next: &str| {
        let body = format!(
            r#"{{"tenant_id":"acme","purged":{{"dead":1,"pending":{pending}}},"left":{{"dead":0}},"next_cursor":{next}}}"#
        );
        json("200 OK", &body)
    };
    let purge = |answers: [String; 2]| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let serving = thread::spawn(move || {
            answers.map(|answer| answering(listener.accept().unwrap().0, &answer))
        });
        let args = ["purge", "acme", "--state", "pending,dead"];
        let output = ankusa(&["ctl", "--socket"]).arg(&path).args(args).output().unwrap();
        (serving.join().unwrap(), told(&output))
    };
    let (asked, (code, out, err)) = purge([page(500, r#""7.7.0""#), page(20, "null")]);
    let first = "POST /v1/tenants/acme/purge?state=pending%2Cdead HTTP/1.1";
    let second = "POST /v1/tenants/acme/purge?state=pending%2Cdead&cursor=7.7.0 HTTP/1.1";
    assert_eq!(asked, [first, second]);
    assert_eq!((code, err.as_str()), (Some(0), "removed so far: 1 dead, 500 pending\n"));
    let table = "tenant_id       acme\npurged.dead     2\npurged.pending  520\nleft.dead       0\n";
    assert_eq!(out, table);
    let stopped = json("503 Service Unavailable", r#"{"error":"dispatch_unavailable"}"#);
    let (_, (code, out, err)) = purge([page(500, r#""7.7.0""#), stopped]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.ends_with("dispatch_unavailable; 501 rows were removed before\n"), "{err}");
}

#[test]
fn a_recount_exits_with_3_when_counters_are_wrong_and_left_so() {
    let counted = |wrong: u32, repaired: bool| {
        let body = format!(
            r#"{{"rows":4,"miscounts":[],"wrong_counters":{wrong},"repaired":{repaired}}}"#
        );
        let code = |args: &[&str]| ctl(args, json("200 OK", &body)).1.0;
        [code(&["recount"]), code(&["recount", "--json"])]
    };
    assert_eq!(counted(0, false), [Some(0); 2]);
    assert_eq!(counted(2, false), [Some(3); 2]);
    assert_eq!(counted(2, true), [Some(0); 2]);
    let refused = json("503 Service Unavailable", r#"{"error":"store_unavailable"}"#);
    assert_eq!(ctl(&["recount"], refused).1.0, Some(1));
}

#[test]
fn a_long_answer_is_passed_on_as_it_is() {
    let lines = "{\"cf\":\"hooks\"}\n{\"end\":true}\n";
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{lines}\r\n0\r\n\r\n",
        lines.len()
    );
    let (_, (code, out, err)) = ctl(&["dump"], chunked);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), lines, ""));
}

#[test]
fn a_long_answer_that_breaks_off_is_a_failure() {
    let cut = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nline\n\r\n".to_owned();
    let (_, (code, out, err)) = ctl(&["dump"], cut);
    assert_eq!((code, out.as_str()), (Some(1), "line\n"));
    assert!(err.starts_with("the connection broke: "), "{err}");
}

#[test]
fn a_refusal_is_told_on_standard_error_and_exits_1() {
    let refusal = || json("409 Conflict", r#"{"error":"role_not_enabled","role":"dispatch"}"#);
    let (_, answered) = ctl(&["dlq", "list"], refusal());
    assert_eq!(answered, (Some(1), String::new(), "role_not_enabled (role=dispatch)\n".to_owned()));
    let (_, (code, out, err)) = ctl(&["dlq", "list", "--json"], refusal());
    let body = "{\"error\":\"role_not_enabled\",\"role\":\"dispatch\"}\n";
    assert_eq!((code, out.as_str(), err.as_str()), (Some(1), body, ""));
    let (_, (code, ..)) =
        ctl(&["dump"], json("503 Service Unavailable", r#"{"error":"store_unavailable"}"#));
    assert_eq!(code, Some(1));
}

#[test]
fn a_node_that_is_not_ready_says_why_and_exits_1() {
    let body = r#"{"status":"unavailable","store":"failing","reasons":{"store":"no_space"}}"#;
    let (_, answered) = ctl(&["ready"], json("503 Service Unavailable", body));
    let table = "status         unavailable\nstore          failing\nreasons.store  no_space\n";
    assert_eq!(answered, (Some(1), table.to_owned(), String::new()));
}

#[test]
fn a_socket_that_is_not_there_or_not_answered_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let asked =
        |path: &Path| told(&ankusa(&["ctl", "status", "--socket"]).arg(path).output().unwrap());
    let at = path.display();

    let missing =
        format!("no control socket at {at}: is the node running? --socket names another\n");
    assert_eq!(asked(&path), (Some(1), String::new(), missing));

    drop(UnixListener::bind(&path).unwrap());
    let stale = format!("nobody listens at {at}: the node that made this socket is gone\n");
    assert_eq!(asked(&path), (Some(1), String::new(), stale));
}

#[test]
fn the_socket_is_where_the_configuration_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ankusa.yml");
    let data_dir = folder.path().display();
    std::fs::write(&file, format!("node: {{data_dir: \"{data_dir}\", instance: one}}")).unwrap();
    let config = file.to_str().unwrap();
    let (code, _, err) = told(&ankusa(&["ctl", "--config", config, "status"]).output().unwrap());
    let missing = format!(
        "no control socket at {data_dir}/one/control.sock: is the node running? --socket names another\n"
    );
    assert_eq!((code, err), (Some(1), missing));

    std::fs::write(&file, "nodes: {}").unwrap();
    let (code, _, err) = told(&ankusa(&["ctl", "--config", config, "status"]).output().unwrap());
    assert_eq!(code, Some(1));
    assert!(
        err.starts_with(
            "cannot tell where the control socket is; name it with --socket\nnodes: unknown key"
        ),
        "{err}"
    );
}

#[test]
fn the_health_check_asks_the_port_hooks_arrive_on_else_the_admin_port_else_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ankusa.yml");
    let health = |text: String| {
        std::fs::write(&file, text).unwrap();
        told(&ankusa(&["healthcheck", "--config"]).arg(&file).output().unwrap())
    };
    let ready = || json("200 OK", r#"{"status":"ready"}"#);
    let listen = |answer: String| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (port, thread::spawn(move || answering(listener.accept().unwrap().0, &answer)))
    };

    let (port, serving) = listen(ready());
    assert_eq!(health(format!("http: {{port: {port}}}")), (Some(0), String::new(), String::new()));
    assert_eq!(serving.join().unwrap(), "GET /ready HTTP/1.1");

    let (port, serving) = listen(json("503 Service Unavailable", "{}"));
    let not_ready = (Some(1), String::new(), "not ready: 503 Service Unavailable\n".to_owned());
    assert_eq!(health(format!("http: {{port: {port}}}")), not_ready);
    serving.join().unwrap();

    let (port, serving) = listen(ready());
    let admin = format!("node: {{roles: [dispatch]}}\nadmin: {{port: {port}}}");
    assert_eq!(health(admin), (Some(0), String::new(), String::new()));
    serving.join().unwrap();

    let socket = Socket::that_answers(ready());
    let path = socket.path();
    let control = format!(
        "node: {{roles: [dispatch]}}\nadmin: {{enabled: false}}\ncontrol: {{socket: \"{}\"}}",
        path.display()
    );
    assert_eq!(health(control.clone()), (Some(0), String::new(), String::new()));
    socket.serving.join().unwrap();

    let (code, _, err) = health(control);
    assert_eq!(code, Some(1));
    assert!(err.starts_with("not ready: the connection broke: "), "{err}");
}

#[test]
fn version_names_the_program() {
    let version = format!("ankusa {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(told(&ankusa(&["version"]).output().unwrap()), (Some(0), version, String::new()));
}

#[test]
fn arguments_that_make_no_sense_exit_2_and_help_exits_0() {
    for args in
        [vec![], vec!["fly"], vec!["start", "--port", "1"], vec!["ctl", "hooks", "--limit", "x"]]
    {
        let (code, out, err) = told(&ankusa(&args).output().unwrap());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}");
        assert!(err.contains("ankusa") || err.starts_with("error: "), "{err}");
    }
    let (code, out, err) = told(&ankusa(&["--help"]).output().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for command in
        ["start", "demo", "check-config", "print-config", "version", "healthcheck", "ctl"]
    {
        assert!(out.contains(command), "{command}");
    }
}
