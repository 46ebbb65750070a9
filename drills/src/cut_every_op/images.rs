//! Every cut of a recording, in every legal shape, opened and judged without a node.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use ankusa_drills_check::{Dump, Evidence, Moment, Request, SeqHistory, judge};
use ankusa_drills_replay::{Disk, Mirror, NameRule, Op, Policy, Rng};

use super::timeline::{Cut, Timeline};
use crate::drill::{Broken, CannotInject, OrCannot};
use crate::node::store_below;
use crate::reader::{CannotRead, Reader};
use crate::scratch::Scratch;

/// What a cut leaves, in the shapes this drill looks at. Pages written back out of order are another drill's: the
/// documented recovery mode refuses some of them.
pub const POLICIES: [Policy; 4] =
    [Policy::DropUnsynced, Policy::KeepAll, Policy::Torn512, Policy::ZeroTail];

/// A name survives only where its directory was synced: harsher than ext4 or XFS, and what POSIX promises.
pub const NAME_RULE: NameRule = NameRule::Strict;

/// A recording, and what is asked of it.
#[derive(Clone, Copy)]
pub struct Recording<'a> {
    /// The recorded directory: a node's data directory.
    pub root: &'a Path,
    pub ops: &'a [Op<'a>],
    pub timeline: &'a Timeline,
    pub seed: u64,
}

/// What is wrong with one image.
#[derive(Clone, Debug)]
pub struct Finding {
    pub cut: Cut,
    pub policy: Policy,
    /// Whether a node had been started on the image.
    pub restarted: bool,
    pub what: What,
}

impl Finding {
    /// Where it was found, in words.
    #[must_use]
    pub fn place(&self) -> String {
        let (at, policy) = (self.cut.end, self.policy.name());
        let restarted = if self.restarted { ", node restarted" } else { "" };
        format!("cut at operation {at}, {policy}{restarted}")
    }
}

/// Kinds of findings.
#[derive(Clone, Debug)]
pub enum What {
    Broken(Broken),
    /// The database does not open, or breaks, or no node comes up on it: nothing can be judged.
    Unreadable(String),
}

/// What came of looking at many images.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub images: BTreeMap<&'static str, u64>,
    /// Images of other bytes than the one before them under their policy: those that had to be opened.
    pub opened: u64,
    pub findings: Vec<Finding>,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        for (policy, images) in other.images {
            *self.images.entry(policy).or_default() += images;
        }
        self.opened += other.opened;
        self.findings.extend(other.findings);
    }
}

/// The seed of one image: the same whichever thread builds it, and whatever was looked at before.
#[must_use]
pub fn image_rng(seed: u64, cut: Cut, policy: Policy) -> Rng {
    let at = u64::try_from(cut.end).unwrap_or(0);
    Rng::new(seed.rotate_left(17) ^ (at << 8) ^ u64::from(policy as u8))
}

/// Judges the images of every `stride`th cut, on every processor.
///
/// # Errors
/// When an image cannot be built.
pub fn judge_all(
    recording: Recording<'_>,
    stride: usize,
    scratch: &Scratch,
) -> Result<Outcome, CannotInject> {
    let cuts: Vec<Cut> = recording.timeline.cuts().iter().copied().step_by(stride.max(1)).collect();
    let workers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut outcome = Outcome::default();
    thread::scope(|scope| {
        let cuts = &cuts;
        let spawned: Vec<_> = (0..workers)
            .map(|worker| {
                let mine = cuts.iter().copied().skip(worker).step_by(workers);
                scope.spawn(move || Bench::new(recording, scratch, worker)?.judge(mine))
            })
            .collect();
        for worker in spawned {
            let judged = worker
                .join()
                .map_err(|_| CannotInject("judge the images: a judge panicked".to_owned()))?;
            outcome.add(judged?);
        }
        outcome.findings.sort_by_key(|finding| finding.cut.end);
        Ok(outcome)
    })
}

/// One thread's work place: a disk that is replayed once, and a directory per policy that shows image after image.
struct Bench<'a> {
    recording: Recording<'a>,
    disk: Disk,
    replayed: usize,
    views: Vec<View>,
    unanswered: Vec<Request>,
    reader: Reader,
}

/// The images of one policy.
struct View {
    policy: Policy,
    mirror: Mirror,
    /// What the image on show holds. Nothing before the first.
    read: Option<Result<Dump, String>>,
}

impl<'a> Bench<'a> {
    fn new(
        recording: Recording<'a>,
        scratch: &Scratch,
        worker: usize,
    ) -> Result<Self, CannotInject> {
        let views: Result<Vec<View>, CannotInject> = POLICIES
            .into_iter()
            .map(|policy| {
                let directory =
                    scratch.subdirectory(&format!("images-{worker}-{}", policy.name()))?;
                Ok(View {
                    policy,
                    mirror: Mirror::new(&directory).or_cannot("prepare a directory for images")?,
                    read: None,
                })
            })
            .collect();
        Ok(Self {
            recording,
            disk: Disk::new(&recording.root.display().to_string(), NAME_RULE),
            replayed: 0,
            views: views?,
            unanswered: recording.timeline.unanswered(),
            reader: Reader::new(&scratch.subdirectory(&format!("logs-{worker}"))?),
        })
    }

    fn judge(mut self, cuts: impl Iterator<Item = Cut>) -> Result<Outcome, CannotInject> {
        let mut outcome = Outcome::default();
        for cut in cuts {
            self.replay_to(cut)?;
            let requests = self.recording.timeline.requests_at(cut, &self.unanswered);
            let deliveries = self.recording.timeline.deliveries_at(cut);
            let history = SeqHistory::default();
            for view in &mut self.views {
                let image = self
                    .disk
                    .image(view.policy, &mut image_rng(self.recording.seed, cut, view.policy));
                let changed = view.mirror.show(&image).or_cannot("build an image")? > 0;
                let read = match view.read.take().filter(|_| !changed) {
                    Some(read) => read,
                    None => {
                        outcome.opened += 1;
                        self.reader
                            .dump(&store_below(view.mirror.directory()))
                            .map_err(|error: CannotRead| error.to_string())
                    }
                };
                *outcome.images.entry(view.policy.name()).or_default() += 1;
                let what = match &read {
                    Err(error) => Some(What::Unreadable(error.clone())),
                    Ok(dump) => {
                        let evidence = Evidence {
                            requests: &requests,
                            deliveries: &deliveries,
                            dump,
                            history: &history,
                            moment: Moment::Crash,
                        };
                        Broken::by(judge(&evidence)).map(What::Broken)
                    }
                };
                view.read = Some(read);
                let (policy, restarted) = (view.policy, false);
                outcome.findings.extend(what.map(|what| Finding { cut, policy, restarted, what }));
            }
        }
        Ok(outcome)
    }

    fn replay_to(&mut self, cut: Cut) -> Result<(), CannotInject> {
        for op in self.recording.ops.get(self.replayed..cut.end).unwrap_or_default() {
            self.disk.apply(op).or_cannot("replay the recording")?;
        }
        self.replayed = cut.end;
        Ok(())
    }
}
