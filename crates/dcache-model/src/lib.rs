//! A dentry cache in user space, to try out how negative entries can be bounded.
//!
//! A file system's name cache keeps *negative* entries too: names that were looked up and are not there. They save a trip to the disk,
//! and nothing bounds their number; a program that asks for ever new names fills memory with them. This crate is to become a faithful
//! model of such a cache on lowwater's lists and shrinkers, on which bounds can be compared: none, three in a row, so many a directory,
//! and a share of the group on probation.
//!
//! What is here today is the first thing such a cache is made of:
//!
//! * [`Name`]: one component of a path, valid by construction, short ones without an allocation, hashed together with the directory it
//!   is in.
//!
//! What is to come, in the order in which a lookup meets it: the hash table and its lookup, dentries and their counts, the tree of
//! directories, the lists of unused and of negative entries, the shrinker of a superblock, and the walks that must not be held up. None
//! of it is promised by this version.

#![forbid(unsafe_code)]

mod name;

pub use name::{Name, NameError};
