//! RCU-walk races with a dentry that turns positive and is then renamed. Two threads, all
//! executions with up to two preemptions, also where `ci/loom.sh` allows more.
//!
//! A `fails_with_` test repeats the check without one fence of the sequence count, and must fail.
//! docs/ORDERINGS.md names the check. Numbers such as D3 are those of docs/INVARIANTS.md.

use crate::dentry::Dentry;
use crate::flag;
use crate::inode::Inodes;
use crate::kind::{kind_of, Kind};
use crate::qstr::{Name, QStr};
use crate::stats::Counters;
use lowwater_base::sync::{thread, with_mutant, Arc};
use lowwater_lru_core::{ListLru, MemcgTree, NodeId};
use lowwater_store::hash_chains::{HashChains, Reader};

fn qstr(name: &[u8]) -> QStr<'_> {
    // One hash for both names: the model is about the dentry, not about its chain.
    QStr { hash: 1 << 40, ..QStr::new(1, 64, Name::checked(name)) }
}

/// One thread renames a dentry that turns positive, another looks it up; the result must be
/// consistent.
fn check() {
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let tree = MemcgTree::new(1);
        let chains = Arc::new(HashChains::<Dentry>::new(1));
        let counters = Arc::new(Counters::new());
        let inode = Inodes::new(ListLru::new()).get(7, Kind::File, tree.root(), NodeId::ZERO);
        let dentry = Arc::new(Dentry::new(&qstr(b"a"), None, 0, tree.root().clone(), NodeId::ZERO, 0));
        dentry.update_flags(&mut dentry.lock(), flag::UNHASHED, 0, &counters);
        chains.insert(dentry.hash(), dentry.clone()).ok().unwrap();
        let writer = {
            let (dentry, counters) = (dentry.clone(), counters.clone());
            thread::spawn(move || {
                let mut locked = dentry.lock();
                dentry.seq.write(|| {
                    dentry.set_inode(&mut locked, inode);
                    dentry.update_flags(&mut locked, flag::TYPE, 1, &counters);
                });
                dentry.seq.write(|| dentry.set_name(&mut locked, &qstr(b"b")));
            })
        };
        {
            let reader = Reader::enter();
            let mut seq = 0;
            let wanted = qstr(b"b");
            let found = chains.find(wanted.hash, &reader, |child| child.matches(&wanted).map(|s| seq = s).is_some());
            if let Some(found) = found {
                let (kind, number) = (kind_of(found.flags()), found.number());
                if !found.seq.retry(seq) {
                    assert_eq!(
                        (kind, number),
                        (Some(Kind::File), 7),
                        "under its new name it always was a file (D3, D6)"
                    );
                }
            }
        }
        writer.join().unwrap();
        assert!(chains.remove(dentry.hash(), &dentry));
    });
}

#[test]
fn d3_d6_a_lookup_returns_a_consistent_snapshot() {
    check();
}

#[test]
#[should_panic]
fn fails_with_seq_no_reader_fence() {
    with_mutant("seq_no_reader_fence", check);
}

#[test]
#[should_panic]
fn fails_with_seq_no_writer_fence() {
    with_mutant("seq_no_writer_fence", check);
}
