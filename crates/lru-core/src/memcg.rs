//! Memory control groups: accounting of the memory that a tenant uses, and limits on it.
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
//! | state | found by name, walk, children | id refers to | may be charged | may get lists |
//! |---|---|---|---|---|
//! | Online | yes | itself | yes | yes |
//! | Dying | no | its nearest online ancestor | yes (its ancestors carry the bytes) | no, its parent gets them |
//! | gone | no | no group, or a new one | | |
//!
//! A dying group lives as long as an object, a list or a child holds a handle on it. Its bytes stay
//! counted where they were charged, and its counters stay part of the sums of all ancestors.
//!
//! # Files
//!
//! In dependency order, lowest first: a file uses only files above it (`ci/layers.sh` fails on a
//! cycle). `group` contains the types that refer to each other; the files after `group` contain
//! their behaviour.
//!
//! | file | contents |
//! |---|---|
//! | `error` | errors of creating a group and of taking it offline |
//! | `id` | the number of a group |
//! | `group_handle` | the part of a group's handle that `table` and `stock` use |
//! | `table` | the groups of a tree by id and by name, and the links between them |
//! | `stock` | bytes that are charged and not used yet, for each processor |
//! | `hook` | the list of hooks that are called when a group goes offline or a limit is lowered |
//! | `limits` | the settings of a group, as numbers |
//! | `attached/lists` | the chain of lists that are attached to a group |
//! | `group` | the handle, the group, and the state shared by the groups of a tree |
//! | `held` | a handle that lock-free readers may access while it is released |
//! | `ancestry` | the path from a group to the root |
//! | `protection` | effective guarantees: those of a group, limited by its ancestors' |
//! | `usage` | counting bytes in a group and in all groups above it |
//! | `drain` | filling and draining the stock |
//! | `charge` | charging and uncharging |
//! | `limit` | setting limits |
//! | `attached` | reparenting the attached lists of a dying group |
//! | `create`, `offline` | creating groups and taking them offline |
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
