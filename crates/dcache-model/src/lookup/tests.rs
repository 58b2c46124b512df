//! The walk without locks answers by itself. A lookup that misses there is answered under locks, so a caller of [`Mount`] sees no difference.

use super::*;
use crate::negative::Unbounded;
use crate::tests::Stage;

/// The answer of the walk without locks alone: the number of a positive, `None` for a negative; outside of that `Err` if it gave up.
fn unlocked(mount: &Mount, path: &[u8]) -> Result<Option<u64>, &'static str> {
    match mount.walk_fast(path, |found, _| Some(found.number())).unwrap() {
        Fast::Found(number) => Ok(Some(number)),
        Fast::Missing => Ok(None),
        Fast::Again => Err("left to the walk with locks"),
    }
}

#[test]
fn d3_the_walk_without_locks_answers_what_is_cached() {
    // In one chain, so that each lookup compares several dentries.
    let stage = Stage::new(1, Unbounded);
    drop(stage.mount.mkdir(b"/d").unwrap());
    // The first 32 bytes are in the dentry itself.
    for len in [1, 8, 31, 32, 33, 64, 255] {
        let positive = [b"/d/", &*vec![b'p'; len]].concat();
        let negative = [b"/d/", &*vec![b'n'; len]].concat();
        assert!(unlocked(&stage.mount, &positive).is_err(), "a name of {len} bytes that is not cached");
        let made = stage.mount.create(&positive).unwrap().inode();
        stage.missing(&negative);
        assert_eq!(unlocked(&stage.mount, &positive), Ok(Some(made)), "a positive of {len} bytes");
        assert_eq!(unlocked(&stage.mount, &negative), Ok(None), "a negative of {len} bytes");
    }
    stage.mount.rename(b"/d/p", b"/d/q").unwrap();
    assert!(unlocked(&stage.mount, b"/d/p").is_err(), "the old name of a renamed dentry");
    assert!(matches!(unlocked(&stage.mount, b"/d/q"), Ok(Some(_))), "the new name of a renamed dentry");
    stage.assert_valid();
}
