//! `--save-file`: keeps the values while the server does not run.
//!
//! The file is written when the server has ended its last connection, under another name first, so
//! that it is either complete or absent. It is removed once it has been read, as the last step of a
//! start that can fail: after a server has ended without saving, the next one must not start with
//! values that were changed since, and a start that fails, or that a signal ends during the load,
//! must not lose the values.
//!
//! Each value keeps its key, flags, CAS number, remaining time and use count. The values that were
//! used least are written first, so that they are the first to be evicted if the next server has
//! less memory. Time passes while the server does not run: values may expire meanwhile. A
//! delayed `flush_all` is kept as well, and is due when it would have been.
//!
//! A change must keep this order of the steps, and must ensure that a damaged file is kept, that
//! values before the damage are loaded, and that no value comes to another tenant.
//!
//! ```text
//!   chunk      the file: a header and chunks, each with its length and a checksum
//!   item       a value in a chunk
//!   save_file  the file's names, the lock, and the steps that must survive a crash
//!   time_extension  more time from the service manager
//! ```

mod chunk;
mod item;
mod save_file;
mod time_extension;

use std::io::{self, BufReader, Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chunk::{ChunkReader, ChunkWriter, Header, ReadError};
use item::{SavedItem, SERIAL_END};
use time_extension::TimeExtension;

use crate::protocol::item::{KEY_BYTES_MAX, STORED_KEY_BYTES_MAX};
use crate::server::Server;
use crate::store::Store;

pub use save_file::SaveFile;

/// Saved values after which the clock is read for [`TimeExtension::note_progress`].
const ITEMS_OF_PROGRESS: u64 = 256;

/// A file whose values were loaded, and that is still to be removed.
#[derive(Debug)]
#[must_use = "after a crash, the next server would load the values again"]
pub struct LoadedFile {
    /// The reason why the file was not read to its end.
    damage: Option<io::Error>,
    /// The time at which a delayed flush of the last server is due.
    pub flush_due: Option<Instant>,
}

/// The counts of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadCounts {
    pub loaded: u64,
    /// Values that have expired since they were saved.
    pub expired: u64,
    /// Values for which there was no room, or that were evicted by later ones.
    pub without_room: u64,
    /// Values above the bound of `-I`.
    pub too_large: u64,
}

/// Saves all values, and logs their number.
///
/// # Errors
///
/// A sentence with the file and the reason. An older file stays as it is, unless only the last
/// step, the sync of the folder, has failed: then the new file has replaced it.
pub fn save_and_log(server: &Server, file: &SaveFile) -> Result<(), String> {
    let begun = Instant::now();
    let saved = save(server, file).map_err(|why| file.error(why))?;
    server.log(0, format_args!("saved {saved} values to {} in {:.1?}", file.path().display(), begun.elapsed()));
    Ok(())
}

/// Loads the values that the last server has saved, and logs the result; `None` if there is no
/// file. The file stays until [`remove_and_log`] is called. Of a damaged file, the server has the
/// values of the chunks before the damage.
///
/// # Errors
///
/// A sentence with the file and the reason, if the file cannot be opened, or if its first bytes
/// cannot be read or are not those of a version that can be read, or if its values belong to
/// tenants whose names end with another delimiter. A later read error counts as damage.
pub fn load_and_log(server: &Server, file: &SaveFile) -> Result<Option<LoadedFile>, String> {
    let begun = Instant::now();
    let Some(saved) = file.open().map_err(|why| file.error(why))? else { return Ok(None) };
    let (counts, outcome, flush_due) = load(&server.store, BufReader::new(saved));
    let LoadCounts { loaded, expired, without_room, too_large } = counts;
    let damage = match outcome {
        Ok(()) => None,
        Err(ReadError::Damaged(why)) => Some(why),
        Err(why) => return Err(file.error(format_args!("{why}; it is left as it is"))),
    };
    server.log(
        0,
        format_args!(
            "loaded {loaded} values from {} in {:.1?}; {expired} have expired, {without_room} had no room, \
             {too_large} are larger than -I allows",
            file.path().display(),
            begun.elapsed()
        ),
    );
    Ok(Some(LoadedFile { damage, flush_due }))
}

/// Removes a file that was loaded. A damaged one is kept under another name, which is logged.
///
/// # Errors
///
/// A sentence with the file and the reason, if it cannot be removed or renamed. It stays as it is.
pub fn remove_and_log(server: &Server, file: &SaveFile, loaded: LoadedFile) -> Result<(), String> {
    let shown = file.path().display();
    let done = match loaded.damage {
        None => file.remove(),
        Some(why) => {
            server.log(0, format_args!("--save-file: {shown}: {why}; kept as {}", file.damaged().display()));
            file.set_aside()
        }
    };
    done.map_err(|why| file.error(format_args!("cannot be removed after it was read: {why}")))?;
    // The file is gone, so only this process has the values: a failed sync must not end it.
    if let Err(why) = file.sync() {
        server.log(0, format_args!("--save-file: {shown}: {why}; the file may come back after a crash of the machine"));
    }
    Ok(())
}

/// Saves all values of `server` and the time left to a delayed `flush_all`, and returns the number
/// of values.
fn save(server: &Server, file: &SaveFile) -> io::Result<u64> {
    let new = file.create()?;
    let saved = write(&server.store, server.flush_left(), new.file())?;
    TimeExtension::note_sync();
    new.replace(file)?;
    Ok(saved)
}

fn write(store: &Store, flush_left: Option<Duration>, to: impl Write) -> io::Result<u64> {
    let (last_serial, delimiter) = (store.last_serial(), Some(store.delimiter()));
    let header = Header { saved_millis: unix_millis(), last_serial, flush_left, delimiter };
    let mut chunks = ChunkWriter::new(to, header)?;
    let (mut items, mut extension) = (0_u64, TimeExtension::default());
    let saved = store.save(|value, left, heat| {
        if items % ITEMS_OF_PROGRESS == 0 {
            extension.note_progress();
        }
        items += 1;
        item::encode(value, left, heat, chunks.item());
        chunks.end_item()
    })?;
    chunks.finish()?;
    Ok(saved)
}

/// Loads values until the end of the file or an error, and returns in either case the counts and
/// the time at which a delayed flush is due. That time is known once a chunk has been read.
fn load(store: &Store, from: impl Read) -> (LoadCounts, Result<(), ReadError>, Option<Instant>) {
    let (mut counts, mut flush_due) = (LoadCounts::default(), None);
    let mut extension = TimeExtension::default();
    // `-I` bounds an item with the key that the client has sent: a tenant's name may be before it.
    let item_bytes_max = store.item_bytes_max() + STORED_KEY_BYTES_MAX - KEY_BYTES_MAX;
    let outcome = ChunkReader::new(from).and_then(|mut chunks| {
        let Header { saved_millis, last_serial, flush_left, delimiter } = chunks.header();
        loop {
            extension.note_progress();
            let chunk = chunks.next()?;
            if !(..SERIAL_END).contains(&last_serial) {
                Err(chunk::damaged("the last CAS number"))?;
            }
            // The numbers of values that have left are not given out again either.
            store.raise_serial(last_serial);
            // The times left are those at the begin of the save. A load takes time as well.
            let away = Duration::from_millis(unix_millis().saturating_sub(saved_millis));
            // No server writes a time that is too far ahead for the clock.
            flush_due = flush_left.and_then(|left| Instant::now().checked_add(left.saturating_sub(away)));
            let Some(chunk) = chunk else { break };
            if let Some(other) = delimiter.filter(|saved| *saved != store.delimiter()) {
                return Err(ReadError::OtherDelimiter(other));
            }
            let mut items = Vec::new();
            let mut rest = chunk;
            while !rest.is_empty() {
                let (item, more) = SavedItem::decode(rest).ok_or_else(|| chunk::damaged("a value"))?;
                items.push(item);
                rest = more;
            }
            let read = items.len();
            items.retain(|item| item.size() <= item_bytes_max);
            counts.too_large += (read - items.len()) as u64;
            let loaded = store.load(items.iter().map(|item| item.to_value(store)), away);
            counts.loaded += loaded.put;
            counts.expired += loaded.expired;
            counts.without_room += loaded.did_not_fit();
        }
        Ok(())
    });
    (counts, outcome, flush_due)
}

fn unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests;
