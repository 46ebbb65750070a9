//! The little HTTP/1.1 the drills need: one request on a new connection, many on a kept one, over TCP or a unix socket.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum NoAnswer {
    /// Nothing listens: the request was not sent.
    #[error("no connection: {0}")]
    NotConnected(std::io::Error),
    /// The connection ended before a byte of the request was sent on it.
    #[error("the connection had ended: {0}")]
    NotSent(hyper::Error),
    #[error("the connection ended: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the request cannot be built: {0}")]
    Unsendable(#[from] hyper::http::Error),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

/// A kept connection.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects to a port of this machine.
    ///
    /// # Errors
    /// When nothing listens there.
    pub async fn to_port(port: u16) -> Result<Self, NoAnswer> {
        let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            .await
            .map_err(NoAnswer::NotConnected)?;
        stream.set_nodelay(true).map_err(NoAnswer::NotConnected)?;
        Self::over(stream).await
    }

    /// Connects to a unix socket.
    ///
    /// # Errors
    /// When nothing listens there.
    pub async fn to_socket(path: &Path) -> Result<Self, NoAnswer> {
        Self::over(UnixStream::connect(path).await.map_err(NoAnswer::NotConnected)?).await
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Self, NoAnswer> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // It ends with the connection, whose errors the request sees too.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// Sends one request and waits for the whole answer, at most `patience`. After an error the connection is of no use.
    ///
    /// # Errors
    /// When the connection ends, or patience does.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
        patience: Duration,
    ) -> Result<Answer, NoAnswer> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/octet-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body))?;
        let exchange = async {
            // After an answer the connection is ready a moment later.
            self.sender.ready().await.map_err(NoAnswer::NotSent)?;
            let sent = self.sender.try_send_request(request).await;
            let response = sent.map_err(|failed| match failed.message() {
                Some(_) => NoAnswer::NotSent(failed.into_error()),
                None => NoAnswer::Broken(failed.into_error()),
            })?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok(Answer { status, body })
        };
        timeout(patience, exchange).await.map_err(|_| NoAnswer::TimedOut(patience))?
    }
}
