//! Each body with fixed inputs: random bytes from a fixed seed, and random sequences of valid
//! tokens.
//!
//! So `cargo test` runs each body without the fuzzer. The last test runs the inputs on which the
//! fuzzer found an error: a new one becomes a file in `fuzz/regressions/TARGET`. The folder exists
//! only if there is such an input.

use lowwater_fuzz::{dcache, list_lru, map, pressure, server_protocol, server_settings, text};

/// xorshift64*: produces the same bytes in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn bytes(&mut self, len_max: u64) -> Vec<u8> {
        (0..self.next() % len_max).map(|_| (self.next() >> 32) as u8).collect()
    }

    /// Returns random elements of `pieces`, with random bytes in between.
    fn pieces(&mut self, pieces: &[&str]) -> Vec<u8> {
        let mut bytes = self.bytes(3);
        for _ in 0..self.next() % 12 {
            bytes.extend(pieces[self.next() as usize % pieces.len()].bytes());
            if self.next() % 8 == 0 {
                bytes.extend(self.bytes(4));
            }
        }
        bytes
    }
}

#[test]
fn list_lru_equals_its_model() {
    let mut random = Random(1);
    for _ in 0..500 {
        list_lru::check(&random.bytes(400));
    }
}

#[test]
fn the_server_protocol_stays_in_sync() {
    let pieces = [
        "get a b\r\n",
        "gets ",
        "set a 0 0 5\r\nhello\r\n",
        "set a 0 0 5\r\nhel",
        "add b 1 2 0 noreply\r\n\r\n",
        "cas c 0 0 2 7\r\nxx\r\n",
        "set big 0 0 20000\r\n",
        "append a 0 0 -1\r\n",
        "incr a 99999999999999999999\r\n",
        "decr a 1 noreply\r\n",
        "touch a 0\r\n",
        "flush_all 10\r\n",
        "verbosity 1\r\n",
        "stats\r\n",
        "delete a\r\n",
        "mg Zm9v b k v Oa N30\r\n",
        "ms a 5 T0 c q\r\nhello\r\n",
        "ms a 20000 F1\r\n",
        "ms a 3 c c\r\n",
        "md a I q\r\n",
        "ma a M- D7",
        "mn\r\n",
        "tenant set shop low=8M\r\n",
        "cache_memlimit 64\r\n",
        "quit\r\n",
        "\n",
        "\r",
        " ",
        "\0",
        "0",
        "4294967296",
    ];
    let mut random = Random(2);
    for _ in 0..300 {
        server_protocol::check(&random.pieces(&pieces));
        server_protocol::check(&random.bytes(200));
        let mut binary = vec![random.next() as u8];
        for _ in 0..random.next() % 8 {
            let (opcode, extras, key) = (random.next() % 0x26, random.next() % 4 * 4, random.next() % 4);
            let body = extras + key + random.next() % 20;
            binary.extend([0x80, opcode as u8, 0, key as u8, extras as u8, 0, 0, 0, 0, 0, 0, body as u8]);
            binary.extend((0..12 + body).map(|_| random.next() as u8 & 0x0f));
        }
        server_protocol::check(&binary);
    }
}

#[test]
fn amounts_lists_and_distances_are_parsed_or_rejected() {
    let pieces =
        ["0", "18446744073709551615", "16", "K", "m", "G", "max", "-", ",", " ", "10", "\n", "+", "0-3", "4-2"];
    let mut random = Random(3);
    for _ in 0..10_000 {
        text::check(&random.pieces(&pieces));
    }
}

#[test]
fn pressure_and_cgroup_texts_are_parsed_or_rejected() {
    let pieces = [
        "some avg10=0.00 avg60=1.25 avg300=100.00 total=58761\n",
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=18446744073709551615\n",
        "avg10=",
        "0::/system.slice/a.service\n",
        "4:memory,cpu:/docker/abc\n",
        "0::/../x\n",
        "31 23 0:28 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n",
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory\\040x ro - cgroup cgroup rw,memory\n",
        "\\134",
        "oom_kill 1\n",
        "max\n",
        "high 18446744073709551616\n",
        "/run/pressure\nc29tZSAyMDAwMDAgMjAwMDAwMAA=",
        "/\nAA==",
        "=",
        " - ",
        ":",
        "/",
    ];
    let mut random = Random(4);
    for _ in 0..10_000 {
        pressure::check(&random.pieces(&pieces));
    }
}

#[test]
fn a_registry_hides_no_object() {
    let mut random = Random(5);
    for _ in 0..300 {
        map::check(&random.bytes(400));
    }
}

#[test]
fn a_mount_equals_its_model() {
    let mut random = Random(6);
    for _ in 0..300 {
        dcache::check(&random.bytes(400));
    }
}

#[test]
fn flags_and_limit_files_are_parsed_or_rejected() {
    let pieces = [
        "-p",
        "\n",
        "-l",
        "127.0.0.1",
        ":",
        "[::1]",
        "tag_a_:",
        "-m",
        "64",
        "-I",
        "1k",
        "-c",
        "-D",
        "=",
        "-o",
        "modern,",
        "--http",
        "-vv",
        "-U0",
        "shop",
        " low=8M",
        " max=1",
        "\nshop min=",
        "#",
        "18446744073709551616",
        "-a",
        "-Y",
        "x",
        "\t",
    ];
    let mut random = Random(7);
    for which in 0..2_000 {
        let mut text = vec![which as u8];
        text.extend(random.pieces(&pieces));
        server_settings::check(&text);
    }
}

/// Inputs on which the fuzzer once found an error.
#[test]
fn regressions() {
    type Body = fn(&[u8]);
    let bodies: [(&str, Body); 7] = [
        ("dcache", dcache::check),
        ("list_lru", list_lru::check),
        ("map", map::check),
        ("pressure", pressure::check),
        ("protocol", server_protocol::check),
        ("settings", server_settings::check),
        ("text", text::check),
    ];
    let fuzz = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = |folder: &str| -> Vec<_> {
        let Ok(entries) = std::fs::read_dir(fuzz.join(folder)) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let body_of = |path: &std::path::Path| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let body = bodies.iter().find(|(body, _)| *body == name);
        body.unwrap_or_else(|| panic!("{} has no body here", path.display())).1
    };
    let targets = names("fuzz_targets");
    assert_eq!(targets.len(), bodies.len(), "{targets:?}");
    targets.iter().for_each(|target| _ = body_of(target));
    for folder in names("regressions") {
        let body = body_of(&folder);
        for file in std::fs::read_dir(&folder).unwrap() {
            body(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }
}
