//! The state of victim selection.

use once_cell::race::OnceBox;
use parking_lot::Mutex;

/// Whose turn it is. A pointer before room is made for the first time.
#[derive(Default)]
pub(crate) struct Hands(pub(crate) OnceBox<Mutex<State>>);

#[derive(Default)]
pub(crate) struct State {
    /// The tenant that gives, and how many more turns it shall.
    pub(crate) giver: u32,
    pub(crate) left: u64,
    /// The tenant that is looked at for whether it is idle; it was when this is set.
    pub(crate) looked_at: u32,
    pub(crate) idle: bool,
    /// Inserts since the last look.
    pub(crate) pace: u64,
    /// The largest id that inserted.
    pub(crate) last: u32,
}

impl Hands {
    /// Bytes of what was made for the first time.
    pub(crate) fn footprint(&self) -> usize {
        self.0.get().map_or(0, size_of_val)
    }

    /// For tests: is anybody choosing?
    #[cfg(test)]
    pub(crate) fn are_held(&self) -> bool {
        self.0.get().is_some_and(Mutex::is_locked)
    }
}
