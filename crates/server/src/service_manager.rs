//! The service manager (systemd): the server reports that it is ready, that it stops, and that
//! either takes long (`Type=notify`), and the manager may open the listeners (socket activation).
//!
//! A change must ensure that nothing happens without the manager's environment variables, and that
//! sockets are taken only if `LISTEN_PID` is this process.

#![cfg(unix)]

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// The first descriptor that the manager passes.
#[cfg(target_os = "linux")]
const FIRST_DESCRIPTOR: u32 = 3;

/// A state of the server that is reported to the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    Stopping,
    /// The start or the stop takes longer, and is to be waited for this long from now on.
    Busy(Duration),
}

/// Reports a state to the manager, if there is one. The server should run on after an error.
///
/// # Errors
///
/// A sentence for the log.
pub fn notify(state: State) -> Result<(), String> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(address) => send(&address, state).map_err(|why| format!("NOTIFY_SOCKET: {why}")),
        None => Ok(()),
    }
}

fn send(address: &OsStr, state: State) -> io::Result<()> {
    let text = match state {
        State::Ready => format!("READY=1\nMAINPID={}\n", std::process::id()),
        State::Stopping => "STOPPING=1\n".to_owned(),
        State::Busy(time) => format!("EXTEND_TIMEOUT_USEC={}\n", time.as_micros()),
    };
    let socket = UnixDatagram::unbound()?;
    match address.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(text.as_bytes(), &address)?;
        }
        _ => {
            socket.send_to(text.as_bytes(), address)?;
        }
    }
    Ok(())
}

/// Returns the listening sockets that the manager has opened for this process.
///
/// Each is a duplicate from `pidfd_getfd`, as no safe function makes an [`OwnedFd`] of a number.
/// The descriptors that the manager passed stay open until the process ends.
///
/// # Errors
///
/// A sentence with the variable and the reason.
#[cfg(target_os = "linux")]
pub fn listeners() -> Result<Vec<OwnedFd>, String> {
    use rustix::process::{getpid, pidfd_getfd, pidfd_open, PidfdFlags, PidfdGetfdFlags};

    let variable = |name: &str| std::env::var(name).ok();
    let (Some(count), Some(pid)) = (variable("LISTEN_FDS"), variable("LISTEN_PID")) else { return Ok(Vec::new()) };
    if pid != std::process::id().to_string() {
        // The variables are meant for another process, which has left them in its environment.
        return Ok(Vec::new());
    }
    let count: u32 = count.parse().map_err(|_| format!("LISTEN_FDS: {count:?} is no number of sockets"))?;
    let own = pidfd_open(getpid(), PidfdFlags::empty()).map_err(|why| format!("LISTEN_FDS: {why}"))?;
    let numbers = FIRST_DESCRIPTOR..FIRST_DESCRIPTOR.saturating_add(count);
    numbers
        .map(|number| {
            let socket = pidfd_getfd(&own, number as i32, PidfdGetfdFlags::empty());
            socket.map_err(|why| format!("LISTEN_FDS: descriptor {number}: {why}"))
        })
        .collect()
}

/// Elsewhere, there is no such manager.
#[cfg(not(target_os = "linux"))]
pub fn listeners() -> Result<Vec<OwnedFd>, String> {
    Ok(Vec::new())
}
