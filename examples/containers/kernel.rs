//! The memory of Linux's layouts for the same machine: computed, not measured.
//!
//! A `list_lru` had four layouts in succession (the patch series "Optimize list lru memory
//! consumption", 2021):
//!
//! | layout | array of pointers, one slot an id | list heads, 32 bytes |
//! |---|---|---|
//! | vanilla | one for each node | every id, every node |
//! | transposed | one | every id, every node |
//! | lazy | one | ids that use the list |
//! | xarray | none | ids that use the list |
//!
//! Ids grow in bulk ([`cache_ids`]); the allocator rounds an array up to a power of two, and a
//! list's heads, which are allocated in succession, fill pages. The memory that no layout changes
//! (groups, mounts, the shrinkers' maps) is the series' own last figure, 4,367 MB for 10,000 x
//! 10,000 x 2, which includes the few heads of ids that use a list. Nearly all of it is the
//! shrinkers' maps, so the model scales it with groups x mounts x nodes.
//!
//! A number may be changed only with the kernel's source at hand. Tests `seed_000_..` and
//! `seed_001_..` follow the first and the second report of docs/SEEDS.md.

use lowwater_lru_core::list_lru::baseline::cache_ids;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// `struct list_lru_one`, as allocated by kmalloc-32.
const HEAD: u64 = 32;

/// The modelled machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub memcgs: u64,
    pub mounts: u64,
    pub lists_per_mount: u64,
    pub nodes: u64,
}

/// MiB of each layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layouts {
    pub vanilla_mib: u64,
    pub transposed_mib: u64,
    pub lazy_mib: u64,
    pub xarray_mib: u64,
}

impl Machine {
    /// The four layouts.
    pub fn layouts(self) -> Layouts {
        let lists = self.mounts * self.lists_per_mount;
        let ids = cache_ids(self.memcgs as usize) as u64;
        // The bytes of the largest arguments need more than 64 bits.
        let [lists, nodes, pairs] = [lists, self.nodes, self.memcgs * self.mounts].map(u128::from);
        let arrays = lists * u128::from((ids * 8).next_power_of_two());
        let heads = lists * u128::from((ids * self.nodes * HEAD).next_multiple_of(PAGE));
        let rest = u128::from(4367 * MIB) * pairs / (10_000 * 10_000) * nodes / 2;
        let mib = |bytes: u128| ((bytes + u128::from(MIB / 2)) / u128::from(MIB)) as u64;
        Layouts {
            vanilla_mib: mib(rest + heads + nodes * arrays),
            transposed_mib: mib(rest + heads + arrays),
            lazy_mib: mib(rest + arrays),
            xarray_mib: mib(rest),
        }
    }

    /// Bytes of list heads alone, as counted in the report of 10,000 containers.
    #[cfg(test)]
    pub fn head_bytes(self) -> u64 {
        self.mounts * self.lists_per_mount * self.nodes * cache_ids(self.memcgs as usize) as u64 * HEAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_000_ten_thousand_groups_on_ten_thousand_mounts() {
        let machine = Machine { memcgs: 10_000, mounts: 10_000, lists_per_mount: 2, nodes: 2 };
        let model = machine.layouts();
        assert_eq!(
            [model.vanilla_mib, model.transposed_mib, model.lazy_mib, model.xarray_mib],
            [24_367, 21_867, 6_867, 4_367]
        );
        // The report measured 24464, 21957, 6895 and 4367 MB.
        for (model, measured) in [(24_367_f64, 24_464.0), (21_867.0, 21_957.0), (6_867.0, 6_895.0)] {
            assert!((model / measured - 1.0).abs() < 0.005);
        }
    }

    #[test]
    fn the_largest_arguments_do_not_overflow() {
        let machine = Machine { memcgs: 10_000_000, mounts: 10_000_000, lists_per_mount: 64, nodes: 1024 };
        let model = machine.layouts();
        assert_eq!(model.xarray_mib, 4367 * 1_000_000 * 512);
        // The heads of a list: 32 KiB for each id.
        let heads_mib = 640_000_000 / 32 * cache_ids(10_000_000) as u64;
        assert_eq!(model.transposed_mib - model.lazy_mib, heads_mib);
    }

    #[test]
    fn seed_000_ids_never_shrink() {
        assert_eq!(cache_ids(12_287), 24_574);
        // "each list_lru consumes ~3MB": 4 nodes.
        assert_eq!(4 * cache_ids(12_287) as u64 * HEAD, 3_145_472);
    }

    #[test]
    fn seed_001_seven_mounts_a_container() {
        let machine = Machine { memcgs: 10_000, mounts: 7 * 10_000, lists_per_mount: 2, nodes: 2 };
        assert_eq!(cache_ids(10_000), 12_286);
        assert_eq!(machine.head_bytes(), 110_082_560_000);
        // The report counted 3,442,409,472 objects of kmalloc-32.
        assert!((machine.head_bytes() as f64 / (3_442_409_472_u64 * HEAD) as f64 - 1.0).abs() < 0.001);
    }
}
