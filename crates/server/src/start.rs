//! The start of the process: in the background (`-d`), as another user (`-u`), with its id in a
//! file (`-P`).
//!
//! `-d` and `-u` start the program again with the same arguments: `-d` as a child in a new session,
//! `-u` in the place of this process. A process can detach, or change its user as a whole, only
//! before its threads exist, and std has safe calls for both only for a new program.
//!
//! A change must ensure that an error of the new process reaches the caller of the first one, and
//! that no process starts itself again without end.

#![cfg(unix)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::getuid;

use crate::settings::Settings;

/// Set in the environment of the process in the background, which so does not start another one.
const IN_BACKGROUND: &str = "LOWWATER_SERVER_IN_BACKGROUND";
const USERS_FILE: &str = "/etc/passwd";

/// The next step of the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// This process serves.
    Serve,
    /// Another process serves, in the background.
    Exit,
}

/// Goes to the background and changes the user, if the settings request it. With both, the child in
/// the background changes the user.
///
/// # Errors
///
/// A sentence with the flag and the reason.
pub fn prepare(settings: &Settings) -> Result<Next, String> {
    if settings.background && std::env::var_os(IN_BACKGROUND).is_none() {
        return start_in_background().map(|()| Next::Exit).map_err(|why| format!("-d: {why}"));
    }
    if let Some(user) = &settings.user {
        change_user(user)?;
    }
    if settings.background {
        // An error means that the process leads a process group, as no child of
        // `start_in_background` does: something else has set `IN_BACKGROUND`.
        let _ = rustix::process::setsid();
    }
    Ok(Next::Serve)
}

/// Detaches stderr from that of the caller, in the background without `-v`: a program that has
/// started the server may read its stderr to the end. To be called when nothing can fail any more.
pub fn end_start(settings: &Settings) {
    if settings.background && settings.verbosity == 0 {
        if let Ok(null) = File::options().write(true).open("/dev/null") {
            // An error leaves stderr as it is.
            let _ = rustix::stdio::dup2_stderr(null);
        }
    }
}

/// Starts this program again with the same arguments, and waits until it serves: until the first
/// line of its banner. Its errors go to the same stderr.
fn start_in_background() -> Result<(), String> {
    let mut child =
        again().env(IN_BACKGROUND, "1").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(text)?;
    let mut line = String::new();
    if let Some(banner) = child.stdout.take() {
        BufReader::new(banner).read_line(&mut line).map_err(text)?;
    }
    match line.is_empty() {
        true => Err("the server in the background has ended".to_owned()),
        false => Ok(()),
    }
}

/// Replaces this process by the same program as another user, if this process runs as root. As in
/// memcached, `-u` has no effect for other users. Returns only on an error, or if nothing changes.
fn change_user(name: &str) -> Result<(), String> {
    if !getuid().is_root() {
        return Ok(());
    }
    let users = std::fs::read_to_string(USERS_FILE).map_err(|why| format!("-u: {USERS_FILE}: {why}"))?;
    let (uid, gid) = find_user(&users, name).ok_or_else(|| format!("-u: there is no user {name} in {USERS_FILE}"))?;
    if uid == getuid().as_raw() {
        return Ok(());
    }
    let why = again().uid(uid).gid(gid).exec();
    Err(format!("-u: cannot start as the user {name}: {why}"))
}

/// Returns the command that starts this program again.
fn again() -> Command {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(&name));
    let mut command = Command::new(program);
    command.arg0(<_ as AsRef<OsStr>>::as_ref(&name)).args(arguments);
    command
}

/// Returns the ids of a user and of the user's group, from the lines of `passwd`.
fn find_user(passwd: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = passwd.lines().map(|line| line.split(':')).find_map(|mut fields| {
        let found = fields.next() == Some(name);
        found.then_some(fields)
    })?;
    let _password = fields.next()?;
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn text(why: std::io::Error) -> String {
    why.to_string()
}

/// A file with the id of this process, removed on drop, unless it has the id of another one: of a
/// server that was started while this one ended. Not certain if that server writes just before the
/// removal, or has the same id in another container: only a save file locks one of them out.
#[derive(Debug)]
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file.
    ///
    /// # Errors
    ///
    /// A sentence with the file and the reason.
    pub fn write(path: &Path) -> Result<Self, String> {
        let written = std::fs::write(path, Self::content());
        written.map(|()| Self(path.to_owned())).map_err(|why| format!("-P: {}: {why}", path.display()))
    }

    fn content() -> String {
        format!("{}\n", std::process::id())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // A pipe or a terminal would be read without end. Not the file's number (inode), which
        // stays the same when another server writes its id.
        let is_file = std::fs::metadata(&self.0).is_ok_and(|metadata| metadata.is_file());
        if is_file && std::fs::read_to_string(&self.0).is_ok_and(|content| content == Self::content()) {
            // An error means that the user may not remove it.
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would be opened for as long as no other process writes to it.
    #[test]
    #[cfg(not(target_vendor = "apple"))] // Where there is no `mkfifoat`.
    fn a_pid_file_that_is_a_pipe_is_not_opened_at_the_end() {
        use std::sync::mpsc;
        use std::thread;
        use std::time::Duration;

        let path = std::env::temp_dir().join(format!("lowwater-server_pid_pipe_{}", std::process::id()));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        let (sender, dropped) = mpsc::channel();
        let file = PidFile(path.clone());
        thread::spawn(move || {
            drop(file);
            sender.send(()).unwrap();
        });
        let in_time = dropped.recv_timeout(Duration::from_secs(60));
        let stays = path.exists();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((in_time, stays), (Ok(()), true));
    }

    #[test]
    fn a_pid_file_of_another_process_stays() {
        let path = std::env::temp_dir().join(format!("lowwater-server_pid_{}", std::process::id()));
        let file = PidFile::write(&path).unwrap();
        // As by a server that was started meanwhile.
        std::fs::write(&path, "1\n").unwrap();
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
        drop(PidFile::write(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\nmemcache:x:109:117::/nonexistent:/bin/false\nodd:x:a:1::/:\nshort\n";
        assert_eq!(find_user(passwd, "memcache"), Some((109, 117)));
        assert_eq!(find_user(passwd, "root"), Some((0, 0)));
        for name in ["memcach", "x", "", "odd", "short", "memcache:x"] {
            assert_eq!(find_user(passwd, name), None, "{name:?}");
        }
    }
}
