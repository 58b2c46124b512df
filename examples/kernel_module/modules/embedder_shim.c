// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernel's functions that lowwater needs, for on_lowwater.rs.
#include "../shim.c"
