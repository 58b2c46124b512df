//! Files of control groups, as kernels write them and malformed.
//!
//! Valid texts have the form of real machines' files; the properties below them hold for any text,
//! and the module `read` has directories of files.
//!
//! A file of a new kernel version is added as text, and the old ones stay.

use super::*;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use lowwater_lru_core::ByteSize;
use proptest::prelude::*;

fn place(groups: &str, mounts: &str, version: Version) -> Option<CgroupPath> {
    CgroupPath::find(&Membership::parse(groups).unwrap(), &Mount::parse_all(mounts).unwrap(), version)
}

const V2: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

#[test]
fn a_service_is_found_and_its_path_goes_up_to_the_mount() {
    let place = place("0::/a.slice/b:c.service\n", V2, Version::V2).unwrap();
    let path: Vec<_> = place.upwards().collect();
    assert_eq!(
        path,
        ["/sys/fs/cgroup/a.slice/b:c.service", "/sys/fs/cgroup/a.slice", "/sys/fs/cgroup"],
        "a colon in a name is part of it"
    );
}

#[test]
fn on_a_hybrid_machine_v1_and_v2_are_found_at_their_own_mounts() {
    let groups = "9:name=systemd:/\n4:memory:/jobs/7\n0::/\n";
    assert_eq!(place(groups, HYBRID, Version::V1).unwrap().directory(), "/sys/fs/cgroup/memory/jobs/7");
    assert_eq!(place(groups, HYBRID, Version::V2).unwrap().directory(), "/sys/fs/cgroup/unified");
    assert_eq!(place("0::/\n", HYBRID, Version::V1), None);
}

#[test]
fn in_a_container_the_path_continues_below_the_mounts_root() {
    let mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    let own = place("4:memory:/docker/abc\n", mounts, Version::V1).unwrap();
    assert_eq!(own.directory(), "/sys/fs/cgroup/memory");
    let below = place("4:memory:/docker/abc/worker\n", mounts, Version::V1).unwrap();
    assert_eq!(below.directory(), "/sys/fs/cgroup/memory/worker");
    // `/docker/abcd` is not below `/docker/abc`.
    let other = place("4:memory:/docker/abcd\n", mounts, Version::V1).unwrap();
    assert_eq!(other.directory(), "/sys/fs/cgroup/memory");
}

#[test]
fn ancestors_that_another_mount_shows_are_on_the_path() {
    let root = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let pod = "60 23 0:28 /pods/p1 /pod rw - cgroup2 cgroup2 rw\n";
    let own = "99 23 0:28 /pods/p1/c1 /srv/view rw - cgroup2 cgroup2 rw\n";
    let other = "98 23 0:28 /pods/p2 /other rw - cgroup2 cgroup2 rw\n";
    let place = |mounts: &[&str]| place("0::/pods/p1/c1\n", &mounts.concat(), Version::V2).unwrap();
    for mounts in [[own, other, pod, root], [root, pod, other, own]] {
        let place = place(&mounts);
        assert_eq!((place.directory(), place.top()), ("/srv/view", "/srv/view"));
        assert_eq!(place.upwards().collect::<Vec<_>>(), ["/srv/view", "/pod", "/sys/fs/cgroup/pods", "/sys/fs/cgroup"]);
    }
    assert_eq!(place(&[pod, own]).upwards().collect::<Vec<_>>(), ["/srv/view", "/pod"]);
    // A later mount at the same point hides the earlier one.
    let hidden = "31 23 0:28 / /srv/view rw - cgroup2 cgroup2 rw\n";
    assert_eq!(place(&[hidden, own]).upwards().collect::<Vec<_>>(), ["/srv/view"]);
    let path = ["/srv/view/pods/p1/c1", "/srv/view/pods/p1", "/srv/view/pods", "/srv/view"];
    assert_eq!(place(&[own, hidden]).upwards().collect::<Vec<_>>(), path);
    // The group above a root that ends in `..` has no known name: it is not that of the mount `/`.
    let above = Mount::parse_all("60 23 0:28 /.. /above rw - cgroup2 cgroup2 rw\n").unwrap();
    let mounts = [above, Mount::parse_all(root).unwrap()].concat();
    let sibling = Membership::parse("0::/../x\n").unwrap();
    let place = CgroupPath::find(&sibling, &mounts, Version::V2).unwrap();
    assert_eq!(place.upwards().collect::<Vec<_>>(), ["/above/x", "/above"]);
}

/// As Fedora's: the root is mounted before `/sys` and moved over the initial root afterwards, so it
/// has the higher number, and hides nothing.
const MOVED_ROOT: &str = "\
22 27 0:21 / /sys rw - sysfs sysfs rw
26 22 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
27 1 254:0 / / rw - ext4 /dev/vda rw
";

#[test]
fn mounts_that_a_later_one_hides_are_left_out() {
    let points = |text: &str| Mount::parse_all(text).unwrap().into_iter().map(|mount| mount.point).collect::<Vec<_>>();
    let below_root = |more: &str| points(&[MOVED_ROOT, more].concat());
    assert_eq!(below_root(""), ["/sys/fs/cgroup"]);
    for hiding in [
        "40 26 0:40 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n",
        "40 22 0:40 / /sys/fs rw - tmpfs tmpfs rw\n",
        "40 22 0:40 / /sys rw - tmpfs tmpfs rw\n",
    ] {
        assert_eq!(below_root(hiding), [""; 0], "{hiding}");
    }
    for beside in [
        "40 22 0:40 / /sys/f rw - tmpfs tmpfs rw\n",
        "40 26 0:40 / /sys/fs/cgroup/a rw - tmpfs tmpfs rw\n",
        "40 27 0:40 / /sysfs rw - tmpfs tmpfs rw\n",
        // Paths of this process begin below it, at the mount that was its root before.
        "40 27 0:40 / / rw - tmpfs tmpfs rw\n",
        // Under the mount at `/sys/fs/cgroup`, so it is hidden itself.
        "40 22 0:40 / /sys/fs/cgroup/a rw - tmpfs tmpfs rw\n",
    ] {
        assert_eq!(below_root(beside), ["/sys/fs/cgroup"], "{beside}");
    }
    // A mount on the hiding one is visible again.
    let again = "40 22 0:40 / /sys/fs rw - tmpfs tmpfs rw\n41 40 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    assert_eq!(below_root(again), ["/sys/fs/cgroup"]);
    // Mounts that are each other's parents, which no kernel writes.
    assert_eq!(points("1 2 0:3 / /a rw - cgroup2 c rw\n2 1 0:3 / /a rw - cgroup2 c rw\n"), [""; 0]);
}

#[test]
fn of_equal_mounts_the_first_is_used() {
    let copy = "60 27 0:25 / /srv/chroot/sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let mounts = [MOVED_ROOT, copy].concat();
    for group in ["/", "/a", "/../a"] {
        let place = place(&format!("0::{group}\n"), &mounts, Version::V2).unwrap();
        assert_eq!(place.top(), "/sys/fs/cgroup", "{group}");
    }
}

#[test]
fn a_group_outside_of_the_namespace_counts_as_its_top() {
    assert_eq!(place("0::/../../other\n", V2, Version::V2).unwrap().directory(), "/sys/fs/cgroup");
}

#[test]
fn a_mount_from_above_the_namespace_shows_no_own_group() {
    let mounts = |root: &str| format!("40 27 0:25 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    for (group, root) in [("/", "/../.."), ("/a", "/.."), ("/../a", "/../.."), ("/", "/../")] {
        assert_eq!(place(&format!("0::{group}\n"), &mounts(root), Version::V2), None, "{group} of {root}");
    }
    // With a mount of the namespace itself the group is known.
    let both = [&mounts("/../..").replace("/sys/fs/cgroup", "/host"), V2].concat();
    assert_eq!(place("0::/\n", &both, Version::V2).unwrap().directory(), "/sys/fs/cgroup");
    // The mount begins as far up as the path of the group does, or the group is beside it.
    assert_eq!(place("0::/../a\n", &mounts("/.."), Version::V2).unwrap().directory(), "/sys/fs/cgroup/a");
    assert_eq!(place("0::/../../a\n", &mounts("/.."), Version::V2).unwrap().directory(), "/sys/fs/cgroup");
    assert_eq!(place("0::/\n", &mounts("/../b"), Version::V2).unwrap().directory(), "/sys/fs/cgroup");
}

#[test]
fn blanks_in_mount_points_are_unescaped() {
    let mounts = "1 2 0:3 / /my\\040groups rw - cgroup2 c rw\n";
    assert_eq!(place("0::/x y\n", mounts, Version::V2).unwrap().directory(), "/my groups/x y");
    // A backslash that begins no octal escape of an ASCII character is kept as it is.
    for mounted in ["/a\\b", "/a\\+40", "/a\\777", "/a\\377", "/a\\04"] {
        let mounts = format!("1 2 0:3 / {mounted} rw - cgroup2 c rw\n");
        assert_eq!(place("0::/\n", &mounts, Version::V2).unwrap().directory(), mounted);
    }
}

#[test]
fn each_event_is_counted_under_its_own_name() {
    let events = Events::parse("low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n").unwrap();
    assert_eq!((events.low, events.high, events.max, events.oom, events.oom_kill), (1, 2, 3, 4, 5));
}

#[test]
fn errors_name_the_field() {
    assert_eq!(Membership::parse("4:memory\n").unwrap_err().field, "hierarchy");
    assert_eq!(Membership::parse("4:memory:relative\n").unwrap_err().field, "path");
    assert_eq!(Mount::parse_all("1 2 0:3 / /x rw\n").unwrap_err().field, "mount");
    assert_eq!(Events::parse("high 1\nmax -1\n").unwrap_err().field, "max");
    assert_eq!(
        parse_limit_of("memory.max", "lots\n").unwrap_err().to_string(),
        "field `memory.max`: found \"lots\", expected a whole number of bytes, or \"max\""
    );
}

#[test]
fn no_limit_of_v1_on_a_32_bit_kernel_is_none() {
    let limit = |bytes: u64| parse_limit_of("memory.limit_in_bytes", &format!("{bytes}\n")).unwrap();
    assert_eq!(limit((1 << 43) - 4096), ByteSize::MAX);
    assert_eq!([(1 << 43) - 8192, 1 << 43].map(limit), [(1 << 43) - 8192, 1 << 43].map(ByteSize::new));
}

#[test]
fn v1_counts_the_groups_below_as_v2_does() {
    let v1 = Stat::parse("cache 1\nshmem 1\ntotal_cache 500\ntotal_shmem 100\n").unwrap();
    let v2 = Stat::parse("anon 7\nfile 500\nshmem 100\n").unwrap();
    assert_eq!(v1, v2);
    assert_eq!(v1.droppable(), ByteSize::new(400));
}

#[test]
fn locked_pages_and_the_swap_cache_cannot_be_dropped() {
    let droppable = |text| Stat::parse(text).unwrap().droppable().get();
    // 900 of the file's pages are locked.
    let locked = "file 1000\nshmem 0\ninactive_file 60\nactive_file 40\nunevictable 900\nslab_reclaimable 5\n";
    assert_eq!(droppable(locked), 105);
    // Anonymous pages in the swap cache, which `file` counts.
    assert_eq!(droppable("anon 700\nfile 300\nshmem 0\nswapcached 300\ninactive_file 0\nactive_file 0\n"), 0);
    // Anonymous pages that were freed lazily are in the lists of file pages.
    assert_eq!(droppable("file 100\nshmem 0\ninactive_file 400\nactive_file 100\n"), 100);
    // v1, where the plain names leave out the groups below.
    let v1 =
        "cache 7\nactive_file 1\ninactive_file 2\ntotal_cache 1000\ntotal_active_file 40\ntotal_inactive_file 60\n";
    assert_eq!(droppable(v1), 100);
    assert_eq!(droppable("file 1000\ninactive_file 60\n"), 1000, "one list is not all of them");
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text: String) {
        fuzz(text.as_bytes());
    }

    #[test]
    fn any_lines_are_parsed_or_refused(text in "([0-9]?:(memory|)?:[/a.]{0,9}\n| ?[/.a\\\\0]{0,9} - cgroup2? x memory\n){0,4}") {
        fuzz(text.as_bytes());
    }

    #[test]
    fn a_formatted_limit_parses_to_the_same_limit(bytes in 0..V1_UNLIMITED) {
        prop_assert_eq!(parse_limit_of("memory.max", &format!("{bytes}\n")), Ok(ByteSize::new(bytes)));
    }

    #[test]
    fn a_cgroup_path_is_below_its_mount(
        path in "(/[a-z.: ]{1,5}){0,5}",
        // `a_mount_from_above_the_namespace_shows_no_own_group` has roots of `..` alone.
        root in "(/[a-z.]{1,3}){0,2}"
            .prop_filter("`..` alone", |root| root.is_empty() || root[1..].split('/').any(|name| name != "..")),
    ) {
        let groups = format!("0::{}\n", if path.is_empty() { "/" } else { &path });
        let root = if root.is_empty() { "/" } else { &root };
        let mounts = format!("1 2 0:3 {root} /m rw - cgroup2 c rw\n");
        let place = place(&groups, &mounts, Version::V2).unwrap();
        prop_assert!(place.upwards().all(|dir| dir == "/m" || dir.starts_with("/m/")));
        prop_assert_eq!(place.upwards().last(), Some("/m"));
    }
}

mod read {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A directory tree with files, removed on drop.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let top = std::env::temp_dir().join(format!("lowwater-{}-{name}", std::process::id()));
            for (file, text) in files {
                let file = top.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            Self(top)
        }

        fn cgroup(&self, version: Version, directory: &str) -> Cgroup {
            Cgroup::at(version, &self.0, &self.0.join(directory))
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_effective_limit_is_the_smallest_up_the_path() {
        // No limit file at the top, as at the root; and a middle group with a lower limit than its
        // child.
        let tree = Tree::new(
            "nested",
            &[
                ("cgroup.procs", ""),
                ("a/memory.max", "max\n"),
                ("a/memory.high", "67108864\n"),
                ("a/b/memory.max", "100663296\n"),
                ("a/b/memory.high", "max\n"),
            ],
        );
        let limit = tree.cgroup(Version::V2, "a/b").limit().unwrap();
        assert_eq!(limit.bytes, ByteSize::mib(64));
        assert_eq!(limit.file, Some(tree.0.join("a/memory.high")));
        let each: Vec<_> =
            tree.cgroup(Version::V2, "a/b").limits().unwrap().into_iter().map(|limit| limit.bytes).collect();
        assert_eq!(each, [ByteSize::mib(96), ByteSize::mib(64)]);
        let none = tree.cgroup(Version::V2, "").limit().unwrap();
        assert_eq!((none.bytes, none.file), (ByteSize::MAX, None));
        assert_eq!(["", "a", "a/b"].map(|at| tree.cgroup(Version::V2, at).is_top()), [true, false, false]);
    }

    #[test]
    fn a_limit_is_compared_with_the_usage_of_its_own_group() {
        let tree = Tree::new(
            "shared",
            &[
                ("a/memory.max", "1000\n"),
                ("a/memory.current", "900\n"),
                ("a/memory.stat", "anon 800\nfile 100\nshmem 50\nslab_reclaimable 20\n"),
                ("a/b/memory.max", "max\n"),
                ("a/b/memory.current", "10\n"),
            ],
        );
        let group = tree.cgroup(Version::V2, "a/b");
        let limit = group.limit().unwrap();
        assert_eq!(
            group.usage_under(&limit).unwrap(),
            Some(ByteSize::new(830)),
            "including its siblings, less droppable pages"
        );
        assert_eq!(group.usage().unwrap(), Some(ByteSize::new(10)));
    }

    #[test]
    fn v1_limits_are_read_from_their_own_files() {
        let tree = Tree::new(
            "v1",
            &[
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("job/memory.limit_in_bytes", "1048576\n"),
                ("job/memory.usage_in_bytes", "900000\n"),
                ("job/memory.stat", "cache 0\ntotal_cache 400000\ntotal_shmem 100000\n"),
            ],
        );
        let group = tree.cgroup(Version::V1, "job");
        assert_eq!(group.limit().unwrap().bytes, ByteSize::mib(1));
        assert_eq!(group.usage().unwrap(), Some(ByteSize::new(600_000)));
        assert_eq!(group.events().unwrap(), None);
    }

    #[test]
    fn an_error_names_the_file_the_field_and_what_to_do() {
        let tree = Tree::new("bad", &[("a/memory.max", "9 MiB\n"), ("a/memory.current", "many\n")]);
        let group = tree.cgroup(Version::V2, "a");
        let text = group.limit().unwrap_err().to_string();
        // Some systems have another separator.
        let text = text.replace('\\', "/");
        for part in ["a/memory.max", "field `memory.max`", "9 MiB", "give the budget by hand"] {
            assert!(text.contains(part), "{text:?} does not say {part:?}");
        }
        assert!(group.usage().unwrap_err().to_string().replace('\\', "/").contains("a/memory.current"));
    }

    #[test]
    fn a_mount_from_above_the_namespace_is_an_error_that_names_it() {
        let mounts = "40 27 0:25 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let process = Tree::new("above", &[("cgroup", "0::/\n"), ("mountinfo", mounts)]);
        let error = Cgroup::find(&process.0, &[Version::V1, Version::V2]).unwrap_err();
        assert!(!error.is_missing(), "the group was not removed");
        let text = error.to_string();
        for part in ["/sys/fs/cgroup", "/../..", "namespace", "give the budget by hand"] {
            assert!(text.contains(part), "{text:?} does not say {part:?}");
        }
    }

    #[test]
    fn the_process_own_group_is_read_if_visible() {
        let Some(group) = Cgroup::own().unwrap() else {
            std::println!("skipped: this process is in no memory control group that can be seen");
            return;
        };
        let limit = group.limit().unwrap();
        if let Some(usage) = group.usage().unwrap() {
            assert!(usage > ByteSize::ZERO && usage <= limit.bytes, "{group:?} uses {usage} of {limit:?}");
        }
    }
}
