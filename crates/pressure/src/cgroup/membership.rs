//! `/proc/self/cgroup`: the groups that the process belongs to.
//!
//! Only the two lines that matter for memory are kept. An unknown line is skipped; a malformed one
//! is an error, because a wrong path would lead to another group's limit.

use alloc::string::String;

use crate::text::TextError;

/// The groups of a process that matter for memory.
///
/// ```
/// use lowwater_pressure::cgroup::Membership;
///
/// let both = Membership::parse("4:memory,cpu:/shop\n0::/system.slice/shop.service\n")?;
/// assert_eq!(both.v1_memory.as_deref(), Some("/shop"));
/// assert_eq!(both.v2.as_deref(), Some("/system.slice/shop.service"));
/// # Ok::<(), lowwater_pressure::TextError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The path of the group in the unified hierarchy (v2), if there is one.
    pub v2: Option<String>,
    /// The path of the group in the v1 hierarchy with the memory controller, if there is one.
    pub v1_memory: Option<String>,
}

impl Membership {
    /// Parses the text of `/proc/self/cgroup`: lines of `number:controllers:path`.
    ///
    /// # Errors
    ///
    /// [`TextError`] for a line that does not have the three fields, or whose path does not begin
    /// with `/`.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut membership = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let mut fields = line.splitn(3, ':');
            let (Some(number), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
                return Err(TextError::new("hierarchy", line, "number:controllers:path"));
            };
            if !path.starts_with('/') {
                return Err(TextError::new("path", path, "a path that begins with \"/\""));
            }
            // The kernel's mark of a group that was removed; its files are gone.
            let path = path.strip_suffix(" (deleted)").unwrap_or(path);
            if number == "0" && controllers.is_empty() {
                membership.v2 = Some(path.into());
            } else if controllers.split(',').any(|controller| controller == "memory") {
                membership.v1_memory = Some(path.into());
            }
        }
        Ok(membership)
    }
}
