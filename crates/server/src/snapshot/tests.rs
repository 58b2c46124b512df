//! Saves and loads: all parts of a value, a load into less memory, damaged files.
//!
//! A save is written to memory and, where needed, changed there: to an older time of the save, or
//! by one bit. Of a damaged file the values before the damage must be loaded, and the error
//! reported.

use super::*;
use crate::protocol::expiry::Expiry;
use crate::protocol::item::item_bytes;
use crate::protocol::item::STORED_KEY_BYTES_MAX;
use crate::settings::args;
use crate::settings::limits::Limits;
use crate::settings::Settings;
use crate::store::Edit;
use crate::value::data::Data;
use crate::value::item_flags::ItemFlags;
use crate::value::piece_pool::PiecePool;
use crate::value::Value;
use lowwater::ByteSize;
use std::sync::Arc;

fn settings(flags: &[&str]) -> Settings {
    let flags = ["lowwater-server", "-m", "8"].iter().chain(flags);
    args::parse(flags).unwrap().unwrap()
}

fn store(flags: &[&str]) -> (Store, Arc<PiecePool>) {
    let pool = Arc::new(PiecePool::new(1 << 20));
    (Store::new(&settings(flags), &pool).unwrap(), pool)
}

/// Puts a value with the client flags 7. With a `given` CAS number, its key was sent in base64.
fn put(store: &Store, pool: &Arc<PiecePool>, key: &str, bytes: &[u8], expiry: Expiry, given: Option<u64>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let data = Data::copy(bytes, pool);
    let item_flags = ItemFlags { binary: given.is_some(), ..ItemFlags::default() };
    let edit = |_: Option<crate::store::Existing<'_>>| {
        (Edit::Put(store.new_value(key.as_bytes(), 7, item_flags, given, &data)), ())
    };
    runtime.block_on(store.update(key.as_bytes(), expiry, edit)).unwrap();
}

fn bytes(value: &Value) -> Vec<u8> {
    value.pieces().flatten().copied().collect()
}

#[test]
fn loaded_values_keep_flags_numbers_and_remaining_time() {
    let (before, pool) = store(&[]);
    let large: Vec<u8> = (0..10_000).map(|n| (n % 251) as u8).collect();
    put(&before, &pool, "plain", b"abc", Expiry::Never, None);
    put(&before, &pool, "shop:large", &large, Expiry::In(Duration::from_secs(100)), None);
    put(&before, &pool, "shop:given", b"", Expiry::Never, Some(5));
    put(&before, &pool, "short", b"x", Expiry::In(Duration::from_secs(3)), None);
    before.read(b"plain", |_| ());
    let serial = before.peek(b"shop:large").unwrap().unique();
    let mut file = Vec::new();
    assert_eq!(write(&before, None, &mut file).unwrap(), 4);
    drop(before);

    // The same values, in a file that was saved ten seconds ago.
    let saved = u64::from_le_bytes(file[8..16].try_into().unwrap());
    let mut reader = ChunkReader::new(&file[..]).unwrap();
    let mut old = Vec::new();
    while let Some(chunk) = reader.next().unwrap() {
        old.extend_from_slice(chunk);
    }
    let mut file = Vec::new();
    let header = Header { saved_millis: saved - 10_000, last_serial: 1_000, flush_left: None, delimiter: Some(b':') };
    let mut chunks = ChunkWriter::new(&mut file, header).unwrap();
    chunks.item().extend_from_slice(&old);
    chunks.finish().unwrap();

    let (after, _) = store(&[]);
    let (counts, outcome, _) = load(&after, &file[..]);
    outcome.unwrap();
    assert_eq!(counts, LoadCounts { loaded: 3, expired: 1, without_room: 0, too_large: 0 });
    let plain = after.peek(b"plain").unwrap();
    assert_eq!((bytes(&plain), plain.client_flags(), plain.last_access.is_fetched()), (b"abc".to_vec(), 7, true));
    let (large_after, left) = after.inspect(b"shop:large", |there| (there.value.clone(), there.left)).unwrap();
    assert!(bytes(&large_after) == large && !large_after.last_access.is_fetched());
    assert_eq!(large_after.unique(), serial);
    let left = left.unwrap().as_secs();
    assert!((80..=90).contains(&left), "{left} s");
    let given = after.peek(b"shop:given").unwrap();
    assert_eq!((given.unique(), given.len(), given.item_flags().binary), (5, 0, true));
    assert!(given.serial().max(serial) < 1_000 && after.next_serial() > 1_000, "numbers are not assigned again");
    let shop = after.reports().into_iter().find(|tenant| tenant.name == "shop").unwrap();
    assert_eq!(shop.items, 2, "charged to the tenant");
    // A flush covers loaded values.
    after.flush();
    assert!(after.peek(b"plain").is_none());
}

#[test]
fn flushed_values_are_not_saved() {
    let (before, pool) = store(&[]);
    put(&before, &pool, "a", b"abc", Expiry::Never, None);
    before.flush();
    put(&before, &pool, "b", b"abc", Expiry::Never, None);
    let mut file = Vec::new();
    assert_eq!(write(&before, None, &mut file).unwrap(), 1);
}

#[test]
fn a_delayed_flush_is_due_when_it_would_have_been() {
    let (before, pool) = store(&[]);
    put(&before, &pool, "a", b"abc", Expiry::Never, None);
    let flush_left = |file: &[u8]| load(&store(&[]).0, file).2.map(|due| due.saturating_duration_since(Instant::now()));
    for left in [None, Some(Duration::from_secs(1000)), Some(Duration::ZERO)] {
        let mut file = Vec::new();
        write(&before, left, &mut file).unwrap();
        let (after, _) = store(&[]);
        load(&after, &file[..]).1.unwrap();
        assert_eq!(after.inspect(b"a", |there| there.left), Some(None), "the value keeps its own time");
        let found = flush_left(&file);
        assert!(found <= left && found >= left.map(|left| left.saturating_sub(Duration::from_secs(100))), "{found:?}");
        // The flush is not lost with the last chunk, and a damaged header has none.
        *file.last_mut().unwrap() ^= 1;
        assert_eq!(flush_left(&file).is_some(), left.is_some());
        file[24] ^= 1;
        assert_eq!(flush_left(&file), None);
    }
    // Files of ten seconds ago.
    let saved_millis = unix_millis() - 10_000;
    for (left, most) in [(5, 0), (1000, 990)] {
        let header =
            Header { saved_millis, last_serial: 0, flush_left: Some(Duration::from_secs(left)), delimiter: Some(b':') };
        let mut file = Vec::new();
        ChunkWriter::new(&mut file, header).unwrap().finish().unwrap();
        assert!(flush_left(&file).unwrap() <= Duration::from_secs(most));
    }
}

#[test]
fn the_most_used_values_stay_when_loaded_into_less_memory() {
    // 12 MB of values, of which 6 MiB have room for less than half. Every sixth value is used.
    let (before, pool) = store(&["-m", "16"]);
    let value = vec![b'v'; 1000];
    for n in 0..12_000 {
        put(&before, &pool, &format!("k{n}"), &value, Expiry::Never, None);
    }
    let used = |n: usize| n % 6 == 0;
    for _ in 0..3 {
        (0..12_000).filter(|n| used(*n)).for_each(|n| drop(before.find(format!("k{n}").as_bytes())));
    }
    let mut file = Vec::new();
    assert_eq!(write(&before, None, &mut file).unwrap(), 12_000);
    drop(before);
    let (after, _) = store(&["-m", "6"]);
    let (counts, outcome, _) = load(&after, &file[..]);
    outcome.unwrap();
    assert!(counts.without_room > 4_000 && counts.loaded > 4_000, "{counts:?}");
    let there = |n: &usize| after.peek(format!("k{n}").as_bytes()).is_some();
    let (kept, all) = ((0..12_000).filter(|n| used(*n) && there(n)).count(), 2_000);
    assert!(kept * 100 >= all * 95, "{kept} of {all} used values");
}

/// When 100 of 300 values are saved, all use counts change: a value that is removed and stored
/// again has no use, and a read adds one.
#[test]
fn a_value_whose_use_count_changes_during_a_save_is_saved_once() {
    let (before, pool) = store(&[]);
    let name = |n: usize| format!("k{n}");
    (0..300).for_each(|n| put(&before, &pool, &name(n), b"v", Expiry::Never, None));
    (0..200).for_each(|n| drop(before.find(name(n).as_bytes())));
    let (mut saved, mut heats) = (Vec::new(), Vec::new());
    let count = before.save(|value, _, heat| {
        saved.push(String::from_utf8(value.key().to_vec()).unwrap());
        heats.push(heat);
        if saved.len() == 100 {
            (0..100).for_each(|n| {
                before.remove(name(n).as_bytes());
                put(&before, &pool, &name(n), b"v", Expiry::Never, None);
            });
            (100..300).for_each(|n| drop(before.find(name(n).as_bytes())));
        }
        Ok::<(), io::Error>(())
    });
    assert_eq!(count.unwrap(), 300);
    assert!(heats.is_sorted() && heats[0] < heats[299], "the least used first: {heats:?}");
    saved.sort();
    saved.dedup();
    assert_eq!(saved.len(), 300);
}

#[test]
fn a_damaged_file_yields_the_values_before_the_damage() {
    let (before, pool) = store(&[]);
    let value = vec![b'v'; 600_000];
    for n in 0..6 {
        put(&before, &pool, &format!("k{n}"), &value, Expiry::Never, None);
    }
    let mut file = Vec::new();
    write(&before, None, &mut file).unwrap();
    // In the third chunk: a chunk ends at 1 MiB, so each has two values.
    file[2_500_000] ^= 1;
    let (after, _) = store(&[]);
    let (counts, outcome, _) = load(&after, &file[..]);
    assert!(outcome.unwrap_err().to_string().contains("damaged"));
    assert_eq!(counts.loaded, 4, "two chunks of two values");
    for (bad, is_damaged) in [
        (&b"lowwate4"[..], true),
        (b"lowwate3", true),
        (b"lowwate2", false),
        (b"lowwate0 and its values", false),
        (b"something else that is long enough", false),
        (b"lowwate", false),
        (b"", false),
    ] {
        let outcome = load(&after, bad).1;
        assert_eq!(matches!(outcome, Err(ReadError::Damaged(_))), is_damaged, "{outcome:?}");
        assert_eq!(matches!(outcome, Err(ReadError::Foreign(_))), !is_damaged, "{outcome:?}");
    }
}

/// Returns a file with one value, of this key and serial number.
fn forged(key: &[u8], serial: u64) -> Vec<u8> {
    let mut file = Vec::new();
    let header = Header { saved_millis: unix_millis(), last_serial: 0, flush_left: None, delimiter: Some(b':') };
    let mut chunks = ChunkWriter::new(&mut file, header).unwrap();
    let item = chunks.item();
    item.extend((key.len() as u16).to_le_bytes());
    item.extend([0; 2]);
    item.extend(1_u32.to_le_bytes());
    item.extend([0; 4]);
    item.extend(serial.to_le_bytes());
    item.extend([0; 16]);
    item.extend(key);
    item.push(b'v');
    chunks.finish().unwrap();
    file
}

#[test]
fn forged_keys_and_numbers_are_damage() {
    let (longest, longer) = (vec![b'k'; STORED_KEY_BYTES_MAX], vec![b'k'; STORED_KEY_BYTES_MAX + 1]);
    let huge = vec![b'k'; usize::from(u16::MAX)];
    for (key, serial, is_good) in [
        (&longest[..], 1, true),
        (b"k", (1 << 63) - 1, true),
        (&longer, 1, false),
        (&huge, 1, false),
        (b"k", 0, false),
        (b"k", 1 << 63, false),
        (b"k", u64::MAX, false),
    ] {
        let (after, _) = store(&[]);
        let (counts, outcome, _) = load(&after, &forged(key, serial)[..]);
        assert_eq!((counts.loaded, outcome.is_ok()), (u64::from(is_good), is_good), "{} bytes, {serial}", key.len());
        assert_eq!(after.peek(key).is_some(), is_good);
        let (next, then) = (after.next_serial(), after.next_serial());
        assert!(0 < next && next < then, "{next} {then}");
    }
}

/// A client may still have the number of a value that was deleted.
#[test]
fn numbers_of_deleted_values_are_not_assigned_again() {
    let (before, pool) = store(&[]);
    put(&before, &pool, "kept", b"v", Expiry::Never, None);
    put(&before, &pool, "deleted", b"v", Expiry::Never, None);
    let serial = before.take(b"deleted").unwrap().serial();
    let mut file = Vec::new();
    write(&before, None, &mut file).unwrap();
    let (after, _) = store(&[]);
    load(&after, &file[..]).1.unwrap();
    assert!(after.next_serial() > serial);
    // No value is left.
    assert!(before.remove(b"kept"));
    let mut file = Vec::new();
    write(&before, None, &mut file).unwrap();
    let (after, _) = store(&[]);
    load(&after, &file[..]).1.unwrap();
    assert!(after.next_serial() > serial);
    // A number of the header beyond those that may be assigned.
    let mut file = Vec::new();
    let header = Header { saved_millis: unix_millis(), last_serial: 1 << 63, flush_left: None, delimiter: Some(b':') };
    ChunkWriter::new(&mut file, header).unwrap().finish().unwrap();
    assert!(matches!(load(&after, &file[..]).1, Err(ReadError::Damaged(_))));
}

#[test]
fn values_above_the_bound_of_an_item_are_skipped() {
    let (before, pool) = store(&[]);
    put(&before, &pool, "large", &[b'v'; 2000], Expiry::Never, None);
    put(&before, &pool, "small", &[b'v'; 500], Expiry::Never, None);
    let mut file = Vec::new();
    write(&before, None, &mut file).unwrap();
    let (after, _) = store(&["-I", "1k"]);
    let (counts, outcome, _) = load(&after, &file[..]);
    outcome.unwrap();
    assert_eq!(counts, LoadCounts { loaded: 1, too_large: 1, ..LoadCounts::default() });
    assert!(after.peek(b"small").is_some() && after.peek(b"large").is_none());
}

#[test]
fn a_tenants_name_does_not_count_against_the_bound_of_an_item() {
    let (before, pool) = store(&["-I", "1k"]);
    // As a client of the tenant's own address stores it: its key is `k`.
    let length = 1024 - item_bytes(b"k", 0, 0);
    put(&before, &pool, "a-tenant-with-a-long-name:k", &vec![b'v'; length], Expiry::Never, None);
    let mut file = Vec::new();
    write(&before, None, &mut file).unwrap();
    let (after, _) = store(&["-I", "1k"]);
    let (counts, outcome, _) = load(&after, &file[..]);
    outcome.unwrap();
    assert_eq!(counts, LoadCounts { loaded: 1, ..LoadCounts::default() });
}

#[test]
fn without_evictions_a_load_keeps_a_tenants_max() {
    let (before, pool) = store(&[]);
    for n in 0..100 {
        put(&before, &pool, &format!("shop:{n}"), &[b'v'; 10_000], Expiry::Never, None);
    }
    let mut file = Vec::new();
    write(&before, None, &mut file).unwrap();
    let (after, _) = store(&["-M"]);
    let max = ByteSize::kib(256);
    after.set_limits(&[("shop".to_owned(), Limits { max, ..Limits::default() })], 10).unwrap();
    let (counts, outcome, _) = load(&after, &file[..]);
    outcome.unwrap();
    assert!(counts.loaded > 5 && counts.loaded + counts.without_room == 100, "{counts:?}");
    let shop = after.reports().into_iter().find(|tenant| tenant.name == "shop").unwrap();
    assert!(shop.bytes <= max.get() && shop.items == counts.loaded, "{} bytes, {counts:?}", shop.bytes);
}

/// A key's tenant ends with the delimiter: with another one, `a/b:c` of the tenant `a/b` would be
/// `b:c` of the tenant `a`.
#[test]
fn a_file_of_another_delimiter_is_refused() {
    let (before, pool) = store(&[]);
    put(&before, &pool, "a/b:c", b"secret", Expiry::Never, None);
    let mut file = Vec::new();
    write(&before, None, &mut file).unwrap();
    let (after, _) = store(&["-D", "/"]);
    let (counts, outcome, _) = load(&after, &file[..]);
    assert_eq!((counts.loaded, after.peek(b"a/b:c").is_some()), (0, false));
    let why = outcome.unwrap_err();
    assert!(!matches!(why, ReadError::Damaged(_)) && why.to_string().contains("-D :"), "{why}");
    // A file of the version without a delimiter loads with any.
    let mut file = Vec::new();
    let header =
        Header { saved_millis: unix_millis(), last_serial: before.last_serial(), flush_left: None, delimiter: None };
    let mut chunks = ChunkWriter::new(&mut file, header).unwrap();
    before
        .save(|value, left, heat| {
            item::encode(value, left, heat, chunks.item());
            chunks.end_item()
        })
        .unwrap();
    chunks.finish().unwrap();
    let (other, _) = store(&["-D", "/"]);
    assert_eq!(load(&other, &file[..]).0.loaded, 1);
    // A file without values loads: its flush is kept.
    let (empty, _) = store(&[]);
    let mut file = Vec::new();
    write(&empty, None, &mut file).unwrap();
    assert!(load(&after, &file[..]).1.is_ok());
}
