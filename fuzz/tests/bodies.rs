//! Each body on inputs that are always the same: random bytes, and pieces of what the body understands.

use lowwater_fuzz::{list_lru, protocol, text};

/// xorshift64*: the same bytes on every run.
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

    /// Some of `pieces`, and random bytes between.
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
fn histories_are_the_models() {
    let mut random = Random(1);
    for _ in 0..500 {
        list_lru::check(&random.bytes(400));
    }
}

#[test]
fn streams_stay_in_sync() {
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
        protocol::check(&random.pieces(&pieces));
        protocol::check(&random.bytes(200));
    }
}

#[test]
fn texts_are_answered() {
    let pieces =
        ["0", "18446744073709551615", "16", "K", "m", "G", "max", "-", ",", " ", "10", "\n", "+", "0-3", "4-2"];
    let mut random = Random(3);
    for _ in 0..10_000 {
        text::check(&random.pieces(&pieces));
    }
}
