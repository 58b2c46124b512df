//! `/proc/self/mountinfo`: the mount points of the control group hierarchies.
//!
//! A container sees a part of the hierarchy at its mount point, so the mount's root must be removed
//! from the path of the process's group. Several mounts may show different parts of one hierarchy:
//! the nearest one has the group's directory, and the others have ancestors that it does not show.
//! A change must ensure that no resulting directory is outside of its mount (`fuzz` checks it).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Membership;
use crate::text::TextError;

/// The two kinds of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller; only that of the memory controller is used here.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The version of the hierarchy.
    pub version: Version,
    /// The group that is visible at the mount point: `/`, except in the view of a container.
    pub root: String,
    /// The path of the directory at which the hierarchy is mounted.
    pub point: String,
}

impl Mount {
    /// Parses the text of `/proc/self/mountinfo`. Returns the mounts of the v2 hierarchy, and of
    /// that of v1 with the memory controller. Leaves out mounts that another mount hides, of
    /// whatever file system.
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
    /// [`TextError`] for a line that lacks required fields.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, TextError> {
        let lines = text.lines().filter(|line| !line.is_empty());
        let lines = lines.map(Line::parse).collect::<Result<Vec<_>, _>>()?;
        let mount = |(at, line): (usize, &Line<'_>)| {
            let version = line.version.filter(|_| !is_hidden(&lines, at))?;
            Some(Self { version, root: unescape(line.root), point: unescape(line.point) })
        };
        Ok(lines.iter().enumerate().filter_map(mount).collect())
    }

    /// Returns the mount point, without a slash at the end.
    fn top(&self) -> &str {
        self.point.trim_end_matches('/')
    }

    /// Returns the directories from the group with the path `rest` below the root up to the root.
    fn directories(&self, rest: &str) -> impl Iterator<Item = String> {
        let top = self.top();
        let directory = match rest.trim_matches('/') {
            "" => String::from(top),
            rest => format!("{top}/{rest}"),
        };
        let len = top.len();
        core::iter::successors(Some(directory), move |this| {
            (this.len() > len).then(|| this.rfind('/').map(|at| String::from(&this[..at]))).flatten()
        })
    }
}

/// A line of `/proc/self/mountinfo`, with its escapes.
struct Line<'a> {
    id: &'a str,
    /// The id of the mount on which this one is mounted; for the process's root one without a line.
    parent: &'a str,
    root: &'a str,
    point: &'a str,
    /// `None` for other file systems, and for v1 without the memory controller.
    version: Option<Version>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Result<Self, TextError> {
        // number parent device root point options [tags..] - type source file-system-options
        let wrong = || TextError::new("mount", line, "the fields of mountinfo, with \" - \" before the type");
        let (mount, file_system) = line.split_once(" - ").ok_or_else(wrong)?;
        let mut mount = mount.split(' ');
        let mut field = |skipped| mount.nth(skipped).ok_or_else(wrong);
        let (id, parent, root, point) = (field(0)?, field(0)?, field(1)?, field(0)?);
        let mut file_system = file_system.split(' ');
        let version = match (file_system.next().ok_or_else(wrong)?, file_system.nth(1)) {
            ("cgroup2", _) => Some(Version::V2),
            ("cgroup", Some(options)) if options.split(',').any(|option| option == "memory") => Some(Version::V1),
            _ => None,
        };
        Ok(Self { id, parent, root, point, version })
    }
}

/// Returns whether a path walk to the mount point of `lines[at]` ends in another mount: one that is
/// mounted on it, or that covers a directory on the way. The order of the lines does not tell: the
/// root's line may follow those of mounts below it, if the root was moved to its place.
fn is_hidden(lines: &[Line<'_>], at: usize) -> bool {
    let (mut at, mut this) = (at, &lines[at]);
    if lines.iter().enumerate().any(|(n, on)| n != at && on.parent == this.id && on.point == this.point) {
        return true;
    }
    // From the mount up to the process's root. Bounded, as a malformed text may have a cycle.
    for _ in lines {
        // On the same mount. If it had been there before this one, this one would be on it.
        let covers = |(n, other): (usize, &Line<'_>)| {
            let rest = other.point.len();
            let is_above = this.point.starts_with(other.point) && this.point[rest..].starts_with('/');
            other.parent == this.parent && (is_above || (n > at && other.point == this.point))
        };
        if lines.iter().enumerate().any(covers) {
            return true;
        }
        let Some(above) = lines.iter().position(|line| line.id == this.parent) else { return false };
        (at, this) = (above, &lines[above]);
    }
    false
}

/// The directory of a group, and those of the visible groups above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupPath {
    version: Version,
    top: String,
    /// The directory of the group, and those of its visible ancestors, from the lowest to the
    /// highest.
    upwards: Vec<String>,
}

impl CgroupPath {
    /// Finds the directory of the process's group in the hierarchy of this version; `None` if the
    /// process has no such group, no such hierarchy is mounted, or its mounts show the group at an
    /// unknown place: in a container with a cgroup namespace and the mount of its host.
    ///
    /// In a container without a cgroup namespace the mount shows a part of the hierarchy, while the
    /// path of the group is relative to the whole one: then the mount's root is removed from the
    /// path. A group outside of the visible part is represented by the top of that part: if any
    /// visible limit applies to the group, the limits of the top do.
    ///
    /// Of several mounts that contain a group, the one with the longest root has its directory, and
    /// of several with this root the first: later ones are usually copies, for example in a
    /// directory that this process may not read. The groups above that root are found in the same
    /// way in the other mounts.
    pub fn find(membership: &Membership, mounts: &[Mount], version: Version) -> Option<Self> {
        Self::locate(membership, mounts, version).ok().flatten()
    }

    /// As [`find`](Self::find). The error is a mount that shows the group at an unknown place.
    pub(super) fn locate<'a>(
        membership: &Membership,
        mounts: &'a [Mount],
        version: Version,
    ) -> Result<Option<Self>, &'a Mount> {
        let path = match version {
            Version::V1 => membership.v1_memory.as_deref(),
            Version::V2 => membership.v2.as_deref(),
        };
        let Some(path) = path else { return Ok(None) };
        // The last ones first: of equal roots, `max_by_key` returns the one that it meets last.
        let mounts: Vec<_> = mounts.iter().rev().filter(|mount| mount.version == version).collect();
        let found = nearest(&mounts, path);
        if let (None, Some(above)) = (found, mounts.iter().find(|mount| is_above(&mount.root, path))) {
            return Err(above);
        }
        let longest = || mounts.iter().max_by_key(|mount| mount.root.len()).map(|mount| (*mount, ""));
        let Some((mount, rest)) = found.or_else(longest) else { return Ok(None) };
        let top = String::from(mount.top());
        let (mut upwards, mut next) = (Vec::new(), Some((mount, rest)));
        while let Some((mount, rest)) = next {
            upwards.extend(mount.directories(rest));
            next = parent(&mount.root).and_then(|path| nearest(&mounts, path));
        }
        Ok(Some(Self { version, top, upwards }))
    }

    /// Returns the version of the hierarchy to which the group belongs.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the path of the group's directory, without a slash at the end.
    pub fn directory(&self) -> &str {
        &self.upwards[0]
    }

    /// Returns the path of the topmost directory of the mount that shows the group: the mount
    /// point, without a slash at the end.
    pub fn top(&self) -> &str {
        &self.top
    }

    /// Returns the directories of the group and of all visible groups above it, in this order. The
    /// last ones may be of other mounts than the first.
    pub fn upwards(&self) -> impl Iterator<Item = &str> + '_ {
        self.upwards.iter().map(String::as_str)
    }
}

/// Returns the mount that contains the group `path`, of several the last one with the longest root,
/// and the part of `path` below that root.
fn nearest<'a>(mounts: &[&'a Mount], path: &'a str) -> Option<(&'a Mount, &'a str)> {
    let containing = mounts.iter().filter_map(|mount| Some((*mount, below(path, &mount.root)?)));
    containing.max_by_key(|(mount, _)| mount.root.len())
}

/// Returns the path of the group above `root`; `None` if `root` is the root of the hierarchy, or of
/// a part whose parent has no known name.
fn parent(root: &str) -> Option<&str> {
    let (parent, name) = root.trim_end_matches('/').rsplit_once('/')?;
    (name != "..").then_some(parent)
}

/// Returns whether `root` is a group above the namespace's root, as `/../..`, and above `path` by
/// names that are not known: `path` climbs less far.
fn is_above(root: &str, path: &str) -> bool {
    let climbs = |path: &str| path.split('/').filter(|name| !name.is_empty()).take_while(|name| *name == "..").count();
    let is_climb = root.split('/').all(|name| name.is_empty() || name == "..");
    is_climb && climbs(path) < climbs(root)
}

/// Returns the part of `path` below `root`, empty if both are equal; `None` if `path` is outside of
/// `root`, or has a `..` below it.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    let whole_names = rest.is_empty() || rest.starts_with('/');
    let climbs = rest.split('/').any(|name| name == "..");
    (whole_names && !climbs).then_some(rest)
}

/// Decodes octal escapes of ASCII characters, as `\040` for a space. Other backslashes stay.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        // `from_str_radix` accepts a sign.
        let digits = rest.get(at + 1..at + 4).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let escaped = digits.and_then(|octal| u8::from_str_radix(octal, 8).ok());
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
