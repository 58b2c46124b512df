//! The directory of a cache's tenants, indexed by the ids of their groups.
//!
//! A directory that is indexed by id needs no lock for a lookup. It has parts, a part has pages,
//! and a page has tenants. The parts double in length and never move, so a reference to a tenant
//! stays valid while others are added. A change must ensure that a removed group's tenant is reset
//! before the group's id can be reused.

use std::sync::OnceLock;

use lowwater_base::fallible::{try_box, try_slice};
use lowwater_lru_core::{Memcg, MemcgId};
use once_cell::race::OnceBox;

use super::tenant::Tenant;

/// Tenants per page.
const PAGE: usize = 8;
/// Pages in the directory's first part. Each part has twice as many pages as the one before.
const PART_FIRST: usize = 16;
/// Number of parts: enough for every `u32` id.
const PARTS: usize = 26;

type Page = OnceLock<Box<[Tenant; PAGE]>>;
type Part = OnceLock<Box<[Page]>>;

/// The tenants of one cache. Parts and pages are allocated on first use and never move, so that
/// lookups take no lock.
#[derive(Default)]
pub(crate) struct Tenants {
    parts: OnceBox<[Part; PARTS]>,
}

impl Tenants {
    /// Returns the tenant of `memcg`, unless its page was never allocated.
    #[inline]
    pub(crate) fn get(&self, memcg: &Memcg) -> Option<&Tenant> {
        let TenantIndex { part, page, at } = TenantIndex::of(memcg.id());
        Some(&self.parts.get()?[part].get()?[page].get()?[at])
    }

    /// Returns the tenant of `memcg`, and allocates its page if there is none; `None` if there is
    /// no memory.
    pub(crate) fn of(&self, memcg: &Memcg) -> Option<&Tenant> {
        let TenantIndex { part, page, at } = TenantIndex::of(memcg.id());
        let parts = self.parts.get_or_try_init(|| try_box(Default::default()).ok_or(())).ok()?;
        let pages = get_or_try(&parts[part], || try_slice(PART_FIRST << part, |_| Page::new()))?;
        Some(&get_or_try(&pages[page], || try_box(Default::default()))?[at])
    }

    /// Returns the size of the directory and the pages, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        let Some(parts) = self.parts.get() else { return 0 };
        let parts = || parts.iter().filter_map(OnceLock::get);
        let pages = parts().flat_map(|part| part.iter().filter_map(OnceLock::get));
        size_of::<[Part; PARTS]>()
            + parts().map(|part| size_of_val(&**part)).sum::<usize>()
            + pages.map(|page| size_of_val(&**page)).sum::<usize>()
    }

    /// Resets the tenant of a group that is being removed, because its id may be reused.
    pub(crate) fn forget(&self, memcg: &Memcg) {
        if let Some(tenant) = self.get(memcg) {
            tenant.forget();
        }
    }
}

/// Returns the contents of a cell, or allocates them; `None` if there is no memory. If another
/// thread is faster, its contents stay.
fn get_or_try<T: ?Sized>(cell: &OnceLock<Box<T>>, allocate: impl FnOnce() -> Option<Box<T>>) -> Option<&T> {
    if let Some(there) = cell.get() {
        return Some(there);
    }
    let new = allocate()?;
    Some(cell.get_or_init(|| new))
}

/// The position of a tenant in the directory.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TenantIndex {
    part: usize,
    page: usize,
    at: usize,
}

impl TenantIndex {
    #[inline]
    fn of(id: MemcgId) -> Self {
        // Page numbers begin at `PART_FIRST`, so that part n has those of one power of two.
        let (page, at) = (id.get() as usize / PAGE + PART_FIRST, id.get() as usize % PAGE);
        let part = (page.ilog2() - PART_FIRST.ilog2()) as usize;
        Self { part, page: page - (PART_FIRST << part), at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_has_its_own_place() {
        let mut indices = std::collections::HashSet::new();
        for id in 0..100_000_u32 {
            let index = TenantIndex::of(MemcgId::new(id));
            assert!(index.page < PART_FIRST << index.part && index.at < PAGE);
            assert!(indices.insert(index));
        }
        assert_eq!(TenantIndex::of(MemcgId::new(u32::MAX)).part, PARTS - 1);
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn a_tenant_takes_104_bytes_until_the_cache_is_dropped() {
        use lowwater_lru_core::MemcgTree;

        let tree = MemcgTree::new(1);
        let groups: Vec<_> = (0..PAGE * 100).map(|n| tree.root().create(&format!("g{n}")).unwrap()).collect();
        let tenants = Tenants::default();
        let [none, all, left] = [false, true, false].map(|are_used| {
            for memcg in &groups {
                if are_used {
                    tenants.of(memcg).unwrap();
                } else {
                    tenants.forget(memcg);
                }
            }
            tenants.footprint()
        });
        assert_eq!((none, left, size_of::<Tenant>()), (0, all, 104));
        let each = all / groups.len();
        assert!((104..125).contains(&each), "{each} bytes, with the directory");
    }

    #[test]
    fn a_high_id_costs_little_more_than_a_low_one() {
        use lowwater_lru_core::MemcgTree;

        let tree = MemcgTree::new(1);
        let groups: Vec<_> = (0..50_000).map(|n| tree.root().create(&format!("g{n}")).unwrap()).collect();
        let footprint = |memcg| {
            let tenants = Tenants::default();
            assert!(tenants.get(memcg).is_none());
            assert!(!tenants.of(memcg).unwrap().is_scanning());
            assert!(tenants.get(memcg).unwrap().is_filling());
            tenants.footprint()
        };
        let (low, high) = (footprint(&groups[0]), footprint(&groups[49_999]));
        let first_part = PART_FIRST * size_of::<Page>() + size_of::<[Tenant; PAGE]>();
        assert_eq!(Tenants::default().footprint(), 0);
        assert_eq!(low, size_of::<[Part; PARTS]>() + first_part, "the directory, a part and a page");
        assert!(low <= 2_048 && high <= low + 16 * 50_000 / PAGE, "{low} and {high} bytes");
    }
}
