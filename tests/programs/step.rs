//! Steps of programs.
//!
//! Plain data with `Debug`: a failing program is printed as a list of these.
//!
//! A step that is added needs a generator in `strategy` and an arm in `run`.

use crate::callback::{Action, Callback};
use crate::reload::ReloadForm;

/// Slots for caches.
pub const CACHES: u8 = 4;

/// Slots for groups; those from 6 on are for groups of the second tree.
pub const GROUPS: u8 = 8;

/// Slots for pairs of lists, and for their shrinkers' registrations.
pub const LISTS: u8 = 3;

/// Slots for list items.
pub const ITEMS: u8 = 16;

/// The keys of steps, which the model checks, are below this; callbacks insert other keys.
pub const KEYS: u32 = 24;

/// The time to live or to idle of an entry, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub enum Life {
    Default,
    Forever,
    Live(u8),
    Idle(u8),
}

/// The configuration of a cache. `kind` selects the types of keys and values, in `build` of
/// `cache.rs`; `eviction` and `hashing` select an arm in `typed` there. `strategy/cache.rs` draws
/// the numbers.
#[derive(Clone, Debug)]
pub struct CacheChoices {
    pub kind: u8,
    pub eviction: u8,
    pub hashing: u8,
    pub life: Life,
    /// The time to idle beside a time to live, in milliseconds.
    pub idle: Option<u8>,
    /// The times of `refresh_ahead` and `stale_while_revalidate`, in milliseconds.
    pub ahead: u8,
    pub stale: u8,
    /// Whether it has a function of `expire_after`.
    pub computes_times: bool,
    /// The lowest limit of the cache's own, and its value in KiB; higher limits are a half above.
    pub limit: Option<(GroupLimit, u16)>,
    pub weight: u16,
    pub listens: bool,
    pub costs: bool,
    pub seeks: Option<u8>,
    pub group: Option<u8>,
    /// In its first call the listener drops the handle in this slot.
    pub ends: Option<u8>,
}

/// The method of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadForm {
    Plain,
    Ref,
    Try,
    TryRef,
    Entry,
    EntryTry,
    EntryFill,
    /// [`EntryFill`](Self::EntryFill), and a due entry is reloaded.
    Refresh,
}

/// The kind of a load.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    pub form: LoadForm,
    /// Whether the loader returns an error, if the form permits errors.
    pub fails: bool,
    /// As a future that is pending this many times, and dropped after two polls. Without the
    /// feature `async` it is a load as others.
    pub polls: Option<u8>,
}

impl Loading {
    pub fn fails(self) -> bool {
        self.fails && !matches!(self.form, LoadForm::Plain | LoadForm::Ref | LoadForm::Entry)
    }
}

/// The result of a computation's closure.
#[derive(Clone, Copy, Debug)]
pub enum ComputeAnswer {
    Put,
    Update,
    Remove,
    Keep,
}

/// A limit of a group.
#[derive(Clone, Copy, Debug)]
pub enum GroupLimit {
    Min,
    Low,
    High,
    Max,
}

/// A walk's decision for an item.
#[derive(Clone, Copy, Debug)]
pub enum WalkTurn {
    Isolate,
    Rotate,
    Skip,
    Retry,
    RemoveRetry,
    Stop,
    RemoveStop,
}

/// An object that the running thread keeps across steps.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    Guard,
    Reader,
    Cache(u8),
    Group(u8),
    Item(u8),
    /// The last guard of a charge.
    Charge,
    /// The last value with a charge.
    Charged,
    /// A clone of a value of a cache.
    Value(u8, u32),
}

/// The storage of a kept object.
#[derive(Clone, Copy, Debug)]
pub enum Storage {
    /// Until [`Step::Release`].
    Held,
    /// In a thread-local that is created before those of the library, and so destroyed after them.
    Early,
    /// In a thread-local that is created on demand, mostly after those of the library.
    Late,
    /// Nowhere: it is leaked.
    Leak,
}

/// A scope for several steps.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    Guard,
    Reader,
    Pinned(u8),
    Iter(u8),
    Prepared(u8, u8, u8),
    NoReclaim,
    /// As inside of a callback of a shrinker.
    Callback,
    /// On another thread, which is joined.
    Thread,
    /// Each step on a thread of its own, concurrently.
    Threads,
}

/// One step. Numbers name slots, keys, times or variants; the order of a variant's numbers is the
/// one in its arm of `run`.
#[derive(Clone, Debug)]
pub enum Step {
    Build(u8, CacheChoices),
    Clone(u8, u8),
    DropCache(u8),
    Insert {
        cache: u8,
        key: u32,
        group: Option<u8>,
        life: Life,
        /// Whether by `Entry::set`, which does not return the old value.
        sets: bool,
    },
    Many {
        cache: u8,
        count: u16,
        group: Option<u8>,
    },
    Get(u8, u32),
    GetMany(u8, Vec<u32>),
    Peek(u8, u32),
    Contains(u8, u32),
    /// Keeps the right to reload the entry, if it is due.
    GetOrRefresh(u8, u32),
    /// Reloads the entry of a right that was kept.
    Reload(ReloadForm),
    /// Advances the manual clock of the program by milliseconds.
    Advance(u16),
    Remove(u8, u32),
    Touch(u8, u32, Life),
    Load(u8, u32, Loading),
    LoadMany {
        cache: u8,
        keys: Vec<u32>,
        /// Whether the origins are returned, too.
        fills: bool,
        fails: bool,
        is_async: bool,
    },
    Compute {
        cache: u8,
        key: u32,
        answer: ComputeAnswer,
        group: Option<u8>,
        life: Life,
    },
    Retain(u8, u32),
    Clear(u8),
    /// Removes every key of the model, collects, and inserts and removes other keys: memory that is
    /// freed although a reader uses it is overwritten.
    Churn(u8),
    Collect(u8),
    Visit(u8, u8),
    Save(u8),
    LoadSaved(u8),
    Look(u8),
    Budget(u16),
    Reclaim(u8, u16),
    DropCaches,
    Shrink(u8, u8, u8),
    Direct(u8),
    PayDebts(u8, u8),
    Sweep,
    Survey,
    DebtListener(bool),
    Charge(u8, u16),
    Uncharge,
    /// Charges without reclaim, by one of four methods.
    TryCharge(u8, u8, u16),
    Guard(u8, u16),
    /// Grows, resizes, shrinks or splits the last guard.
    Resize(u8, u16),
    DropGuard,
    LeakGuard,
    /// Makes a value of the last guard, or clones the last value.
    Charged,
    DropCharged,
    /// A table of tenants: its parent's name, the idle time, and the `max` of each tenant in KiB.
    MakeTenants(u8, u8, u16),
    Tenant(u8, u8),
    Wake(u8),
    ShrinkLeastUseful(u8),
    DrainStock,
    Make(u8, u8, u8),
    Find(u8, u8),
    Limits(u8, GroupLimit, u16),
    End(u8),
    Offline(u8),
    DropGroup(u8),
    ForgetGroup(u8),
    LookAtGroup(u8),
    Hook(bool),
    MakeList(u8, u8),
    DropList(u8),
    Register(u8, u8),
    Unregister(u8),
    UnregisterNowait(u8),
    /// Reports a miss of a group to the last shrinker with a reporter.
    Miss(u8, u16),
    /// Takes the oldest boxes off a list.
    IsolateOldest {
        list: u8,
        group: u8,
        node: u8,
        nr: u8,
    },
    Item(u8),
    DropItem(u8),
    Add {
        list: u8,
        item: u8,
        group: u8,
        node: u8,
    },
    AddBox {
        list: u8,
        group: u8,
        node: u8,
        count: u8,
    },
    Del(u8, u8),
    DelWhose(u8, u8),
    DelMany(u8),
    Replace(u8, u8, u8),
    TouchItem(u8, u8),
    Walk {
        list: u8,
        group: Option<u8>,
        node: u8,
        nr: u8,
        turns: Vec<WalkTurn>,
    },
    AddIsolated(u8, u8, u8),
    PopIsolated,
    DropIsolated,
    Index(u32, u8),
    Chain(u32, u8),
    /// An operation on a cell under RCU or on grace periods; see `Rcu::step`.
    Rcu(u8),
    Rest(u8),
    Arm {
        callback: Callback,
        after: u8,
        action: Action,
    },
    Keep(Keep, Storage),
    Release,
    DropRuntime,
    /// Checks that the housekeeper still ends dropped groups.
    Housekeeper,
    Within(Scope, Vec<Step>),
}
