//! The listings of all tenants: `stats tenants` and `tenant list`.
//!
//! In pages, as there may be tens of thousands of tenants.
//!
//! A change must ensure that no lock is held while the output is flushed, and only a pointer to the
//! last tenant: the client may never read, and clients choose the names.

use std::io;

use crate::net::output::Output;
use crate::session::Session;
use crate::store::TenantReport;

/// Tenants that are listed before other connections of the thread run.
const PAGE_TENANTS: usize = 64;

/// Adds the lines of each tenant, sorted by name, by `add`. Flushes whenever the output is full.
pub async fn each_tenant(session: &mut Session, add: fn(&mut Output, &TenantReport)) -> io::Result<()> {
    let mut last = None;
    loop {
        let page = session.server.store.tenants_after(last.as_ref(), PAGE_TENANTS);
        let mut is_end = page.len() < PAGE_TENANTS;
        for tenant in page {
            add(&mut session.output, &session.server.store.report(&tenant));
            last = Some(tenant);
            if session.output.is_full() {
                // The rest of the page is dropped, and taken again when the client has read.
                is_end = false;
                break;
            }
        }
        if is_end {
            return Ok(());
        }
        if session.output.is_full() {
            session.flush().await?;
        }
        tokio::task::yield_now().await;
    }
}
