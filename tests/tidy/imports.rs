//! What may import what. The arrows between packages are Cargo's; these are the ones inside them.

use super::manifests::dependencies;
use super::paths::{PathUse, paths};
use super::source::{Failure, Kind, Source, lex};

const RULE: &str = "imports";

/// The rooms of `actors/src` that hold processes.
const ROOMS: [&str; 9] =
    ["store", "queue", "edge", "dispatch", "archive", "claims", "backup", "intake", "upkeep"];
/// What every room may use: data, traits and machinery, and no process.
const COMMON: [&str; 6] = ["model", "ports", "supervision", "sources", "steady", "sync"];
/// The only places that know all processes.
const ASSEMBLY: [&str; 4] = ["tree", "node", "admin", ""];
/// What touches the world: each knows nothing but its port.
const ADAPTERS: [&str; 5] = ["rocks", "blob", "sinks", "intake", "host"];
/// The parts of the drills that judge the node.
const INDEPENDENT: [&str; 5] =
    ["drills/check", "drills/shim", "drills/replay", "drills/fs", "drills/proxy"];
/// The parts of the drills that use pieces of the node: they measure what those cost, and judge nothing they promise.
const MEASURING: [&str; 3] =
    ["drills/src/bench/blob/", "drills/src/bench/dedupe/", "drills/src/bench/queue/"];
/// The rest of `src`.
const OUTSIDE: [&str; 8] = ["front", "node", "cli", "config", "telemetry", "demo", "sources", ""];

/// `model` decides and computes: no waiting, no actors, no input or output, and nothing of ours but itself.
pub(crate) fn model_is_pure(sources: &[Source]) -> Vec<Failure> {
    let names = ["tokio", "ractor", "async", "await", "async_trait"];
    let worlds = ["fs", "net", "process", "thread", "env"];
    let crates = [
        "aws_lc_rs",
        "base64",
        "bytes",
        "flate2",
        "hmac",
        "serde",
        "serde_json",
        "sha1",
        "sha2",
        "subtle",
        "thiserror",
    ];
    let mut failures = Vec::new();
    for source in shipped_below(sources, "actors/src/model") {
        for token in &source.shipped().tokens {
            if token.kind == Kind::Ident && names.contains(&token.text.as_str()) {
                failures.push(source.failure(
                    token.line,
                    RULE,
                    format!("`{}` in model, which is pure", token.text),
                ));
            }
        }
        for path in paths(source, "actors/src/") {
            let (first, second) = (path.segment(0), path.segment(1));
            if first == "crate" && second != "model" {
                failures.push(not_allowed(
                    source,
                    &path,
                    "model imports nothing of ours but model",
                ));
            } else if first == "std" && worlds.contains(&second) && !is_an_address(path.segment(2))
            {
                failures.push(not_allowed(source, &path, "model does no input or output"));
            } else if foreign_crate(sources, "actors", first, &crates) && !names.contains(&first) {
                failures.push(not_allowed(
                    source,
                    &path,
                    "model uses only data and hashing crates",
                ));
            }
        }
    }
    failures
}

/// `ports` know `model`; `sources`, the table of what the node was configured with, both; a room all that is common, and
/// other rooms without their `State` and `Msg`.
pub(crate) fn rooms_of_actors_keep_to_their_imports(sources: &[Source]) -> Vec<Failure> {
    let mut failures = Vec::new();
    for source in shipped_below(sources, "actors/src") {
        let room = top_module(source, "actors/src/");
        let known = COMMON.contains(&room.as_str());
        if !known && !ROOMS.contains(&room.as_str()) && !ASSEMBLY.contains(&room.as_str()) {
            let what =
                format!("`{room}` is no room of actors that the import rules know: add it to them");
            failures.push(source.failure(1, RULE, what));
        }
        let own =
            paths(source, "actors/src/").into_iter().filter(|path| path.segment(0) == "crate");
        if ["ports", "sources", "steady"].contains(&room.as_str()) {
            let strangers =
                own.filter(|path| ![&*room, "ports", "model"].contains(&path.segment(1)));
            let why = format!("{room} imports only model and ports");
            failures.extend(strangers.map(|path| not_allowed(source, &path, &why)));
        } else if ROOMS.contains(&room.as_str()) {
            failures.extend(own.filter_map(|path| room_failure(source, &room, &path)));
        }
    }
    failures
}

fn room_failure(source: &Source, room: &str, path: &PathUse) -> Option<Failure> {
    let other = path.segment(1);
    if other == room || COMMON.contains(&other) {
        None
    } else if !ROOMS.contains(&other) {
        Some(not_allowed(source, path, "a room uses what is common and other rooms' handles"))
    } else if is_inner_part(path, 2) {
        Some(not_allowed(source, path, "other processes only through their handle"))
    } else {
        None
    }
}

/// `supervision` could be a crate of its own: ractor and tokio, errors and log lines, nothing of ours but what threads
/// share by hand, so that the scheduler which tries their orders sees it here too.
pub(crate) fn supervision_uses_ractor_and_tokio_alone(sources: &[Source]) -> Vec<Failure> {
    let crates = ["ractor", "tokio", "async_trait", "shuttle", "thiserror", "tracing"];
    let mut failures = Vec::new();
    for source in shipped_below(sources, "actors/src/supervision") {
        for path in paths(source, "actors/src/") {
            let ours =
                path.segment(0) == "crate" && !matches!(path.segment(1), "supervision" | "sync");
            if ours || foreign_crate(sources, "actors", path.segment(0), &crates) {
                failures.push(not_allowed(source, &path, "supervision uses only ractor and tokio"));
            }
        }
    }
    failures
}

/// An adapter implements a port: it knows `ankusa_actors::{model, ports}` and itself.
pub(crate) fn adapters_know_no_other_adapter_and_no_actor(sources: &[Source]) -> Vec<Failure> {
    let mut failures = Vec::new();
    for source in shipped_below(sources, "src") {
        let module = top_module(source, "src/");
        if !ADAPTERS.contains(&module.as_str()) {
            if !OUTSIDE.contains(&module.as_str()) {
                let what = format!(
                    "`{module}` is no module of src that the import rules know: add it to them"
                );
                failures.push(source.failure(1, RULE, what));
            }
            continue;
        }
        for path in paths(source, "src/") {
            let other = path.segment(1);
            match path.segment(0) {
                "crate" | "ankusa_node" if other != module => {
                    failures.push(not_allowed(
                        source,
                        &path,
                        "an adapter knows nothing of src but itself",
                    ));
                }
                "ankusa_actors" if !["model", "ports"].contains(&other) => {
                    failures.push(not_allowed(
                        source,
                        &path,
                        "an adapter uses only ankusa_actors::{model, ports}",
                    ));
                }
                _ => {}
            }
        }
    }
    failures
}

/// Everything in `src` talks to processes through handles; `front` knows neither the assembly nor the command line.
pub(crate) fn front_and_node_use_processes_through_handles(sources: &[Source]) -> Vec<Failure> {
    let mut failures = Vec::new();
    for source in shipped_below(sources, "src") {
        let module = top_module(source, "src/");
        let strangers: &[&str] = match module.as_str() {
            "front" => &["node", "cli", "demo"],
            "node" => &["cli", "demo"],
            _ => &[],
        };
        for path in paths(source, "src/") {
            let other = path.segment(1);
            if path.segment(0) == "crate" && strangers.contains(&other) {
                failures.push(not_allowed(
                    source,
                    &path,
                    &format!("{module} does not know {other}"),
                ));
            } else if path.segment(0) == "ankusa_actors"
                && ROOMS.contains(&other)
                && is_inner_part(&path, 2)
            {
                failures.push(not_allowed(source, &path, "processes only through their handle"));
            }
        }
    }
    failures
}

/// The drills call `ankusa_node::run` and nothing else of the node; the judge, the recorder and the replayer nothing at
/// all, tests included: a mistake of the node must not be able to hide in its own checker.
pub(crate) fn drills_see_the_node_from_outside(sources: &[Source]) -> Vec<Failure> {
    let mut failures = Vec::new();
    for source in
        sources.iter().filter(|source| source.is_rust() && source.path.starts_with("drills/"))
    {
        if INDEPENDENT.iter().any(|package| source.path.starts_with(&format!("{package}/"))) {
            let ours = lex(&source.text).into_iter().filter(|token| {
                token.kind == Kind::Ident
                    && ["ankusa_actors", "ankusa_node"].contains(&token.text.as_str())
            });
            failures.extend(ours.map(|token| {
                source.failure(
                    token.line,
                    RULE,
                    format!("`{}` in a part that shares nothing with the node", token.text),
                )
            }));
            continue;
        }
        if MEASURING.iter().any(|part| source.path.starts_with(part)) {
            continue;
        }
        for path in paths(source, "drills/src/") {
            let run = path.segment(0) == "ankusa_node" && path.segment(1) == "run";
            if ["ankusa_actors", "ankusa_node"].contains(&path.segment(0)) && !run {
                failures.push(not_allowed(
                    source,
                    &path,
                    "the drills use ankusa_node::run and nothing else of ours",
                ));
            }
        }
    }
    for package in INDEPENDENT {
        let manifest = format!("{package}/Cargo.toml");
        for source in sources.iter().filter(|source| source.path == manifest) {
            let ours = dependencies(&source.text)
                .into_iter()
                .filter(|(_, name)| ["ankusa_actors", "ankusa_node"].contains(&name.as_str()));
            failures.extend(ours.map(|(line, name)| {
                source.failure(
                    line,
                    RULE,
                    format!("`{name}` below a part that shares nothing with the node"),
                )
            }));
        }
    }
    failures
}

/// `IpAddr`, `SocketAddrV4` and their kin of `std::net` are values; the sockets beside them are not.
fn is_an_address(name: &str) -> bool {
    name.starts_with("Ip") || name.starts_with("SocketAddr")
}

/// The Rust files of the module `folder` (a folder, or the file of that name) that are not tests.
fn shipped_below<'a>(sources: &'a [Source], folder: &'a str) -> impl Iterator<Item = &'a Source> {
    sources.iter().filter(move |source| {
        let inside = source
            .path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/') || rest == ".rs");
        inside && source.is_rust() && !source.is_test()
    })
}

fn top_module(source: &Source, root: &str) -> String {
    source.module_below(root).and_then(|module| module.first().cloned()).unwrap_or_default()
}

/// Whether the path, from segment `from` on, names what belongs to a process alone, or everything at once.
fn is_inner_part(path: &PathUse, from: usize) -> bool {
    path.segments
        .iter()
        .skip(from)
        .any(|name| name == "*" || name.ends_with("State") || name.ends_with("Msg"))
}

/// Whether `name` is a dependency of `package`, and none of `allowed`.
fn foreign_crate(sources: &[Source], package: &str, name: &str, allowed: &[&str]) -> bool {
    let manifest = format!("{package}/Cargo.toml");
    !allowed.contains(&name)
        && sources.iter().filter(|source| source.path == manifest).any(|source| {
            dependencies(&source.text).iter().any(|(_, dependency)| dependency == name)
        })
}

fn not_allowed(source: &Source, path: &PathUse, why: &str) -> Failure {
    source.failure(path.line, RULE, format!("`{}`: {why}", path.text()))
}

#[cfg(test)]
mod tests {
    use super::super::source::{file, told};
    use super::*;

    const MANIFEST: &str = "[dependencies]\nbytes.workspace = true\nractor.workspace = true\ntokio = \"1\"\n\
                            tracing = \"0.1\"\nserde = \"1\"\n";

    fn actors(path: &str, text: &str) -> Vec<Source> {
        vec![file("actors/Cargo.toml", MANIFEST), file(path, text)]
    }

    #[test]
    fn model_may_use_data_and_itself() {
        let good = "//! never async, no tokio\nuse bytes::Bytes;\nuse std::net::{IpAddr, SocketAddr};\nuse super::keys::Key;\n\
                    pub(in crate::model) fn f() -> &'static str { \"ractor\" }\n\
                    #[cfg(test)]\nmod tests { use tokio::test; use crate::ports::Kv; }\n";
        assert_eq!(model_is_pure(&actors("actors/src/model/ids.rs", good)), []);
    }

    #[test]
    fn model_may_not_wait_touch_the_world_or_know_a_room() {
        let bad = "use crate::ports::Kv;\nasync fn f() {}\nuse std::{fs::File, net::TcpStream};\nuse tracing::warn;\nfn g() { ractor::x(); }\n";
        assert_eq!(
            told(&model_is_pure(&actors("actors/src/model/ids.rs", bad))),
            [
                (2, "`async` in model, which is pure"),
                (5, "`ractor` in model, which is pure"),
                (1, "`crate::ports::Kv`: model imports nothing of ours but model"),
                (3, "`std::fs::File`: model does no input or output"),
                (3, "`std::net::TcpStream`: model does no input or output"),
                (4, "`tracing::warn`: model uses only data and hashing crates"),
            ]
        );
        assert_eq!(model_is_pure(&actors("actors/src/model.rs", bad)).len(), 6);
        assert_eq!(model_is_pure(&actors("actors/src/queue/writer.rs", bad)), []);
        assert_eq!(model_is_pure(&actors("actors/src/model/tests.rs", bad)), []);
    }

    #[test]
    fn ports_know_only_model() {
        let text = "use crate::model::Seq;\nuse super::Kv;\nuse crate::store::StoreHandle;\n";
        assert_eq!(
            told(&rooms_of_actors_keep_to_their_imports(&actors("actors/src/ports/kv.rs", text))),
            [(3, "`crate::store::StoreHandle`: ports imports only model and ports")]
        );
    }

    #[test]
    fn the_table_of_sources_knows_model_and_ports() {
        let text =
            "use crate::model::Seq;\nuse crate::ports::Sink;\nuse crate::edge::IngestHandle;\n";
        assert_eq!(
            told(&rooms_of_actors_keep_to_their_imports(&actors("actors/src/sources.rs", text))),
            [(3, "`crate::edge::IngestHandle`: sources imports only model and ports")]
        );
    }

    #[test]
    fn a_room_knows_others_by_their_handles() {
        let text = "use crate::store::{StoreHandle, StoreState};\nuse super::writer::WriterMsg;\nuse crate::edge::*;\n\
                    use crate::edge::batcher as b;\nfn f(_: b::BatcherMsg) { crate::tree::Tree::new(); }\n\
                    use crate::model::SourceState;\nuse crate::sources::Source;\n";
        assert_eq!(
            told(&rooms_of_actors_keep_to_their_imports(&actors(
                "actors/src/queue/syncer.rs",
                text
            ))),
            [
                (1, "`crate::store::StoreState`: other processes only through their handle"),
                (3, "`crate::edge::*`: other processes only through their handle"),
                (
                    5,
                    "`crate::edge::batcher::BatcherMsg`: other processes only through their handle"
                ),
                (
                    5,
                    "`crate::tree::Tree::new`: a room uses what is common and other rooms' handles"
                ),
            ]
        );
        assert_eq!(rooms_of_actors_keep_to_their_imports(&actors("actors/src/tree.rs", text)), []);
        assert_eq!(
            rooms_of_actors_keep_to_their_imports(&actors("actors/tests/syncer.rs", text)),
            []
        );
    }

    #[test]
    fn a_room_nobody_knows_is_told_of() {
        for path in ["actors/src/cellar/wine.rs", "actors/src/cellar.rs"] {
            assert_eq!(
                told(&rooms_of_actors_keep_to_their_imports(&[file(path, "")])),
                [(1, "`cellar` is no room of actors that the import rules know: add it to them")]
            );
        }
        assert_eq!(
            told(&adapters_know_no_other_adapter_and_no_actor(&[file("src/cellar.rs", "")])),
            [(1, "`cellar` is no module of src that the import rules know: add it to them")]
        );
    }

    #[test]
    fn supervision_stands_alone() {
        let text = "use ractor::Actor;\nuse tokio::time;\nuse super::Slot;\nuse tracing::warn;\n\
                    use serde::Serialize;\nuse crate::model::Ms;\n\
                    use crate::sync::Arc;\n";
        let sources = actors("actors/src/supervision/slot.rs", text);
        assert_eq!(
            told(&supervision_uses_ractor_and_tokio_alone(&sources)),
            [
                (5, "`serde::Serialize`: supervision uses only ractor and tokio"),
                (6, "`crate::model::Ms`: supervision uses only ractor and tokio"),
            ]
        );
    }

    #[test]
    fn an_adapter_knows_its_port_and_itself() {
        let text = "use ankusa_actors::ports::Kv;\nuse super::options;\nuse rocksdb::DB;\n\
                    use crate::host::HostClock;\nuse ankusa_actors::store::StoreHandle;\nuse crate::config::Config;\n";
        assert_eq!(
            told(&adapters_know_no_other_adapter_and_no_actor(&[file("src/rocks/kv.rs", text)])),
            [
                (4, "`crate::host::HostClock`: an adapter knows nothing of src but itself"),
                (
                    5,
                    "`ankusa_actors::store::StoreHandle`: an adapter uses only ankusa_actors::{model, ports}"
                ),
                (6, "`crate::config::Config`: an adapter knows nothing of src but itself"),
            ]
        );
        let host = "use ankusa_actors::node::Node;\n";
        assert_eq!(
            told(&adapters_know_no_other_adapter_and_no_actor(&[file("src/host.rs", host)])),
            [(
                1,
                "`ankusa_actors::node::Node`: an adapter uses only ankusa_actors::{model, ports}"
            )]
        );
        assert_eq!(adapters_know_no_other_adapter_and_no_actor(&[file("src/node.rs", text)]), []);
    }

    #[test]
    fn the_front_knows_handles_and_not_the_assembly() {
        let text = "use ankusa_actors::admin::AdminRequest;\nuse ankusa_actors::edge::batcher::{BatcherHandle, BatcherMsg};\n\
                    use crate::rocks::RocksKv;\nuse crate::node::start;\nuse super::ingest::IngestState;\n";
        assert_eq!(
            told(&front_and_node_use_processes_through_handles(&[file(
                "src/front/admin.rs",
                text
            )])),
            [
                (
                    2,
                    "`ankusa_actors::edge::batcher::BatcherMsg`: processes only through their handle"
                ),
                (4, "`crate::node::start`: front does not know node"),
            ]
        );
    }

    #[test]
    fn the_drills_only_run_the_node() {
        let text = "fn main() { ankusa_node::run(args()); }\nuse ankusa_node::config::Config;\nuse ankusa_drills_check::judge;\n";
        let measuring = file("drills/src/bench/queue/fill.rs", text);
        assert_eq!(drills_see_the_node_from_outside(&[measuring]), []);
        assert_eq!(
            told(&drills_see_the_node_from_outside(&[file("drills/src/main.rs", text)])),
            [(
                2,
                "`ankusa_node::config::Config`: the drills use ankusa_node::run and nothing else of ours"
            )]
        );
    }

    #[test]
    fn the_judge_shares_nothing_with_the_node_not_even_in_tests() {
        let text =
            "// not ankusa_actors\n#[cfg(test)]\nmod tests { use ankusa_actors::model::etf; }\n";
        let manifest =
            "[dev-dependencies]\nserde = \"1\"\nankusa-actors = { path = \"../../actors\" }\n";
        let sources =
            [file("drills/check/src/lib.rs", text), file("drills/check/Cargo.toml", manifest)];
        assert_eq!(
            told(&drills_see_the_node_from_outside(&sources)),
            [
                (3, "`ankusa_actors` in a part that shares nothing with the node"),
                (3, "`ankusa_actors` below a part that shares nothing with the node"),
            ]
        );
    }
}
