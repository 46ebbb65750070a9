//! A client that writes what it is told to, byte for byte, and shows every byte of what comes back.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::in_time;

/// A request as most clients write it.
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = head(method, target, headers);
    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The same with a chunked body, in chunks of the given sizes.
pub fn chunked(target: &str, headers: &[(&str, &str)], chunks: &[&[u8]]) -> Vec<u8> {
    let mut bytes = head("POST", target, headers);
    bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    for chunk in chunks {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// Request line and headers, without the empty line.
pub fn head(method: &str, target: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nhost: node.test\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes
}

/// What came back.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// In the order of the wire, without `date`.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// An answer as the node writes it: JSON, and besides only the headers named.
    pub fn json(status: u16, body: &str, more: &[(&str, &str)]) -> Self {
        let length = body.len().to_string();
        let mut headers = vec![("content-type", "application/json"), ("content-length", &length)];
        headers.extend_from_slice(more);
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Self { status, headers: headers.collect(), body: body.as_bytes().to_vec() }.sorted()
    }

    /// With its headers in alphabetical order: theirs promises nothing.
    pub fn sorted(mut self) -> Self {
        self.headers.sort();
        self
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The id an accepted hook was told.
    pub fn id(&self) -> String {
        assert_eq!(self.status, 201, "{}", String::from_utf8_lossy(&self.body));
        self.value()["id"].as_str().unwrap().to_owned()
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        write!(f, "{} {:?} {body:?}", self.status, self.headers)
    }
}

/// The connection ended before a whole answer had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection.
pub struct Client {
    stream: Box<dyn Stream>,
    /// Came, and not looked at yet.
    buffer: Vec<u8>,
}

impl Client {
    /// # Errors
    /// Nobody listens.
    pub async fn try_tcp(port: u16) -> std::io::Result<Self> {
        let stream = in_time("connecting", TcpStream::connect(("127.0.0.1", port))).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: Box::new(stream), buffer: Vec::new() })
    }

    pub async fn tcp(port: u16) -> Self {
        Self::try_tcp(port).await.unwrap()
    }

    /// One request on a connection of its own.
    pub async fn once(
        port: u16,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut client = Self::tcp(port).await;
        client.send(&request(method, target, headers, body.as_bytes())).await.unwrap();
        client.answer_to(method).await.unwrap()
    }

    /// # Errors
    /// Nobody listens.
    pub async fn try_unix(path: &Path) -> std::io::Result<Self> {
        let stream = in_time("connecting", UnixStream::connect(path)).await?;
        Ok(Self { stream: Box::new(stream), buffer: Vec::new() })
    }

    /// Over TLS, trusting `client`'s authorities and showing what it has to show.
    ///
    /// # Errors
    /// Nobody listens, or the two cannot agree.
    pub async fn try_tls(port: u16, client: Arc<ClientConfig>) -> std::io::Result<Self> {
        let stream = super::tls::connect(port, client).await?;
        Ok(Self { stream: Box::new(stream), buffer: Vec::new() })
    }

    /// # Errors
    /// Nobody takes it any more.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        in_time("sending", self.stream.write_all(bytes)).await.map_err(|_| Gone)
    }

    /// Says that nothing more is sent; still listens.
    pub async fn finish(&mut self) {
        let _ = in_time("shutting down", self.stream.shutdown()).await;
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The connection ended first.
    pub async fn ask(&mut self, bytes: &[u8]) -> Result<Answer, Gone> {
        // Refused before it had been sent whole: the answer is there all the same.
        let _ = self.send(bytes).await;
        self.answer().await
    }

    /// The next answer, interim ones (1xx) too.
    ///
    /// # Errors
    /// The connection ended first.
    pub async fn answer(&mut self) -> Result<Answer, Gone> {
        self.answer_to("POST").await
    }

    /// The next answer, to a request with this method.
    ///
    /// # Errors
    /// The connection ended first.
    pub async fn answer_to(&mut self, method: &str) -> Result<Answer, Gone> {
        let head = self.through(b"\r\n\r\n").await?;
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap();
        let status = ["HTTP/1.1 ", "HTTP/1.0 "].iter().find_map(|it| status_line.strip_prefix(it));
        let status = status.and_then(|rest| rest.get(..3));
        let status = status.and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not a status line: {status_line:?}"));
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let headers: Vec<_> = headers.map(|(name, value)| (name.into(), value.into())).collect();
        let mut answer = Answer { status, headers, body: Vec::new() };
        answer.headers.retain(|(name, _)| name != "date");
        let bodiless = method == "HEAD" || (100..200).contains(&status) || status == 204;
        if !bodiless {
            answer.body = self.body(&answer).await?;
        }
        Ok(answer)
    }

    async fn body(&mut self, answer: &Answer) -> Result<Vec<u8>, Gone> {
        if let Some(length) = answer.header("content-length") {
            return self.exactly(length.parse().unwrap()).await;
        }
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"), "{answer:?}");
        let mut body = Vec::new();
        loop {
            let size = String::from_utf8(self.through(b"\r\n").await?).unwrap();
            let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
            body.extend(self.exactly(size).await?);
            self.exactly(2).await?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Everything up to and with `end`.
    async fn through(&mut self, end: &[u8]) -> Result<Vec<u8>, Gone> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return Ok(self.buffer.drain(..at + end.len()).collect());
            }
            self.more().await?;
        }
    }

    async fn exactly(&mut self, count: usize) -> Result<Vec<u8>, Gone> {
        while self.buffer.len() < count {
            self.more().await?;
        }
        Ok(self.buffer.drain(..count).collect())
    }

    /// Waits for bytes, whatever they are. What was waited for in vain may be waited for again.
    ///
    /// # Errors
    /// The connection ended.
    pub async fn more(&mut self) -> Result<(), Gone> {
        let mut chunk = vec![0; 64 << 10];
        match in_time("reading", self.stream.read(&mut chunk)).await {
            Ok(0) => Err(Gone),
            Ok(read) => {
                self.buffer.extend_from_slice(&chunk[..read]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Gone),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Gone),
            // TLS without its own end.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(Gone),
            // What a handshake comes to that the other side gave up.
            Err(error) if error.kind() == ErrorKind::InvalidData => Err(Gone),
            Err(error) => panic!("cannot read: {error}"),
        }
    }

    /// What came and has not been looked at.
    pub fn unread(&self) -> &[u8] {
        &self.buffer
    }

    /// Waits until the other side has closed, and shows what it still said.
    pub async fn rest(mut self) -> Vec<u8> {
        while self.more().await.is_ok() {}
        self.buffer
    }
}
