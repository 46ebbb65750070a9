//! Restart rules, seen from outside: who comes back, in what order, when, and with whose state gone.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use ankusa_actors::supervision::*;
use common::probe::{Journal, Probe, ProbeMsg, states};
use common::{millis, secs};
use ractor::concurrency::JoinHandle;
use ractor::rpc::CallResult;
use ractor::{Actor, ActorRef, SpawnErr};

const STOP: Shutdown = Shutdown::Stop(Duration::from_secs(1));
const LATER: Exhausted = Exhausted::RetryLater(Backoff {
    first: Duration::from_secs(1),
    max: Duration::from_secs(60),
    reset_after: Duration::from_secs(60),
});

/// One supervisor over probes.
struct Bench {
    board: Board,
    journal: Journal,
    probes: Vec<Probe>,
    supervisor: ActorRef<SupervisorMsg>,
    task: JoinHandle<()>,
}

/// What the supervisor is told, but for its children.
#[derive(Clone, Copy)]
struct Rules {
    strategy: Strategy,
    restarts: usize,
    exhausted: Exhausted,
    shutdown: Shutdown,
}

impl Default for Rules {
    fn default() -> Self {
        let strategy = Strategy::OneForOne;
        Self { strategy, restarts: 3, exhausted: Exhausted::Fail, shutdown: STOP }
    }
}

impl Rules {
    fn with(strategy: Strategy) -> Self {
        Self { strategy, ..Self::default() }
    }

    fn args(self, id: &'static str, board: &Board, children: Vec<ChildSpec>) -> SupervisorArgs {
        SupervisorArgs {
            id,
            board: board.clone(),
            strategy: self.strategy,
            intensity: Intensity { restarts: self.restarts, within: Duration::from_secs(60) },
            exhausted: self.exhausted,
            retry_delay: Duration::from_secs(5),
            children,
        }
    }

    async fn run(self, ids: &[&str]) -> Bench {
        let journal = Journal::default();
        let probes = ids.iter().map(|id| Probe::new(id, &journal)).collect();
        self.try_run(journal, probes).await.unwrap()
    }

    async fn try_run(self, journal: Journal, probes: Vec<Probe>) -> Result<Bench, SpawnErr> {
        let board = Board::default();
        let children = probes.iter().map(|probe| probe.child(self.shutdown)).collect();
        let args = self.args("top", &board, children);
        let (supervisor, task) = Actor::spawn(None, Supervisor, args).await?;
        Ok(Bench { board, journal, probes, supervisor, task })
    }
}

impl Bench {
    fn tell(&self, ix: usize, message: ProbeMsg) {
        self.probes[ix].slot.get().unwrap().cast(message).unwrap();
    }

    async fn kill(&self, ix: usize) {
        self.tell(ix, ProbeMsg::Die);
        millis(1).await;
    }

    async fn stop(self) -> String {
        self.supervisor.stop(None);
        self.task.await.unwrap();
        self.journal.take()
    }
}

#[tokio::test(start_paused = true)]
async fn a_death_takes_with_it_what_the_strategy_says_and_children_come_back_in_order() {
    let table = [
        (Strategy::OneForOne, "xb +b"),
        (Strategy::OneForAll, "xb -d -c -a +a +b +c +d"),
        (Strategy::RestForOne, "xb -d -c +b +c +d"),
    ];
    for (strategy, expected) in table {
        let bench = Rules::with(strategy).run(&["a", "b", "c", "d"]).await;
        assert_eq!(bench.journal.take(), "+a +b +c +d");
        bench.kill(1).await;
        assert_eq!(bench.journal.take(), expected, "{strategy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_supervisor_stops_its_children_last_first_and_lets_each_finish() {
    let bench = Rules::default().run(&["backup", "compactor", "edge"]).await;
    bench.journal.take();
    assert_eq!(bench.stop().await, "-edge -compactor -backup");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_ends_by_itself_is_missed_like_one_that_died() {
    let bench = Rules::default().run(&["a"]).await;
    bench.tell(0, ProbeMsg::Leave);
    millis(1).await;
    assert_eq!(bench.journal.text(), "+a -a +a");
    let report = bench.board.report().remove(0);
    assert_eq!((report.restarts, report.last_failure.unwrap().as_str()), (1, "ended by itself"));
}

#[tokio::test(start_paused = true)]
async fn siblings_that_die_together_come_back_once() {
    let bench = Rules::with(Strategy::OneForAll).run(&["a", "b", "c"]).await;
    bench.journal.take();
    bench.tell(0, ProbeMsg::Die);
    bench.tell(2, ProbeMsg::Die);
    millis(1).await;
    let story = bench.journal.take();
    assert!(story.ends_with("+a +b +c"), "{story}");
    assert_eq!(story.matches('+').count(), 3, "{story}");
    let restarts: Vec<_> = bench.board.report().iter().map(|child| child.restarts).collect();
    assert_eq!(restarts, [1, 1, 1]);
}

/// Waits without a clock: real state drops take real time.
async fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        tokio::task::yield_now().await;
    }
}

/// Nobody starts before the last incarnation of the same name is gone.
fn assert_no_overlap(story: &str, what: &str) {
    let mut alive = BTreeSet::new();
    for step in story.split(' ') {
        let (sign, id) = step.split_at(1);
        let fits = if sign == "+" { alive.insert(id) } else { alive.remove(id) };
        assert!(fits, "{what}: {story}");
    }
}

fn slow(id: &str, journal: &Journal) -> Probe {
    Probe { drop_ms: 20, ..Probe::new(id, journal) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_child_starts_while_its_previous_state_is_alive() {
    for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
        let journal = Journal::default();
        let probes = vec![slow("a", &journal), slow("b", &journal)];
        let bench = Rules::with(strategy).try_run(journal, probes).await.unwrap();
        for restarts in 1..=3 {
            bench.tell(0, ProbeMsg::Die);
            until(|| bench.board.report()[0].restarts == restarts).await;
        }
        assert_no_overlap(&bench.stop().await, strategy.as_str());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_grandchild_starts_while_its_previous_state_is_alive() {
    for way in ["crash", "give up"] {
        let nested = nested(20, 0).await;
        for restarts in 1..=3 {
            match way {
                "crash" => assert!(nested.board.crash("inner")),
                _give_up => nested.a.slot.get().unwrap().cast(ProbeMsg::Die).unwrap(),
            }
            until(|| nested.board.report()[0].restarts == restarts).await;
        }
        nested.supervisor.stop(None);
        nested.task.await.unwrap();
        assert_no_overlap(&nested.journal.text(), way);
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_cannot_start_refuses_the_boot_with_its_reason_and_the_earlier_ones_are_stopped()
 {
    for exhausted in [Exhausted::Fail, LATER] {
        let journal = Journal::default();
        let probes: Vec<_> = ["a", "b", "c"].iter().map(|id| Probe::new(id, &journal)).collect();
        probes[2].fail_starts(1);
        let rules = Rules { exhausted, ..Rules::default() };
        let refused = rules.try_run(journal.clone(), probes).await.err().unwrap();
        assert!(refused.to_string().contains("c cannot start"), "{refused}");
        assert_eq!(journal.text(), "+a +b -b -a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_cannot_start_again_is_retried_and_the_ones_after_it_wait_for_it() {
    let bench = Rules::with(Strategy::RestForOne).run(&["store", "queue", "services"]).await;
    bench.journal.take();
    bench.probes[1].fail_starts(2);
    bench.kill(1).await;
    assert_eq!(bench.journal.take(), "xqueue -services");
    assert_eq!(states(&bench.board), ["store: running", "queue: starting", "services: stopped"]);
    assert!(!bench.probes[1].is_up(), "callers see that there is nobody");
    secs(11).await;
    assert_eq!(bench.journal.seconds_of("+queue"), [10], "tried again after 5 s, and once more");
    assert_eq!(bench.journal.take(), "+queue +services");
    assert_eq!(bench.board.report()[1].last_failure.as_deref(), Some("queue cannot start"));
}

#[tokio::test(start_paused = true)]
async fn failed_starts_spend_the_budget_like_deaths_and_then_the_supervisor_gives_up() {
    let bench = Rules::with(Strategy::RestForOne).run(&["store", "queue"]).await;
    bench.journal.take();
    bench.probes[1].fail_starts(usize::MAX);
    let began = tokio::time::Instant::now();
    bench.kill(1).await;
    bench.task.await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 10, "one death and the starts at 0, 5 and 10 s");
    assert_eq!(bench.journal.text(), "xqueue -store");
}

#[tokio::test(start_paused = true)]
async fn a_child_whose_start_is_retried_is_back_at_once_when_an_earlier_one_dies() {
    let bench = Rules::with(Strategy::RestForOne).run(&["store", "queue"]).await;
    bench.probes[1].fail_starts(1);
    bench.kill(1).await;
    bench.journal.take();
    bench.kill(0).await;
    assert_eq!(bench.journal.take(), "xstore +store +queue");
    secs(10).await;
    assert_eq!(bench.journal.take(), "", "the retry finds it running");
}

#[tokio::test(start_paused = true)]
async fn one_death_too_many_in_the_window_and_the_supervisor_stops_everybody_and_fails() {
    let bench = Rules { restarts: 2, ..Rules::default() }.run(&["a", "b", "c"]).await;
    bench.kill(0).await;
    bench.kill(1).await;
    bench.journal.take();
    bench.kill(2).await;
    bench.task.await.unwrap();
    assert_eq!(bench.journal.take(), "xc -b -a", "the budget is one for all children");
    assert_eq!(states(&bench.board), ["a: stopped", "b: stopped", "c: starting"]);
}

#[tokio::test(start_paused = true)]
async fn deaths_that_are_far_apart_never_spend_the_budget() {
    let bench = Rules { restarts: 1, ..Rules::default() }.run(&["a"]).await;
    for _ in 0..10 {
        bench.kill(0).await;
        secs(61).await;
    }
    assert_eq!(bench.board.report()[0].restarts, 10);
}

/// Kills a child again and again, the moment it is up.
async fn kill_whenever_up(bench: &Bench, ix: usize, times: usize) {
    for _ in 0..times {
        while !bench.probes[ix].is_up() {
            millis(1).await;
        }
        bench.kill(ix).await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_budgets_are_counted_a_child_it_alone_goes_down_and_waits_longer_and_longer() {
    let bench = Rules { restarts: 1, exhausted: LATER, ..Rules::default() }.run(&["a", "b"]).await;
    kill_whenever_up(&bench, 0, 2).await;
    assert_eq!(states(&bench.board), ["a: down", "b: running"]);
    kill_whenever_up(&bench, 0, 6).await;
    secs(61).await;
    let starts = bench.journal.seconds_of("+a");
    assert_eq!(starts, [0, 0, 1, 3, 7, 15, 31, 63, 123]);
    assert_eq!(bench.journal.seconds_of("+b"), [0], "nobody else is touched");
    let report = bench.board.report();
    assert_eq!((report[0].downs, report[0].restarts), (7, 8));
    assert_eq!((report[1].downs, report[1].restarts), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_childs_deaths_do_not_count_against_another() {
    let bench = Rules { restarts: 1, exhausted: LATER, ..Rules::default() }.run(&["a", "b"]).await;
    bench.kill(0).await;
    bench.kill(1).await;
    assert_eq!(states(&bench.board), ["a: running", "b: running"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_minute_up_the_waits_begin_again_whatever_happens_first() {
    let bench = Rules { restarts: 1, exhausted: LATER, ..Rules::default() }.run(&["a"]).await;
    kill_whenever_up(&bench, 0, 6).await;
    secs(16 + 60).await;
    let began = tokio::time::Instant::now();
    bench.kill(0).await;
    assert!(bench.probes[0].is_up(), "within its budget again");
    bench.kill(0).await;
    kill_whenever_up(&bench, 0, 1).await;
    assert_eq!(began.elapsed().as_secs(), 1, "and the first wait is the shortest again");
}

#[tokio::test(start_paused = true)]
async fn where_budgets_are_counted_a_child_a_start_that_fails_is_tried_again_later_and_later() {
    let bench = Rules { exhausted: LATER, ..Rules::default() }.run(&["a", "b"]).await;
    bench.probes[0].fail_starts(8);
    bench.kill(0).await;
    assert_eq!(states(&bench.board), ["a: down", "b: running"]);
    secs(400).await;
    // It has not been up in all that time: the waits do not begin again.
    assert_eq!(bench.journal.seconds_of("+a"), [0, 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60]);
    assert_eq!(bench.journal.seconds_of("+b"), [0]);
    let report = bench.board.report().remove(0);
    assert_eq!((report.downs, report.restarts), (8, 1));
    assert_eq!(report.last_failure.as_deref(), Some("a cannot start"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_child_that_is_down() {
    let bench = Rules { exhausted: LATER, ..Rules::default() }.run(&["a", "b"]).await;
    bench.probes[0].fail_starts(usize::MAX);
    bench.kill(0).await;
    bench.journal.take();
    let (began, board) = (tokio::time::Instant::now(), bench.board.clone());
    assert_eq!(bench.stop().await, "-b");
    assert_eq!(began.elapsed().as_millis(), 0);
    assert_eq!(states(&board), ["a: down", "b: stopped"]);
}

fn ask(probe: &Probe, after: Duration) -> tokio::task::JoinHandle<Option<u8>> {
    let actor = probe.slot.get().unwrap();
    tokio::spawn(async move {
        match actor.call(|reply| ProbeMsg::Ask(reply, after), None).await {
            Ok(CallResult::Success(answer)) => Some(answer),
            Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => None,
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_drain_answers_what_is_queued_and_a_stop_only_what_is_in_hand() {
    let limit = Duration::from_secs(60);
    let table = [(Shutdown::Drain(limit), Some(7)), (Shutdown::Stop(limit), None)];
    for (shutdown, queued) in table {
        let bench = Rules { shutdown, ..Rules::default() }.run(&["writer"]).await;
        let in_hand = ask(&bench.probes[0], Duration::from_secs(10));
        let waiting = ask(&bench.probes[0], Duration::from_secs(10));
        secs(1).await;
        bench.stop().await;
        assert_eq!((in_hand.await.unwrap(), waiting.await.unwrap()), (Some(7), queued));
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_does_not_leave_in_time_is_killed_and_the_others_still_leave_in_order() {
    for shutdown in [STOP, Shutdown::Drain(Duration::from_secs(1))] {
        let bench = Rules { shutdown, ..Rules::default() }.run(&["a", "stuck", "c"]).await;
        let answer = ask(&bench.probes[1], Duration::from_secs(3_600));
        millis(1).await;
        bench.journal.take();
        let began = tokio::time::Instant::now();
        assert_eq!(bench.stop().await, "-c xstuck -a");
        assert_eq!(began.elapsed().as_secs(), 1);
        assert_eq!(answer.await.unwrap(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_killed_while_it_stops_its_children_takes_every_one_of_them_with_it() {
    let bench = Rules::default().run(&["a", "stuck", "c"]).await;
    ask(&bench.probes[1], Duration::from_secs(3_600));
    millis(1).await;
    bench.journal.take();
    bench.supervisor.stop(None);
    millis(500).await;
    assert_eq!(bench.journal.take(), "-c");
    bench.supervisor.kill();
    bench.task.await.unwrap();
    millis(1).await;
    let story = bench.journal.take();
    assert!(story == "xstuck xa" || story == "xa xstuck", "{story}");
}

struct Nested {
    board: Board,
    journal: Journal,
    a: Probe,
    supervisor: ActorRef<SupervisorMsg>,
    task: JoinHandle<()>,
}

/// `inner` (one_for_all over a and b) and `after`, below a supervisor that allows 3 restarts.
async fn nested(drop_ms: u64, inner_restarts: usize) -> Nested {
    let (board, journal) = (Board::default(), Journal::default());
    let probe = |id| Probe { drop_ms, ..Probe::new(id, &journal) };
    let (a, b, after) = (probe("a"), probe("b"), probe("after"));
    let (inner_board, inner_a) = (board.clone(), a.clone());
    let inner = ChildSpec::supervisor("inner", Shutdown::Stop(Duration::from_secs(9)), move || {
        let children = vec![inner_a.child(STOP), b.child(STOP)];
        let rules = Rules { restarts: inner_restarts, ..Rules::with(Strategy::OneForAll) };
        rules.args("inner", &inner_board, children)
    });
    let args = Rules::default().args("top", &board, vec![inner, after.child(STOP)]);
    let (supervisor, task) = Actor::spawn(None, Supervisor, args).await.unwrap();
    Nested { board, journal, a, supervisor, task }
}

#[tokio::test(start_paused = true)]
async fn supervisors_below_supervisors_stop_their_children_in_reverse_and_let_each_finish() {
    let nested = nested(0, 3).await;
    assert_eq!(nested.journal.take(), "+a +b +after");
    nested.supervisor.stop(None);
    nested.task.await.unwrap();
    assert_eq!(nested.journal.take(), "-after -b -a");
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_gives_up_fails_its_parent_which_starts_it_afresh() {
    let nested = nested(0, 1).await;
    let kill = async || {
        nested.a.slot.get().unwrap().cast(ProbeMsg::Die).unwrap();
        millis(1).await;
        nested.journal.take()
    };
    assert_eq!(kill().await, "+a +b +after xa -b +a +b");
    assert_eq!(kill().await, "xa -b +a +b");
    let inner = nested.board.report().remove(0);
    assert_eq!(inner.last_failure.as_deref(), Some("a died too often"));
    assert_eq!(inner.restarts, 1);
    // Its budget is new, and its parent's is spent by the fourth time it fails.
    for _ in 0..5 {
        kill().await;
    }
    assert_eq!(nested.board.report().remove(0).restarts, 3);
    assert_eq!(kill().await, "xa -b -after");
    nested.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_crashes_first_stops_its_children_in_order() {
    let nested = nested(0, 3).await;
    nested.journal.take();
    assert!(nested.board.crash("inner"));
    millis(1).await;
    assert_eq!(nested.journal.take(), "-b -a +a +b");
}

#[tokio::test(start_paused = true)]
async fn the_board_lists_supervisors_before_their_children_in_start_order_after_restarts_too() {
    let nested = nested(0, 3).await;
    let line = |child: &ChildReport| format!("{}/{} {}", child.parent, child.id, child.strategy);
    let lines = || nested.board.report().iter().map(line).collect::<Vec<_>>();
    let expected = ["top/inner one_for_all", "inner/a ", "inner/b ", "top/after "];
    assert_eq!(lines(), expected);
    nested.board.crash("inner");
    millis(1).await;
    nested.board.crash("after");
    millis(1).await;
    assert_eq!(lines(), expected);
    let restarts: Vec<_> = nested.board.report().iter().map(|child| child.restarts).collect();
    assert_eq!(restarts, [1, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn the_board_says_since_when_a_child_is_in_its_state() {
    let bench = Rules::default().run(&["a", "b"]).await;
    secs(10).await;
    bench.kill(0).await;
    secs(5).await;
    let for_s: Vec<_> =
        bench.board.report().iter().map(|child| child.since.elapsed().as_secs()).collect();
    assert_eq!(for_s, [5, 15]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_through_the_board_is_a_panic_of_the_child_and_is_told_when_nobody_is_there() {
    let bench = Rules { restarts: 0, exhausted: LATER, ..Rules::default() }.run(&["a"]).await;
    assert!(!bench.board.crash("nobody"));
    assert!(bench.board.crash("a"));
    millis(1).await;
    assert_eq!(bench.journal.text(), "+a xa");
    let report = bench.board.report().remove(0);
    assert_eq!((report.state, report.downs), (ChildState::Down, 1));
    assert!(report.last_failure.unwrap().contains("told to panic"));
    assert!(!bench.board.crash("a"), "it is down");
    secs(1).await;
    assert!(bench.board.crash("a"));
}
