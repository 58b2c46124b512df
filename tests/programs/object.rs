//! Objects of an `ExtendibleIndex` with its slab, and of hash chains: the parts from which users
//! can build caches of their own.
//!
//! `step` runs one operation, selected by the number `how`, which the generators in `strategy`
//! draw. The [`Token`] of each found object is checked, and so a use after its drop is detected.
//! [`enter`] may run further steps, or panic, while the found object is still borrowed.
//!
//! A change must ensure that no handle or table is dropped under a lock of this file, as the drop
//! of an object may run further steps.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use lowwater::{ListLru, Memcg, NodeId};
use lowwater_rcu::{pin, Guard};
use lowwater_store::hash_chains::{HashChains, HashLink, Reader};
use lowwater_store::index::{Cursor, FirstProbe};
use lowwater_store::slab::{RetiredBytes, Slot, SlotState};
use lowwater_store::{hash_node, slotted, CompressedLinks, ExtendibleIndex};

use crate::callback::{self, enter, Callback};
use crate::token::{fail, Tag, Token};
use crate::world;

/// An object in a slab.
pub struct Object {
    token: Token,
    links: CompressedLinks,
    state: SlotState,
}
slotted!(impl[] for Object { links, state, weight: |_| 100 });

/// An index, and a list that owns the handles.
pub struct Store {
    list: ListLru<Object>,
    index: ExtendibleIndex<Object>,
    retired: Arc<RetiredBytes>,
    /// Whether an object was removed without its hash, which leaves overflow counts too high.
    has_overcounts: AtomicBool,
}

impl Object {
    fn new(key: u32) -> Self {
        let token = Token::new(Tag::new(0, key), Callback::ObjectDrop);
        Self { token, links: CompressedLinks::new(), state: SlotState::new(0) }
    }
}

/// Whether no other step changes the index: one thread runs all steps, and this is none in a
/// callback.
fn is_certain() -> bool {
    world::current().is_some_and(|world| world.is_alone()) && !callback::is_inside()
}

fn hash(object: &Object) -> u64 {
    hash_of(object.token.tag().key)
}

fn hash_of(key: u32) -> u64 {
    // Few hashes, so that keys collide.
    u64::from(key % 40).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Store {
    pub fn new() -> Self {
        let retired = Arc::new(RetiredBytes::new());
        Self {
            list: ListLru::new(),
            index: ExtendibleIndex::with_retired(Arc::clone(&retired)),
            retired,
            has_overcounts: AtomicBool::new(false),
        }
    }

    /// Runs one operation on the index; `how` selects it: 0 to 2 insert on that node, 3 removes, 4
    /// removes an object while it is borrowed, 5 visits all, 6 inserts 400 further keys, 7 removes
    /// these with a compaction, 8 drops some retired objects, 9 probes and looks up, 10 removes
    /// where a walk shows the object, 11 replaces, 12 borrows by handle, else takes an object out
    /// of its slot.
    pub fn step(&self, group: &Memcg, key: u32, how: u8) {
        match how {
            0..=2 => self.put(group, key, NodeId::new(u16::from(how))),
            3 => self.remove(key),
            4 => {
                let guard = pin();
                let found = self.index.get(hash_of(key), &guard, |object| object.token.tag().key == key);
                self.remove(key);
                if let Some(object) = found {
                    enter(Callback::Done);
                    object.token.check("found before it was removed");
                }
            }
            5 => {
                let (mut at, guard) = (Cursor::new(), pin());
                while !at.is_done() {
                    self.index.visit(&mut at, &guard, |object| object.token.check("visited"));
                }
            }
            6 => (0..400).for_each(|more| self.put(group, 1000 + key * 400 + more, NodeId::ZERO)),
            7 => {
                self.index.slab().begin_compaction();
                (0..400).for_each(|more| self.remove(1000 + key * 400 + more));
                self.index.slab().end_compaction();
                self.index.collect();
                let _ = (self.index.footprint(), self.index.slab().is_sparse(), self.index.slab().waiting());
            }
            8 => {
                let slab = self.index.slab();
                slab.seal();
                if slab.drop_some(3) > 3 {
                    fail("more objects were dropped than requested");
                }
                slab.collect_some(20);
                let _ = self.retired.get();
            }
            9 => self.look_up(key),
            // Rarely, since the index cannot be checked afterwards.
            10 if key % 8 == 0 => self.remove_shown(key),
            10 => self.look_up(key),
            11 => self.replace(group, key),
            12 => self.borrow(group, key),
            _ => {
                let Ok(slot) = self.index.slab().alloc(Object::new(key), NodeId::ZERO) else { return };
                match slot.into_inner() {
                    Ok(object) if object.token.tag().key == key => {}
                    _ => fail("an object that was in no index cannot be taken out of its slot"),
                }
            }
        }
    }

    /// Compares the results of a probe, a lookup and a lookup under the lock.
    fn look_up(&self, key: u32) {
        let (guard, hash) = (pin(), hash_of(key));
        let is = |object: &Object| object.token.tag().key == key;
        self.index.prefetch(hash, &guard);
        if let FirstProbe::Found(object) = self.index.probe_first(hash, &guard, is) {
            enter(Callback::Done);
            object.token.check("found by a probe");
        }
        let version = |object: &Object| object.token.tag().version;
        let with = self.index.with(hash, &guard, is, version);
        let found = self.index.get(hash, &guard, is);
        found.inspect(|found| found.token.check("looked up"));
        if is_certain() && with != found.map(version) {
            fail(&format!("lookups of key {key} found the versions {with:?} and {:?}", found.map(version)));
        }
    }

    /// Removes the object of a key where a walk shows it.
    fn remove_shown(&self, key: u32) {
        let (mut at, guard) = (Cursor::new(), pin());
        let is = |object: &Object| object.token.tag().key == key;
        let was_there = self.index.get(hash_of(key), &guard, is).is_some();
        let mut handles = Vec::new();
        let mut removed = None;
        while !at.is_done() && removed.is_none() {
            removed = self.index.remove_shown(&at, &guard, is, |object| handles.push(self.list.del(object)));
            self.index.visit(&mut at, &guard, |object| object.token.check("visited"));
        }
        drop(handles);
        if let Some((object, ())) = removed {
            self.has_overcounts.store(true, SeqCst);
            enter(Callback::Done);
            object.token.check("removed where it was shown");
        } else if was_there && is_certain() {
            fail(&format!("a walk does not show key {key}, which a lookup finds"));
        }
    }

    /// Puts an object in the place of the present one.
    fn replace(&self, group: &Memcg, key: u32) {
        let (guard, hash) = (pin(), hash_of(key));
        let Some(there) = self.index.get(hash, &guard, |object| object.token.tag().key == key) else { return };
        let Ok(slot) = self.index.slab().alloc(Object::new(key), NodeId::ZERO) else { return };
        let version = slot.token.tag().version;
        let swap = |slot: Slot<Object>, node: NodeId| {
            self.list.add(slot, group, node).map_err(|error| error.into_handle())?;
            Ok(self.list.del(there))
        };
        match self.index.replace(slot, hash, &guard, there, swap) {
            Ok((new, handle)) => {
                if new.token.tag().version != version {
                    fail("another object has replaced the present one");
                }
                drop(handle);
                enter(Callback::Done);
                new.token.check("replacing another object");
                there.token.check("replaced");
            }
            Err(_) if !is_certain() => {}
            Err(error) => fail(&format!("an object that was found cannot be replaced: {error:?}")),
        }
    }

    /// Borrows an object by its handle, which is dropped meanwhile.
    fn borrow(&self, group: &Memcg, key: u32) {
        let guard = pin();
        let Ok(slot) = self.index.slab().alloc(Object::new(key), NodeId::ZERO) else { return };
        if self.index.borrow(&slot, &guard).is_some() {
            fail("an object that was in no index is borrowed");
        }
        drop(slot);
        self.put(group, key, NodeId::ZERO);
        let is = |object: &Object| object.token.tag().key == key;
        let removed = self.index.remove(hash_of(key), &guard, is, &hash, |object| self.list.del(object));
        let Some((_, Some(slot))) = removed else { return };
        let borrowed = self.index.borrow(&slot, &guard);
        if slot.is_indexed() && is_certain() {
            fail("a removed object is indexed");
        }
        // Readers may use it.
        let slot = match slot.into_inner() {
            Ok(_) => fail("an object that was in an index is taken out of its slot"),
            Err(slot) => slot,
        };
        drop(slot);
        enter(Callback::Done);
        borrowed.inspect(|object| object.token.check("borrowed by its handle"));
    }

    fn put(&self, group: &Memcg, key: u32, node: NodeId) {
        let Ok(slot) = self.index.slab().alloc(Object::new(key), node) else { return };
        let guard = pin();
        let is = |there: &Object, new: &Object| there.token.tag().key == new.token.tag().key;
        let put = |slot: Slot<Object>, there: Option<(&Object, NodeId)>| {
            self.list.add(slot, group, node).map_err(|error| error.into_handle())?;
            Ok(there.and_then(|(there, _)| self.list.del(there)))
        };
        let left = self.index.insert(slot, hash_of(key), &guard, is, &hash, put).map(|(there, handle)| {
            there.inspect(|there| there.token.check("replaced"));
            handle
        });
        drop(guard);
        drop(left);
    }

    fn remove(&self, key: u32) {
        let guard = pin();
        let is = |object: &Object| object.token.tag().key == key;
        let removed = self.index.remove(hash_of(key), &guard, is, &hash, |object| self.list.del(object));
        let Some((object, handle)) = removed else { return };
        drop(handle);
        enter(Callback::Done);
        object.token.check("removed");
    }

    /// Leaks a guard, and returns the tokens of all objects found under it: they may be read for
    /// ever, on any thread.
    pub fn found_under_leaked(self: &Arc<Self>) -> Vec<&'static Token> {
        let store: &'static Arc<Self> = Box::leak(Box::new(Arc::clone(self)));
        let guard: &'static Guard = Box::leak(Box::new(pin()));
        let find = |key| store.index.get(hash_of(key), guard, |object| object.token.tag().key == key);
        (0..crate::step::KEYS).filter_map(find).map(|object| &object.token).collect()
    }

    pub fn assert_valid(&self) {
        self.list.assert_valid();
        if !self.has_overcounts.load(SeqCst) {
            self.index.assert_valid(&hash);
        }
        self.index.slab().assert_valid();
    }

    /// Removes everything.
    pub fn clear(&self) {
        let (mut keys, mut at, guard) = (Vec::new(), Cursor::new(), pin());
        while !at.is_done() {
            self.index.visit(&mut at, &guard, |object| keys.push(object.token.tag().key));
        }
        drop(guard);
        keys.into_iter().for_each(|key| self.remove(key));
    }
}

/// An object of hash chains.
pub struct Name {
    link: HashLink<Name>,
    token: Token,
}
hash_node!(impl[] for Name { link });

/// Two tables, and names that move between them.
pub struct Tables {
    tables: [Mutex<Arc<HashChains<Name>>>; 2],
    names: [Mutex<Option<Arc<Name>>>; 8],
}

impl Tables {
    pub fn new() -> Self {
        Self {
            tables: std::array::from_fn(|_| Mutex::new(Arc::new(HashChains::new(4)))),
            names: std::array::from_fn(|_| Mutex::new(None)),
        }
    }

    fn table(&self, at: usize) -> Arc<HashChains<Name>> {
        Arc::clone(&self.tables[at].lock().unwrap())
    }

    fn name(&self, key: u32) -> Option<Arc<Name>> {
        self.names[key as usize % self.names.len()].lock().unwrap().clone()
    }

    /// Runs one operation on the tables; `how` selects it: 0 and 1 insert into that table, 2 and 3
    /// remove, 4 drops the name, 5 moves the first table's names to the second, 6 and 7 replace a
    /// table, else visits a chain.
    pub fn step(&self, key: u32, how: u8) {
        let (hash, at) = (hash_of(key), usize::from(how % 2));
        match how {
            0 | 1 => {
                let new = || {
                    Arc::new(Name { link: HashLink::new(), token: Token::lax(Tag::new(0, key), Callback::LinkDrop) })
                };
                let name = self.name(key).unwrap_or_else(new);
                let before = self.names[key as usize % 8].lock().unwrap().replace(Arc::clone(&name));
                drop(before);
                let _linked = self.table(at).insert(hash_of(name.token.tag().key), name);
            }
            2 | 3 => {
                if let Some(name) = self.name(key) {
                    self.table(at).remove(hash_of(name.token.tag().key), &name);
                }
            }
            4 => {
                let name = self.names[key as usize % 8].lock().unwrap().take();
                drop(name);
            }
            5 => {
                // All names of the first table move to the second.
                for place in &self.names {
                    let name = place.lock().unwrap().take();
                    let Some(name) = name else { continue };
                    let hash = hash_of(name.token.tag().key);
                    if self.table(0).remove(hash, &name) {
                        let _linked = self.table(1).insert(hash, name);
                    }
                }
            }
            6 | 7 => {
                let table = std::mem::replace(&mut *self.tables[at].lock().unwrap(), Arc::new(HashChains::new(4)));
                drop(table);
            }
            _ => {
                let (table, reader) = (self.table(at), Reader::enter());
                table.chain(hash, &reader).for_each(|name| name.token.check("on a chain"));
                let _ =
                    (table.buckets(), table.footprint(), table.find(hash, &reader, |_| true).map(|name| name.to_arc()));
            }
        }
    }

    /// Keeps objects found in one table while steps run.
    pub fn found(&self, inside: impl FnOnce()) {
        let (table, reader) = (self.table(0), Reader::enter());
        let found: Vec<_> = (0..40).filter_map(|key| table.find(hash_of(key), &reader, |_| true)).collect();
        // Each iterator stands on the first name of its chain, and follows a name that moves to the
        // other table.
        let mut chains: Vec<_> = (0..table.buckets()).map(|bucket| table.chain_at(bucket, &reader)).collect();
        chains.iter_mut().for_each(|chain| _ = chain.next());
        inside();
        found.iter().for_each(|name| name.token.check("found before"));
        chains.into_iter().for_each(|chain| chain.take(100).for_each(|name| name.token.check("met on a chain")));
    }

    pub fn clear(&self) {
        for table in &self.tables {
            // Dropped without holding the lock: the drop of a table may drop names.
            let before = std::mem::replace(&mut *table.lock().unwrap(), Arc::new(HashChains::new(4)));
            drop(before);
        }
        for name in &self.names {
            let name = name.lock().unwrap().take();
            drop(name);
        }
    }
}
