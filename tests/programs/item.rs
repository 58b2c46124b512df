//! Items of lists, and foreign shrinkers over them.
//!
//! The test itself counts the boxes of each group; after each step the library's counts must agree
//! (`counts` in `run.rs`). Shared items are only checked for a use after their drop.
//!
//! A change must ensure that each box is counted while it is alive.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use lowwater::{
    linked, Count, Isolate, Isolated, Links, ListLru, LruStatus, Memcg, NodeId, Occupancy, Scan, ShrinkControl,
    Shrinker,
};
use lowwater_lru_core::{Linked, Pick};

use crate::callback::{enter, Callback};
use crate::step::WalkTurn;
use crate::token::{fail, Tag, Token};

/// An item with shared ownership.
pub struct Shared {
    pub token: Token,
    links: Links,
}
linked!(impl[] for Shared { links, handle: Arc<Shared> });

/// An item that only its list owns.
pub struct Boxed {
    links: Links,
    token: Token,
    spot: Arc<Spot>,
}
linked!(impl[] for Boxed { links, handle: Box<Boxed> });

impl Shared {
    pub fn new(key: u32) -> Arc<Self> {
        Arc::new(Self { token: Token::new(Tag::new(0, key), Callback::ItemDrop), links: Links::new() })
    }
}

impl Boxed {
    fn new(spot: &Arc<Spot>) -> Box<Self> {
        spot.count.fetch_add(1, SeqCst);
        let token = Token::new(Tag::new(0, 0), Callback::ItemDrop);
        Box::new(Self { links: Links::new(), token, spot: Arc::clone(spot) })
    }
}

impl Drop for Boxed {
    fn drop(&mut self) {
        self.token.check("a box is dropped");
        self.spot.count.fetch_sub(1, SeqCst);
    }
}

/// The place where boxes were added together, a group and a node, and their number.
struct Spot {
    /// The group to which the boxes were added, or an ancestor.
    group: Mutex<Memcg>,
    node: NodeId,
    count: AtomicU64,
}

impl Spot {
    /// Returns the group that has the boxes now: they move to the parent when their group ends.
    fn group(&self) -> Memcg {
        let mut group = self.group.lock().unwrap();
        let now = group.nearest_online();
        *group = now.clone();
        now
    }
}

/// A list of each kind, with the same listener. The boxed list's counts are checked.
pub struct Lists {
    pub shared: ListLru<Shared>,
    pub boxed: ListLru<Boxed>,
    /// Whether the lists have a listener.
    is_heard: bool,
    spots: Mutex<Vec<Arc<Spot>>>,
}

/// A listener that passes notifications of lists on, and then enters the callback.
struct Ear(Arc<dyn Occupancy>);

impl Occupancy for Ear {
    fn occupied(&self, memcg: &Memcg, node: NodeId) {
        self.0.occupied(memcg, node);
        enter(Callback::Occupied);
    }
}

impl Lists {
    pub fn new(occupancy: Option<Arc<dyn Occupancy>>) -> Self {
        let Some(occupancy) = occupancy else {
            return Self { shared: ListLru::new(), boxed: ListLru::new(), is_heard: false, spots: Mutex::default() };
        };
        let ear: Arc<dyn Occupancy> = Arc::new(Ear(occupancy));
        let shared = ListLru::with_occupancy(Arc::clone(&ear));
        Self { shared, boxed: ListLru::with_occupancy(ear), is_heard: true, spots: Mutex::default() }
    }

    pub fn add_boxes(&self, group: &Memcg, node: NodeId, count: u8) {
        let spot = Arc::new(Spot { group: Mutex::new(group.clone()), node, count: AtomicU64::new(0) });
        self.spots.lock().unwrap().push(Arc::clone(&spot));
        if count % 2 == 0 {
            let mut many: Isolated<Boxed> = (0..count).map(|_| Boxed::new(&spot)).collect();
            let _added = self.boxed.add_batch(&mut many, group, node);
        } else {
            (0..count).for_each(|_| drop(self.boxed.add(Boxed::new(&spot), group, node)));
        }
    }

    /// Walks both lists, of one group or of all. Isolated shared items go to `to`, isolated boxes
    /// are dropped. Returns the number of removed items.
    pub fn walk(
        &self,
        group: Option<&Memcg>,
        node: NodeId,
        nr: u64,
        turns: &[WalkTurn],
        to: &mut Isolated<Shared>,
    ) -> u64 {
        let shared = walk(&self.shared, group, node, nr, turns, to, &|item| item.token.check("walked"));
        let mut gone = Isolated::new();
        let check = |item: &Boxed| {
            item.token.check("walked");
            let of = item.spot.group();
            if item.spot.node != node || group.is_some_and(|group| !of.is_in_tree_of(group)) {
                fail(&format!("a walk over {group:?} on {node:?} shows an item of {of:?} on {:?}", item.spot.node));
            }
        };
        shared + walk(&self.boxed, group, node, nr, turns, &mut gone, &check)
    }

    /// Takes the oldest boxes off the list of a group: one in three stays, and the others are
    /// dropped, by two private lists.
    pub fn isolate_oldest(&self, group: &Memcg, node: NodeId, nr: u64) {
        let (mut left, mut shown) = (nr, 0);
        let private = self.boxed.isolate_oldest(group, node, &mut left, |item| {
            item.token.check("one of the oldest");
            // Compared twice, as a group may end between the two readings of its state.
            let differs = || item.spot.group() != group.nearest_online();
            if item.spot.node != node || (differs() && differs()) {
                fail(&format!("the oldest item of {group:?} on {node:?} is one of {:?}", item.spot.group()));
            }
            shown += 1;
            enter(Callback::WalkLocked);
            [Pick::First, Pick::Rotate, Pick::Second][shown as usize % 3]
        });
        let taken: usize = private.iter().map(Isolated::len).sum();
        if shown > nr || left != nr - shown || taken as u64 != shown - shown.div_ceil(3) {
            fail(&format!("{taken} of {shown} items were taken, {left} of {nr} are left"));
        }
    }

    /// Compares the counts of the spots with the library's. Returns a message for the first group
    /// and node with a difference.
    pub fn wrong_count(&self, groups: &[Memcg]) -> Option<String> {
        let mut spots = self.spots.lock().unwrap();
        spots.retain(|spot| spot.count.load(SeqCst) > 0);
        let spots: Vec<_> = spots.iter().map(|spot| (spot.group(), spot.node, spot.count.load(SeqCst))).collect();
        let nodes = (0..3).map(NodeId::new);
        nodes.flat_map(|node| groups.iter().map(move |group| (group, node))).find_map(|(group, node)| {
            let here = spots.iter().filter(|spot| (&spot.0, spot.1) == (group, node));
            let (there, counted) = (here.map(|spot| spot.2).sum::<u64>(), self.boxed.count_one(group, node));
            (there != counted)
                .then(|| format!("{group:?} on {node:?} has {there} items in a list, counted are {counted}"))
        })
    }
}

/// Lets the compiler infer a walk's callback type.
fn callback<T: Linked, F: for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>>(f: F) -> F {
    f
}

fn walk<T: Linked>(
    list: &ListLru<T>,
    group: Option<&Memcg>,
    node: NodeId,
    nr: u64,
    turns: &[WalkTurn],
    to: &mut Isolated<T>,
    check: &dyn Fn(&T),
) -> u64
where
    T::Handle: Deref<Target = T>,
{
    let (mut shown, mut left) = (0, nr);
    let callback = callback(|it: Isolate<'_, T>| {
        shown += 1;
        if shown > nr {
            fail("a walk shows more items than requested");
        }
        check(it.item());
        enter(Callback::WalkLocked);
        match turns[(shown as usize - 1) % turns.len()] {
            WalkTurn::Isolate => it.isolate(to),
            WalkTurn::Rotate => it.rotate(),
            WalkTurn::Skip => it.skip(),
            WalkTurn::Retry => {
                let unlocked = it.unlock();
                enter(Callback::WalkUnlocked);
                unlocked.retry()
            }
            WalkTurn::RemoveRetry => {
                let (item, unlocked) = it.remove();
                check(&item);
                drop(item);
                enter(Callback::WalkUnlocked);
                unlocked.retry()
            }
            WalkTurn::Stop => {
                let unlocked = it.unlock();
                enter(Callback::WalkUnlocked);
                unlocked.stop()
            }
            WalkTurn::RemoveStop => {
                let (item, unlocked) = it.remove();
                enter(Callback::WalkUnlocked);
                check(&item);
                drop(item);
                unlocked.stop()
            }
        }
    });
    match group {
        Some(group) => list.walk_one(group, node, &mut left, callback),
        None => list.walk_node(node, &mut left, callback),
    }
}

/// A shrinker over lists. `how` selects its answers by bits: 1 defers, 2 triples counts, 4 rotates
/// every second item.
pub struct Foreign {
    pub lists: Arc<Lists>,
    pub how: u8,
    /// Dropped with the shrinker.
    pub captured: Token,
}

impl Shrinker for Foreign {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        self.captured.check("counting");
        enter(Callback::Count);
        if self.how & 1 != 0 {
            sc.will_defer();
        }
        let lists = &self.lists;
        match lists.shared.count_one(sc.memcg(), sc.node()) + lists.boxed.count_one(sc.memcg(), sc.node()) {
            0 if lists.is_heard => Count::Empty,
            0 => Count::Unknown,
            nr => Count::Objects(if self.how & 2 != 0 { nr * 3 } else { nr }),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        self.captured.check("scanning");
        enter(Callback::Scan);
        let mut gone = Isolated::new();
        let turns = if self.how & 4 != 0 { &[WalkTurn::Isolate, WalkTurn::Rotate][..] } else { &[WalkTurn::Isolate] };
        let freed = self.lists.walk(Some(sc.memcg()), sc.node(), sc.nr_to_scan().min(1 << 20), turns, &mut gone);
        drop(gone);
        if freed == 0 {
            return Scan::Stop;
        }
        Scan::Freed(freed)
    }
}
