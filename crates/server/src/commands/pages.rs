//! Listings that may have tens of thousands of items, in pages.
//!
//! A change must ensure that no more than the key of the last item is kept while the output is
//! flushed: the client may never read, and clients choose how many items there are.

use std::io;

use crate::session::Session;

/// Adds each item by `add`, in the order of keys, and flushes whenever the output is full. `after`
/// returns the keys and items of at most `items_max` items behind a key, or of the first ones.
/// Other connections of the thread run after each page.
pub async fn in_pages<K, T>(
    session: &mut Session,
    items_max: usize,
    after: impl Fn(&Session, Option<&K>) -> Vec<(K, T)>,
    add: impl Fn(&mut Session, &T),
) -> io::Result<()> {
    let mut last = None;
    loop {
        let page = after(session, last.as_ref());
        let mut is_end = page.len() < items_max;
        for (key, item) in page {
            add(session, &item);
            last = Some(key);
            if session.output.is_full() {
                // The rest of the page is dropped, and made again when the client has read.
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
