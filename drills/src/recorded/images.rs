//! Every cut of a recording, in every legal shape, opened and judged without a node.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use ankusa_drills_check::{Dump, Evidence, Moment, Request, SeqHistory, judge, only_stalled_lanes};
use ankusa_drills_replay::{Disk, Mirror, NameRule, Op, Policy, Rng};

use super::timeline::{Cut, Timeline};
use crate::drill::{Broken, CannotInject, OrCannot};
use crate::node::store_below;
use crate::reader::{CannotRead, Reader};
use crate::scratch::Scratch;

/// A name survives only where its directory was synced: harsher than ext4 or XFS, and what POSIX promises.
pub const NAME_RULE: NameRule = NameRule::Strict;

/// A recording, and what is asked of it.
#[derive(Clone, Copy)]
pub struct Recording<'a> {
    /// The recorded directory, a node's data directory, as it was before the first operation.
    pub base: &'a Disk,
    pub ops: &'a [Op<'a>],
    pub timeline: &'a Timeline,
    /// What earlier stores of the same node had made durable.
    pub history: &'a SeqHistory,
    pub seed: u64,
    /// In what shapes a cut leaves the disk.
    pub policies: &'a [Policy],
    /// How many images are drawn of each cut and shape.
    pub draws: u64,
}

/// One image of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Shot {
    pub cut: Cut,
    pub policy: Policy,
    pub draw: u64,
}

impl Shot {
    /// Where it was taken, in words.
    #[must_use]
    pub fn place(&self) -> String {
        let (at, policy) = (self.cut.end, self.policy.name());
        let drawn = if self.draw > 0 { format!(" {}", self.draw + 1) } else { String::new() };
        format!("cut at operation {at}, {policy}{drawn}")
    }

    /// What the image is drawn with: the same whichever thread builds it, and whatever was looked at before.
    #[must_use]
    pub fn rng(&self, seed: u64) -> Rng {
        let at = u64::try_from(self.cut.end).unwrap_or(0);
        Rng::new(
            seed.rotate_left(17) ^ (self.draw << 48) ^ (at << 8) ^ u64::from(self.policy as u8),
        )
    }
}

/// What is wrong with one image.
#[derive(Clone, Debug)]
pub struct Finding {
    pub shot: Shot,
    /// Whether a node had been started on the image.
    pub restarted: bool,
    pub what: What,
}

impl Finding {
    /// Where it was found, in words.
    #[must_use]
    pub fn place(&self) -> String {
        let restarted = if self.restarted { ", node restarted" } else { "" };
        format!("{}{restarted}", self.shot.place())
    }
}

/// Kinds of findings.
#[derive(Clone, Debug)]
pub enum What {
    Broken(Broken),
    /// The same, and nothing but lanes that the next start may find: a node has to show that it does.
    Stalled(Broken),
    /// The database does not open, or breaks, or no node comes up on it: nothing can be judged.
    Unreadable(String),
}

/// What came of looking at many images.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub images: BTreeMap<&'static str, u64>,
    /// Images of other bytes than the one before them under their policy: those that had to be opened.
    pub opened: u64,
    /// Images whose log is damaged in its middle, which an honest cut can do. They were judged as far as they read.
    pub damaged: Vec<Shot>,
    pub findings: Vec<Finding>,
}

impl Outcome {
    /// Adds what came of looking at others.
    pub fn add(&mut self, other: Self) {
        for (policy, images) in other.images {
            *self.images.entry(policy).or_default() += images;
        }
        self.opened += other.opened;
        self.damaged.extend(other.damaged);
        self.findings.extend(other.findings);
    }
}

/// Judges every image of these cuts, on every processor.
///
/// # Errors
/// When an image cannot be built.
pub fn judge_all(
    recording: Recording<'_>,
    cuts: &[Cut],
    scratch: &Scratch,
) -> Result<Outcome, CannotInject> {
    let workers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut outcome = Outcome::default();
    thread::scope(|scope| {
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
        outcome.findings.sort_by_key(|finding| finding.shot.cut.end);
        outcome.damaged.sort_by_key(|shot| (shot.cut.end, shot.draw));
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
    read: Option<Read>,
}

/// What came of reading an image.
enum Read {
    Whole(Dump),
    /// Up to a damage of the log.
    Damaged(Dump),
    Refused(String),
}

impl Read {
    /// A cut that reorders pages may damage the log in its middle, and what was synced is all before that. Any other shape
    /// leaves a log whose end alone is torn.
    fn of(reader: &Reader, store: &Path, policy: Policy) -> Self {
        match reader.dump(store) {
            Ok(dump) => Self::Whole(dump),
            Err(CannotRead::Refused(error)) if policy == Policy::PageReorder => {
                match reader.dump_to_damage(store) {
                    Ok(dump) => Self::Damaged(dump),
                    Err(other) => Self::Refused(format!("{error}; and {other}")),
                }
            }
            Err(error) => Self::Refused(error.to_string()),
        }
    }
}

impl<'a> Bench<'a> {
    fn new(
        recording: Recording<'a>,
        scratch: &Scratch,
        worker: usize,
    ) -> Result<Self, CannotInject> {
        let views: Result<Vec<View>, CannotInject> = recording
            .policies
            .iter()
            .map(|policy| {
                let directory =
                    scratch.subdirectory(&format!("images-{worker}-{}", policy.name()))?;
                Ok(View {
                    policy: *policy,
                    mirror: Mirror::new(&directory).or_cannot("prepare a directory for images")?,
                    read: None,
                })
            })
            .collect();
        Ok(Self {
            recording,
            disk: recording.base.clone(),
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
            for view in &mut self.views {
                for draw in 0..self.recording.draws {
                    let shot = Shot { cut, policy: view.policy, draw };
                    let image = self.disk.image(view.policy, &mut shot.rng(self.recording.seed));
                    let changed = view.mirror.show(&image).or_cannot("build an image")? > 0;
                    let read = view.read.take().filter(|_| !changed).unwrap_or_else(|| {
                        outcome.opened += 1;
                        let store = store_below(view.mirror.directory());
                        Read::of(&self.reader, &store, view.policy)
                    });
                    *outcome.images.entry(view.policy.name()).or_default() += 1;
                    let what = match &read {
                        Read::Refused(error) => Some(What::Unreadable(error.clone())),
                        Read::Whole(dump) | Read::Damaged(dump) => {
                            let evidence = Evidence {
                                requests: &requests,
                                deliveries: &deliveries,
                                dump,
                                history: self.recording.history,
                                moment: Moment::Crash,
                            };
                            let violations = judge(&evidence);
                            let is_stalled = only_stalled_lanes(&violations, dump);
                            let what = if is_stalled { What::Stalled } else { What::Broken };
                            Broken::by(violations).map(what)
                        }
                    };
                    outcome.damaged.extend(matches!(read, Read::Damaged(_)).then_some(shot));
                    view.read = Some(read);
                    outcome.findings.extend(what.map(|what| Finding {
                        shot,
                        restarted: false,
                        what,
                    }));
                }
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
