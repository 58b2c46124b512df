//! `/proc/self/cgroup`: which groups the process is in.

use alloc::string::String;

use crate::text::TextError;

/// The groups of a process, as far as memory is concerned.
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
    /// Its group in the unified hierarchy.
    pub v2: Option<String>,
    /// Its group in the v1 hierarchy that has the memory controller, if one has.
    pub v1_memory: Option<String>,
}

impl Membership {
    /// Reads the text of `/proc/self/cgroup`: lines of `number:controllers:path`.
    ///
    /// # Errors
    ///
    /// [`TextError`] for a line that does not have the three fields.
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
            // A group that was removed while the process is still in it; its files are gone.
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
