//! What follows a connection beside its parser says the same of bytes that come at once and of bytes that come in pieces.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/front/frames.rs"]
mod frames;
#[path = "../../src/front/framing.rs"]
mod framing;

use frames::Frames;
use framing::Framing;

fuzz_target!(|bytes: &[u8]| {
    let Some((&size, bytes)) = bytes.split_first() else { return };
    let size = usize::from(size).max(1);
    let (mut whole, mut pieces) = (Framing::new(), Framing::new());
    whole.see(bytes);
    bytes.chunks(size).for_each(|piece| pieces.see(piece));
    let told = |it: &Framing| {
        (
            it.heads(),
            it.first_ambiguous(),
            it.is_in_head(),
            it.is_in_request_line(),
            it.is_between_requests(),
        )
    };
    assert_eq!(told(&whole), told(&pieces));
    let (mut whole, mut pieces) = (Frames::after(24), Frames::after(24));
    whole.see(bytes);
    bytes.chunks(size).for_each(|piece| pieces.see(piece));
    let told = |it: &Frames| (it.heads(), it.resets(), it.is_in_head());
    assert_eq!(told(&whole), told(&pieces));
});
