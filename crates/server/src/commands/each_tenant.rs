//! The listings of all tenants: `stats tenants` and `tenant list`.
//!
//! A change must ensure that a page keeps no reports while the output is flushed: clients choose
//! the names.

use std::io;

use super::pages::in_pages;
use crate::net::output::Output;
use crate::session::Session;
use crate::store::TenantReport;

/// Tenants that are listed before other connections of the thread run.
const PAGE_TENANTS: usize = 64;

/// Adds the lines of each tenant, sorted by the names of their groups, by `add`. Flushes whenever
/// the output is full.
pub async fn each_tenant(session: &mut Session, add: fn(&mut Output, &TenantReport)) -> io::Result<()> {
    let after = |session: &Session, last: Option<&_>| {
        let store = &session.server.store;
        let page = store.tenants_after(last, PAGE_TENANTS).into_iter();
        page.map(|tenant| (tenant.clone(), store.report(&tenant))).collect()
    };
    in_pages(session, PAGE_TENANTS, after, |session, tenant| add(&mut session.output, tenant)).await
}
