//! The limits of a tenant's connections: requests and bytes per second, their number, and the
//! commands that are denied.
//!
//! These limits are fields of the tenant's line in `--config` and of `tenant set`, beside the
//! limits of the tenant's memory. A change must ensure that a printed field can be read again.

use lowwater::ByteSize;

use crate::protocol::command_set::CommandSet;

/// The limits of a tenant's connections, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficLimits {
    /// Requests per second; `None`: no limit.
    pub requests: Option<u64>,
    /// Bytes per second, received and sent; [`ByteSize::MAX`]: no limit.
    pub bandwidth: ByteSize,
    /// Open connections; `None`: no limit.
    pub connections: Option<u64>,
    /// Commands that are refused.
    pub deny: CommandSet,
}

/// A limit as it is printed: `max` for none.
struct Shown(Option<u64>);

impl Default for TrafficLimits {
    fn default() -> Self {
        Self { requests: None, bandwidth: ByteSize::MAX, connections: None, deny: CommandSet::default() }
    }
}

impl TrafficLimits {
    /// Sets the limit `kind` to `amount`, and returns whether there is a limit of this kind.
    ///
    /// # Errors
    ///
    /// A sentence, if `amount` is not valid for this limit.
    pub fn set(&mut self, kind: &str, amount: &str) -> Result<bool, String> {
        match kind {
            "requests" => self.requests = count(amount)?,
            "connections" => self.connections = count(amount)?,
            "bandwidth" => {
                let bandwidth = amount.parse::<ByteSize>().map_err(|why| why.to_string())?;
                if bandwidth == ByteSize::ZERO {
                    return Err("at least 1; deny= keeps a tenant from commands".to_owned());
                }
                self.bandwidth = bandwidth;
            }
            "deny" => self.deny = CommandSet::parse(amount)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parses a number of at least 1; `max`: no limit.
fn count(text: &str) -> Result<Option<u64>, String> {
    match text {
        "max" => Ok(None),
        _ => match text.parse() {
            Ok(0) | Err(_) => Err("a number of at least 1, or max".to_owned()),
            Ok(number) => Ok(Some(number)),
        },
    }
}

/// The fields, as [`TrafficLimits::set`] reads them.
impl std::fmt::Display for TrafficLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { requests, bandwidth, connections, deny } = self;
        let (requests, connections) = (Shown(*requests), Shown(*connections));
        write!(f, "requests={requests} bandwidth={bandwidth} connections={connections} deny={deny}")
    }
}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(number) => number.fmt(f),
            None => f.write_str("max"),
        }
    }
}
