//! `ankusa ctl blob put`: a file as an object, sent as it is read.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Body, Frame};
use hyper::header::{CONTENT_LENGTH, HOST};
use hyper::{Method, Request};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::super::super::http::ask_with;
use super::super::socket;
use super::progress::Progress;
use super::{Failed, LIMIT, PutArgs, granted, show, told};

/// How much is read at a time.
const CHUNK_BYTES: usize = 256 << 10;

type Source = Box<dyn AsyncRead + Unpin + Send>;

pub(super) async fn run(path: &Path, args: &PutArgs, json: bool) -> Result<ExitCode, Failed> {
    let (source, bytes) = open(&args.file).await?;
    let target = args.object.path_and_query([("if_absent", Some(args.if_absent.to_string()))]);
    let mut request = Request::builder().method(Method::PUT).uri(target).header(HOST, "localhost");
    if let Some(bytes) = bytes {
        request = request.header(CONTENT_LENGTH, bytes);
    }
    let progress = Progress::of("writing", bytes);
    let body = sent(source, bytes, progress.clone());
    let request = request.body(body).map_err(|error| error.to_string())?;
    let connection = socket::connect(path).await?;
    let answer = ask_with(connection, request, LIMIT).await;
    progress.done();
    let answer = granted(answer.map_err(|error| error.to_string())?).await?;
    Ok(show(&told(answer).await?, json))
}

/// What is to be sent, and how many bytes it has if that is known.
async fn open(file: &Path) -> Result<(Source, Option<u64>), Failed> {
    if file == Path::new("-") {
        let input = io::stdin().as_fd().try_clone_to_owned();
        let input = input.map_err(|error| format!("standard input: {error}"))?;
        return Ok((Box::new(File::from_std(input.into())), None));
    }
    let named = |error: io::Error| format!("{}: {error}", file.display());
    let opened = File::open(file).await.map_err(named)?;
    let metadata = opened.metadata().await.map_err(named)?;
    if metadata.is_dir() {
        return Err(format!("{}: is a directory", file.display()).into());
    }
    let bytes = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(opened), bytes))
}

/// As much as was said there is: of a file that grows meanwhile, what it was.
fn sent(
    source: Source,
    bytes: Option<u64>,
    progress: Progress,
) -> impl Body<Data = Bytes, Error = io::Error> + Send + 'static {
    let left = bytes.unwrap_or(u64::MAX);
    let chunks =
        stream::try_unfold((source.take(left), progress), |(mut source, progress)| async {
            let mut chunk = vec![0; CHUNK_BYTES];
            let read = source.read(&mut chunk).await?;
            chunk.truncate(read);
            progress.add(read);
            if read == 0 || source.limit() == 0 {
                progress.say("storing");
            }
            let frame = Frame::data(Bytes::from(chunk));
            Ok((read > 0).then_some((frame, (source, progress))))
        });
    StreamBody::new(Box::pin(chunks))
}
