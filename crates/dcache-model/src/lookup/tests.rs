//! RCU-walk by itself. A [`Mount`] answers by ref-walk when RCU-walk fails, so its callers see no
//! difference.
//!
//! So these call RCU-walk alone: a fast path that always failed would otherwise be noticed by its
//! speed only.
//!
//! A case for which RCU-walk gives up on purpose must be named as such.

use super::*;
use crate::negative::Unbounded;
use crate::tests::Fixture;

/// Returns the answer of RCU-walk alone: the number of a positive, `None` for a negative; `Err` if
/// RCU-walk gave up.
fn rcu_walk_only(mount: &Mount, path: &[u8]) -> Result<Option<u64>, &'static str> {
    match mount.rcu_walk(path, |found, _| Some(found.number())).unwrap() {
        RcuWalk::Found(number) => Ok(Some(number)),
        RcuWalk::Negative => Ok(None),
        RcuWalk::Retry => Err("left to ref-walk"),
    }
}

#[test]
fn d3_rcu_walk_finds_cached_names() {
    // One chain, so that each lookup compares several dentries.
    let fixture = Fixture::new(1, Unbounded);
    drop(fixture.mount.mkdir(b"/d").unwrap());
    // A dentry holds the first 32 bytes of its name inline.
    for len in [1, 8, 31, 32, 33, 64, 255] {
        let positive = [b"/d/", &*vec![b'p'; len]].concat();
        let negative = [b"/d/", &*vec![b'n'; len]].concat();
        assert!(rcu_walk_only(&fixture.mount, &positive).is_err(), "a name of {len} bytes that is not cached");
        let made = fixture.mount.create(&positive).unwrap().inode();
        fixture.missing(&negative);
        assert_eq!(rcu_walk_only(&fixture.mount, &positive), Ok(Some(made)), "a positive of {len} bytes");
        assert_eq!(rcu_walk_only(&fixture.mount, &negative), Ok(None), "a negative of {len} bytes");
    }
    fixture.mount.rename(b"/d/p", b"/d/q").unwrap();
    assert!(rcu_walk_only(&fixture.mount, b"/d/p").is_err(), "the old name of a renamed dentry");
    assert!(matches!(rcu_walk_only(&fixture.mount, b"/d/q"), Ok(Some(_))), "the new name of a renamed dentry");
    fixture.assert_valid();
}
