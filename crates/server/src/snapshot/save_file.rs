//! The file of `--save-file`: its names, locking and replacement. One server at a time may use it.
//!
//! ```text
//!   FILE           the saved values
//!   FILE.lock      locked by the server that uses FILE; never removed, since a server could then
//!                  lock a file that has no name any more
//!   FILE.new.PID   the file while it is written
//!   FILE.damaged   a damaged file, after it was read; further ones are FILE.damaged.1 to .9
//! ```
//!
//! A change must ensure that the lock is held from the start to the end of the process, that no
//! link is followed when a file is opened, that other users of the machine cannot read the values,
//! and that FILE is complete on the disk before it replaces the previous one.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a server that starts waits for the lock: the previous server may still be saving.
const LOCK_TIME_MAX: Duration = Duration::from_secs(2);
/// Pause between two attempts to lock the file.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The number of damaged files that are kept.
const DAMAGED_MAX: usize = 10;

/// The file with the saved values, locked by this process.
#[derive(Debug)]
pub struct SaveFile {
    path: PathBuf,
    /// Unlocked on drop.
    _lock: File,
}

/// An unfinished file, which is removed on drop unless it has replaced the [`SaveFile`].
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
}

impl SaveFile {
    /// Locks the file, and checks that it is no link and can be replaced. Waits up to
    /// [`LOCK_TIME_MAX`] for another server.
    ///
    /// # Errors
    ///
    /// A sentence with the file and the reason.
    pub fn lock(path: &Path) -> Result<Self, String> {
        // A load would remove the link and keep the values: a later start with a new link would
        // load them again. Links in the path of the folder are followed.
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
            return Err(error(path, "it is a symbolic link; name the file to which it leads"));
        }
        let lock_path = with_suffix(path, ".lock");
        let lock = try_lock(&lock_path).map_err(|why| error(&lock_path, why))?;
        let Some(lock) = lock else {
            return Err(error(path, format_args!("another server uses it: it has locked {}", lock_path.display())));
        };
        let file = Self { path: path.to_owned(), _lock: lock };
        file.remove_unfinished();
        // Removed again at once: it shows whether files can be created there.
        file.create().map_err(|why| error(&file.new_path(), why))?;
        Ok(file)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a sentence with the file and `why`.
    pub fn error(&self, why: impl Display) -> String {
        error(&self.path, why)
    }

    /// Returns the path to which a damaged file is renamed: the first free one, or the last one of
    /// [`DAMAGED_MAX`], whose file is replaced.
    pub fn damaged(&self) -> PathBuf {
        let name = |n| match n {
            0 => with_suffix(&self.path, ".damaged"),
            n => with_suffix(&self.path, format!(".damaged.{n}")),
        };
        let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
        let last = DAMAGED_MAX - 1;
        (0..last).map(name).find(is_free).unwrap_or_else(|| name(last))
    }

    /// Opens the file; `None` if there is none.
    ///
    /// # Errors
    ///
    /// It is a link or another file that is not regular, or it cannot be opened.
    pub fn open(&self) -> io::Result<Option<File>> {
        match options().read(true).open(&self.path) {
            Ok(file) => regular(file).map(Some),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Creates the file that is to replace this one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn create(&self) -> io::Result<NewFile> {
        let path = self.new_path();
        let file = private(options().write(true).create_new(true)).open(&path)?;
        Ok(NewFile { file, path })
    }

    /// Removes the file; [`sync`](Self::sync) is to follow.
    ///
    /// # Errors
    ///
    /// Those of the system; the file is still there.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    /// Renames the file to [`damaged`](Self::damaged); [`sync`](Self::sync) is to follow.
    ///
    /// # Errors
    ///
    /// Those of the system; the file is still there.
    pub fn set_aside(&self) -> io::Result<()> {
        fs::rename(&self.path, self.damaged())
    }

    /// Writes the names in the file's folder to the disk, so that a removed file does not come back
    /// after a crash of the machine. A file system that cannot do that is no error.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn sync(&self) -> io::Result<()> {
        sync_folder(&self.path)
    }

    fn new_path(&self) -> PathBuf {
        with_suffix(&self.path, format!(".new.{}", std::process::id()))
    }

    /// Removes the files of servers that were killed while they saved. Only the holder of the lock
    /// writes such a file, so none is in use.
    fn remove_unfinished(&self) {
        let (Some(name), Ok(entries)) = (self.path.file_name(), fs::read_dir(folder(&self.path))) else { return };
        let prefix = with_suffix(Path::new(name), ".new.");
        for entry in entries.flatten() {
            let found = entry.file_name();
            let number = found.as_encoded_bytes().strip_prefix(prefix.as_os_str().as_encoded_bytes());
            if number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit)) {
                // An error shows when a file of this name is created.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl NewFile {
    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Replaces `other` by this file, once all of it is on the disk.
    ///
    /// # Errors
    ///
    /// Those of the system; `other` is either as before or replaced.
    pub fn replace(self, other: &SaveFile) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, &other.path)?;
        other.sync()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // An error means that the file was renamed, or that it cannot be removed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens and locks a file; `None` if another process holds the lock for all of [`LOCK_TIME_MAX`].
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = regular(private(options().write(true).create(true)).open(path)?)?;
    let begun = Instant::now();
    loop {
        match lock(&file)? {
            true => return Ok(Some(file)),
            false if begun.elapsed() >= LOCK_TIME_MAX => return Ok(None),
            false => std::thread::sleep(LOCK_PAUSE),
        }
    }
}

/// Locks a file until it is closed. Returns false if another process holds the lock.
#[cfg(unix)]
fn lock(file: &File) -> io::Result<bool> {
    use rustix::fs::{flock, FlockOperation};
    use rustix::io::Errno;
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(why) => Err(why.into()),
    }
}

/// Does not lock: `File::try_lock` needs a later compiler than this package.
#[cfg(not(unix))]
fn lock(_file: &File) -> io::Result<bool> {
    Ok(true)
}

/// Returns `file`, if it is a regular one.
fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Returns options that do not wait for the other end of a FIFO, and do not follow a link.
#[cfg(unix)]
fn options() -> OpenOptions {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits() as i32);
    options
}

/// Returns plain options: other systems have no such flags.
#[cfg(not(unix))]
fn options() -> OpenOptions {
    OpenOptions::new()
}

/// Adds that only the owner can access a new file, which contains values of all tenants.
#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600)
}

/// Adds nothing: on other systems the folder's permissions apply.
#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &OpenOptions {
    options
}

/// Syncs the folder of `path`; see [`SaveFile::sync`].
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, Unsupported};
    match File::open(folder(path))?.sync_all() {
        Err(why) if !matches!(why.kind(), InvalidInput | Unsupported) => Err(why),
        _ => Ok(()),
    }
}

/// Does nothing: on other systems a folder cannot be opened as a file.
#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn with_suffix(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn error(path: &Path, why: impl Display) -> String {
    format!("--save-file: {}: {why}", path.display())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{symlink, PermissionsExt};

    use super::*;

    /// A folder that is removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("lowwater-save-file-{name}-{}", std::process::id()));
            let _left_behind = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_locked_by_one_server_at_a_time() {
        let folder = Folder::new("lock");
        let path = folder.0.join("values");
        let first = SaveFile::lock(&path).unwrap();
        let why = SaveFile::lock(&path).unwrap_err();
        assert!(why.contains("values: another server uses it") && why.contains("values.lock"), "{why}");
        let ends = std::thread::spawn(move || {
            std::thread::sleep(LOCK_PAUSE);
            drop(first);
        });
        let (begun, mut asked) = (Instant::now(), Instant::now());
        // On a busy machine the thread may hold the lock for longer than a server waits.
        while let Err(why) = SaveFile::lock(&path) {
            let is_patient = asked.elapsed() >= LOCK_TIME_MAX && begun.elapsed() < Duration::from_secs(60);
            assert!(is_patient && why.contains("another server uses it"), "{why}");
            asked = Instant::now();
        }
        ends.join().unwrap();
    }

    #[test]
    fn no_link_is_followed_and_others_cannot_read_the_values() {
        let folder = Folder::new("link");
        let (path, precious) = (folder.0.join("values"), folder.0.join("precious"));
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, folder.0.join("values.lock")).unwrap();
        assert!(SaveFile::lock(&path).unwrap_err().contains("values.lock: "));
        fs::remove_file(folder.0.join("values.lock")).unwrap();

        let file = SaveFile::lock(&path).unwrap();
        symlink(&precious, file.new_path()).unwrap();
        assert_eq!(file.create().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::remove_file(file.new_path()).unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");

        let new = file.create().unwrap();
        assert_eq!(new.file().metadata().unwrap().permissions().mode() & 0o777, 0o600, "before any value is written");
        new.replace(&file).unwrap();
        assert_eq!(folder.names(), ["precious", "values", "values.lock"]);
        drop(file.create().unwrap());
        assert_eq!(folder.names(), ["precious", "values", "values.lock"], "an unfinished file is removed");
    }

    /// A load would remove the link, and a save would replace it, instead of the file behind it.
    #[test]
    fn a_file_that_is_a_link_is_refused_and_left_alone() {
        let folder = Folder::new("linked");
        let (path, values) = (folder.0.join("link"), folder.0.join("values"));
        symlink(&values, &path).unwrap();
        for exists in [false, true] {
            if exists {
                fs::write(&values, "values").unwrap();
            }
            let why = SaveFile::lock(&path).unwrap_err();
            assert!(why.contains("link: it is a symbolic link"), "{why}");
        }
        assert_eq!(folder.names(), ["link", "values"]);
        // One that is made later.
        fs::remove_file(&path).unwrap();
        let file = SaveFile::lock(&path).unwrap();
        symlink(&values, &path).unwrap();
        assert!(file.open().is_err());
    }

    #[test]
    fn unfinished_files_of_killed_servers_are_removed() {
        let folder = Folder::new("unfinished");
        for name in
            ["values", "values.new.1", "values.new.77", "values.new.1a", "values.new.", "values.news", "v.new.1"]
        {
            fs::write(folder.0.join(name), name).unwrap();
        }
        SaveFile::lock(&folder.0.join("values")).unwrap();
        let left = ["v.new.1", "values", "values.lock", "values.new.", "values.new.1a", "values.news"];
        assert_eq!(folder.names(), left);
    }

    #[test]
    fn damaged_files_are_kept_beside_each_other() {
        let folder = Folder::new("damaged");
        let path = folder.0.join("values");
        let file = SaveFile::lock(&path).unwrap();
        let kept: Vec<_> = (0..12)
            .map(|n| {
                fs::write(&path, n.to_string()).unwrap();
                let name = file.damaged();
                file.set_aside().unwrap();
                assert_eq!(fs::read_to_string(&name).unwrap(), n.to_string());
                name
            })
            .collect();
        let content = |n: usize| fs::read_to_string(&kept[n]).unwrap();
        assert_eq!(kept[0], folder.0.join("values.damaged"));
        assert!((0..9).all(|n| content(n) == n.to_string()), "{:?}", folder.names());
        assert_eq!((content(9).as_str(), folder.names().len()), ("11", 11), "ten files, and the lock");
    }
}
