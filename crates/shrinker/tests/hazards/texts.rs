//! Malformed commands and names of the debugfs files.
//!
//! The parser must accept or refuse each without a panic: as the kernel does, except that it also
//! refuses a number that overflows.

use crate::common::one_shelf;
use lowwater_lru_core::NodeId;
use lowwater_shrinker::{ScanError, ScanRequest};

#[test]
fn hostile_commands_are_parsed_or_refused() {
    let pieces = [
        "",
        "\0",
        "\n",
        " ",
        "\t",
        "-1",
        "+1",
        "0",
        "1.5",
        "18446744073709551616",
        "\u{ff10}",
        "\u{202e}",
        "\u{1f600}",
    ];
    for first in pieces {
        for second in pieces {
            for between in ["", " ", " 0 ", "\n"] {
                let text = format!("{first}{between}{second}");
                assert!(
                    ScanRequest::parse(&text).is_ok_and(|request| request.objects <= 1)
                        || ScanRequest::parse(&text) == Err(ScanError::Malformed)
                );
            }
        }
    }
}

#[test]
fn malformed_debugfs_commands_are_refused() {
    let (tree, registry, shelf, registration) = one_shelf();
    shelf.add(tree.root(), NodeId::ZERO, 100);
    let id = registration.id();
    // Only the first 71 bytes are read, here blanks.
    let long = format!("{}0 0 1", " ".repeat(71));
    for command in ["", " ", "0", "0 0", "0 0 -1", "a b c", "0x0 0 1", "0,0,1", &long, "\0"] {
        assert_eq!(registry.debugfs_scan(id, command), Err(ScanError::Malformed), "{command:?}");
    }
    for (command, freed) in [("0 0 1", 1), ("\t0\n0\n2\n", 2), ("0 0 3; rm", 3), ("00 00 4\u{202e}", 4), ("0 0 5\0", 5)]
    {
        let before = shelf.total();
        registry.debugfs_scan(id, command).unwrap();
        assert_eq!(before - shelf.total(), freed, "{command:?}");
    }
    // A character of four bytes that the limit of 71 bytes cuts in two.
    let cut = format!("0 0 1{}\u{1f600}", " ".repeat(64));
    registry.debugfs_scan(id, &cut).unwrap();
    for name in ["", "shelf", "shelf-", "shelf-00", "shelf-1", "-0", "shelf-0\n", "\0"] {
        assert!(registry.debugfs_find(name).is_none(), "{name:?}");
    }
    assert_eq!(registry.debugfs_find("shelf-0"), Some(id));
}
