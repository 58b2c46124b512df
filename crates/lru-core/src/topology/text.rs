//! Parsers for the two text formats in which Linux reports a topology: lists of numbers, and lines
//! of distances.
//!
//! Pure functions from text to values, so that tests can run on any input and any system.
//!
//! A change must ensure that malformed text is an error and never a partial result. The accepted
//! format is what Linux prints; besides it only white space around a list and between distances,
//! leading zeros, and a plus sign before a distance.

use alloc::vec::Vec;

/// The exclusive upper bound of the numbers in a list. Linux is built for 8,192 processors at most.
pub const LIST_END: usize = 1 << 16;

/// The reason why a text is malformed, or the texts of all nodes contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A part between commas is neither a number nor a range.
    #[error("not a list of numbers and ranges such as 0-3,8,10-11")]
    NotAList,
    /// A range ends before it begins, or does not begin after the end of the previous one.
    #[error("the numbers of a list must ascend")]
    NotAscending,
    /// A number is [`LIST_END`] or higher.
    #[error("a list may name numbers below {LIST_END}")]
    TooHigh,
    /// The text is not a sequence of numbers separated by blanks.
    #[error("not a line of distances such as 10 21")]
    NotDistances,
    /// The number of distances is not the number of nodes.
    #[error("there must be one distance for each node that is online")]
    WrongLength,
    /// No node is online.
    #[error("at least one node must be online")]
    NoNode,
    /// A processor is listed on two nodes.
    #[error("a processor can be on one node only")]
    OnTwoNodes,
}

/// Parses a list as in `cpulist` files: `0-3,8,10-11`. An empty text is an empty list.
///
/// # Errors
///
/// [`TextError`] if the text is not in the format that Linux writes.
///
/// ```
/// use lowwater_lru_core::topology::parse_list;
/// assert_eq!(parse_list("0-2,8\n").unwrap(), [0, 1, 2, 8]);
/// assert!(parse_list("0-2,1").is_err());
/// ```
#[doc(alias = "cpulist_parse")]
pub fn parse_list(text: &str) -> Result<Vec<usize>, TextError> {
    let text = text.trim_ascii();
    let mut list = Vec::new();
    if text.is_empty() {
        return Ok(list);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last || list.last().is_some_and(|before| *before >= first) {
            return Err(TextError::NotAscending);
        }
        list.extend(first..=last);
    }
    Ok(list)
}

fn number(text: &str) -> Result<usize, TextError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(TextError::NotAList);
    }
    // A string of digits that does not parse is out of range.
    text.parse().ok().filter(|n| *n < LIST_END).ok_or(TextError::TooHigh)
}

/// Parses a line as in a node's `distance` file: the distances to the `nodes` online nodes, in
/// their order.
///
/// # Errors
///
/// [`TextError::NotDistances`], [`TextError::WrongLength`].
pub fn parse_distances(text: &str, nodes: usize) -> Result<Vec<u32>, TextError> {
    let distances = text.split_ascii_whitespace().map(|d| d.parse().map_err(|_| TextError::NotDistances));
    let distances = distances.collect::<Result<Vec<u32>, _>>()?;
    if distances.len() == nodes {
        Ok(distances)
    } else {
        Err(TextError::WrongLength)
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::string::String;
    use proptest::prelude::*;

    #[test]
    fn valid_lists_are_parsed() {
        assert_eq!(parse_list(""), Ok(Vec::new()));
        assert_eq!(parse_list("\n"), Ok(Vec::new()));
        assert_eq!(parse_list("0\n"), Ok(alloc::vec![0]));
        assert_eq!(parse_list("0-3,8,10-11\n"), Ok(alloc::vec![0, 1, 2, 3, 8, 10, 11]));
    }

    #[test]
    fn malformed_lists_are_refused() {
        for text in ["x", "1,", ",1", "1-", "-1", "1--2", "0x1", "+1", "1 2", "1;2", "0-31:2/4", "all"] {
            assert_eq!(parse_list(text), Err(TextError::NotAList), "{text:?}");
        }
        for text in ["3-1", "1,1", "0-4,4", "5,1"] {
            assert_eq!(parse_list(text), Err(TextError::NotAscending), "{text:?}");
        }
        for text in ["65536", "0-99999999999999999999999", "0-4294967295"] {
            assert_eq!(parse_list(text), Err(TextError::TooHigh), "{text:?}");
        }
    }

    #[test]
    fn distances_are_one_for_each_node() {
        assert_eq!(parse_distances("10 21\n", 2), Ok(alloc::vec![10, 21]));
        assert_eq!(parse_distances("10 21\n", 3), Err(TextError::WrongLength));
        assert_eq!(parse_distances("10 x\n", 2), Err(TextError::NotDistances));
        assert_eq!(parse_distances("10 -1\n", 2), Err(TextError::NotDistances));
    }

    /// Formats a list as the kernel does.
    fn written(set: &BTreeSet<usize>) -> String {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for n in set {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == *n => *last = *n,
                _ => runs.push((*n, *n)),
            }
        }
        let run = |(a, b): &(usize, usize)| if a == b { format!("{a}") } else { format!("{a}-{b}") };
        runs.iter().map(run).collect::<Vec<_>>().join(",")
    }

    proptest! {
        #[test]
        fn formatted_lists_parse_to_the_same_numbers(set in prop::collection::btree_set(0..300_usize, 0..40)) {
            prop_assert_eq!(parse_list(&written(&set)), Ok(set.into_iter().collect()));
        }

        #[test]
        fn parsed_lists_always_ascend(text in "[0-9,\\- \\n]{0,24}") {
            if let Ok(list) = parse_list(&text) {
                prop_assert!(list.is_sorted_by(|a, b| a < b));
                prop_assert!(list.iter().all(|n| *n < LIST_END));
            }
        }
    }
}
