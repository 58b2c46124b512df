//! Groups for tenants whose names come from clients: bounded in number, without a tree, ended when
//! idle.
//!
//! ```text
//!     get(name) --known--> its group; the time of use is noted
//!         |
//!         '-- new --> name is valid? --> room? --no--> idle tenants are dropped --> room? --no--> Full
//!                                          |                                          |
//!                                          '--------------> a group below the parent <'
//! ```
//!
//! [`Runtime::group`] takes a path and creates all groups on it. With names from a request (a
//! header, the first part of a key) a client could then create a tree of groups of any size, and a
//! group costs memory until it is ended. Here a name is one group below one parent, whatever
//! characters it has.
//!
//! Locks: `idle`, then `tenants`. Names leave and enter the table only under `idle`; a lookup takes
//! the table's shared lock only.
//!
//! A change must ensure that no request does work in proportion to the number of tenants, except
//! for a new name that makes the table or the queue of names grow.

mod builder;
mod idle;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lowwater_lru_core::{Memcg, MemcgError};
use parking_lot::{Mutex, RwLock};

use super::groups::child;
use super::handle::Runtime;
use idle::IdleQueue;

pub use builder::TenantGroupsBuilder;

/// Maximum of tenants whose entries are removed at the same time: each drop of a group compares it
/// with all others that are being dropped.
const ENDING_MAX: usize = 64;
/// Maximum of tenants that one pass over the idle queue examines.
const EXAMINED_MAX: usize = 64;

/// The function that sets up a new tenant's group.
type Setup = Box<dyn Fn(&str, &Memcg) + Send + Sync>;

/// The groups of tenants whose names come from clients; from [`Runtime::tenant_groups`].
///
/// * At most [`count_max`](TenantGroupsBuilder::count_max) groups exist; a further name is an error
///   ([`get`](Self::get)), or charged to a group that all further names share
///   ([`get_or_shared`](Self::get_or_shared)).
/// * A tenant that was not requested for an [idle time](TenantGroupsBuilder::idle_time) ends, with
///   its entries, at a later request of another. No thread runs for that.
/// * A name is one group below the parent: `/`, `%` and `:` in it are written as `%2F`, `%25` and
///   `%3A`, so `a/b` is no child of `a`, and no name is that of a cache's own group (`cache:NAME`).
///   A name has 1 to 255 bytes in that form.
/// * A group of that name which the program makes below the parent is the tenant's: from the first
///   request on it is set up, counted, and dropped when idle. So make no other groups there. Also
///   [`Cache::load`](crate::Cache::load) makes the groups of its entries: [`get`](Self::get) those
///   of known tenants before, and load no entries of others.
///
/// Each group costs about 380 bytes while it exists, without entries and with the allocator's
/// overhead (measured by the test `a_flood_of_names_is_bounded_in_groups_and_in_bytes`), so a flood
/// of names costs `count_max` times that and no more.
///
/// ```
/// use std::time::Duration;
/// use lowwater::{ByteSize, Cache, Runtime};
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(64)).build()?;
/// let cache = Cache::<String, String>::builder(&runtime).weigher(|key, value| key.capacity() + value.capacity()).build()?;
/// let tenants = runtime
///     .tenant_groups("tenants")
///     .count_max(1000)
///     .idle_time(Duration::from_secs(3600))
///     .setup(|_name, group| group.set_max(ByteSize::mib(8)))
///     .build()?;
///
/// // The name is that of a header, from anybody.
/// let header = "shop/../../etc";
/// let group = tenants.get_or_shared(header);
/// cache.entry("/cart".into()).group(&group).insert("<html>".into())?;
/// assert_eq!(group.path(), "/tenants/shop%2F..%2F..%2Fetc");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Ended tenants
///
/// A tenant ends by [`Runtime::drop_group`]: its entries are removed in the background. Inserts
/// with a handle that a caller kept are refused until then, and afterwards charged to the parent,
/// without the tenant's limits. So do not keep handles: ask for the group at each request, which is
/// one lookup under a shared lock.
///
/// The program may end or drop a tenant's group as well; the next request for the name then creates
/// a group. While the program keeps a child of a group that is being dropped, that group does not
/// end, and its name cannot be used.
///
/// The drop of this table leaves the groups as they are, limits and entries included. Another table
/// of the same parent finds them by name, but counts a group only after its first request.
pub struct TenantGroups {
    runtime: Runtime,
    parent: Memcg,
    count_max: usize,
    idle_time: Duration,
    setup: Setup,
    /// The creation of this table, from which `due` and `used` count.
    epoch: Instant,
    tenants: RwLock<HashMap<Arc<str>, Tenant>>,
    idle: Mutex<IdleQueue>,
    /// The time before which no tenant is idle, in milliseconds since the epoch. Read without the
    /// lock of `idle`, so that a lookup takes one lock.
    due: AtomicU64,
}

/// A tenant's group.
struct Tenant {
    group: Memcg,
    /// The last use, in milliseconds since the epoch.
    used: AtomicU64,
}

/// The error of [`TenantGroups::get`]: there is no group for the name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TenantError {
    /// The number of tenants is at its bound: [`len`](TenantGroups::len), and the ended ones whose
    /// entries are still being removed.
    #[error("there are {0} tenants, counting ended ones with entries: raise `count_max`, or shorten `idle_time`")]
    Full(usize),
    /// The tenant's group is being dropped, as it was idle or by the program, and its entries are
    /// still being removed.
    #[error("the tenant was dropped, and its entries are being removed: it can be used again in a moment")]
    Ending,
    /// The name is empty or too long, or the group cannot be created.
    #[error(transparent)]
    Group(#[from] MemcgError),
}

impl TenantGroups {
    /// Returns the group of a tenant, and creates it on first use. O(1), and amortized O(log
    /// tenants) for a new name; at times a request ends up to 64 idle tenants. A new name is
    /// copied: aborts if there is no memory for it.
    ///
    /// # Errors
    ///
    /// [`TenantError::Full`], if there are too many tenants; [`TenantError::Ending`], while the
    /// entries of an ended tenant of that name are removed; [`TenantError::Group`] with
    /// [`MemcgError::BadName`] for an empty or long name, or another error of [`Memcg::create`].
    pub fn get(&self, name: &str) -> Result<Memcg, TenantError> {
        // Before the name is hashed: it comes from a client.
        if name.is_empty() || name.len() > Memcg::NAME_MAX {
            return Err(MemcgError::BadName.into());
        }
        let now = self.now();
        // Before idle tenants end: this one has come back.
        let found = self.find(name, now);
        // Relaxed: a hint of when to look; `idle` orders the rest.
        if self.due.load(Ordering::Relaxed) <= now {
            if let Some(mut idle) = self.idle.try_lock() {
                self.end_idle(&mut idle, now);
            }
        }
        found.map_or_else(|| self.create(name), Ok)
    }

    /// Returns the group of a tenant, or the parent group where [`get`](Self::get) fails: all names
    /// that have no group of their own share it.
    ///
    /// Use it for the group that is charged ([`Entry::group`](crate::cache::Entry::group)). Do not
    /// use it for a name space ([`Cache::tenant`](crate::Cache::tenant)): tenants that share a
    /// group would find each other's entries.
    pub fn get_or_shared(&self, name: &str) -> Memcg {
        self.get(name).unwrap_or_else(|_| self.parent.clone())
    }

    /// Returns the number of tenants that have a group, without those whose entries are being
    /// removed. A tenant whose group the program has ended counts until its idle time is over.
    pub fn len(&self) -> usize {
        self.tenants.read().len()
    }

    /// Returns whether [`len`](Self::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the parent of all tenants' groups. Its limits bound all tenants together.
    pub fn parent(&self) -> &Memcg {
        &self.parent
    }

    /// Returns the group of a tenant that has one, and notes the use.
    fn find(&self, name: &str, now: u64) -> Option<Memcg> {
        let tenants = self.tenants.read();
        let tenant = tenants.get(name)?;
        // Relaxed: a time by itself. Not written again within a millisecond, so that threads that
        // serve one tenant share the line. A thread that was suspended since it read the clock must
        // not move the time back.
        if tenant.used.load(Ordering::Relaxed) < now {
            tenant.used.fetch_max(now, Ordering::Relaxed);
        }
        let group = &tenant.group;
        (!self.runtime.housekeeper().takes_no_records(group)).then(|| group.clone())
    }

    fn create(&self, name: &str) -> Result<Memcg, TenantError> {
        let own_name = one_component(name);
        if own_name.len() > Memcg::NAME_MAX {
            return Err(MemcgError::BadName.into());
        }
        let mut idle = self.idle.lock();
        // The lock may have been held for long: another thread's setup may block.
        let now = self.now();
        // Another thread may have created it since the lookup.
        if let Some(group) = self.find(name, now) {
            return Ok(group);
        }
        let is_known = self.tenants.read().contains_key(name);
        let is_full = |idle: &mut IdleQueue| !is_known && self.len() + idle.ending_count() >= self.count_max;
        if is_full(&mut idle) {
            self.end_idle(&mut idle, now);
        }
        // Also beyond the bound: the name's own group may be one of those that are ending.
        if self.parent.child(&own_name).is_some_and(|group| self.is_dropping(&group)) {
            return Err(TenantError::Ending);
        }
        if is_full(&mut idle) {
            return Err(TenantError::Full(self.count_max));
        }
        let (group, is_new) = match self.parent.create(&own_name) {
            // The program has created it by `Runtime::group`.
            Err(MemcgError::NameTaken) => child(&self.parent, &own_name)?,
            created => (created?, true),
        };
        let unfinished = is_new.then(|| EndUnlessDone { runtime: &self.runtime, group: &group });
        // Tested after the group was made: it would keep the parent from ending.
        if self.is_dropping(&self.parent) {
            return Err(MemcgError::Dying.into());
        }
        (self.setup)(name, &group);
        // The set-up has not panicked: the group stays.
        std::mem::forget(unfinished);
        // The idle time begins when the group is returned, however long the setup took.
        let used = self.now();
        let mut tenants = self.tenants.write();
        if let Some(known) = tenants.get_mut(name) {
            // The program has ended the tenant's old group. The tenant keeps its place in `idle`.
            *known = Tenant { group: group.clone(), used: AtomicU64::new(used) };
            return Ok(group);
        }
        let name: Arc<str> = name.into();
        tenants.insert(Arc::clone(&name), Tenant { group: group.clone(), used: AtomicU64::new(used) });
        drop(tenants);
        idle.push(used, name);
        // Relaxed: a hint, see `get`.
        self.due.fetch_min(used.saturating_add(self.idle_ms()), Ordering::Relaxed);
        Ok(group)
    }

    fn is_dropping(&self, group: &Memcg) -> bool {
        self.runtime.housekeeper().is_dropping(group)
    }

    /// Drops the groups of tenants that are idle. Examines [`EXAMINED_MAX`] tenants at most: at the
    /// time of the next request the others are due.
    fn end_idle(&self, idle: &mut IdleQueue, now: u64) {
        let idle_ms = self.idle_ms();
        let mut room = ENDING_MAX.saturating_sub(idle.ending_count());
        if let Some(limit) = now.checked_sub(idle_ms) {
            for _ in 0..EXAMINED_MAX {
                let Some(name) = (room > 0).then(|| idle.pop_until(limit)).flatten() else {
                    break;
                };
                if self.end_unless_used(idle, name, limit, now) {
                    room -= 1;
                }
            }
        }
        let next = idle.oldest_use().map_or(u64::MAX, |used| used.saturating_add(idle_ms));
        // Relaxed: a hint, see `get`. Not before the next millisecond, also if more are due.
        self.due.store(next.max(now.saturating_add(1)), Ordering::Relaxed);
    }

    /// Drops the group of a tenant that has left the queue, unless it was used after `limit`.
    /// Returns whether the group is ending.
    fn end_unless_used(&self, idle: &mut IdleQueue, name: Arc<str>, limit: u64, now: u64) -> bool {
        let mut tenants = self.tenants.write();
        let Some(tenant) = tenants.get_mut(&*name) else {
            return false;
        };
        let used = *tenant.used.get_mut();
        if used > limit {
            idle.push(used, name);
            return false;
        }
        match self.runtime.drop_group(&tenant.group) {
            // `AlreadyDying`: the program has dropped it, or has ended it.
            Ok(()) | Err(MemcgError::AlreadyDying) => {
                let ended = tenants.remove(&*name).expect("the tenant was found above").group;
                drop(tenants);
                let is_ending = ended.is_online();
                if is_ending {
                    idle.add_ending(ended);
                }
                is_ending
            }
            // The program has made groups below it: it stays while they exist.
            Err(_) => {
                *tenant.used.get_mut() = now;
                idle.push(now, name);
                false
            }
        }
    }

    /// Returns the idle time in milliseconds.
    fn idle_ms(&self) -> u64 {
        self.idle_time.as_millis().try_into().unwrap_or(u64::MAX).max(1)
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
    }
}

/// Ends the new group of a tenant whose setup panicked: it is in no table, so it would never end.
struct EndUnlessDone<'a> {
    runtime: &'a Runtime,
    group: &'a Memcg,
}

impl Drop for EndUnlessDone<'_> {
    fn drop(&mut self) {
        // Fails only if the setup has ended it, or made groups below it.
        let _ = self.runtime.end_group(self.group);
    }
}

impl fmt::Debug for TenantGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantGroups")
            .field("parent", &self.parent)
            .field("len", &self.len())
            .field("count_max", &self.count_max)
            .field("idle_time", &self.idle_time)
            .finish_non_exhaustive()
    }
}

/// Returns the name as one name of a group: two different names give two different results.
fn one_component(name: &str) -> Box<str> {
    match name.contains(['/', '%', ':']) {
        true => name.replace('%', "%25").replace('/', "%2F").replace(':', "%3A").into(),
        false => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_with_an_older_time_does_not_move_the_last_use_back() {
        let runtime = Runtime::builder().unlimited().build().unwrap();
        let tenants = runtime.tenant_groups("tenants").build().unwrap();
        let group = tenants.get("a").unwrap();
        let later = tenants.now() + 1_000;
        for time in [later, later - 1, 0] {
            assert_eq!(tenants.find("a", time).as_ref(), Some(&group));
            let used = tenants.tenants.read()["a"].used.load(Ordering::Relaxed);
            assert_eq!(used, later);
        }
    }
}
