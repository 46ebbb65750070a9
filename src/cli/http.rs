//! One HTTP/1.1 request over a connection that is already open.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// The largest answer that is read whole, in bytes.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("no answer within {} ms", .0.as_millis())]
    Late(Duration),
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl AskError {
    fn broken(error: impl std::fmt::Display) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Sends a request without a body: [`ask_with`].
pub(super) async fn ask<IO>(
    connection: IO,
    method: Method,
    path_and_query: &str,
    limit: Duration,
) -> Result<Response<Incoming>, AskError>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::builder()
        .method(method)
        .uri(path_and_query)
        .header(HOST, "localhost")
        .body(Full::<Bytes>::default())
        .map_err(AskError::broken)?;
    ask_with(connection, request, limit).await
}

/// The same for any request. The limit is for its body, too.
pub(super) async fn ask_with<IO, B>(
    connection: IO,
    request: Request<B>,
    limit: Duration,
) -> Result<Response<Incoming>, AskError>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let answer = async {
        let handshake = http1::handshake::<_, B>(TokioIo::new(connection)).await;
        let (mut sender, connection) = handshake.map_err(AskError::broken)?;
        // Ends with the answer's body, or with the runtime.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(AskError::broken)
    };
    tokio::time::timeout(limit, answer).await.map_err(|_| AskError::Late(limit))?
}

/// Reads an answer to its end.
pub(super) async fn whole(answer: Response<Incoming>) -> Result<(StatusCode, Bytes), AskError> {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
    Ok((status, body.map_err(AskError::broken)?.to_bytes()))
}
