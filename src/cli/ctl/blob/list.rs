//! `ankusa ctl blob ls`: a line an object, as they come.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use http_body_util::BodyExt;
use hyper::Method;
use serde_json::Value;

use super::super::render;
use super::super::verbs::with_query;
use super::{Failed, LsArgs, asked};

pub(super) async fn run(path: &Path, args: &LsArgs, json: bool) -> Result<ExitCode, Failed> {
    let (store, prefix) = (args.of.store.clone(), args.prefix.clone());
    let target = with_query("/v1/blob/list", [("store", Some(store)), ("prefix", Some(prefix))]);
    let mut body = asked(path, Method::GET, &target).await?.into_body();
    let mut lines = Lines { json, is_whole: false };
    let mut rest: Vec<u8> = Vec::new();
    if !json && !put("       BYTES  KEY\n") {
        return Ok(ExitCode::FAILURE);
    }
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the listing broke off: {error}"))?;
        let Ok(data) = frame.into_data() else { continue };
        rest.extend_from_slice(&data);
        let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = rest.drain(..end).collect();
        if !put(&lines.shown(&String::from_utf8_lossy(&whole))) {
            // A reader that went away is no failure worth a message.
            return Ok(ExitCode::FAILURE);
        }
    }
    if lines.is_whole {
        Ok(ExitCode::SUCCESS)
    } else {
        Err("the listing broke off".to_owned().into())
    }
}

fn put(text: &str) -> bool {
    io::stdout().lock().write_all(text.as_bytes()).is_ok()
}

struct Lines {
    json: bool,
    /// Whether the last line has come.
    is_whole: bool,
}

impl Lines {
    /// Whole lines of the node, as they are shown.
    fn shown(&mut self, lines: &str) -> String {
        let mut shown = String::new();
        for line in lines.lines() {
            let value: Value = serde_json::from_str(line).unwrap_or_default();
            let bytes = value.get("bytes").and_then(Value::as_u64).unwrap_or(0);
            self.is_whole = value.get("end") == Some(&Value::Bool(true));
            let line = if self.json {
                format!("{line}\n")
            } else if self.is_whole {
                let objects = value.get("objects").and_then(Value::as_u64).unwrap_or(0);
                format!("objects: {objects}, bytes: {bytes}\n")
            } else {
                format!(
                    "{bytes:>12}  {}\n",
                    value.get("key").map_or_else(String::new, render::cell)
                )
            };
            shown.push_str(&line);
        }
        shown
    }
}
