//! The table of open sockets, for `stats conns`: one entry for each listener and each client.
//!
//! An entry costs its connection a few relaxed stores for each read and each write; the table's
//! lock is taken when a socket is opened or closed, and by `stats conns`.
//!
//! A change must ensure that a number is never used twice, since clients match log lines and events
//! by it, and that a connection leaves the table however it ends.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::protocol::event::Event;
use crate::watchers::Watchers;

/// All open sockets, by number.
#[derive(Debug, Default)]
pub struct ConnectionTable {
    entries: Mutex<BTreeMap<u64, Arc<ConnectionInfo>>>,
    /// The number that was assigned last.
    last_number: AtomicU64,
}

/// The two ends of a socket, as memcached shows them: `tcp:127.0.0.1:11211`, `unix:/run/socket`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub peer: String,
    pub local: String,
}

/// An open socket.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// The number, which no other socket of this process has or had.
    pub number: u64,
    /// The client's address; for a listener, the listener's.
    pub peer: String,
    /// The server's address; `None` for a listener.
    pub local: Option<String>,
    /// The index in [`STATES`].
    state: AtomicU8,
    /// The second in which the last input arrived, by the store's clock.
    last_input_seconds: AtomicU32,
}

/// The state of a socket, with memcached's names.
#[doc(alias = "conn_states")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    Listening,
    /// Waits for a command.
    Read,
    /// Waits for the rest of a value.
    ReadValue,
    /// Runs commands.
    Run,
    /// Writes replies.
    Write,
    /// Writes log lines to a watcher.
    Watch,
}

/// All states, each at the index that is its value as an integer.
const STATES: [ConnectionState; 6] = [
    ConnectionState::Listening,
    ConnectionState::Read,
    ConnectionState::ReadValue,
    ConnectionState::Run,
    ConnectionState::Write,
    ConnectionState::Watch,
];

impl ConnectionState {
    /// Returns memcached's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Listening => "conn_listening",
            Self::Read => "conn_read",
            Self::ReadValue => "conn_nread",
            Self::Run => "conn_parse_cmd",
            Self::Write => "conn_mwrite",
            Self::Watch => "conn_watch",
        }
    }
}

impl ConnectionInfo {
    /// Returns the transport, the address and the port of the peer, in memcached's words.
    fn endpoint(&self) -> (&'static str, &str, &str) {
        let tcp = self.peer.strip_prefix("tcp:").or_else(|| self.peer.strip_prefix("tcp6:"));
        match tcp.and_then(|address| address.rsplit_once(':')) {
            Some((address, port)) => ("tcp", address.trim_start_matches('[').trim_end_matches(']'), port),
            None => ("local", "unix", "0"),
        }
    }

    /// Returns the state.
    pub fn state(&self) -> ConnectionState {
        // Relaxed: a statistic that guards no other memory.
        STATES[usize::from(self.state.load(Ordering::Relaxed))]
    }

    /// Returns the second in which the last input arrived, by the store's clock.
    pub fn last_input_seconds(&self) -> u32 {
        // Relaxed: a statistic that guards no other memory.
        self.last_input_seconds.load(Ordering::Relaxed)
    }
}

/// The reason why a connection ends.
#[derive(Debug)]
pub enum CloseReason {
    /// The client has closed it, or sent `quit`.
    Normal,
    IdleTimeout,
    /// The server ends.
    Shutdown,
    /// The client has sent something after which no command can be found.
    Refused,
    Error(std::io::Error),
}

impl CloseReason {
    /// Returns memcached's word for the reason.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::IdleTimeout => "idle_timeout",
            Self::Shutdown => "shutdown",
            Self::Refused | Self::Error(_) => "error",
        }
    }
}

/// The entry of an open socket, which leaves the table on drop.
#[derive(Debug)]
pub struct ConnectionEntry {
    table: Arc<ConnectionTable>,
    info: Arc<ConnectionInfo>,
}

impl ConnectionTable {
    /// Adds a client.
    pub fn add_client(self: &Arc<Self>, addresses: Addresses, now_seconds: u32) -> ConnectionEntry {
        self.add(addresses.peer, Some(addresses.local), ConnectionState::Read, now_seconds)
    }

    /// Adds a listener on this address.
    pub fn add_listener(self: &Arc<Self>, address: String, now_seconds: u32) -> ConnectionEntry {
        self.add(address, None, ConnectionState::Listening, now_seconds)
    }

    fn add(
        self: &Arc<Self>,
        peer: String,
        local: Option<String>,
        state: ConnectionState,
        now_seconds: u32,
    ) -> ConnectionEntry {
        // Relaxed: it matters only that no number is assigned twice.
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let (state, last_input_seconds) = (AtomicU8::new(state as u8), AtomicU32::new(now_seconds));
        let info = Arc::new(ConnectionInfo { number, peer, local, state, last_input_seconds });
        self.entries.lock().insert(number, Arc::clone(&info));
        ConnectionEntry { table: Arc::clone(self), info }
    }

    /// Returns the first `count` open sockets with numbers above `last`, sorted by number; fewer if
    /// there are no more.
    pub fn after(&self, last: u64, count: usize) -> Vec<Arc<ConnectionInfo>> {
        let above = (Bound::Excluded(last), Bound::Unbounded);
        self.entries.lock().range(above).take(count).map(|(_, info)| Arc::clone(info)).collect()
    }
}

impl ConnectionEntry {
    pub fn number(&self) -> u64 {
        self.info.number
    }

    pub fn peer(&self) -> &str {
        &self.info.peer
    }

    /// Publishes the begin of the connection, if clients watch connections.
    pub fn publish_begin(&self, watchers: &Watchers) {
        self.publish(watchers, "conn_new", "");
    }

    /// Publishes the end of the connection, if clients watch connections.
    pub fn publish_end(&self, watchers: &Watchers, reason: &CloseReason) {
        self.publish(watchers, "conn_close", &format!(" reason={}", reason.name()));
    }

    fn publish(&self, watchers: &Watchers, event: &str, more: &str) {
        if watchers.want(Event::Connection) {
            let (transport, address, port) = self.info.endpoint();
            let number = self.number();
            watchers.publish(
                Event::Connection,
                format_args!("type={event} rip={address} rport={port} transport={transport}{more} cfd={number}"),
            );
        }
    }

    pub fn set_state(&self, state: ConnectionState) {
        // Relaxed: a statistic that guards no other memory.
        self.info.state.store(state as u8, Ordering::Relaxed);
    }

    /// Records that input has arrived, whose commands run next.
    pub fn note_input(&self, now_seconds: u32) {
        self.set_state(ConnectionState::Run);
        // Relaxed: a statistic that guards no other memory.
        self.info.last_input_seconds.store(now_seconds, Ordering::Relaxed);
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.table.entries.lock().remove(&self.info.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_in_the_table_while_it_is_open() {
        let table = Arc::new(ConnectionTable::default());
        let listener = table.add_listener("tcp:127.0.0.1:1".into(), 0);
        let addresses = Addresses { peer: "tcp:127.0.0.1:2".into(), local: "tcp:127.0.0.1:1".into() };
        let client = table.add_client(addresses, 5);
        let all = || table.after(0, 100);
        let shown = |number: usize| (all()[number].state(), all()[number].last_input_seconds());
        assert_eq!((shown(0), shown(1)), ((ConnectionState::Listening, 0), (ConnectionState::Read, 5)));
        client.note_input(9);
        assert_eq!(shown(1), (ConnectionState::Run, 9));
        for state in STATES {
            client.set_state(state);
            assert_eq!(shown(1), (state, 9));
        }
        assert_eq!(table.after(0, 1)[0].number, listener.number());
        assert_eq!(table.after(listener.number(), 100)[0].number, client.number());
        assert!(table.after(client.number(), 100).is_empty());
        drop(client);
        assert_eq!(all().len(), 1);
        assert_eq!((all()[0].number, all()[0].local.as_deref()), (listener.number(), None));
    }
}
