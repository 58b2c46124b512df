//! A value that detects a use after its drop: a canary, a box of its own, and an entry in a ledger.
//!
//! The check works without a sanitizer: a dropped token's memory has a wrong canary, or its ledger
//! entry says that it was dropped. Every key, value, item and captured state that has a `Drop`
//! contains a token.
//!
//! A type that is added to programs must contain a token, if it has a `Drop`.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};

use crate::callback::{self, Callback};

/// Tokens that a process can make, at most.
const LIVES: usize = 1 << 22;
const CANARY: u64 = 0x5EED_CAFE_0B57_AC1E;
const DEAD: u64 = 0xDEAD_DEAD_DEAD_DEAD;

const ALIVE: u8 = 1;
const DROPPED: u8 = 2;
/// Alive, and possibly for ever: `alive_since` leaves it out.
const LAX: u8 = 3;

static LEDGER: [AtomicU8; LIVES] = [const { AtomicU8::new(0) }; LIVES];
/// The callback kind of each token's drop.
static KINDS: [AtomicU8; LIVES] = [const { AtomicU8::new(0) }; LIVES];
static NEXT: AtomicUsize = AtomicUsize::new(1);
static VERSION: AtomicUsize = AtomicUsize::new(1);

/// Prints the failure and aborts the process: the library might catch a panic.
pub fn fail(what: &str) -> ! {
    eprintln!("FAILED: {what}\n{}", std::backtrace::Backtrace::force_capture());
    std::process::abort()
}

/// The name of a token: where its object belongs, and which of several it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The number of the cache; 0 for objects outside of caches, `u32::MAX` for keys.
    pub home: u32,
    pub key: u32,
    pub version: u32,
}

impl Tag {
    pub fn new(home: u32, key: u32) -> Self {
        Self { home, key, version: VERSION.fetch_add(1, SeqCst) as u32 }
    }
}

/// A token.
#[derive(Debug)]
pub struct Token {
    tag: Tag,
    canary: u64,
    id: usize,
    own: Box<u64>,
    dropping: Callback,
}

impl Token {
    /// Creates a token; `dropping` is the callback that its `Drop` enters.
    pub fn new(tag: Tag, dropping: Callback) -> Self {
        let id = NEXT.fetch_add(1, SeqCst);
        if id >= LIVES {
            fail("the ledger is full");
        }
        LEDGER[id].store(ALIVE, SeqCst);
        KINDS[id].store(dropping as u8, SeqCst);
        let canary = CANARY ^ id as u64;
        Self { tag, canary, id, own: Box::new(canary), dropping }
    }

    /// Creates a token of an object that may never be dropped: a name in hash chains.
    pub fn lax(tag: Tag, dropping: Callback) -> Self {
        let token = Self::new(tag, dropping);
        LEDGER[token.id].store(LAX, SeqCst);
        token
    }

    pub fn tag(&self) -> Tag {
        self.check("looked at");
        self.tag
    }

    #[track_caller]
    pub fn check(&self, when: &str) {
        let (canary, id) = (self.canary, self.id);
        if canary == DEAD || canary != CANARY ^ id as u64 {
            fail(&format!("a token's canary is {canary:#x} when {when}: id {id:#x}, {:?}", self.tag));
        }
        let state = LEDGER[id].load(SeqCst);
        if state != ALIVE && state != LAX {
            fail(&format!("token {id} ({:?}) is in state {state} when {when}", self.tag));
        }
        if *self.own != canary {
            fail(&format!("the box of token {id} ({:?}) has {:#x} when {when}", self.tag, *self.own));
        }
    }

    /// Returns a copy with an entry of its own in the ledger.
    pub fn copy(&self) -> Self {
        self.check("cloned");
        Self::new(self.tag, self.dropping)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.check("dropped");
        let before = LEDGER[self.id].swap(DROPPED, SeqCst);
        if before != ALIVE && before != LAX {
            fail(&format!("token {} ({:?}) is dropped twice", self.id, self.tag));
        }
        self.canary = DEAD;
        callback::enter(self.dropping);
    }
}

/// Returns the number of the first token of the next program.
pub fn mark() -> usize {
    NEXT.load(SeqCst)
}

/// Whether the ledger has room for another program.
pub fn has_room() -> bool {
    NEXT.load(SeqCst) < LIVES * 3 / 4
}

/// Returns the live tokens since the mark by their distance from it, each with its drop's callback.
pub fn alive_since(mark: usize) -> Vec<(usize, Callback)> {
    let alive = (mark..NEXT.load(SeqCst)).filter(|&id| LEDGER[id].load(SeqCst) == ALIVE);
    alive.map(|id| (id - mark, callback::ALL[usize::from(KINDS[id].load(SeqCst))])).collect()
}
