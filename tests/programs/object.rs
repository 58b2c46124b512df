//! Objects of an `ExtendibleIndex` with its slab, and of hash chains: the parts from which users
//! can build caches of their own.
//!
//! `step` runs one operation, selected by the number `how`, which the generators in `strategy`
//! draw. The [`Token`] of each found object is checked, and so a use after its drop is detected.
//! [`enter`] may run further steps, or panic, while the found object is still borrowed.
//!
//! A change must ensure that no handle or table is dropped under a lock of this file, as the drop
//! of an object may run further steps.

use std::sync::{Arc, Mutex};

use lowwater::{ListLru, Memcg, NodeId};
use lowwater_rcu::{pin, Guard};
use lowwater_store::hash_chains::{HashChains, HashLink, Reader};
use lowwater_store::index::Cursor;
use lowwater_store::slab::{Slot, SlotState};
use lowwater_store::{hash_node, slotted, CompressedLinks, ExtendibleIndex};

use crate::callback::{enter, Callback};
use crate::token::{Tag, Token};

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
        Self { list: ListLru::new(), index: ExtendibleIndex::new() }
    }

    /// Runs one operation on the index; `how` selects it: 0 to 2 insert on that node, 3 removes, 4
    /// removes an object while it is borrowed, 5 visits all, 6 inserts 400 further keys, else
    /// removes these with a compaction.
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
            _ => {
                self.index.slab().begin_compaction();
                (0..400).for_each(|more| self.remove(1000 + key * 400 + more));
                self.index.slab().end_compaction();
                self.index.collect();
                let _ = (self.index.footprint(), self.index.slab().is_sparse(), self.index.slab().waiting());
            }
        }
    }

    fn put(&self, group: &Memcg, key: u32, node: NodeId) {
        let token = Token::new(Tag::new(0, key), Callback::ObjectDrop);
        let object = Object { token, links: CompressedLinks::new(), state: SlotState::new(0) };
        let Ok(slot) = self.index.slab().alloc(object, node) else { return };
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
        self.index.assert_valid(&hash);
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
