//! The FUSE file system: the kernel's requests, answered from the mirror.
//!
//! Only reads are implemented; every other request is refused by the default methods of the trait
//! `fuser::Filesystem`.
//!
//! A change must keep the file system read-only.

use crate::mirror::{time, Listed, Mirror};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A mirror, as a FUSE file system.
pub struct Served {
    mirror: Arc<Mirror>,
    files: Handles<File>,
    listings: Handles<Vec<Listed>>,
}

/// Open files or listings, by a number that the kernel keeps.
struct Handles<T> {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<T>>>,
}

impl<T> Handles<T> {
    fn new() -> Self {
        Self { next: AtomicU64::new(0), open: Mutex::default() }
    }

    fn add(&self, what: T) -> FileHandle {
        // Relaxed: only uniqueness is needed.
        let number = self.next.fetch_add(1, Relaxed);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(what));
        FileHandle(number)
    }

    fn get(&self, handle: FileHandle) -> Result<Arc<T>, Errno> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    fn remove(&self, handle: FileHandle) {
        let what = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
        // Closed without holding the lock.
        drop(what);
    }
}

impl Served {
    pub fn new(mirror: Arc<Mirror>) -> Self {
        Self { mirror, files: Handles::new(), listings: Handles::new() }
    }

    fn attributes(&self, meta: &Metadata) -> Result<FileAttr, Errno> {
        Ok(FileAttr {
            ino: INodeNo(self.mirror.nodes.id(meta.ino())),
            size: meta.size(),
            blocks: meta.blocks(),
            atime: time(meta.atime(), meta.atime_nsec()),
            mtime: time(meta.mtime(), meta.mtime_nsec()),
            ctime: time(meta.ctime(), meta.ctime_nsec()),
            crtime: time(0, 0),
            kind: FileType::from_std(meta.file_type()).ok_or(Errno::EIO)?,
            // Twelve bits.
            perm: (meta.mode() & 0o7777) as u16,
            nlink: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
            uid: meta.uid(),
            gid: meta.gid(),
            rdev: u32::try_from(meta.rdev()).unwrap_or(0),
            blksize: u32::try_from(meta.blksize()).unwrap_or(4096),
            flags: 0,
        })
    }

    fn open_file(&self, id: u64) -> Result<FileHandle, Errno> {
        let node = self.mirror.node(id)?;
        // The file may have been replaced by a link, or by a pipe without a writer, whose open
        // would block.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let path = self.mirror.outside(&node.path);
        let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
        if !self.mirror.is(&file.metadata()?, node.inode) {
            return Err(Errno::ESTALE);
        }
        Ok(self.files.add(file))
    }

    fn read_file(&self, handle: FileHandle, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let file = self.files.get(handle)?;
        let mut data = vec![0; size as usize];
        let mut len = 0;
        while len < data.len() {
            match file.read_at(&mut data[len..], offset + len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        data.truncate(len);
        Ok(data)
    }

    fn attributes_of(&self, id: u64, handle: Option<FileHandle>) -> Result<FileAttr, Errno> {
        // An open file has attributes, even if its name is gone.
        let open = handle.and_then(|handle| self.files.get(handle).ok());
        let meta = match open {
            Some(file) => file.metadata()?,
            None => self.mirror.attributes(&*self.mirror.node(id)?)?,
        };
        self.attributes(&meta)
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.mirror.lookup(parent.0, name).and_then(|(meta, path)| {
            let attributes = self.attributes(&meta)?;
            self.mirror.nodes.tell(meta.ino(), &path);
            Ok(attributes)
        });
        match found {
            Ok(attributes) => reply.entry(&self.mirror.entry_timeout, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, id: INodeNo, lookups: u64) {
        self.mirror.nodes.forget(id.0, lookups);
    }

    fn getattr(&self, _: &Request, id: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes_of(id.0, handle) {
            Ok(attributes) => reply.attr(&self.mirror.entry_timeout, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, id: INodeNo, reply: ReplyData) {
        let target =
            self.mirror.node(id.0).and_then(|node| fs::read_link(self.mirror.outside(&node.path)).map_err(Errno::from));
        match target {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, id: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.open_file(id.0) {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_file(handle, offset, size) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.remove(handle);
        reply.ok();
    }

    fn opendir(&self, _: &Request, id: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.mirror.node(id.0).and_then(|node| self.mirror.list(&node)) {
            Ok(listing) => reply.opened(self.listings.add(listing), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listing = match self.listings.get(handle) {
            Ok(listing) => listing,
            Err(error) => return reply.error(error),
        };
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, entry) in listing.iter().enumerate().skip(skip) {
            // The position of the next entry.
            if reply.add(INodeNo(entry.id), at as u64 + 1, entry.kind, &entry.name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.listings.remove(handle);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match rustix::fs::statvfs(self.mirror.outside(b"/")) {
            Ok(s) => reply.statfs(
                s.f_blocks,
                s.f_bfree,
                s.f_bavail,
                s.f_files,
                s.f_ffree,
                u32::try_from(s.f_bsize).unwrap_or(4096),
                u32::try_from(s.f_namemax).unwrap_or(255),
                u32::try_from(s.f_frsize).unwrap_or(4096),
            ),
            Err(error) => reply.error(std::io::Error::from(error).into()),
        }
    }
}
