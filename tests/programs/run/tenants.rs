//! Steps on the groups of tenants by name.
//!
//! A table of tenants holds a handle on the runtime, so a program must drop it before its end.

use std::sync::Arc;
use std::time::Duration;

use lowwater::runtime::TenantError;
use lowwater::ByteSize;

use super::runtime::captured;
use crate::step::Step;
use crate::token::fail;
use crate::world::{at, swap, World};

/// Names that need no escape, and one that does.
const NAMES: [(&str, &str); 4] = [("t", "t"), ("u", "u"), ("v", "v"), ("w/x", "w%2Fx")];

/// The number of tenants that a table may have.
const COUNT_MAX: usize = 3;

/// Runs a step on tenants.
pub fn tenants(world: &Arc<World>, step: &Step) {
    match step {
        Step::MakeTenants(parent, idle_ms, kib) => {
            let Some(runtime) = world.runtime() else { return };
            let (max, captured) = (ByteSize::kib((*kib).into()), captured());
            if max > ByteSize::ZERO {
                world.set_lossy();
            }
            let builder = runtime.tenant_groups(["a", "b", "tenants"][usize::from(parent % 3)]);
            let builder = builder.count_max(COUNT_MAX).idle_time(Duration::from_millis((*idle_ms).into()));
            let built = builder.setup(move |name, group| {
                captured.check("passed to the setup of a tenant");
                let own = NAMES.iter().find(|(plain, _)| *plain == name).map(|(_, own)| *own);
                if own != Some(group.name()) {
                    fail(&format!("the group of {name} is {}", group.path()));
                }
                if max > ByteSize::ZERO {
                    group.set_max(max);
                }
            });
            // The parent may be a group that is being dropped.
            let built = built.build().ok().map(Arc::new);
            drop(swap(&world.tenants, built));
        }
        Step::Tenant(place, name) => {
            let table = world.tenants.lock().unwrap().clone();
            let (Some(table), (name, own)) = (table, NAMES[usize::from(name % 4)]) else { return };
            // Idle tenants end, with their entries.
            world.set_lossy();
            let group = match table.get(name) {
                Ok(group) => {
                    if group.name() != own || group.parent() != Some(table.parent()) {
                        fail(&format!("the group of {name} is {}", group.path()));
                    }
                    group
                }
                Err(TenantError::Full(most)) if most != COUNT_MAX => fail("another number of tenants is permitted"),
                Err(_) => table.get_or_shared(name),
            };
            if table.len() > COUNT_MAX {
                fail(&format!("{} tenants of at most {COUNT_MAX}", table.len()));
            }
            drop(swap(at(&world.groups, *place % 6), Some(group)));
        }
        _ => unreachable!("{step:?}"),
    }
}
