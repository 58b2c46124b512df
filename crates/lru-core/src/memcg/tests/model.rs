//! The tree compared with a simple model: a list of groups, in which every query scans all groups.
//!
//! proptest draws a history and reduces a failing one. After each step, lookups by id, the number
//! of groups, usages and stocks are compared, and the tree checks itself (`assert_valid`).
//!
//! The model must stay plain: no table, and no stored sum.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use proptest::prelude::*;

use crate::memcg::{Charged, Memcg, MemcgError, MemcgId, MemcgTree};
use lowwater_base::ByteSize;

#[derive(Clone, Debug)]
enum Op {
    Create {
        parent: usize,
        name: u8,
    },
    Offline(usize),
    DropHandle(usize),
    Charge(usize, u64),
    ChargeExactly(usize, u64),
    ChargeFromStock(usize, u64),
    /// Uncharges this many 255ths of the group's charge.
    Uncharge(usize, u8),
    Set(usize, Limit, u64),
    Drain,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    Min,
    Low,
    High,
    Max,
}

fn op() -> impl Strategy<Value = Op> {
    let group = any::<usize>;
    let bytes = || prop_oneof![0..100_u64, 1_000..50_000_u64];
    let limit = prop_oneof![Just(Limit::Min), Just(Limit::Low), Just(Limit::High), Just(Limit::Max)];
    let setting = prop_oneof![0..200_000_u64, Just(u64::MAX), Just(0)];
    prop_oneof![
        4 => (group(), 0..3_u8).prop_map(|(parent, name)| Op::Create { parent, name }),
        2 => group().prop_map(Op::Offline),
        2 => group().prop_map(Op::DropHandle),
        8 => (group(), bytes()).prop_map(|(group, bytes)| Op::Charge(group, bytes)),
        3 => (group(), bytes()).prop_map(|(group, bytes)| Op::ChargeExactly(group, bytes)),
        3 => (group(), bytes()).prop_map(|(group, bytes)| Op::ChargeFromStock(group, bytes)),
        4 => (group(), any::<u8>()).prop_map(|(group, part)| Op::Uncharge(group, part)),
        2 => (group(), limit, setting).prop_map(|(group, limit, to)| Op::Set(group, limit, to)),
        1 => Just(Op::Drain),
    ]
}

/// A group that exists.
struct Group {
    id: u32,
    parent: Option<usize>,
    name: u8,
    online: bool,
    /// The test's handle; an online group may have none.
    handle: Option<Memcg>,
    /// The bytes charged to this group itself.
    own: u64,
    high: u64,
    max: u64,
    /// The usage after the last step.
    usage_before: u64,
}

/// Groups in the order of their creation, parents before children; `None` is a group that no longer
/// exists.
struct Model {
    tree: MemcgTree,
    slots: usize,
    groups: Vec<Option<Group>>,
}

impl Model {
    fn new(slots: usize) -> Self {
        let tree = MemcgTree::new(slots);
        let handle = Some(tree.root().clone());
        let root = Group {
            id: 0,
            parent: None,
            name: 0,
            online: true,
            handle,
            own: 0,
            high: u64::MAX,
            max: u64::MAX,
            usage_before: 0,
        };
        Self { tree, slots, groups: alloc::vec![Some(root)] }
    }

    fn group(&self, n: usize) -> &Group {
        self.groups[n].as_ref().expect("only existing groups are picked")
    }

    fn group_mut(&mut self, n: usize) -> &mut Group {
        self.groups[n].as_mut().expect("only existing groups are picked")
    }

    fn existing(&self) -> Vec<usize> {
        (0..self.groups.len()).filter(|n| self.groups[*n].is_some()).collect()
    }

    fn pick(&self, any: usize) -> usize {
        let existing = self.existing();
        existing[any % existing.len()]
    }

    fn children(&self, n: usize) -> Vec<usize> {
        self.existing().into_iter().filter(|child| self.group(*child).parent == Some(n)).collect()
    }

    fn chain(&self, n: usize) -> Vec<usize> {
        core::iter::successors(Some(n), |n| self.group(*n).parent).collect()
    }

    /// Returns the bytes charged to this group and those below it.
    fn charged(&self, n: usize) -> u64 {
        self.group(n).own + self.children(n).into_iter().map(|child| self.charged(child)).sum::<u64>()
    }

    /// Returns the test's handle, looked up again if it was dropped; none for a dying group without
    /// a handle.
    fn handle(&mut self, n: usize) -> Option<Memcg> {
        let found = self.tree.get(MemcgId::new(self.group(n).id));
        let group = self.group_mut(n);
        if group.online {
            assert!(found.is_some(), "an online group is found by its id");
            group.handle = found;
        }
        group.handle.clone()
    }

    /// Removes groups that no longer exist: not online, no handle, no child.
    fn bury(&mut self) {
        for n in (1..self.groups.len()).rev() {
            let gone = self.groups[n].as_ref().is_some_and(|g| !g.online && g.handle.is_none());
            if gone && self.children(n).is_empty() {
                self.groups[n] = None;
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Create { parent, name } => self.create(self.pick(parent), name),
            Op::Offline(n) => self.offline(self.pick(n)),
            Op::DropHandle(n) => self.drop_handle(self.pick(n)),
            Op::Charge(n, bytes) => self.charge(self.pick(n), bytes),
            Op::ChargeExactly(n, bytes) => self.charge_exactly(self.pick(n), bytes),
            Op::ChargeFromStock(n, bytes) => self.charge_from_stock(self.pick(n), bytes),
            Op::Uncharge(n, part) => {
                let n = self.pick(n);
                let bytes = self.group(n).own * u64::from(part) / 255;
                self.uncharge(n, bytes);
            }
            Op::Set(n, limit, to) => self.set(self.pick(n), limit, to),
            Op::Drain => {
                self.tree.drain_stock();
                assert_eq!(self.tree.in_stock(self.tree.root()), 0);
            }
        }
    }

    /// Creates a group in the tree and in the model; both must agree on the error.
    fn create(&mut self, parent: usize, name: u8) {
        let Some(handle) = self.handle(parent) else { return };
        let used: BTreeSet<u32> = self.existing().into_iter().map(|n| self.group(n).id).collect();
        let lowest = (0..).find(|id| !used.contains(id)).expect("ids are many");
        let taken = self.children(parent).into_iter().any(|n| self.group(n).online && self.group(n).name == name);
        let expected = match (self.group(parent).online, taken) {
            (false, _) => Err(MemcgError::Dying),
            (true, true) => Err(MemcgError::NameTaken),
            (true, false) => Ok(lowest),
        };
        let made = handle.create(&format!("{name}"));
        assert_eq!(made.as_ref().map(|memcg| memcg.id().get()).map_err(|e| *e), expected);
        if let Ok(handle) = made {
            let (id, parent, handle) = (lowest, Some(parent), Some(handle));
            let group = Group {
                id,
                parent,
                name,
                online: true,
                handle,
                own: 0,
                high: u64::MAX,
                max: u64::MAX,
                usage_before: 0,
            };
            self.groups.push(Some(group));
        }
    }

    fn offline(&mut self, n: usize) {
        let Some(handle) = self.handle(n) else { return };
        let has_children = self.children(n).into_iter().any(|child| self.group(child).online);
        let expected = match (n, self.group(n).online, has_children) {
            (0, ..) => Err(MemcgError::Root),
            (_, false, _) => Err(MemcgError::AlreadyDying),
            (_, true, true) => Err(MemcgError::HasChildren),
            (_, true, false) => Ok(()),
        };
        assert_eq!(handle.offline(), expected);
        if expected.is_ok() {
            self.group_mut(n).online = false;
        }
    }

    fn drop_handle(&mut self, n: usize) {
        if !self.group(n).online && self.group(n).handle.is_some() {
            // A charge implies a handle on the group.
            self.uncharge(n, self.group(n).own);
        }
        self.group_mut(n).handle = None;
    }

    fn charge(&mut self, n: usize, bytes: u64) {
        let Some(handle) = self.handle(n) else { return };
        let over = |n: &usize| self.charged(*n) + bytes > self.group(*n).max;
        let refusing: Vec<u32> = self.chain(n).into_iter().filter(over).map(|n| self.group(n).id).collect();
        match handle.try_charge(ByteSize::new(bytes)) {
            Ok(charged) => {
                assert!(refusing.is_empty(), "charged above max");
                // With a stock, bytes in stock count towards `high`, and a charge from it reports
                // nothing.
                if self.slots == 0 {
                    let above = |n: &usize| self.charged(*n) + bytes > self.group(*n).high;
                    let told = match &charged {
                        Charged::Within => None,
                        Charged::AboveHigh(memcg) => Some(memcg.id().get()),
                    };
                    assert_eq!(told, self.chain(n).into_iter().find(above).map(|n| self.group(n).id));
                }
                self.group_mut(n).own += bytes;
            }
            Err(refused) => {
                assert_eq!(refused.requested.get(), bytes);
                assert!(refusing.contains(&refused.memcg.id().get()), "{refused:?} has room");
            }
        }
    }

    fn charge_exactly(&mut self, n: usize, bytes: u64) {
        let Some(handle) = self.handle(n) else { return };
        let over = |n: &usize| self.charged(*n) + bytes > self.group(*n).max;
        let refusing: Vec<u32> = self.chain(n).into_iter().filter(over).map(|n| self.group(n).id).collect();
        let stock = self.tree.in_stock(self.tree.root());
        match handle.try_charge_exactly(ByteSize::new(bytes)) {
            Ok(charged) => {
                assert!(refusing.is_empty(), "charged above max");
                let told = match &charged {
                    Charged::Within => None,
                    Charged::AboveHigh(memcg) => Some(memcg.id().get()),
                };
                let above = handle.ancestry().find(|memcg| memcg.usage() > memcg.high());
                assert_eq!(told, above.map(|memcg| memcg.id().get()));
                self.group_mut(n).own += bytes;
            }
            Err(refused) => assert!(refusing.contains(&refused.memcg.id().get()), "{refused:?} has room"),
        }
        assert!(self.tree.in_stock(self.tree.root()) <= stock, "it takes nothing for the stock");
    }

    fn charge_from_stock(&mut self, n: usize, bytes: u64) {
        let Some(handle) = self.handle(n) else { return };
        let (usage, stock) = (self.tree.root().usage(), self.tree.in_stock(&handle));
        let taken = if handle.try_charge_from_stock(ByteSize::new(bytes)) { bytes } else { 0 };
        self.group_mut(n).own += taken;
        assert_eq!(self.tree.root().usage(), usage, "bytes in stock are counted already");
        assert_eq!(self.tree.in_stock(&handle), stock - taken);
    }

    fn uncharge(&mut self, n: usize, bytes: u64) {
        if let Some(handle) = self.handle(n) {
            handle.uncharge(ByteSize::new(bytes));
            self.group_mut(n).own -= bytes;
        }
    }

    fn set(&mut self, n: usize, limit: Limit, to: u64) {
        let Some(handle) = self.handle(n) else { return };
        let bytes = ByteSize::new(to);
        match limit {
            Limit::Min => handle.set_min(bytes),
            Limit::Low => handle.set_low(bytes),
            Limit::High => {
                handle.set_high(bytes);
                self.group_mut(n).high = to;
            }
            Limit::Max => {
                handle.set_max(bytes);
                self.group_mut(n).max = to;
            }
        }
    }

    /// Compares each id up to two beyond the highest, and the usage and stock of each group, with
    /// the model.
    fn check(&mut self) {
        self.tree.assert_valid();
        let existing = self.existing();
        assert_eq!(self.tree.len(), existing.iter().filter(|n| self.group(**n).online).count());
        let end = existing.iter().map(|n| self.group(*n).id).max().unwrap_or(0) + 3;
        for id in 0..end {
            let owner = existing.iter().find(|n| self.group(**n).id == id);
            let online = owner.and_then(|n| self.chain(*n).into_iter().find(|n| self.group(*n).online));
            let found = self.tree.get(MemcgId::new(id)).map(|memcg| memcg.id().get());
            assert_eq!(found, online.map(|n| self.group(n).id), "id {id}");
        }
        for n in existing {
            let charged = self.charged(n);
            let Some(handle) = self.handle(n) else { continue };
            let (usage, max) = (handle.usage().get(), self.group(n).max);
            assert_eq!(usage, charged + self.tree.in_stock(&handle), "{handle:?}");
            if self.slots < 2 {
                assert_eq!(handle.in_stock().get(), self.tree.in_stock(&handle), "{handle:?}: there is one slot, ours");
            }
            assert!(usage <= max.max(self.group(n).usage_before), "{handle:?} grew above its max");
            self.group_mut(n).usage_before = usage;
            if n > 0 && n % 2 == 1 && self.group(n).online {
                // Half of the groups have no handle between the steps.
                self.group_mut(n).handle = None;
            }
        }
    }
}

proptest! {
    #[test]
    fn the_tree_behaves_like_its_model(slots in 0..3_usize, ops in prop::collection::vec(op(), 1..150)) {
        let mut model = Model::new(slots);
        for op in &ops {
            model.apply(op);
            model.bury();
            model.check();
        }
    }
}
