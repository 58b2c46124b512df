//! The hook through which `lifecycle` and `namei` call a policy.
//!
//! A trait object in between keeps `lifecycle` below the policies in the order of modules.
//!
//! A change must ensure that `lifecycle` and `namei` name no policy.

use super::policy::{BoundInputs, NegativePolicy};
use super::trim::NewNegative;
use crate::dcache_core::{DcacheCore, NegativeHook};
use crate::dentry::Dentry;
use crate::superblock::SuperBlock;
use lowwater_base::sync::Arc;

/// A policy as the [`NegativeHook`] of a cache.
pub(crate) struct PolicyHook(pub(crate) std::sync::Arc<dyn NegativePolicy>);

impl NegativeHook for PolicyHook {
    fn negative_added(&self, core: &DcacheCore, sb: &SuperBlock, dentry: &Arc<Dentry>) {
        self.0.negative_added(&NewNegative { core, sb, dentry });
    }

    fn can_keep_removed(&self, core: &DcacheCore, sb: &SuperBlock, dentry: &Arc<Dentry>) -> bool {
        self.0.can_keep_removed(&NewNegative { core, sb, dentry })
    }

    fn bound(&self, core: &DcacheCore, positives: u64, negatives: u64) -> Option<u64> {
        // Each directory that holds negatives holds at least one.
        self.0.bound(BoundInputs { buckets: core.chains.buckets() as u64, positives, directories: negatives })
    }
}
