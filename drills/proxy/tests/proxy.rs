//! Each fault as a client meets it that writes and reads bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ankusa_drills_proxy::{Fault, Proxy, Rule, When};
use hyper::Method;

const BODY: &str = "0123456789";

/// Answers every request with [`BODY`], the number of requests in a header, and the request's `Host` in another.
fn upstream() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = read_request(&mut stream);
            let n = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let host = request.lines().find(|line| line.to_lowercase().starts_with("host:"));
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nx-n: {n}\r\nx-host: {}\r\nx-digest: right\r\n\r\n",
                BODY.len(),
                host.unwrap()[5..].trim()
            );
            stream.write_all((head + BODY).as_bytes()).unwrap();
        }
    });
    (address, asked)
}

/// With its body, whose length it says.
fn read_request(stream: &mut TcpStream) -> String {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        request.push(byte[0]);
    }
    let head = String::from_utf8(request).unwrap();
    let length = head.to_lowercase().lines().find_map(|line| {
        line.strip_prefix("content-length:").map(|length| length.trim().parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

async fn ask(proxy: &Proxy, request: &'static str) -> Result<String, ErrorKind> {
    let address = proxy.address();
    let asked = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).map_err(|error| error.kind())?;
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let request = format!(
            "{request} HTTP/1.1\r\nhost: bucket.example\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc"
        );
        stream.write_all(request.as_bytes()).map_err(|error| error.kind())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map_err(|error| error.kind())?;
        Ok(String::from_utf8(answer).unwrap())
    });
    asked.await.unwrap()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_rule_everything_is_handed_on() {
    let (upstream, asked) = upstream();
    let proxy = Proxy::start(upstream).await.unwrap();
    let answer = ask(&proxy, "PUT /a/b%2Fc?x=%20y").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("x-host: bucket.example"), "{answer}");
    assert_eq!((body(&answer), asked.load(Ordering::SeqCst)), (BODY, 1));
    let seen = proxy.take_seen();
    let told: Vec<_> = seen.iter().map(|s| (&s.method, s.target.as_str(), s.bytes)).collect();
    assert_eq!(told, [(&Method::PUT, "/a/b%2Fc?x=%20y", 3)]);
    assert!(proxy.take_seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_reset_or_swallowed_never_reaches_the_server() {
    let (upstream, asked) = upstream();
    let proxy = Proxy::start(upstream).await.unwrap();
    proxy.break_by([Fault::throttle(503, "7").always()]);
    let answer = ask(&proxy, "GET /").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("retry-after: 7"), "{answer}");
    proxy.break_by([Fault::Reset.always()]);
    assert_eq!(ask(&proxy, "GET /").await, Err(ErrorKind::ConnectionReset));
    proxy.break_by([Fault::Blackhole.always()]);
    assert_eq!(ask(&proxy, "GET /").await, Err(ErrorKind::WouldBlock));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    proxy.heal();
    assert!(ask(&proxy, "GET /").await.is_ok());
    assert_eq!(proxy.take_seen().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_lost_after_the_server_has_been_asked() {
    let (upstream, asked) = upstream();
    let proxy = Proxy::start(upstream).await.unwrap();
    proxy.break_by([Fault::LoseAnswer.times(1)]);
    assert_eq!(ask(&proxy, "PUT /").await, Err(ErrorKind::ConnectionReset));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert!(ask(&proxy, "PUT /").await.unwrap().contains("x-n: 2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_come_cut_in_pieces_changed_or_late() {
    let (upstream, _) = upstream();
    let proxy = Proxy::start(upstream).await.unwrap();
    proxy.break_by([Fault::Truncate { after_bytes: 4 }.always()]);
    let cut = ask(&proxy, "GET /").await.unwrap();
    assert!(cut.contains("content-length: 10"), "{cut}");
    assert_eq!(body(&cut), "0123");
    proxy.break_by([Fault::Drip { bytes: 3, every: Duration::from_millis(1) }.always()]);
    assert_eq!(body(&ask(&proxy, "GET /").await.unwrap()), BODY);
    proxy.break_by([Fault::CorruptBody.always()]);
    assert_eq!(body(&ask(&proxy, "GET /").await.unwrap()), "0123446789");
    let other = |name: &str| Fault::Header { name: name.into(), value: "wrong".into() }.always();
    proxy.break_by([other("x-digest")]);
    assert!(ask(&proxy, "GET /").await.unwrap().contains("x-digest: wrong"));
    proxy.break_by([other("x-none")]);
    assert!(!ask(&proxy, "GET /").await.unwrap().contains("x-none"));
    proxy.break_by([Fault::Late(Duration::from_millis(1)).always()]);
    assert_eq!(body(&ask(&proxy, "GET /").await.unwrap()), BODY);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_hits_the_requests_it_names_and_the_first_answer_comes_again() {
    let (upstream, asked) = upstream();
    let proxy = Proxy::start(upstream).await.unwrap();
    let when = When { method: Some(Method::GET), holds: "list".into(), after: 1, times: Some(1) };
    proxy.break_by([Rule { when, fault: Fault::status(500) }, Fault::Repeat.of(Method::GET)]);
    let (first, second) = (ask(&proxy, "GET /?list").await, ask(&proxy, "GET /?list").await);
    assert!(first.unwrap().contains("x-n: 1"));
    assert!(second.unwrap().starts_with("HTTP/1.1 500 "));
    assert!(ask(&proxy, "GET /?list").await.unwrap().contains("x-n: 1"), "again the first one");
    assert!(ask(&proxy, "PUT /").await.unwrap().contains("x-n: 3"));
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}
