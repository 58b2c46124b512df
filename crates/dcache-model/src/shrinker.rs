//! A mount as a shrinker: counts the objects that it could free for a memcg on a node, and frees
//! the oldest of them.
//!
//! A scan is divided between dentries and inodes in proportion to the lengths of their lists, plus
//! one each, so that small lists are emptied, too. Dentries are scanned before inodes, as a dentry
//! is a user of its inode. A thread without [`Reclaim::MAY_FS`] may hold locks of the cache, so it
//! frees nothing here; its share is left to the background.
//!
//! A change must ensure that a scan takes no lock for a thread without `MAY_FS`, frees no dentry or
//! inode with a user, and reports the objects that it scanned.

use crate::dcache_core::DcacheCore;
use crate::superblock::SuperBlock;
use lowwater_base::sync::Arc;
use lowwater_shrinker::{Count, Reclaim, Scan, ShrinkControl, Shrinker};

/// Objects that one call of the shrinker scans.
#[doc(alias = "s_shrink")]
pub(crate) const BATCH: u64 = 1024;

/// The shrinker of one mount: its dentries and inodes.
pub(crate) struct MountShrinker {
    pub(crate) core: Arc<DcacheCore>,
    pub(crate) sb: Arc<SuperBlock>,
}

impl Shrinker for MountShrinker {
    #[doc(alias = "super_cache_count")]
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        if !sc.flags().contains(Reclaim::MAY_FS) {
            sc.will_defer();
        }
        match self.sb.counts(sc.memcg(), sc.node()).iter().sum() {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    #[doc(alias = "super_cache_scan")]
    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        if !sc.flags().contains(Reclaim::MAY_FS) {
            return Scan::Stop;
        }
        let (memcg, node) = (sc.memcg(), sc.node());
        let counts = self.sb.counts(memcg, node);
        // Three lists of dentries, then one of inodes.
        let (dentries, inodes) = proportion(sc.nr_to_scan(), counts[..3].iter().sum(), counts[3]);
        let mut left = dentries;
        let freed = self.core.reclaim_dentries(&self.sb, memcg, node, &mut left);
        let (scanned, more) = self.sb.inodes.scan(memcg, node, inodes);
        sc.set_nr_scanned(dentries - left + scanned);
        Scan::Freed(freed + more)
    }
}

/// Splits `nr_to_scan` into shares for dentries and inodes: in proportion to their numbers, plus
/// one each, so the sum may exceed `nr_to_scan`.
fn proportion(nr_to_scan: u64, dentries: u64, inodes: u64) -> (u64, u64) {
    let total = u128::from(dentries) + u128::from(inodes) + 1;
    let share = |n: u64| (u128::from(nr_to_scan) * u128::from(n) / total) as u64 + 1;
    (share(dentries), share(inodes))
}

#[cfg(test)]
mod tests {
    use super::proportion;

    #[test]
    fn a_scan_is_split_in_proportion_plus_one() {
        assert_eq!(proportion(1024, 0, 0), (1, 1));
        assert_eq!(proportion(1024, 3071, 1024), (768, 257));
        assert_eq!(proportion(u64::MAX, 1, 0), (u64::MAX / 2 + 1, 1), "without overflow");
    }
}
