//! Administration commands: they change the budget and the tenants' limits while clients are
//! served.
//!
//! Limits are checked against each other before any is set, so that a refused command changes
//! nothing.

use std::io;

use lowwater::ByteSize;

use super::each_tenant::each_tenant;
use crate::protocol::words::Words;
use crate::session::Session;
use crate::settings::limits::{check_tenant_name, Limits};
use crate::store::tenant::TENANTS_MAX;

/// memcached's bounds for `cache_memlimit`.
const MEGABYTES_MIN: u32 = 8;
const MEGABYTES_MAX: u32 = 1_000_000_000;

/// `cache_memlimit`: changes the budget at once. Usage above the new budget is reclaimed in the
/// background; a store that finds no room meanwhile waits (`store/update.rs`).
pub fn memory_limit(session: &mut Session, megabytes: u32, noreply: bool) {
    let budget = ByteSize::mib(u64::from(megabytes));
    let text = if megabytes < MEGABYTES_MIN {
        "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m"
    } else if megabytes > MEGABYTES_MAX {
        "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes"
    } else if budget.get() / 2 < session.server.settings.item_bytes_max as u64 {
        // The same bound as between `-m` and `-I` at startup.
        "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust"
    } else if let Err(why) = session.server.store.set_budget(budget) {
        session.server.log(1, format_args!("maxbytes not adjusted to {megabytes}m: {why}"));
        "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust"
    } else {
        session.server.log(1, format_args!("maxbytes adjusted to {megabytes}m"));
        "OK"
    };
    session.answer(noreply, text);
}

/// `tenant set`: changes the given limits and keeps the others. Creates the tenant if it does not
/// exist.
pub fn tenant_set(session: &mut Session, name: &[u8], limits: Words<'_>) {
    let outcome = set(session, name, limits);
    match outcome {
        Ok(()) => session.output.line("OK"),
        Err(why) => session.output.format(format_args!("CLIENT_ERROR {why}")),
    }
}

/// Changes the given limits of a tenant.
///
/// # Errors
///
/// A sentence with the reason; then no limit is changed.
fn set(session: &Session, name: &[u8], limits: Words<'_>) -> Result<(), String> {
    let text =
        |bytes| std::str::from_utf8(bytes).map_err(|_| String::from("a tenant and its limits are written in UTF-8"));
    let name = text(name)?;
    check_tenant_name(name, session.server.settings.delimiter)?;
    let fields: Vec<&str> = limits.map(text).collect::<Result<_, _>>()?;
    let server = &session.server;
    let mut changed = Limits::default();
    server.store.change_limits(name, TENANTS_MAX, |limits| {
        changed = limits.with(fields.into_iter()).map_err(|(field, why)| match field {
            Some(field) => format!("{field}: {why}"),
            None => why,
        })?;
        Ok(changed)
    })?;
    let changed = [(name.to_owned(), changed)];
    // A statement of its own: the lock on the users must not be held while the line is written.
    let without_effect = server.settings.limits_without_effect(&changed, server.users.read().as_ref());
    if let Some(what) = without_effect {
        server.log(0, format_args!("tenant set: {what}"));
    }
    Ok(())
}

/// `tenant list`: one line for each tenant, with its name and its limits in the syntax of `tenant
/// set`, and its usage. A name that is not visible, or has a `%`, is written with `%XX`.
pub async fn tenant_list(session: &mut Session) -> io::Result<()> {
    each_tenant(session, |output, tenant| {
        let Limits { min, low, high, max, traffic } = tenant.limits;
        output.format(format_args!(
            "TENANT {} min={min} low={low} high={high} max={max} bytes={} items={} {traffic}",
            tenant.name, tenant.bytes, tenant.items,
        ));
    })
    .await?;
    session.output.line("END");
    Ok(())
}
