//! Trims and scans, with another thread's calls between their steps.
//!
//! Numbers such as D19 are those of docs/INVARIANTS.md.

use super::*;
use crate::negative::Probation;
use crate::qstr::Name;
use crate::tests::Fixture;
use std::cell::Cell;

/// Another thread creates the file, or looks the name up, between the walk of a trim and the kill.
#[test]
fn d19_a_trim_spares_a_negative_that_turned_positive_or_was_used_since_the_walk() {
    for (chance, use_spares) in
        [(SecondChance::Promote, true), (SecondChance::UsageCount, true), (SecondChance::Never, false)]
    {
        let fixture = Fixture::new(16, Probation::default());
        let (mount, root) = (&fixture.mount, fixture.tree.root());
        let (core, sb) = (&*mount.core, &*mount.sb);
        for path in [&b"/created"[..], b"/used", b"/unused"] {
            fixture.missing(path);
        }
        let (old, _) = core.isolate(&sb.probation, root, NodeId::ZERO, &mut 3, u64::MAX, chance);
        assert_eq!(old.len(), 3);
        let inode = mount.create(b"/created").unwrap().inode();
        fixture.missing(b"/used");
        let killed = Cell::new(0);
        let trimmed = core.trim(sb, old, chance, |dentry| {
            assert!(*dentry.name() != *b"created", "a trim kills no positive");
            killed.set(killed.get() + 1);
        });
        let expected = if use_spares { 1 } else { 2 };
        assert_eq!((trimmed, killed.get(), fixture.dcache.statistics().trimmed), (expected, expected, expected));
        let is_cached = |name: &[u8]| {
            let found = core.d_lookup(&core.qstr(sb.root(), Name::checked(name)));
            found.inspect(|found| core.put(sb, found)).is_some()
        };
        assert_eq!([b"created".as_slice(), b"used", b"unused"].map(is_cached), [true, use_spares, false]);
        assert_eq!(sb.counts(root, NodeId::ZERO)[..3], [1, u64::from(use_spares), 0], "listed again");
        let before = fixture.memory.lookups();
        assert_eq!(mount.stat(b"/created").unwrap().map(|stat| stat.inode), Some(inode));
        assert_eq!(fixture.memory.lookups(), before);
        fixture.assert_valid();
    }
}

/// Another thread creates one of the files between the walk of a trim and the promotion.
#[test]
fn only_protected_negatives_count_as_promoted() {
    let fixture = Fixture::new(16, Probation::default());
    let (mount, root) = (&fixture.mount, fixture.tree.root());
    let (core, sb) = (&*mount.core, &*mount.sb);
    for path in [&b"/created"[..], b"/missing"] {
        (0..2).for_each(|_| fixture.missing(path));
    }
    let (_, promoted) = core.isolate(&sb.probation, root, NodeId::ZERO, &mut 2, u64::MAX, SecondChance::Promote);
    assert_eq!(promoted.len(), 2);
    drop(mount.create(b"/created").unwrap());
    promoted.for_each(|dentry| core.promote(sb, &dentry));
    assert_eq!(sb.counts(root, NodeId::ZERO)[..3], [1, 0, 1]);
    assert_eq!(fixture.dcache.statistics().promoted, 1);
    fixture.assert_valid();
}
