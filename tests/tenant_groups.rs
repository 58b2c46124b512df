//! Groups for names that clients choose: bounded in number and bytes, no group below another for a
//! `/` in a name, ended when idle.
//!
//! A client that sends a new name with each request must cost no more than the bound. A change must
//! ensure that both the number of groups and their bytes are compared with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lowwater::lru_core::MemcgError;
use lowwater::runtime::TenantError;
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Memcg, Runtime};

#[path = "common/wait.rs"]
mod wait;
use wait::until;

fn runtime() -> Runtime {
    Runtime::builder().budget(ByteSize::mib(8)).topology(Arc::new(Fixed::new(1))).build().unwrap()
}

const LONG: Duration = Duration::from_secs(3600);
/// Drops of a group: enough that some lookup runs at the moment in which a drop ends.
const ENDS: usize = 3_000;

#[test]
fn a_name_is_one_group_whatever_its_characters() {
    let runtime = runtime();
    let tenants = runtime.tenant_groups("tenants").build().unwrap();
    let names = ["a", "a/b", "a%2Fb", "a%252Fb", "a:b", "a%3Ab", "/", "//", "..", "%", "\u{e4}/\u{1f600}", "a\0\n"];
    let groups = names.map(|name| tenants.get(name).unwrap());
    for (n, group) in groups.iter().enumerate() {
        assert_eq!(group.depth(), 2, "{:?} is a child of the parent", names[n]);
        assert!(groups[..n].iter().all(|other| other != group), "{:?} has a group of its own", names[n]);
        assert_eq!(tenants.get(names[n]).unwrap(), *group, "and keeps it");
    }
    assert_eq!(tenants.len(), names.len());
    for bad in ["", &"x".repeat(256), &"/".repeat(86)] {
        assert!(matches!(tenants.get(bad), Err(TenantError::Group(MemcgError::BadName))), "{bad:?}");
    }
    assert_eq!(tenants.get(&"x".repeat(255)).unwrap().name().len(), 255);
    assert_eq!(tenants.get(&"/".repeat(85)).unwrap().name().len(), 255);
}

#[test]
fn no_name_is_that_of_a_caches_own_group() {
    let runtime = runtime();
    let builder = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).name("pages");
    let cache = builder.max(ByteSize::mib(1)).build().unwrap();
    let tenants = runtime.tenant_groups("/").setup(|_, group| group.set_max(ByteSize::kib(8))).build().unwrap();
    let group = tenants.get(cache.group().name()).unwrap();
    assert_ne!(group, *cache.group());
    assert_eq!(cache.group().max(), ByteSize::mib(1));
}

#[test]
fn tenants_of_a_parent_that_is_dropped_are_refused() {
    let runtime = runtime();
    let tenants = runtime.tenant_groups("tenants").build().unwrap();
    // The drop waits for this charge for a while.
    runtime.charge(tenants.parent(), ByteSize::new(1)).unwrap();
    runtime.drop_group(tenants.parent()).unwrap();
    let refused = tenants.get("a");
    assert!(matches!(refused, Err(TenantError::Group(MemcgError::Dying))), "{refused:?}");
    until("the parent ends", || runtime.find_group("tenants").is_none());
}

/// The bytes of what was allocated and is live, with 16 of the allocator's own for each allocation,
/// as glibc's malloc has at most.
fn with_overhead(allocated: &allocation_counter::AllocationInfo) -> i64 {
    allocated.bytes_current + 16 * allocated.count_current
}

/// Bytes are those that this thread allocates for names and groups: no entry is inserted meanwhile.
#[test]
fn a_flood_of_names_is_bounded_in_groups_and_in_bytes() {
    const COUNT: usize = 1000;
    let runtime = runtime();
    let tenants = runtime.tenant_groups("tenants").count_max(COUNT).idle_time(LONG).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let mut refused = 0;
    let mut flood = |from: usize, to: usize| {
        let before = refused;
        let held = allocation_counter::measure(|| {
            for n in from..to {
                match tenants.get(&format!("tenant-{n:06}")) {
                    Ok(group) => assert_eq!(group.parent(), Some(tenants.parent())),
                    Err(TenantError::Full(COUNT)) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        (refused - before, with_overhead(&held))
    };
    let (none, bytes) = flood(0, COUNT);
    println!("{} bytes for a tenant", bytes / COUNT as i64);
    assert_eq!(none, 0);
    assert!((335..=410).contains(&(bytes / COUNT as i64)), "{bytes} bytes for {COUNT} tenants");
    let (all, bytes) = flood(COUNT, 50 * COUNT);
    assert_eq!(all, 49 * COUNT, "all further names are refused");
    assert_eq!(bytes, 0, "and cost nothing");
    // The root, the parent, and the tenants.
    assert_eq!((runtime.stats().groups, tenants.len()), (COUNT + 2, COUNT));

    // Names without a group share the parent, in which entries can be inserted.
    let shared = tenants.get_or_shared("one-more");
    assert_eq!(&shared, tenants.parent());
    cache.entry(1).group(&shared).insert(1).unwrap();
    assert_eq!(cache.len_of(&shared), 1);
    assert_eq!(tenants.get_or_shared("tenant-000001"), tenants.get("tenant-000001").unwrap());
}

/// With the table of its parent's children, which grows by doubling, and a name of 12 bytes.
#[test]
fn a_group_costs_about_325_bytes() {
    const COUNT: usize = 10_000;
    let runtime = runtime();
    let names: Vec<String> = (0..COUNT).map(|n| format!("tenant{n:06}")).collect();
    let held = allocation_counter::measure(|| names.iter().for_each(|name| drop(runtime.group(name).unwrap())));
    let each = with_overhead(&held) / COUNT as i64;
    println!("{each} bytes for a group");
    assert_eq!(runtime.stats().groups, COUNT + 1);
    assert!((285..=345).contains(&each), "{each} bytes for a group");
}

#[test]
fn idle_tenants_end_with_their_entries_and_busy_ones_stay() {
    const IDLE: Duration = Duration::from_secs(1);
    let begun = Instant::now();
    let (runtime, tenants, busy, quiet) = loop {
        assert!(begun.elapsed() < wait::PATIENCE, "this thread never runs for {IDLE:?} without a break");
        let runtime = runtime();
        let tenants = runtime.tenant_groups("tenants").count_max(2).idle_time(IDLE).build().unwrap();
        let requested = Instant::now();
        let groups = ["busy", "quiet"].map(|name| tenants.get(name));
        // A busy machine may have suspended this thread for the idle time, after which the second
        // request ends the first tenant: then once more.
        if requested.elapsed() < IDLE / 2 {
            let [busy, quiet] = groups.map(Result::unwrap);
            break (runtime, tenants, busy, quiet);
        }
    };
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    cache.entry(1).group(&busy).insert(1).unwrap();
    cache.entry(2).group(&quiet).insert(2).unwrap();
    until("the quiet one ends", || {
        assert_eq!(tenants.get("busy").unwrap(), busy);
        tenants.len() == 1
    });
    until("its entries are removed", || cache.get(&2).is_none() && !quiet.is_online());
    assert_eq!(cache.get(&1), Some(1));
    cache.entry(2).group(&quiet).insert(2).unwrap();
    let entries = [&quiet, tenants.parent()].map(|group| cache.len_of(group));
    assert_eq!(entries, [0, 1], "an insert with the old handle is charged to the parent");
    // The name can be used again, by another group.
    until("the name is free", || tenants.get("quiet").is_ok());
    assert_ne!(tenants.get("quiet").unwrap(), quiet);
    // `count_max` is 2: a third name is refused until one of the two is idle.
    until("a busy name is followed by a new one", || {
        let _ = tenants.get("busy");
        tenants.get("third").is_ok()
    });
    assert!(runtime.stats().groups <= 4);
}

#[test]
fn a_tenant_with_groups_below_it_stays_until_they_end() {
    let runtime = runtime();
    let tenants = runtime.tenant_groups("tenants").idle_time(Duration::from_millis(1)).build().unwrap();
    let parent = tenants.get("parent").unwrap();
    let child = parent.create("child").unwrap();
    let other = || drop(tenants.get("other"));
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(3));
        other();
    }
    assert!(parent.is_online(), "a group with children cannot end");
    runtime.end_group(&child).unwrap();
    until("it ends after its child", || {
        other();
        !parent.is_online()
    });
}

#[test]
fn a_tenant_that_comes_back_after_its_idle_time_keeps_its_entries() {
    let runtime = runtime();
    let tenants = runtime.tenant_groups("tenants").idle_time(Duration::from_millis(2)).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let group = tenants.get("a").unwrap();
    cache.entry(1).group(&group).insert(1).unwrap();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(tenants.get("a").unwrap(), group);
        assert!(group.is_online() && group.max() > ByteSize::ZERO);
    }
    assert_eq!(cache.get(&1), Some(1));
}

/// `is_new`: the setup is that of the first group of the name; otherwise that of the group after
/// one that the program has ended.
#[test]
fn the_idle_time_begins_after_the_setup() {
    const IDLE: Duration = Duration::from_millis(100);
    for is_new in [true, false] {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < wait::PATIENCE, "this thread never runs for {IDLE:?} without a break");
            let runtime = runtime();
            let (is_slow, setup_end) = (Arc::new(AtomicBool::new(is_new)), Arc::new(Mutex::new(begun)));
            let (sleeps, ended) = (Arc::clone(&is_slow), Arc::clone(&setup_end));
            let setup = move |name: &str, _: &Memcg| {
                if name == "slow" && sleeps.load(Ordering::Relaxed) {
                    std::thread::sleep(IDLE + IDLE / 2);
                    *ended.lock().unwrap() = Instant::now();
                }
            };
            let tenants = runtime.tenant_groups("tenants").idle_time(IDLE).setup(setup).build().unwrap();
            if !is_new {
                runtime.end_group(&tenants.get("slow").unwrap()).unwrap();
                is_slow.store(true, Ordering::Relaxed);
            }
            let slow = tenants.get("slow").unwrap();
            tenants.get("other").unwrap();
            let is_kept = slow.is_online() && slow.max() > ByteSize::ZERO && tenants.len() == 2;
            let after = setup_end.lock().unwrap().elapsed();
            // A busy machine may have suspended this thread for the idle time: then once more.
            if is_kept || after < IDLE / 2 {
                assert!(is_kept, "the group was dropped {after:?} after its setup");
                break;
            }
        }
    }
}

#[test]
fn a_group_that_the_program_ends_or_drops_is_followed_by_a_new_one() {
    let runtime = runtime();
    let tenants = runtime.tenant_groups("tenants").count_max(1).idle_time(LONG).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let mut last = tenants.get("a").unwrap();
    for round in 0..20 {
        cache.entry(round).group(&last).insert(1).unwrap();
        match round % 2 {
            0 => runtime.end_group(&last).unwrap(),
            _ => {
                runtime.drop_group(&last).unwrap();
                let next = tenants.get("a");
                let is_ending = matches!(next, Err(TenantError::Ending));
                assert!(is_ending || next.is_ok_and(|next| next != last), "not the group that is being dropped");
            }
        }
        until("the name is free", || tenants.get("a").is_ok());
        let next = tenants.get("a").unwrap();
        assert!(next != last && next.is_online());
        assert_eq!(tenants.len(), 1, "it keeps its place");
        last = next;
    }
    cache.entry(100).group(&last).insert(1).unwrap();
    assert_eq!(cache.len_of(&last), 1);
}

/// The housekeeper ends the drop of a group during the lookups of each inner loop.
#[test]
fn a_lookup_never_returns_a_group_whose_drop_has_ended() {
    let runtime = runtime();
    let tenants = runtime.tenant_groups("tenants").idle_time(LONG).build().unwrap();
    let mut last = [tenants.get("a").unwrap(), runtime.group("of/program").unwrap()];
    for _ in 0..ENDS {
        for (which, group) in last.iter_mut().enumerate() {
            runtime.drop_group(group).unwrap();
            let begun = Instant::now();
            let next = loop {
                assert!(begun.elapsed() < wait::PATIENCE, "the name is not free, of {which}");
                let next = if which == 0 { tenants.get("a").ok() } else { runtime.group("of/program").ok() };
                if let Some(next) = next {
                    break next;
                }
            };
            assert!(next != *group, "the dropped group, of {which}");
            *group = next;
        }
    }
}

#[test]
fn many_idle_tenants_end_a_few_at_each_request() {
    const COUNT: usize = 1000;
    let runtime = runtime();
    let tenants =
        runtime.tenant_groups("tenants").count_max(COUNT).idle_time(Duration::from_millis(500)).build().unwrap();
    for n in 0..COUNT {
        tenants.get(&format!("{n}")).unwrap();
    }
    let before = tenants.len();
    std::thread::sleep(Duration::from_millis(600));
    // The last one: of the others some end already if it took long to create them all.
    let last = format!("{}", COUNT - 1);
    tenants.get(&last).unwrap();
    let after = tenants.len();
    assert!(after < before && after + 64 >= before, "{before} tenants before one request, {after} afterwards");
    until("all others end", || {
        tenants.get(&last).unwrap();
        tenants.len() == 1 && runtime.stats().groups == 3
    });
}

#[test]
fn each_new_group_is_set_up_once_and_threads_agree_on_it() {
    let runtime = runtime();
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let tenants = runtime
        .tenant_groups("tenants")
        .setup(move |name, group| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            group.set_max(ByteSize::kib(name.len() as u64));
        })
        .build()
        .unwrap();
    let seen: Vec<Vec<Memcg>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..200).map(|n| tenants.get(&format!("{n}")).unwrap()).collect())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(seen.iter().all(|groups| groups == &seen[0]));
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 200);
    assert_eq!(tenants.get("100").unwrap().max(), ByteSize::kib(3));
}

#[test]
fn a_setup_that_panics_leaves_no_group() {
    let runtime = runtime();
    let tenants = runtime
        .tenant_groups("tenants")
        .count_max(2)
        .setup(|name, _| assert!(name.starts_with("good"), "no such tenant"))
        .build()
        .unwrap();
    for n in 0..10 {
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tenants.get(&format!("bad-{n}"))));
        assert!(asked.is_err());
    }
    assert_eq!((tenants.len(), runtime.stats().groups), (0, 2));
    // The setup of a group that the program has made panics: the group stays.
    let bad = runtime.group("tenants/bad").unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tenants.get("bad"))).is_err());
    assert!(bad.is_online() && tenants.is_empty());
    assert!(tenants.get("good-1").is_ok() && tenants.get("good-2").is_ok() && tenants.get("good-3").is_err());
}

#[test]
fn a_bound_or_an_idle_time_at_its_end_is_kept() {
    let runtime = runtime();
    let none = runtime.tenant_groups("none").count_max(0).build().unwrap();
    assert!(matches!(none.get("a"), Err(TenantError::Full(0))));
    assert_eq!(&none.get_or_shared("a"), none.parent());
    let all = runtime.tenant_groups("all").count_max(usize::MAX).idle_time(Duration::MAX).build().unwrap();
    assert_eq!(all.get("a").unwrap(), all.get("a").unwrap());
    let at_once = runtime.tenant_groups("at once").idle_time(Duration::ZERO).build().unwrap();
    assert!(at_once.get("a").is_ok());
}
