//! The hook that shifts the wall clock. Monotonic time stays what it is: that is what a clock that is set looks like.

use ankusa_drills_replay::control::Word;
use libc::{c_int, clockid_t, timespec};

use crate::control;
use crate::raw;

const NANOS_PER_MILLI: i64 = 1_000_000;
const MILLIS_PER_SECOND: i64 = 1_000;

/// # Safety
/// As clock_gettime(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { raw::clock_gettime(clock, time) };
    let is_wall = matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE);
    if result == 0 && is_wall {
        let shift_ms = control::value(Word::WallShiftMs).cast_signed();
        if shift_ms != 0 {
            // SAFETY: the kernel has just written to it.
            let time = unsafe { &mut *time };
            *time = shifted(*time, shift_ms);
        }
    }
    result
}

fn shifted(time: timespec, shift_ms: i64) -> timespec {
    let nanos = time.tv_nsec + shift_ms.rem_euclid(MILLIS_PER_SECOND) * NANOS_PER_MILLI;
    let carry = nanos.div_euclid(MILLIS_PER_SECOND * NANOS_PER_MILLI);
    timespec {
        tv_sec: time.tv_sec + shift_ms.div_euclid(MILLIS_PER_SECOND) + carry,
        tv_nsec: nanos.rem_euclid(MILLIS_PER_SECOND * NANOS_PER_MILLI),
    }
}
