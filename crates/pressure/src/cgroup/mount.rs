//! `/proc/self/mountinfo`: where the groups' files are.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Membership;
use crate::text::TextError;

/// The two kinds of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy a controller; only the memory controller's matters here.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its version.
    pub version: Version,
    /// Which of its groups is at the mount point: `/`, unless it is a container's view.
    pub root: String,
    /// Where.
    pub point: String,
}

impl Mount {
    /// Reads the text of `/proc/self/mountinfo` and keeps the hierarchies that matter: v2, and v1's with the memory controller.
    ///
    /// ```
    /// use lowwater_pressure::cgroup::{Mount, Version};
    ///
    /// let text = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    /// let mounts = Mount::parse_all(text)?;
    /// assert_eq!((mounts[0].version, &*mounts[0].point), (Version::V2, "/sys/fs/cgroup"));
    /// # Ok::<(), lowwater_pressure::TextError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TextError`] for a line without the fields that every line has.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, TextError> {
        let mut mounts = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            // number parent device root point options [tags..] - type source options-of-the-file-system
            let wrong = || TextError::new("mount", line, "the fields of mountinfo, with \" - \" before the type");
            let (mount, file_system) = line.split_once(" - ").ok_or_else(wrong)?;
            let mut mount = mount.split(' ').skip(3);
            let (root, point) = (mount.next().ok_or_else(wrong)?, mount.next().ok_or_else(wrong)?);
            let mut file_system = file_system.split(' ');
            let version = match (file_system.next().ok_or_else(wrong)?, file_system.nth(1)) {
                ("cgroup2", _) => Version::V2,
                ("cgroup", Some(options)) if options.split(',').any(|option| option == "memory") => Version::V1,
                _ => continue,
            };
            mounts.push(Self { version, root: unescape(root), point: unescape(point) });
        }
        Ok(mounts)
    }
}

/// A group's directory, and the one at which its visible path ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupPath {
    version: Version,
    top: String,
    directory: String,
}

impl CgroupPath {
    /// Where the group of this kind is, if there is one that can be seen.
    ///
    /// In a container without a namespace for groups the mount shows a part of the hierarchy, and `path` is from the whole
    /// one; then the mount's root is taken off. A group outside of what can be seen counts as the top of what can: its limits
    /// hold for it, too, if they hold for anything here.
    pub fn find(membership: &Membership, mounts: &[Mount], version: Version) -> Option<Self> {
        let path = match version {
            Version::V1 => membership.v1_memory.as_deref(),
            Version::V2 => membership.v2.as_deref(),
        }?;
        let fitting = mounts.iter().filter(|mount| mount.version == version);
        let (mount, rest) = fitting
            .map(|mount| (mount, below(path, &mount.root)))
            // The mount that shows the group itself, and of several the one that shows least beside it.
            .max_by_key(|(mount, rest)| (rest.is_some(), mount.root.len()))?;
        let top = String::from(mount.point.trim_end_matches('/'));
        let directory = match rest.unwrap_or("").trim_matches('/') {
            "" => top.clone(),
            rest => format!("{top}/{rest}"),
        };
        Some(Self { version, top, directory })
    }

    /// The version of the group.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The directory of the group.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// The directory of the topmost group that can be seen.
    pub fn top(&self) -> &str {
        &self.top
    }

    /// The directories of the group and of all above it, up to the top.
    pub fn upwards(&self) -> impl Iterator<Item = &str> + '_ {
        let mut next = Some(&*self.directory);
        core::iter::from_fn(move || {
            let this = next?;
            next = (this.len() > self.top.len()).then(|| this.rfind('/').map(|at| &this[..at])).flatten();
            Some(this)
        })
    }
}

/// The rest of `path` below `root`; none if it is not below it, or climbs.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    let whole_names = rest.is_empty() || rest.starts_with('/');
    let climbs = rest.split('/').any(|name| name == "..");
    (whole_names && !climbs).then_some(rest)
}

/// Takes back the octal escapes of blanks and backslashes.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let escaped = rest.get(at + 1..at + 4).and_then(|octal| u8::from_str_radix(octal, 8).ok());
        match escaped.filter(u8::is_ascii) {
            Some(byte) => {
                plain.push(byte.into());
                rest = &rest[at + 4..];
            }
            None => {
                plain.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}
