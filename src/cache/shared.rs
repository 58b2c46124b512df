//! The pointer of a cache's handles to their shared state, without bounds on its type parameters.
//!
//! The state needs keys and values that are `Send`, `Sync` and `'static`. A typed pointer would
//! demand these bounds of every struct that holds a `Cache`.
//!
//! A change must ensure that the marker needs no bounds, and that it is invariant in its
//! parameters.

use std::marker::PhantomData;

use lowwater_base::erased_arc::{ErasedArc, HasState};

use super::inner::CacheInner;

/// A handle's counted pointer to a `CacheInner<K, V, S>`.
pub(super) type SharedInner<K, V, S> = ErasedArc<InnerMarker<K, V, S>>;

/// The marker for `CacheInner<K, V, S>`, which exists for all parameters.
pub(super) struct InnerMarker<K, V, S>(Invariant<K>, Invariant<V>, Invariant<S>);

/// A phantom that is invariant in its parameter.
type Invariant<T> = PhantomData<fn(T) -> T>;

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> HasState for InnerMarker<K, V, S> {
    type State = CacheInner<K, V, S>;
}
