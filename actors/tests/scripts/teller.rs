//! The words of a story and what they do.

use std::error::Error;
use std::time::Duration;

use ankusa_actors::dispatch::{DispatchConfig, RetryConfig};
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::Outcome;
use ankusa_actors::ports::sim::SimOp;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::show;
use crate::simulation::plan::{How, Lasts, On, Settings, Trouble};
use crate::stage::{Mood, Stage};

/// Every command lasts so long: enough for a commit and for what it sets going.
pub(crate) const MOMENT: Duration = Duration::from_millis(100);

#[derive(goldenscript::Command)]
pub(crate) enum Word {
    /// Starts a process on the disk: `start dispatch.batch=1`. Settings are those of the last start if none are given.
    Start(#[arg(key, optional, many)] Vec<(String, String)>),
    /// Hooks that arrive together: `commit acme a b to=two`; `times=3` commits `a1 a2 a3`.
    Commit {
        tenant: String,
        bodies: Vec<String>,
        #[arg(key)]
        to: Option<String>,
        #[arg(key)]
        times: Option<usize>,
    },
    /// The client of this hook hangs up.
    Leave(String),
    /// The receiver takes these attempts: `deliver a b/1`, the second one at sink 1.
    Deliver(Vec<String>),
    Fail(String, String),
    /// `later a 20s`: try again, but not before.
    Later(String, String),
    Refuse(String, String),
    Panic(String),
    /// What a sink does unasked: `asks` (the default), `takes`, `fails`, `refuses`, `hangs`.
    Sink(usize, String),
    Advance(String),
    /// `cut power`, with `keeping=1` of the unsynced batches.
    Cut {
        what: String,
        #[arg(key, optional)]
        keeping: u64,
    },
    /// SIGKILL.
    Kill,
    /// SIGTERM.
    Stop,
    Crash(String),
    Reopen,
    /// `fault sync io_error how=landed times=2 after=1 on=background`.
    Fault {
        op: String,
        class: String,
        #[arg(key)]
        how: Option<String>,
        #[arg(key)]
        times: Option<String>,
        #[arg(key, optional)]
        after: u32,
        #[arg(key)]
        on: Option<String>,
    },
    /// `disk full`, `disk free`, `disk 70MiB`.
    Disk(String),
    Slow(String, String),
    /// Batches of the commit lane land this late.
    Late(String),
    Heal,
    /// `clock ahead 1h`, `clock back 1h`.
    Clock(String, String),
    /// Somebody writes over a counter of a tenant.
    Miscount(String, String, i64),
    Ready,
    Hooks(Option<String>),
    Rows(Option<String>),
    Index(Option<String>),
    Counters(Option<String>),
    Tenants,
    Dead,
    /// Attempts under way.
    Attempts,
}

/// Tells one story.
#[derive(Default)]
pub(crate) struct Teller {
    told: Option<(Runtime, Stage)>,
}

type Told = Result<String, Box<dyn Error>>;

fn parse<T: serde::de::DeserializeOwned>(word: &str) -> Result<T, Box<dyn Error>> {
    Ok(serde_json::from_value(json!(word))?)
}

pub(crate) fn span(text: &str) -> Result<Duration, Box<dyn Error>> {
    let at = text.find(|letter: char| !letter.is_ascii_digit()).ok_or("a time needs a unit")?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse()?;
    let ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        other => return Err(format!("{other} is no unit").into()),
    };
    Ok(Duration::from_millis(number * ms))
}

fn op_of(word: &str) -> Result<SimOp, Box<dyn Error>> {
    Ok(match word {
        "open" => SimOp::Open,
        "probe" => SimOp::Probe,
        "apply" => SimOp::Apply,
        "sync" => SimOp::Sync,
        "read" => SimOp::Read,
        other => return Err(format!("{other} is no call of the store").into()),
    })
}

fn class_of(word: &str) -> Result<FailureClass, Box<dyn Error>> {
    let found = FailureClass::ALL.into_iter().find(|class| class.as_str() == word);
    found.ok_or_else(|| format!("{word} is no failure class").into())
}

/// `dispatch.retry.max_attempts=3` over what is shipped, without chance and with a first wait of a second.
fn settings(words: &[(String, String)]) -> Result<Settings, Box<dyn Error>> {
    let retry = RetryConfig { base_ms: 1_000, jitter: false, ..RetryConfig::default() };
    let dispatch = DispatchConfig { retry, ..DispatchConfig::default() };
    let mut all = json!({"dispatch": dispatch});
    for (path, value) in words {
        let mut at = &mut all;
        for key in path.split('.') {
            let object = at.as_object_mut().ok_or("a value has no parts")?;
            at = object.entry(key).or_insert_with(|| Map::new().into());
        }
        *at = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value.as_str()));
    }
    Ok(Settings::with(&all)?)
}

impl Teller {
    fn stage(&mut self) -> &mut (Runtime, Stage) {
        self.told.get_or_insert_with(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            let stage = runtime.block_on(async { Stage::default() });
            (runtime, stage)
        })
    }
}

impl goldenscript::Runner for Teller {
    type Command = Word;

    fn run(&mut self, word: &Word, _: &goldenscript::Context) -> Told {
        let (runtime, stage) = self.stage();
        runtime.block_on(async {
            stage.begin();
            let mut told = say(stage, word).await?;
            tokio::time::sleep(MOMENT).await;
            told.extend(stage.news());
            Ok(told.join("\n"))
        })
    }

    fn end_block(&mut self, _: &goldenscript::Block) -> Told {
        let (_, stage) = self.stage();
        crate::common::assert_sound(stage.disk());
        Ok(String::new())
    }

    fn end_script(&mut self) -> Result<(), Box<dyn Error>> {
        let (runtime, stage) = self.stage();
        runtime.block_on(stage.leave());
        Ok(())
    }
}

async fn say(stage: &mut Stage, word: &Word) -> Result<Vec<String>, Box<dyn Error>> {
    let answer =
        |stage: &Stage, attempt: &str, outcome| stage.answer(attempt, Mood::Answer(outcome));
    match word {
        Word::Start(words) => {
            if !words.is_empty() || stage.is_new() {
                stage.settings = settings(words)?;
            }
            return Ok(stage.start().await.err().into_iter().collect());
        }
        Word::Commit { tenant, bodies, to, times } => {
            stage.commit(tenant, to.as_deref().unwrap_or("one"), &bodies_of(bodies, *times))?;
        }
        Word::Leave(body) => stage.hang_up(body)?,
        Word::Deliver(attempts) => {
            attempts.iter().try_for_each(|attempt| answer(stage, attempt, Outcome::Ok))?;
        }
        Word::Fail(attempt, why) => answer(stage, attempt, Outcome::Retry(why.clone()))?,
        Word::Refuse(attempt, why) => answer(stage, attempt, Outcome::Permanent(why.clone()))?,
        Word::Later(attempt, by) => {
            let (ms, reason) = (u64::try_from(span(by)?.as_millis())?, "later".to_owned());
            answer(stage, attempt, Outcome::RetryAfter { ms, reason })?;
        }
        Word::Panic(attempt) => stage.answer(attempt, Mood::Panics)?,
        Word::Sink(sink, does) => stage.set_mood(*sink, mood(does)?),
        Word::Advance(by) => stage.advance(span(by)?).await,
        Word::Cut { what, keeping } if what == "power" => stage.cut_power(*keeping).await,
        Word::Cut { what, keeping: _ } => return Err(format!("cut {what}?").into()),
        Word::Kill => stage.kill().await,
        Word::Stop => return Ok(vec![stage.stop().await?]),
        Word::Crash(child) => stage.crash(child)?,
        Word::Reopen => return Ok(vec![stage.reopen().await?]),
        Word::Fault { op, class, how, times, after, on } => {
            let (how, on) = (how.as_deref(), on.as_deref());
            let trouble = Trouble {
                op: op_of(op)?,
                class: class_of(class)?,
                how: how.map_or(Ok(How::Refused), parse)?,
                on: on.map_or(Ok(On::Any), parse)?,
                after: *after,
                lasts: lasts(times.as_deref())?,
            };
            stage.disk().fail(trouble.into());
        }
        Word::Disk(room) => stage.disk().resize(free_bytes(room)?, 1 << 41),
        Word::Slow(op, by) => stage.disk().slow(op_of(op)?, span(by)?),
        Word::Late(by) => stage.land_after(span(by)?),
        Word::Heal => stage.heal(),
        Word::Clock(way, by) => {
            let ms = i64::try_from(span(by)?.as_millis())?;
            stage.set_clock(if way == "back" { -ms } else { ms });
        }
        Word::Miscount(tenant, field, to) => stage.miscount(tenant, field, *to).await?,
        Word::Ready => return Ok(vec![stage.ready().await?]),
        Word::Attempts => return Ok(or_nothing(stage.attempts())),
        Word::Hooks(of) => return Ok(or_nothing(rows(stage, of).hooks())),
        Word::Rows(of) => return Ok(or_nothing(rows(stage, of).deliveries(stage.now_ms()))),
        Word::Index(of) => return Ok(or_nothing(rows(stage, of).index(stage.now_ms()))),
        Word::Counters(of) => return Ok(or_nothing(rows(stage, of).counters())),
        Word::Tenants => return Ok(or_nothing(rows(stage, &None).tenants())),
        Word::Dead => return Ok(or_nothing(rows(stage, &None).dead())),
    }
    Ok(Vec::new())
}

fn bodies_of(bodies: &[String], times: Option<usize>) -> Vec<String> {
    let Some(times) = times else { return bodies.to_vec() };
    bodies.iter().flat_map(|body| (1..=times).map(move |n| format!("{body}{n}"))).collect()
}

fn mood(does: &str) -> Result<Mood, Box<dyn Error>> {
    Ok(match does {
        "asks" => Mood::Asks,
        "takes" => Mood::Answer(Outcome::Ok),
        "fails" => Mood::Answer(Outcome::Retry("503".to_owned())),
        "refuses" => Mood::Answer(Outcome::Permanent("410".to_owned())),
        "hangs" => Mood::Hangs,
        other => return Err(format!("a sink that {other}?").into()),
    })
}

fn lasts(times: Option<&str>) -> Result<Lasts, Box<dyn Error>> {
    Ok(match times {
        None => Lasts::Times(1),
        Some("until_reopened") => Lasts::UntilReopened,
        Some("until_healed") => Lasts::UntilHealed,
        Some(times) => Lasts::Times(times.parse()?),
    })
}

fn free_bytes(room: &str) -> Result<u64, Box<dyn Error>> {
    Ok(match room {
        "full" => 0,
        "free" => 1 << 40,
        size => size.strip_suffix("MiB").ok_or("in MiB")?.parse::<u64>()? << 20,
    })
}

fn rows(stage: &Stage, of: &Option<String>) -> show::Rows {
    show::Rows::of(stage.disk(), of.as_deref() == Some("durable"))
}

fn or_nothing(lines: Vec<String>) -> Vec<String> {
    if lines.is_empty() { vec!["nothing".to_owned()] } else { lines }
}
