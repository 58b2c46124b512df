//! Values.
//!
//! Values differ in size, ownership and `Drop`. Each has the tag of the key and cache for which it
//! was made, by which the test detects that a lookup returns another key's value. A change must
//! keep that tag.

use std::sync::Arc;

use lowwater::Charged;

use crate::callback::{enter, Callback};
use crate::token::{fail, Tag, Token};

/// A value with a tag.
pub trait Value: Clone + Send + Sync + 'static {
    fn of(tag: Tag) -> Self;
    fn tag(&self) -> Tag;
}

/// A value that owns memory. Its `Clone` and `Drop` are callbacks.
#[derive(Debug)]
pub struct Owning(Token);

impl Clone for Owning {
    fn clone(&self) -> Self {
        enter(Callback::ValueClone);
        Self(self.0.copy())
    }
}

impl Value for Owning {
    fn of(tag: Tag) -> Self {
        Self(Token::new(tag, Callback::ValueDrop))
    }
    fn tag(&self) -> Tag {
        self.0.tag()
    }
}

impl Value for Arc<Token> {
    fn of(tag: Tag) -> Self {
        Arc::new(Token::new(tag, Callback::SharedDrop))
    }
    fn tag(&self) -> Tag {
        Token::tag(self)
    }
}

impl Value for Charged<Token> {
    fn of(tag: Tag) -> Self {
        Self::from(Token::new(tag, Callback::SharedDrop))
    }
    fn tag(&self) -> Tag {
        Token::tag(self)
    }
}

/// A large value: its token lies behind a kilobyte.
#[derive(Clone, Debug)]
pub struct Large {
    filled: [u8; 1000],
    owning: Owning,
}

impl Value for Large {
    fn of(tag: Tag) -> Self {
        Self { filled: [tag.key as u8; 1000], owning: Owning::of(tag) }
    }
    fn tag(&self) -> Tag {
        let tag = self.owning.tag();
        if self.filled.iter().any(|&byte| byte != tag.key as u8) {
            fail(&format!("a large value of {tag:?} is torn"));
        }
        tag
    }
}

/// A value without a `Drop`, with a check sum instead of a token.
#[derive(Clone, Copy, Debug)]
pub struct Plain([u32; 4]);

impl Value for Plain {
    fn of(Tag { home, key, version }: Tag) -> Self {
        Self([home, key, version, home ^ key ^ version ^ 0xC0DE])
    }
    fn tag(&self) -> Tag {
        let [home, key, version, check] = self.0;
        if check != home ^ key ^ version ^ 0xC0DE {
            fail(&format!("a plain value is torn: {:x?}", self.0));
        }
        Tag { home, key, version }
    }
}
