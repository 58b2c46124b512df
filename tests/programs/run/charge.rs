//! Steps on charges: plain ones, guards, and values with a charge.
//!
//! A guard knows its bytes, so each result is compared with the sum that the step computes.
//!
//! A change must ensure that a charge is dropped or counted as leaked before the program's last
//! check.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

use lowwater::runtime::ChargeError;
use lowwater::{ByteSize, Charge, Charged};

use super::runtime::{captured, tree_group};
use crate::callback::is_inside;
use crate::step::Step;
use crate::token::fail;
use crate::world::World;

/// Fails if a charge was refused although the whole budget is free.
fn refused(world: &World, what: &str) {
    if world.is_alone() && !is_inside() && !world.model.lock().unwrap().is_lossy {
        fail(&format!("{what} is refused though there is room"));
    }
}

fn expect(charge: &Charge, bytes: ByteSize, after: &str) {
    if charge.bytes() != bytes {
        fail(&format!("a charge has {} bytes after {after}, expected {bytes}", charge.bytes()));
    }
}

/// Runs a step on charges.
pub fn charges(world: &Arc<World>, step: &Step) {
    match step {
        Step::Charge(group, bytes) => {
            let Some(runtime) = world.runtime() else { return };
            let (group, bytes) = (tree_group(world, *group), ByteSize::new((*bytes).into()));
            // If a callback panics, no charge is noted: the library must not have charged then.
            match runtime.charge(&group, bytes) {
                Ok(()) => world.charges.lock().unwrap().push((group, bytes)),
                Err(over) if over.requested != bytes => fail("another size was refused than requested"),
                Err(_) => refused(world, "a charge"),
            }
        }
        Step::Uncharge => {
            let charge = world.charges.lock().unwrap().pop();
            if let Some((group, bytes)) = charge {
                group.uncharge(bytes);
            }
        }
        Step::TryCharge(group, how, bytes) => {
            let (group, bytes) = (tree_group(world, *group), ByteSize::new((*bytes).into()));
            let charged = match how {
                0 => group.try_charge(bytes).map(|_| true),
                1 => group.try_charge_exactly(bytes).map(|_| true),
                2 => group.try_charge_with_stock(bytes, bytes * 3).map(|_| true),
                _ => Ok(group.try_charge_from_stock(bytes)),
            };
            match charged {
                Ok(true) => world.charges.lock().unwrap().push((group, bytes)),
                Ok(false) => {}
                Err(over) if over.memcg.max() >= over.memcg.usage() + bytes && world.is_alone() && !is_inside() => {
                    refused(world, "a charge without reclaim");
                }
                Err(_) => {}
            }
        }
        Step::Guard(group, bytes) => {
            let Some(runtime) = world.runtime() else { return };
            let (group, bytes) = (world.group(*group), ByteSize::new((*bytes).into()));
            world.guarded.fetch_add(bytes.get(), SeqCst);
            let is_foreign = !group.is_in_tree_of(&world.root);
            match runtime.charge_guard(&group, bytes) {
                Ok(charge) => {
                    expect(&charge, bytes, "its creation");
                    if is_foreign || charge.group() != &group {
                        fail("a charge of another group");
                    }
                    world.guards.lock().unwrap().push(charge);
                }
                Err(ChargeError::ForeignGroup { .. }) if is_foreign => {}
                Err(ChargeError::OverLimit(_)) if !is_foreign => refused(world, "a guard"),
                Err(error) => fail(&format!("a charge has failed: {error}")),
            }
        }
        Step::Resize(how, bytes) => {
            let Some(runtime) = world.runtime() else { return };
            let charge = world.guards.lock().unwrap().pop();
            let Some(mut charge) = charge else { return };
            let (before, bytes) = (charge.bytes(), ByteSize::new((*bytes).into()));
            world.guarded.fetch_add(bytes.get(), SeqCst);
            match how {
                0 | 1 => {
                    let (grown, after) = match how {
                        0 => (charge.grow(&runtime, bytes), before + bytes),
                        _ => (charge.resize(&runtime, bytes), bytes),
                    };
                    if grown.is_err() {
                        refused(world, "the growth of a guard");
                    }
                    expect(&charge, if grown.is_ok() { after } else { before }, "a change of its size");
                }
                2 => {
                    let less = charge.shrink(bytes);
                    if less != bytes.min(before) {
                        fail(&format!("{less} bytes of {before} were uncharged, not {bytes}"));
                    }
                    expect(&charge, before - less, "it has shrunk");
                }
                _ => {
                    let part = charge.split(bytes);
                    if part.is_some() != (bytes <= before) {
                        fail(&format!("a charge of {before} bytes was split at {bytes}: {part:?}"));
                    }
                    if let Some(part) = part {
                        expect(&part, bytes, "its split");
                        expect(&charge, before - bytes, "a split");
                        world.guards.lock().unwrap().push(part);
                    }
                }
            }
            world.guards.lock().unwrap().push(charge);
        }
        Step::DropGuard => {
            let charge = world.guards.lock().unwrap().pop();
            drop(charge);
        }
        Step::LeakGuard => {
            let charge = world.guards.lock().unwrap().pop();
            if let Some(charge) = charge {
                world.leaked.fetch_add(charge.bytes().get(), SeqCst);
                std::mem::forget(charge);
            }
        }
        // A value takes a guard, or the last value is cloned.
        Step::Charged => {
            let charge = world.guards.lock().unwrap().pop();
            let value = match charge {
                Some(charge) => {
                    let bytes = charge.bytes();
                    let value = Charged::new(captured(), charge);
                    if Charged::held_bytes(&value) != bytes {
                        fail("a value holds other bytes than its charge");
                    }
                    Some(value)
                }
                None => {
                    let last = world.charged.lock().unwrap().last().cloned();
                    last.inspect(|clone| {
                        clone.check("a clone of a charged value");
                        clone.as_ref().check("a clone of a charged value");
                        let last = world.charged.lock().unwrap().last().cloned();
                        let is_same = last.as_ref().is_some_and(|last| Charged::ptr_eq(clone, last));
                        drop(last);
                        if !is_same && world.is_alone() && !is_inside() {
                            fail("a clone is another value");
                        }
                    })
                }
            };
            if let Some(value) = value {
                world.charged.lock().unwrap().push(value);
            }
        }
        Step::DropCharged => {
            let value = world.charged.lock().unwrap().pop();
            value.as_ref().inspect(|value| value.check("a charged value is dropped"));
            drop(value);
        }
        _ => unreachable!("{step:?}"),
    }
}
