//! `ankusa ctl blob get`: an object as a file, whole or not at all.
//!
//! An object of up to 8 MiB is read at once and checked against the digest its store keeps. A larger one is read in
//! ranges, which nothing is kept of to check them against.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;

use super::progress::Progress;
use super::{Failed, GetArgs, ObjectArgs, asked, bytes, show, stat};
use crate::front::blob::RANGE_MAX_BYTES;

pub(super) async fn run(path: &Path, args: &GetArgs, json: bool) -> Result<ExitCode, Failed> {
    let found = stat(path, &args.object).await?;
    let size = found.get("bytes").and_then(Value::as_u64);
    let size = size.ok_or_else(|| "the node did not say how large it is".to_owned())?;
    let mut to = Destination::open(&args.file)?;
    let progress = Progress::of("reading", Some(size));
    let copied = copy(path, &args.object, size, &mut to, &progress).await;
    progress.done();
    match copied {
        Ok(()) => to.keep()?,
        Err(why) => {
            to.discard();
            return Err(why);
        }
    }
    // Beside the object itself there is nothing to say.
    Ok(if to.is_stdout() { ExitCode::SUCCESS } else { show(&found, json) })
}

async fn copy(
    path: &Path,
    object: &ObjectArgs,
    size: u64,
    to: &mut Destination,
    progress: &Progress,
) -> Result<(), Failed> {
    if size <= RANGE_MAX_BYTES {
        let whole = read(path, object, None).await?;
        progress.add(whole.len());
        return to.write(&whole);
    }
    let mut offset = 0;
    while offset < size {
        let length = RANGE_MAX_BYTES.min(size - offset);
        let range = read(path, object, Some((offset, length))).await?;
        if u64::try_from(range.len()) != Ok(length) {
            return Err("the object became another one while it was read".to_owned().into());
        }
        progress.add(range.len());
        to.write(&range)?;
        offset += length;
    }
    Ok(())
}

async fn read(
    path: &Path,
    object: &ObjectArgs,
    range: Option<(u64, u64)>,
) -> Result<Bytes, Failed> {
    let field = |of: fn((u64, u64)) -> u64| range.map(|range| of(range).to_string());
    let target = object
        .path_and_query([("offset", field(|(from, _)| from)), ("length", field(|(_, len)| len))]);
    bytes(asked(path, Method::GET, &target).await?).await
}

/// Where the bytes go.
enum Destination {
    Stdout,
    /// Under another name until it is whole.
    File {
        file: File,
        part: PathBuf,
        path: PathBuf,
    },
}

impl Destination {
    fn open(path: &Path) -> Result<Self, Failed> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let mut part = OsString::from(path);
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part).map_err(|error| format!("{}: {error}", part.display()))?;
        Ok(Self::File { file, part, path: path.to_owned() })
    }

    const fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        let written = match self {
            Self::Stdout => io::stdout().lock().write_all(bytes),
            Self::File { file, .. } => file.write_all(bytes),
        };
        Ok(written.map_err(|error| self.named(&error))?)
    }

    fn keep(&mut self) -> Result<(), Failed> {
        let kept = match self {
            Self::Stdout => io::stdout().lock().flush(),
            Self::File { file, part, path } => {
                file.sync_all().and_then(|()| fs::rename(part, path))
            }
        };
        Ok(kept.map_err(|error| self.named(&error))?)
    }

    fn discard(&self) {
        if let Self::File { part, .. } = self {
            // What cannot be removed is named as no whole object is.
            let _ = fs::remove_file(part);
        }
    }

    fn named(&self, error: &io::Error) -> String {
        match self {
            Self::Stdout => format!("standard output: {error}"),
            Self::File { path, .. } => format!("{}: {error}", path.display()),
        }
    }
}
