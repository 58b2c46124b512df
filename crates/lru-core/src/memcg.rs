//! Memory control groups: who used the memory, and how much of it they may use.
//!
//! A [`MemcgTree`] owns the groups, a [`Memcg`] is a handle on one of them. Names, limits and the
//! meaning of each limit are those of cgroup v2's `memory.*` files; amounts are
//! [`ByteSize`](crate::ByteSize), not pages.
//!
//! # The life of a group
//!
//! ```text
//!     create --> Online --offline()--> Dying --last handle dropped--> gone, its id is free
//! ```
//!
//! | state | found by name, walk, children | its id means | may be charged | may get lists |
//! |---|---|---|---|---|
//! | Online | yes | itself | yes | yes |
//! | Dying | no | its nearest online ancestor | yes (its ancestors carry it) | no, its parent gets them |
//! | gone | no | nobody, or a new group | | |
//!
//! A dying group lives for as long as an object, a list or a child names it. Its bytes stay counted
//! where they were charged, and its counters stay part of all sums above.
//!
//! # Parts
//!
//! From the lowest to the highest; `group` has the types that name each other, and the files above
//! it their behaviour.
//!
//! | file | contents |
//! |---|---|
//! | `error` | why a group could not be made or taken offline |
//! | `id` | the number of a group, and the pool of numbers |
//! | `group_handle` | what `table` and `stock` use of a handle on a group |
//! | `table` | the groups of a tree by id and by name, and the links between them |
//! | `stock` | bytes that are charged and not used yet, for each processor |
//! | `hook` | the list of hooks that are called when a group goes offline |
//! | `limits` | the settings of a group, as numbers |
//! | `attached/lists` | the chain of lists that are attached to a group |
//! | `group` | the handle, the group, and what the groups of a tree share |
//! | `held` | a handle that readers look at without a lock |
//! | `ancestry` | the way up to the root |
//! | `protection` | what the guarantees of a group are worth under its ancestors' |
//! | `usage` | counting bytes in a group and in all groups above |
//! | `drain` | uncharging what is in stock |
//! | `charge` | charging and uncharging |
//! | `limit` | setting limits |
//! | `attached` | reparenting the attached lists of a dying group |
//! | `create`, `offline` | how a group comes and goes |
//! | `walk` | children and descendants |
//! | `tree` | the owner of a tree |

mod ancestry;
pub(crate) mod attached;
mod charge;
mod create;
mod drain;
mod error;
mod group;
mod group_handle;
mod held;
mod hook;
mod id;
mod limit;
mod limits;
mod offline;
mod protection;
mod stock;
mod table;
mod tree;
mod usage;
mod walk;

#[cfg(test)]
mod tests;

pub use self::charge::{Charged, OverLimit};
pub use self::error::MemcgError;
pub use self::group::{Memcg, MemcgState, OfflineHook};
pub(crate) use self::held::HeldMemcg;
pub use self::hook::HookId;
pub use self::id::MemcgId;
pub use self::protection::Protection;
pub use self::tree::MemcgTree;
pub use self::walk::Descendants;
