//! Guaranteed memory: the `min` limits of all tenants together must leave room in the budget.
//!
//! Usage up to `min` is never reclaimed. If all tenants' `min` took the whole budget, a store into
//! the full server would find nothing to evict, wait, and fail. So the sum must be less than the
//! budget by the charge of one item of the largest size: in a full server at least that many bytes
//! are beyond their tenants' `min`, and can be evicted. The charge is about a hundredth more than
//! the bytes that `-I` bounds.
//!
//! So each store beside the highest sum is accepted, but no more is promised for its value: the
//! reclaimer keeps up to a 64th of the budget free (`store/runtime.rs`), and evicts it within
//! moments if nothing else is beyond a `min`. Such values stay while all values together are at
//! most 63/64 of the budget.

use lowwater::ByteSize;

/// Returns the sum of `min` limits. It has more bits than a limit: each limit can be subtracted
/// from it again.
pub fn sum(mins: impl IntoIterator<Item = ByteSize>) -> u128 {
    mins.into_iter().map(|min| u128::from(min.get())).sum()
}

/// Checks the sum of all `min` limits against a budget. `charge_max` is the charge of the largest
/// item.
///
/// # Errors
///
/// A sentence with the sum and the budget.
pub fn check(sum: u128, budget: ByteSize, charge_max: ByteSize) -> Result<(), String> {
    if sum == 0 || sum + u128::from(charge_max.get()) <= u128::from(budget.get()) {
        return Ok(());
    }
    let (budget, item) = (budget.get(), charge_max.get());
    Err(format!(
        "the min limits of all tenants add up to {sum} bytes; with {item} bytes for the largest item (-I) beside them, \
         that is more than the memory for all tenants, {budget} bytes (-m)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_min_leaves_room_for_one_item() {
        let check =
            |mins: &[u64]| check(sum(mins.iter().map(|mib| ByteSize::mib(*mib))), ByteSize::mib(64), ByteSize::mib(1));
        for mins in [&[][..], &[0, 0], &[63], &[32, 31], &[0, 63]] {
            assert_eq!(check(mins), Ok(()), "{mins:?}");
        }
        for mins in [&[64][..], &[80], &[40, 40], &[32, 32], &[63, 1], &[1 << 40, 1 << 40]] {
            assert!(check(mins).unwrap_err().contains("67108864 bytes (-m)"), "{mins:?}");
        }
        assert!(check(&[40, 40]).unwrap_err().contains("add up to 83886080 bytes"));
    }
}
