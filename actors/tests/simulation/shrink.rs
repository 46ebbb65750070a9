//! The least of a plan that still goes wrong.

use super::plan::{Plan, Settings, Step};

/// Leaves out steps, and then settings, for as long as `fails`; what is left is then made smaller.
pub fn shrink(mut plan: Plan, fails: impl Fn(&Plan) -> bool) -> Plan {
    loop {
        let before = plan.clone();
        drop_steps(&mut plan, &fails);
        simplify_settings(&mut plan, &fails);
        simplify_steps(&mut plan, &fails);
        if plan == before {
            return plan;
        }
    }
}

fn drop_steps(plan: &mut Plan, fails: &impl Fn(&Plan) -> bool) {
    let mut chunk = plan.steps.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < plan.steps.len() {
            let mut smaller = plan.clone();
            let end = (at + chunk).min(smaller.steps.len());
            smaller.steps.drain(at..end);
            if fails(&smaller) {
                *plan = smaller;
            } else {
                at = end;
            }
        }
        chunk /= 2;
    }
}

fn simplify_settings(plan: &mut Plan, fails: &impl Fn(&Plan) -> bool) {
    let fits = |settings: &Settings| fails(&Plan { settings: settings.clone(), ..plan.clone() });
    let mut settings = plan.settings.clone();
    while let Some(simpler) = settings.simpler().into_iter().find(|simpler| fits(simpler)) {
        settings = simpler;
    }
    plan.settings = settings;
}

fn simplify_steps(plan: &mut Plan, fails: &impl Fn(&Plan) -> bool) {
    for at in 0..plan.steps.len() {
        for simpler in simpler_steps(&plan.steps[at]) {
            let mut smaller = plan.clone();
            smaller.steps[at] = simpler;
            if fails(&smaller) {
                *plan = smaller;
                break;
            }
        }
    }
}

fn simpler_steps(step: &Step) -> Vec<Step> {
    match step.clone() {
        Step::Send { hooks, tenant, sinks, key } if hooks > 1 => {
            let fewer = [1, 2].into_iter().filter(|fewer| *fewer < hooks);
            fewer.map(|hooks| Step::Send { hooks, tenant: tenant.clone(), sinks, key }).collect()
        }
        Step::CutPower { keeping } if keeping > 0 => vec![Step::CutPower { keeping: 0 }],
        Step::Hold { hooks } if hooks > 1 => {
            [1, hooks / 2].map(|hooks| Step::Hold { hooks }).to_vec()
        }
        Step::Send { .. }
        | Step::Hold { .. }
        | Step::Limit { .. }
        | Step::HangUp
        | Step::Advance { .. }
        | Step::Sink { .. }
        | Step::Fail(_)
        | Step::FailWrites { .. }
        | Step::Room { .. }
        | Step::Slow { .. }
        | Step::Late { .. }
        | Step::Heal
        | Step::Crash { .. }
        | Step::Probe
        | Step::Reopen
        | Step::SetClock { .. }
        | Step::CutPower { .. }
        | Step::Kill
        | Step::StopAndStart => Vec::new(),
    }
}
