//! Rights to reload an entry, which steps keep and use later.
//!
//! A `Refresh` holds a handle on its cache, so a program must drop all of them before its end.

use lowwater::cache::{Lifetime, Origin, Refresh};

use crate::callback::{self, enter, Callback};
use crate::key::{Hashing, Key};
use crate::token::Tag;
use crate::value::Value;

/// How a reload ends.
#[derive(Clone, Copy, Debug)]
pub enum ReloadForm {
    Load,
    TryLoad,
    Fill,
    Fails,
    Dropped,
    /// As a future that is dropped while it is pending; without the feature `async` it is dropped.
    Pending,
}

/// The right to reload an entry of a cache of any type.
pub trait AnyReload: Send {
    /// Reloads the entry with the value of the tag. Returns the origin, if the form has one.
    fn end(self: Box<Self>, tag: Tag, form: ReloadForm) -> Option<Origin>;
}

impl<K: Key, V: Value> AnyReload for Refresh<K, V, Hashing> {
    fn end(self: Box<Self>, tag: Tag, form: ReloadForm) -> Option<Origin> {
        let load = || {
            callback::loading(|| enter(Callback::Loader));
            V::of(tag)
        };
        let value = match form {
            // The cache's own time, as without a choice.
            ReloadForm::Load => self.lifetime(Lifetime::Unchanged).load_with(load),
            ReloadForm::TryLoad => self.try_load_with(|| Ok::<_, ()>(load())).ok()?,
            ReloadForm::Fill => {
                let filled = self.try_fill_with(|| Ok::<_, ()>(load())).ok()?;
                callback::in_own_code(|| drop(filled.value));
                return Some(filled.origin);
            }
            ReloadForm::Fails => {
                let _failed = self.try_load_with(|| Err(load()));
                return None;
            }
            ReloadForm::Dropped => return None,
            #[cfg(feature = "async")]
            ReloadForm::Pending => {
                let mut future = Box::pin(self.load_with_async(std::future::pending()));
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                let _pending = std::future::Future::poll(future.as_mut(), &mut context);
                return None;
            }
            #[cfg(not(feature = "async"))]
            ReloadForm::Pending => return None,
        };
        callback::in_own_code(|| drop(value));
        None
    }
}

/// A right that is kept, and the entry as it was found.
pub struct Kept {
    pub cache: u32,
    pub key: u32,
    pub version: u32,
    /// The number of the key's removals by calls, in the model.
    pub removals: u32,
    pub reload: Box<dyn AnyReload>,
}
