//! An HTTP/2 client that is in order, and one that writes whatever frames it is told to.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::http::{Answer, Gone};
use super::in_time;

/// One connection with prior knowledge, or after a handshake.
pub struct Http2Client {
    sender: http2::SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
}

impl Http2Client {
    pub async fn tcp(port: u16) -> Self {
        let stream = in_time("connecting", TcpStream::connect(("127.0.0.1", port))).await.unwrap();
        Self::over(stream).await
    }

    pub async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let stream = TokioIo::new(stream);
        let handshake = http2::handshake(TokioExecutor::new(), stream);
        let (sender, connection) = in_time("the preface", handshake).await.unwrap();
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        Self { sender, connection }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The stream or the connection ended first.
    pub async fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, Gone> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request =
            Request::builder().method(method).uri(format!("http://node.test{target}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
        in_time("room for a stream", self.sender.ready()).await.map_err(|_| Gone)?;
        let answer = in_time("an answer", self.sender.send_request(request)).await;
        let (parts, body) = answer.map_err(|_| Gone)?.into_parts();
        let body = in_time("a body", body.collect()).await.map_err(|_| Gone)?.to_bytes().to_vec();
        let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap().to_owned();
        let headers = parts.headers.iter().filter(|(name, _)| *name != "date");
        let headers = headers.map(|(name, value)| (name.as_str().to_owned(), text(value)));
        Ok(Answer { status: parts.status.as_u16(), headers: headers.collect(), body })
    }

    /// # Errors
    /// As [`Http2Client::ask`].
    pub async fn post(&mut self, target: &str, body: &[u8]) -> Result<Answer, Gone> {
        self.ask("POST", target, &[], body).await
    }

    /// Waits until the other side has ended the connection.
    pub async fn ended(self) {
        drop(self.sender);
        in_time("the end of the connection", self.connection).await.unwrap();
    }
}

/// What a client with prior knowledge says first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types and flags.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// A frame, in order or not.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A block of headers, none of them in any table, none longer than 126 bytes.
pub fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in headers {
        bytes.push(0);
        for text in [name, value] {
            bytes.push(u8::try_from(text.len()).unwrap());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// The head of a hook for the source `demo`.
pub fn hook_block(more: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/webhooks/demo"),
        (":authority", "node.test"),
    ];
    block(&[&pseudo[..], more].concat())
}

/// The frames in `bytes`: type, flags, stream, payload. What is cut off at the end is left out.
pub fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        found.push((head[3], head[4], stream, payload.to_vec()));
        bytes = rest;
    }
    found
}
