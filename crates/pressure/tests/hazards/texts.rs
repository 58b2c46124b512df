//! Texts of `/proc`, of control groups and of the service manager that no kernel would write.
//!
//! No parser may panic. The errors of `Mount` and `Membership` quote only a part of the text, which
//! the test asserts. `SystemdError::Path` quotes the whole path.

use lowwater_lru_core::ByteSize;
use lowwater_pressure::cgroup::{parse_limit_of, Cgroup, CgroupPath, Events, Membership, Mount, Stat, Version};
use lowwater_pressure::systemd::Systemd;
use lowwater_pressure::Stalls;
use std::path::Path;

#[test]
fn hostile_texts_are_parsed_or_refused() {
    let huge = "9".repeat(100_000);
    let lines = "low 1\n".repeat(50_000);
    let pieces = [
        "",
        "\0",
        "\n",
        " ",
        "\t",
        ":",
        "::",
        " - ",
        "/",
        "//",
        "..",
        "/../..",
        "max",
        "-1",
        "+1",
        "0",
        "1.5",
        "18446744073709551615",
        "18446744073709551616",
        &huge,
        "\u{ff10}",
        "\u{202e}",
        "\u{1f600}",
        "\\",
        "\\040",
        "\\777",
        "\\0",
        "some ",
        "full avg10=",
        "total=",
        "avg10=99999999.99",
        "0::/",
        "4:memory:/",
        " (deleted)",
        "31 23 0:28 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw",
        "1 1 1 / / - cgroup x memory",
        "=",
        "====",
        "AA==",
    ];
    let mut texts: Vec<String> = pieces.iter().map(|piece| (*piece).into()).collect();
    for first in pieces {
        for second in pieces {
            texts.extend(["", " ", "\n", ":", "="].map(|between| format!("{first}{between}{second}")));
        }
    }
    texts.push(lines);
    for text in &texts {
        let _ = (Events::parse(text), Stat::parse(text).map(|stat| stat.droppable()));
        let _ = (Stalls::parse(text), parse_limit_of("memory.max", text));
        let _ = (Systemd::parse(Some(text), Some(text)), Systemd::parse(None, Some(text)));
        let short = |error: String| assert!(error.len() < 1000, "{} bytes", error.len());
        let mounts = Mount::parse_all(text).inspect_err(|error| short(error.to_string())).unwrap_or_default();
        let Ok(membership) = Membership::parse(text).inspect_err(|error| short(error.to_string())) else { continue };
        for version in [Version::V1, Version::V2] {
            if let Some(place) = CgroupPath::find(&membership, &mounts, version) {
                assert!(place.directory().starts_with(place.top()));
                assert!(place.upwards().count() <= 2 + place.directory().len());
            }
        }
    }
    let (shmem_above_cache, sum_above_max) =
        ("total_cache 5\ntotal_shmem 18446744073709551615", "file 18446744073709551615\nslab_reclaimable 9");
    assert_eq!(Stat::parse(shmem_above_cache).unwrap().droppable(), ByteSize::ZERO);
    assert_eq!(Stat::parse(sum_above_max).unwrap().droppable(), ByteSize::MAX);
}

#[test]
fn any_path_makes_a_cgroup_below_its_top() {
    let root = std::env::temp_dir().join(format!("lowwater-cgroup-{}", std::process::id()));
    let inner = root.join("inner");
    std::fs::create_dir_all(&inner).unwrap();
    let root_text = root.to_str().unwrap().to_owned();
    let paths = [
        "/",
        "//",
        "",
        ".",
        "..",
        "/..",
        "/nowhere",
        "nowhere",
        &root_text,
        &format!("{root_text}/"),
        &format!("{root_text}/inner"),
        &format!("{root_text}/inner/.."),
        &format!("{root_text}/../.."),
        "\0",
        "a\nb",
    ];
    for top in paths {
        for directory in paths {
            for version in [Version::V1, Version::V2] {
                let cgroup = Cgroup::at(version, Path::new(top), Path::new(directory));
                let shown = cgroup.directory().to_string_lossy().into_owned();
                let below = top.trim_end_matches('/');
                assert!(
                    shown.starts_with(below) && !shown[below.len()..].contains(".."),
                    "{top:?} {directory:?}: {shown:?}"
                );
                let _ = (cgroup.limit(), cgroup.limits(), cgroup.usage(), cgroup.events(), cgroup.is_top());
                let _ = cgroup.pressure_file();
            }
        }
    }
    // The root is `/`, not the empty path, which would be the working directory.
    let cgroup = Cgroup::at(Version::V2, Path::new("/"), Path::new("/"));
    assert_eq!((cgroup.directory(), cgroup.is_top()), (Path::new("/"), true));
    let below = Cgroup::at(Version::V2, Path::new("/"), &inner);
    assert_eq!(below.directory(), inner);
    std::fs::write(root.join("memory.max"), "4096\n").unwrap();
    std::fs::write(inner.join("memory.max"), b"\xff\xfe").unwrap();
    assert!(below.limit().is_err());
    std::fs::write(inner.join("memory.max"), "0\n").unwrap();
    assert_eq!(below.limit().unwrap().bytes, ByteSize::ZERO);
    std::fs::remove_dir_all(&root).unwrap();
}
