//! Inspection: statistics of each pair, the kernel's debugfs formats and errors, the largest pairs
//! first, tracepoints, metrics.
//!
//! Formats are compared as text, because scripts parse them: a change of an expected text is a
//! change of the interface. Numbers such as S14 are those of docs/INVARIANTS.md.

#![cfg(not(lowwater_loom))]

mod common;

use common::{one_shelf, shelf_on, CountFn, Shelf};
use lowwater_lru_core::{ByteSize, MemcgId, MemcgTree, NodeId};
use lowwater_shrinker::{
    Clock, Count, Reclaim, Registration, Registry, RegistryConfig, Scan, ScanError, ScanRequest, ShrinkControl,
    Shrinker, Work,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const N0: NodeId = NodeId::ZERO;
const N1: NodeId = NodeId::new(1);

fn pass(registry: &Registry, node: NodeId, priority: u8) {
    registry.shrink(registry.root(), node, priority, Reclaim::KSWAPD, &mut Work::unlimited());
}

#[test]
fn the_count_file_lists_groups_with_objects_in_tree_order() {
    let (tree, registry, shelf, registration) = shelf_on(2, Shelf::new());
    let a = tree.root().create("a").unwrap();
    let b = tree.root().create("b").unwrap();
    let below_a = a.create("c").unwrap();
    assert_eq!((a.id().get(), b.id().get(), below_a.id().get()), (1, 2, 3));
    let count = || registry.debugfs_count(registration.id()).unwrap();
    assert_eq!(count(), "");
    shelf.add(&b, N1, 7);
    shelf.add(&below_a, N0, 3);
    shelf.add(&below_a, N1, 4);
    shelf.add(tree.root(), N0, 1);
    assert_eq!(count(), "0 1 0\n3 3 4\n2 0 7\n");
    // Inspection changes nothing, and an empty group has no line.
    pass(&registry, N0, 0);
    assert_eq!(count(), "3 0 4\n2 0 7\n");
    below_a.offline().unwrap();
    assert_eq!(count(), "1 0 4\n2 0 7\n", "a dead group's objects are its parent's");
}

#[test]
fn s14_a_count_that_unregisters_its_shrinker_is_the_last_call() {
    let (tree, registry, shelf, registration) = one_shelf();
    let groups = [0, 1, 2].map(|n| tree.root().create(&n.to_string()).unwrap());
    groups.iter().for_each(|group| shelf.add(group, N0, 1));
    let id = registration.id();
    let registration = Mutex::new(Some(registration));
    let count: CountFn = Box::new(move |_| {
        let registration = registration.lock().unwrap().take();
        registration.into_iter().for_each(Registration::unregister_nowait);
        None
    });
    shelf.count.set(count).ok().unwrap();
    assert_eq!((registry.debugfs_count(id), shelf.counts.load(Relaxed)), (None, 1));
    assert!(registry.snapshot().shrinkers.is_empty());
}

#[test]
fn the_count_file_of_an_unaware_shrinker_has_one_line() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 3);
    let shelf = Arc::new(Shelf::new());
    let builder = registry.builder("global").memcg_aware(false).numa_aware(false);
    let registration = shelf.register(builder.alloc().unwrap());
    shelf.add(tree.root(), N0, 5);
    assert_eq!(registry.debugfs_names(), ["global-0"]);
    assert_eq!(registry.debugfs_find("global-0"), Some(registration.id()));
    assert_eq!(registry.debugfs_find("global"), None);
    assert_eq!(registry.debugfs_count(registration.id()).unwrap(), "0 5 0 0\n");
}

#[test]
fn scan_commands_are_parsed_as_by_the_kernel() {
    let request = |memcg, node, objects| Ok(ScanRequest { memcg: MemcgId::new(memcg), node, objects });
    for (command, parsed) in [
        ("3 1 128", request(3, 1, 128)),
        ("  3\t1\n128\n", request(3, 1, 128)),
        ("3 1 128 and more", request(3, 1, 128)),
        ("3 1 128xyz", request(3, 1, 128)),
        ("0 0 0", request(0, 0, 0)),
        ("", Err(ScanError::Malformed)),
        ("3 1", Err(ScanError::Malformed)),
        ("3 -1 128", Err(ScanError::Malformed)),
        ("three 1 128", Err(ScanError::Malformed)),
        ("3,1,128", Err(ScanError::Malformed)),
        ("3 1 99999999999999999999", Err(ScanError::Malformed)),
        // Text after the third number is ignored; and only 71 bytes are read, here up to the 1.
        ("3 1 1                                                                  23", request(3, 1, 1)),
        (&format!("3 1{:67}123", ""), request(3, 1, 1)),
    ] {
        assert_eq!(ScanRequest::parse(command), parsed, "{command:?}");
    }
}

#[test]
fn a_scan_command_calls_the_shrinker_once_and_has_the_kernels_errors() {
    let (tree, registry, shelf, registration) = shelf_on(2, Shelf::new());
    let group = tree.root().create("g").unwrap();
    shelf.add(&group, N1, 1000);
    let scan = |command: &str| registry.debugfs_scan(registration.id(), command);
    assert_eq!(scan("1 1 300"), Ok(()));
    // One call for all 300, whatever the batch, and without a count before it.
    assert_eq!((shelf.len(&group, N1), shelf.scans.load(Relaxed), shelf.scanned_most.load(Relaxed)), (700, 1, 300));
    assert_eq!(shelf.counts.load(Relaxed), 0);
    assert_eq!((registration.stats().freed, registration.stats().requested), (300, 300));
    assert_eq!(scan("1 0 0"), Ok(()), "no objects are requested");
    assert_eq!(scan("9 0 0"), Ok(()), "and the group is not looked up");
    let errors = [
        ("x", ScanError::Malformed, 22),
        ("1 2 5", ScanError::NoNode { nodes: 2 }, 22),
        ("1 2 0", ScanError::NoNode { nodes: 2 }, 22),
        ("9 1 5", ScanError::NoGroup(MemcgId::new(9)), 2),
    ];
    for (command, error, errno) in errors {
        assert_eq!(scan(command), Err(error), "{command:?}");
        assert_eq!(error.errno(), errno, "{command:?}");
    }
    group.offline().unwrap();
    assert_eq!(scan("1 1 5"), Err(ScanError::NoGroup(MemcgId::new(1))), "offline");
    assert_eq!(shelf.scans.load(Relaxed), 1);

    let global = Arc::new(Shelf::new());
    let unaware = global.register(registry.builder("global").memcg_aware(false).alloc().unwrap());
    assert_eq!(registry.debugfs_scan(unaware.id(), "1 0 5"), Err(ScanError::NotAware));
    assert_eq!(ScanError::NotAware.errno(), 22);
    let id = unaware.id();
    unaware.unregister().unwrap();
    assert_eq!(registry.debugfs_scan(id, "0 0 5"), Err(ScanError::NoShrinker));
    assert_eq!(registry.debugfs_count(id), None);
}

/// [`ShrinkControl::node`] promises node 0 to a shrinker that is not NUMA-aware.
#[test]
fn a_scan_command_calls_a_numa_unaware_shrinker_for_the_first_node() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 2);
    let shelf = Arc::new(Shelf::new());
    let builder = registry.builder("global").memcg_aware(false).numa_aware(false);
    let registration = shelf.register(builder.alloc().unwrap());
    shelf.add(tree.root(), N0, 10);
    assert_eq!(registry.debugfs_scan(registration.id(), "0 1 4"), Ok(()));
    assert_eq!(shelf.len(tree.root(), N0), 6);
    assert_eq!((registration.stats().freed, registration.stats().requested), (4, 4));
}

struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(10, Relaxed) + 10
    }
}

#[test]
fn time_between_two_passes_counts_for_no_visit() {
    for by_utility in [false, true] {
        let tree = MemcgTree::new(0);
        let ticks = Arc::new(Ticks(AtomicU64::new(0)));
        let shelf = Arc::new(Shelf::new());
        let config = RegistryConfig::new(1).clock(Arc::clone(&ticks) as Arc<dyn Clock>).by_utility(by_utility);
        let registry = Registry::with_config(&tree, config);
        let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
        shelf.add(tree.root(), N0, 8192);
        let mut work = Work::unlimited();
        registry.shrink(tree.root(), N0, 12, Reclaim::KSWAPD, &mut work);
        ticks.0.fetch_add(1_000_000, Relaxed);
        match by_utility {
            false => registry.shrink(tree.root(), N0, 12, Reclaim::KSWAPD, &mut work),
            true => registry.shrink_least_useful(tree.root(), None, Reclaim::KSWAPD, &mut work),
        };
        let time_ns = registration.stats().time_ns;
        assert!((20..1_000_000).contains(&time_ns), "{time_ns} ns");
    }
}

#[test]
fn a_pair_is_counted_once_per_visit_and_forgotten_when_empty() {
    let tree = MemcgTree::new(0);
    let ticks = Arc::new(Ticks(AtomicU64::new(0)));
    let shelf = Arc::new(Shelf::new());
    shelf.hear_of_deaths(&tree);
    let registry = Registry::with_config(&tree, RegistryConfig::new(2).clock(Arc::clone(&ticks) as Arc<dyn Clock>));
    let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
    let group = tree.root().create("g").unwrap();
    shelf.add(&group, N1, 8192);
    let pairs = || registry.snapshot().pairs;
    assert_eq!(pairs().len(), 1);
    assert_eq!((pairs()[0].count, pairs()[0].last_run_ns), (None, None), "live, and not visited yet");
    assert_eq!(shelf.counts.load(Relaxed), 0, "a snapshot calls no shrinker");

    let before = ticks.0.load(Relaxed);
    pass(&registry, N1, 3);
    // A quarter of the objects, at priority 3, is sixteen batches: the clock is read twice for all
    // of them.
    assert_eq!(ticks.0.load(Relaxed), before + 20);
    let pair = pairs().pop().unwrap();
    assert_eq!((pair.shrinker, &pair.memcg, pair.node), (registration.id(), &group, N1));
    assert_eq!((pair.count, pair.requested, pair.freed, pair.deferred), (Some(8192), 2048, 2048, 0));
    assert_eq!((pair.time_ns, pair.last_run_ns), (10, Some(before + 20)));
    // From here on scans stop, except in the root.
    shelf.scan.set(Box::new(|sc| sc.memcg().parent().is_some().then_some(Scan::Stop))).ok().unwrap();
    pass(&registry, N1, 3);
    let pair = pairs().pop().unwrap();
    assert_eq!((pair.count, pair.requested, pair.freed), (Some(6144), 2048 + 128, 2048));
    assert_eq!((pair.deferred, pair.owed, pair.time_ns), (1536, 1536, 20));
    let sums = registration.stats();
    assert_eq!((sums.freed, sums.deferred, sums.time_ns), (2048, 1536, 20));

    // When its group ends, its objects move to the root; there they can be freed, and the pair is
    // removed.
    group.offline().unwrap();
    assert_eq!(pairs()[0].owed, 1536);
    pass(&registry, N1, 0);
    assert!(pairs().is_empty());
    assert_eq!(registration.stats().freed, 8192);
}

#[test]
fn a_survey_counts_live_pairs_except_inside_a_scope() {
    let (tree, registry, shelf, _registration) = one_shelf();
    shelf.add(tree.root(), N0, 10);
    assert_eq!(registry.survey().pairs[0].count, Some(10));
    shelf.add(tree.root(), N0, 5);
    assert_eq!(registry.survey().pairs[0].count, Some(15));
    let scope = registry.no_reclaim_scope();
    assert_eq!(registry.survey().pairs[0].count, None);
    drop(scope);
    shelf.count.set(Box::new(|_| Some(Count::Unknown))).ok().unwrap();
    assert_eq!(registry.survey().pairs[0].count, None);
}

/// Tests with shrinkers that panic, which only `std` builds can catch.
#[cfg(feature = "std")]
mod who_panics {
    use super::*;
    use lowwater_shrinker::Registration;

    /// Inspects a shrinker with two pairs whose callback panics: it is called once, the panic is
    /// counted, the shrinker is quarantined, and its bits are cleared.
    fn when_looked_at(bend: impl Fn(&Shelf), look: impl Fn(&Registry, &Registration)) {
        let (tree, registry, shelf, registration) = one_shelf();
        let group = tree.root().create("g").unwrap();
        shelf.add(tree.root(), N0, 10);
        shelf.add(&group, N0, 10);
        bend(&shelf);
        look(&registry, &registration);
        let stats = registration.stats();
        assert_eq!((stats.panics, stats.quarantined, stats.in_flight), (1, true, 0));
        assert_eq!(shelf.counts.load(Relaxed), 1, "it is not called for the other pair");
        assert_eq!(registry.snapshot().live_pairs, 0);
        registration.unregister().unwrap();
    }

    fn panic_in_count(shelf: &Shelf) {
        shelf.count.set(Box::new(|_| std::panic::panic_any("the callback's own fault"))).ok().unwrap();
    }

    #[test]
    fn a_shrinker_that_panics_in_a_survey_is_quarantined() {
        let survey = |registry: &Registry, _: &Registration| {
            assert!(registry.survey().pairs.iter().all(|pair| (pair.count, pair.bytes) == (None, None)));
        };
        when_looked_at(panic_in_count, survey);
        let weigh = |shelf: &Shelf| shelf.weigh.set(Box::new(|_| std::panic::panic_any("its own fault"))).ok().unwrap();
        when_looked_at(weigh, survey);
    }

    #[test]
    fn a_shrinker_that_panics_in_debugfs_count_is_quarantined() {
        let count = |registry: &Registry, registration: &Registration| {
            assert_eq!(registry.debugfs_count(registration.id()), None);
        };
        when_looked_at(panic_in_count, count);
    }
}

/// A shrinker with one object in each group, which weighs the given bytes times the group's id plus
/// one, so that all weights differ.
struct Heavy(u64);

impl Shrinker for Heavy {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Objects(1)
    }

    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        Scan::Stop
    }

    fn weigh_objects(&self, sc: &ShrinkControl<'_>) -> Option<ByteSize> {
        Some(ByteSize::new(self.0 * (1 + u64::from(sc.memcg().id().get()))))
    }
}

#[test]
fn top_sorts_by_bytes_and_then_by_objects() {
    let (tree, registry, shelf, _shelf) = one_shelf();
    let groups = ["a", "b", "c"].map(|name| tree.root().create(name).unwrap());
    let heavies: Vec<_> = [100, 7]
        .into_iter()
        .map(|bytes| {
            let prepared = registry.builder("heavy").alloc().unwrap();
            groups.iter().for_each(|group| prepared.occupancy().occupied(group, N0));
            prepared.register(Arc::new(Heavy(bytes)))
        })
        .collect();
    shelf.add(&groups[0], N0, 1_000_000);
    shelf.add(&groups[1], N0, 2_000_000);
    let survey = registry.survey();
    let top: Vec<_> = survey.top(7).iter().map(|pair| (pair.bytes.map(ByteSize::get), pair.count)).collect();
    let bytes = [400, 300, 200, 28, 21, 14].map(|bytes| (Some(bytes), Some(1)));
    assert_eq!(top[..6], bytes);
    assert_eq!(top[6], (None, Some(2_000_000)), "pairs without known bytes come after the others");
    assert_eq!(survey.shrinker(heavies[0].id()).unwrap().full_name(), "heavy-1");
    assert_eq!(survey.top(0), Vec::<&_>::new());

    let _ = groups[2].try_charge(ByteSize::new(500)).unwrap();
    let _ = groups[0].try_charge(ByteSize::new(300)).unwrap();
    let top = survey.top_groups(2);
    assert_eq!(top, [(groups[2].clone(), ByteSize::new(500)), (groups[0].clone(), ByteSize::new(300))]);
}

#[cfg(feature = "tracing")]
mod tracing_events {
    use super::*;
    use std::fmt::Debug;
    use std::sync::Mutex;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0.push_str(&format!(" {}={value:?}", field.name()));
        }
    }

    impl Subscriber for Log {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "lowwater::vmscan"
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line(event.metadata().name().to_owned());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_visit_is_traced_with_the_kernels_names_and_fields() {
        let (tree, registry, shelf, _registration) = one_shelf();
        shelf.add(tree.root(), N0, 8192);
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), || pass(&registry, N0, 4));
        assert_eq!(
            *log.0.lock().unwrap(),
            [
                "mm_shrink_slab_start shr=shelf-0 shrink=\"shelf\" nr_objects_to_shrink=0 gfp_flags=Reclaim(MAY_BLOCK | MAY_IO | MAY_FS | BACKGROUND) \
                 cache_items=8192 delta=1024 total_scan=1024 priority=4 nid=0 memcg_id=0",
                "mm_shrink_slab_end shr=shelf-0 shrink=\"shelf\" nid=0 unused_scan=0 new_scan=0 total_scan=0 retval=1024 memcg_id=0",
            ]
        );
    }
}

#[cfg(feature = "metrics")]
mod metrics_published {
    use super::*;
    use lowwater_shrinker::Labels;
    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Book(Arc<Mutex<BTreeMap<String, u64>>>);

    struct Entry(Book, String);

    impl CounterFn for Entry {
        fn increment(&self, _: u64) {}
        fn absolute(&self, value: u64) {
            self.0 .0.lock().unwrap().insert(self.1.clone(), value);
        }
    }

    impl GaugeFn for Entry {
        fn increment(&self, _: f64) {}
        fn decrement(&self, _: f64) {}
        fn set(&self, value: f64) {
            self.0 .0.lock().unwrap().insert(self.1.clone(), value as u64);
        }
    }

    fn name(key: &Key) -> String {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        format!("{}{{{}}}", key.name(), labels.join(","))
    }

    impl Recorder for Book {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::new(Entry(self.clone(), name(key))))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(Arc::new(Entry(self.clone(), name(key))))
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn group_series_exist_only_with_labels_groups() {
        let (tree, registry, shelf, _registration) = one_shelf();
        let tenant = tree.root().create("tenant").unwrap();
        shelf.add(&tenant, N0, 8192);
        pass(&registry, N0, 4);
        let published = |labels| {
            let book = Book::default();
            metrics::with_local_recorder(&book, || registry.publish_metrics(labels));
            let entries = book.0.lock().unwrap().clone();
            entries
        };
        let shrinkers = published(Labels::Shrinkers);
        assert_eq!(shrinkers["lowwater_shrinker_freed_total{shrinker=shelf}"], 1024);
        assert_eq!(shrinkers["lowwater_live_pairs{}"], 1);
        assert!(!shrinkers.keys().any(|name| name.contains("tenant")));
        let groups = published(Labels::Groups);
        assert_eq!(groups["lowwater_shrinker_objects{shrinker=shelf,group=/tenant,node=0}"], 7168);
    }

    /// No series was published between the end of the first and the begin of the second.
    #[test]
    fn the_counts_of_a_shrinker_that_was_replaced_are_kept() {
        let (tree, registry, shelf, registration) = one_shelf();
        let published = || {
            let book = Book::default();
            metrics::with_local_recorder(&book, || registry.publish_metrics(Labels::Shrinkers));
            let entries = book.0.lock().unwrap().clone();
            entries["lowwater_shrinker_freed_total{shrinker=shelf}"]
        };
        shelf.add(tree.root(), N0, 10);
        assert_eq!(registry.drop_caches(), 10);
        assert_eq!(published(), 10);
        drop(registration);
        let next = Arc::new(Shelf::new());
        let _next = next.register(registry.builder("shelf").alloc().unwrap());
        for round in 0..5 {
            next.add(tree.root(), N0, 100);
            assert_eq!(registry.drop_caches(), 100, "{round}");
        }
        assert_eq!(published(), 510);
    }

    #[test]
    fn two_shrinkers_of_one_name_have_two_series_and_a_reused_label_continues() {
        let (tree, registry, shelf, registration) = one_shelf();
        shelf.add(tree.root(), N0, 8192);
        pass(&registry, N0, 4);
        let second = Arc::new(Shelf::new());
        let _second = second.register(registry.builder("shelf").alloc().unwrap());
        let freed = || {
            let book = Book::default();
            metrics::with_local_recorder(&book, || registry.publish_metrics(Labels::Shrinkers));
            let entries = book.0.lock().unwrap().clone();
            let freed = |label| entries.get(&format!("lowwater_shrinker_freed_total{{shrinker={label}}}")).copied();
            ["shelf", "shelf#2", "shelf#3"].map(freed)
        };
        assert_eq!(freed(), [Some(1024), Some(0), None]);
        second.add(tree.root(), N0, 8192);
        drop(registration);
        pass(&registry, N0, 4);
        assert_eq!(freed(), [None, Some(1024), None]);
        let third = Arc::new(Shelf::new());
        let _third = third.register(registry.builder("shelf").alloc().unwrap());
        third.add(tree.root(), N0, 100);
        assert_eq!(freed(), [Some(1024), Some(1024), None], "it goes on where the first one ended");
    }
}
